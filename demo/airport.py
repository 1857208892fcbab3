"""Log the departures of one airport: a producer with its own client. Touches the network.

An airport logs its departures in their order, many at a time. Each transaction names the previous
transaction of the same aircraft. The airport finds it in its *state*: the last transaction of each
aircraft, as far as the airport has read the log. If another airport has logged a flight of the
aircraft meanwhile, the server refuses the lock on the aircraft, and the airport decides again by
the newer state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from demo.fleet import Fleet
from demo.flights import NO_AIRCRAFT, Flight
from waltz import Attempt, Client, Draft


@dataclass(eq=False)
class PartitionState:
    """The state of one partition, and the decisions that wait for a newer state.

    Each element of ``waiting`` is a transaction id, and a future that is set when the state
    includes this transaction.
    """

    fleet: Fleet = field(default_factory=Fleet)
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)

    async def wait_for(self, transaction_id: int) -> None:
        """Return when the state includes all transactions up to ``transaction_id``."""
        if self.fleet.position < transaction_id:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append((transaction_id, future))
            await future

    def resume_waiting(self) -> None:
        """Resume the decisions whose transaction the state includes now."""
        position = self.fleet.position
        for transaction_id, future in self.waiting:
            if transaction_id <= position and not future.done():
                future.set_result(None)
        self.waiting = [(t, future) for t, future in self.waiting if t > position]


class Airport:
    """Logs the departures of one airport.

    ``departures`` are the flights of this airport, each with its number among all flights.
    ``clearance`` takes a departure time and returns a future that is set when a flight at this time
    may be logged; None if it may be logged now. It holds back an airport that is far ahead of the
    others (`demo.timeline`). ``on_logged`` is called with the number of each flight that is in the
    log. ``conflicts`` counts the refused locks.
    """

    def __init__(
        self,
        client: Client,
        departures: list[tuple[int, Flight]],
        clearance: Callable[[int], asyncio.Future[None] | None],
        on_logged: Callable[[int], None],
    ) -> None:
        self.conflicts = 0
        self._client = client
        self._departures = departures
        self._clearance = clearance
        self._on_logged = on_logged
        self._states = [PartitionState() for _ in range(client.num_partitions)]
        self._latest: dict[int, asyncio.Task[None]] = {}
        """For each aircraft, the task that logs its latest departure from this airport."""

    async def work(self) -> None:
        """Log all departures. Raises an ExceptionGroup with groups of waltz.WaltzError."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._follow())
            async with asyncio.TaskGroup() as departing:
                for number, flight in self._departures:
                    clearance = self._clearance(flight.departure)
                    if clearance is not None:
                        await clearance
                    earlier = self._latest.get(flight.aircraft)
                    task = departing.create_task(self._log(number, flight, earlier))
                    if flight.aircraft != NO_AIRCRAFT:
                        self._latest[flight.aircraft] = task
            following.cancel()  # All departures are logged: no decision needs the state any more.

    async def _follow(self) -> None:
        """Apply the log to the states; a transaction's header is the number of its aircraft."""
        after = dict.fromkeys(range(len(self._states)), -1)
        async with self._client.stream(after) as stream:
            async for batch in stream.batches():
                for transaction in batch:
                    state = self._states[transaction.partition]
                    state.fleet.apply(transaction.id, transaction.header)
                for state in self._states:
                    state.resume_waiting()

    async def _log(self, number: int, flight: Flight, earlier: asyncio.Task[None] | None) -> None:
        """Log a flight after the task ``earlier``, which logs the aircraft's previous departure.

        The aircraft's flights must be in the log in the order of their departures.
        """
        if earlier is not None and not earlier.done():
            await earlier
        # Locks and order hold within a partition, so an aircraft has all flights in one.
        partition = flight.aircraft % len(self._states)
        state = self._states[partition]

        async def decide(attempt: Attempt) -> Draft:
            if attempt.conflict is not None:
                # The last attempt was refused. Wait until the state includes the transaction that
                # has taken the lock: by the older state, the next attempt would be refused, too.
                self.conflicts += 1
                await state.wait_for(attempt.conflict)
            fleet = state.fleet
            previous = fleet.last(flight.aircraft)
            return Draft(
                flight.record(previous),
                header=flight.aircraft,
                write_locks=flight.locks(),
                mark=fleet.position,
            )

        await self._client.submit(partition, decide)
        self._on_logged(number)
