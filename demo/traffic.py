"""Append all departures to the log, while a storage is killed and restarted.

Touches the network, kills and starts a process.
"""

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
"""By how much departure time one airport may be ahead of another (see `Timeline`)."""

VICTIM = "storage/1"
"""The storage that is killed."""
_KILL_AT, _RESTART_AT = 0.5, 0.65
"""The shares of the flights that are logged before the storage is killed and restarted."""

Report = Callable[[int, str | None], None]
"""A function that is called with the number of logged flights, and the text of an event or None."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The number of airports, and how often one of them decided again after a refused lock."""

    airports: int
    conflicts: int


class _Tower:
    """Counts logged flights, and permits departures: no airport gets far ahead of the slowest."""

    def __init__(self, flights: list[Flight], report: Report) -> None:
        self.count = 0
        """How many flights are in the log."""
        self._report = report
        self._timeline = Timeline([flight.departure for flight in flights], LEAD_MINUTES)
        self._waiting_departures: list[tuple[int, asyncio.Future[None]]] = []
        """Departure times that may not be logged yet, each with the future of `clearance`."""
        self._waiting_counts: list[tuple[int, asyncio.Future[None]]] = []
        """Counts that are not reached yet, each with the future of `wait_for_count`."""

    def clearance(self, departure: int) -> asyncio.Future[None] | None:
        """Return a future that is set when ``departure`` may be logged; None: it may be now."""
        if self._timeline.may_log(departure):
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_departures.append((departure, future))
        return future

    def logged(self, number: int) -> None:
        """Record that the flight ``number`` is in the log."""
        self.count += 1
        self._report(self.count, None)
        if self._timeline.logged(number) and self._waiting_departures:
            _release(self._waiting_departures, self._timeline.may_log)
        if self._waiting_counts:
            _release(self._waiting_counts, lambda count: count <= self.count)

    async def wait_for_count(self, count: int) -> None:
        """Return when ``count`` flights are in the log."""
        if self.count < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting_counts.append((count, future))
            await future


async def log_all(cluster: LocalCluster, flights: list[Flight], report: Report) -> Traffic:
    """Let each airport log its flights; kill a storage when half of all flights are logged.

    Raises an ExceptionGroup. It contains waltz.local.ProcessFailed if the storage does not start
    again, and the groups that `Airport.work` raises.
    """
    tower = _Tower(flights, report)
    async with AsyncExitStack() as clients, asyncio.TaskGroup() as group:
        airports = []
        for origin in sorted({flight.origin for flight in flights}):
            client = await clients.enter_async_context(
                waltz.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls)
            )
            own = [(i, flight) for i, flight in enumerate(flights) if flight.origin == origin]
            airports.append(Airport(client, own, tower.clearance, tower.logged))
        group.create_task(_inject_fault(cluster, tower, len(flights), report))
        for airport in airports:
            group.create_task(airport.work())
    return Traffic(len(airports), sum(airport.conflicts for airport in airports))


async def _inject_fault(cluster: LocalCluster, tower: _Tower, total: int, report: Report) -> None:
    """Kill a storage and start it again, after certain shares of the ``total`` flights."""
    await tower.wait_for_count(int(total * _KILL_AT))
    cluster.kill(VICTIM)
    report(tower.count, f"{VICTIM} killed (kill -9) after {tower.count:,} flights")
    await tower.wait_for_count(int(total * _RESTART_AT))
    await cluster.start_one(VICTIM)
    report(tower.count, f"{VICTIM} started again after {tower.count:,} flights")


def _release(
    waiting: list[tuple[int, asyncio.Future[None]]], may_release: Callable[[int], bool]
) -> None:
    """Set each future whose number ``may_release`` accepts, and remove it from ``waiting``."""
    for number, future in waiting:
        if may_release(number) and not future.done():
            future.set_result(None)
    waiting[:] = [(number, future) for number, future in waiting if not future.done()]
