"""Append all departures to the log, while a storage is killed and restarted. Network, processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import waltz
from demo.airport import Airport
from demo.flights import Flight
from demo.timeline import Timeline
from waltz.local import LocalCluster

LEAD_MINUTES = 120
"""How far airports may be apart, in the time of the data."""

VICTIM = "storage/1"
_KILL_AT, _RESTART_AT = 0.5, 0.65

Tell = Callable[[int, str | None], None]
"""Called with the number of logged flights, and the text of an event, if there was one."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """How the logging went."""

    airports: int
    conflicts: int
    """The number of lock failures, after which an airport decided again."""


class _Tower:
    """Clears flights for departure, in step with the slowest airport."""

    def __init__(self, flights: list[Flight], tell: Tell) -> None:
        self.count = 0
        self._tell = tell
        self._timeline = Timeline([flight.departure for flight in flights], LEAD_MINUTES)
        self._holding: list[tuple[int, asyncio.Future[None]]] = []
        self._alarms: list[tuple[int, asyncio.Future[None]]] = []

    def clear(self, departure: int) -> asyncio.Future[None] | None:
        """Return the wait before ``departure``, None if it may be logged now."""
        if self._timeline.may_depart(departure):
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holding.append((departure, future))
        return future

    def logged(self, number: int) -> None:
        """A flight is in the log."""
        self.count += 1
        self._tell(self.count, None)
        if self._timeline.logged(number) and self._holding:
            _release(self._holding, self._timeline.may_depart)
        if self._alarms:
            _release(self._alarms, lambda count: count <= self.count)

    async def counts(self, count: int) -> None:
        """Return when ``count`` flights are in the log."""
        if self.count < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._alarms.append((count, future))
            await future


async def log_all(cluster: LocalCluster, flights: list[Flight], tell: Tell) -> Traffic:
    """Log every flight, each by its airport, and kill a storage half-way.

    Raises an ExceptionGroup of waltz.WaltzError and waltz.local.ProcessFailed.
    """
    tower = _Tower(flights, tell)
    async with AsyncExitStack() as clients, asyncio.TaskGroup() as group:
        airports = []
        for origin in sorted({flight.origin for flight in flights}):
            client = await clients.enter_async_context(
                waltz.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls)
            )
            own = [(i, flight) for i, flight in enumerate(flights) if flight.origin == origin]
            airports.append(Airport(client, own, tower.clear, tower.logged))
        group.create_task(_fault(cluster, tower, len(flights), tell))
        for airport in airports:
            group.create_task(airport.work())
    return Traffic(len(airports), sum(airport.conflicts for airport in airports))


async def _fault(cluster: LocalCluster, tower: _Tower, total: int, tell: Tell) -> None:
    await tower.counts(int(total * _KILL_AT))
    cluster.kill(VICTIM)
    tell(tower.count, f"{VICTIM} killed (kill -9) after {tower.count:,} flights")
    await tower.counts(int(total * _RESTART_AT))
    await cluster.start_one(VICTIM)
    tell(tower.count, f"{VICTIM} started again after {tower.count:,} flights")


def _release(
    waiting: list[tuple[int, asyncio.Future[None]]], is_due: Callable[[int], bool]
) -> None:
    """Resume the waits whose number is reached, and keep the others."""
    for number, future in waiting:
        if is_due(number) and not future.done():
            future.set_result(None)
    waiting[:] = [(number, future) for number, future in waiting if not future.done()]
