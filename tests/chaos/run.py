"""One run: a cluster, its clients, the faults, and the checks at the end. Touches everything."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import IO, Any

import waltz
from tests.chaos.checker import Guarantee, Violation, check
from tests.chaos.clients import Workload
from tests.chaos.closures import acknowledged_at, closures, late_openings
from tests.chaos.cluster import PARTITIONS, ChaosCluster, EngineChoice
from tests.chaos.history import Event, Note, encode
from tests.chaos.mounts import Mounts
from tests.chaos.nemesis import Nemesis
from tests.chaos.report import Run

_CLIENTS = 3
_APPENDERS = 2
"""For each partition of each client."""
_QUIET_SECONDS = 8.0
"""Appends go on for this long after the cluster is healthy again."""
_REOPENED_SECONDS = 60.0
"""How long a partition may stay closed after the end of all faults."""
_FINISH_SECONDS = 60.0


class ChaosRun:
    """A run, whose events are written to ``file`` as they happen."""

    def __init__(self, directory: Path, seed: int, file: IO[str], engines: EngineChoice) -> None:
        self.events: list[Event] = []
        self.mounts = Mounts(directory / "disks", wanted=1)
        self._directory = directory
        self._random = Random(seed)
        self._seed = seed
        self._engines = engines
        self._file = file
        self._began = time.monotonic()

    def clock(self) -> float:
        """Return the seconds since the first append."""
        return round(time.monotonic() - self._began, 4)

    async def run(self, seconds: float) -> tuple[Run, list[Violation]]:
        """Run the cluster for ``seconds`` under faults; return what is violated."""
        cluster = ChaosCluster(self._directory / "cluster", self.mounts, self._engines)
        try:
            async with cluster:
                return await self._run(cluster, seconds)
        finally:
            await asyncio.to_thread(self.mounts.close)

    async def _run(self, cluster: ChaosCluster, seconds: float) -> tuple[Run, list[Violation]]:
        nemesis = Nemesis(cluster, Random(self._random.random()), self._record, self.clock)
        violations: list[Violation] = []
        async with AsyncExitStack() as stack:
            loads = [await self._client(cluster, stack, n) for n in range(_CLIENTS)]
            self._began = time.monotonic()
            tasks = self._start(loads)
            readers = [
                asyncio.create_task(load.follow(p)) for load in loads for p in range(PARTITIONS)
            ]
            try:
                nemesis.start()
                await asyncio.sleep(seconds)
                try:
                    await nemesis.heal()
                except TimeoutError as error:
                    violations.append(Violation(Guarantee.AVAILABILITY, -1, str(error)))
                healed = self.clock()
                self._record(Note(healed, "all faults have ended"))
                await asyncio.sleep(_QUIET_SECONDS)
            finally:
                failures = await _ended(loads, tasks, readers)
            violations += [Violation(Guarantee.CLIENTS, -1, failure) for failure in failures]
            logs, missing = await self._read_logs(cluster, stack)
            violations += missing
        end = self.clock()
        violations += check(self.events, logs)
        for partition in range(PARTITIONS):
            times = acknowledged_at(self.events, partition)
            found = closures(times, partition, max([healed + _QUIET_SECONDS, *times]))
            violations += late_openings(found, healed, _REOPENED_SECONDS)
        return Run(self._seed, end, healed, PARTITIONS, self.mounts.reason), violations

    async def _client(self, cluster: ChaosCluster, stack: AsyncExitStack, number: int) -> Workload:
        opening = waltz.connect(cluster.zookeeper, root=cluster.root, tls=cluster.tls)
        client = await stack.enter_async_context(opening)
        random = Random(self._random.random())
        return Workload(f"c{number}", client, self._record, self.clock, random)

    def _start(self, loads: list[Workload]) -> list[asyncio.Task[None]]:
        tasks = []
        for load in loads:
            for partition in range(PARTITIONS):
                tasks.append(asyncio.create_task(load.read_marks(partition)))
                tasks += [asyncio.create_task(load.append(partition, n)) for n in range(_APPENDERS)]
        return tasks

    async def _read_logs(
        self, cluster: ChaosCluster, stack: AsyncExitStack
    ) -> tuple[dict[int, list[str]], list[Violation]]:
        """Read the logs with a new client, up to the marks that it finds."""
        logs: dict[int, list[str]] = {}
        missing = []
        load = await self._client(cluster, stack, _CLIENTS)
        for partition in range(PARTITIONS):
            try:
                async with asyncio.timeout(_FINISH_SECONDS * 3):
                    logs[partition] = await load.read_log(partition)
            except TimeoutError:
                text = "the log cannot be read after the faults"
                missing.append(Violation(Guarantee.AVAILABILITY, partition, text))
        return logs, missing

    def _record(self, event: Event) -> None:
        self.events.append(event)
        self._file.write(encode(event) + "\n")


async def _ended(
    loads: list[Workload], tasks: list[asyncio.Task[None]], readers: list[asyncio.Task[list[str]]]
) -> list[str]:
    """End the clients; return the errors with which some have ended before."""
    for load in loads:
        load.stopping.set()
    _, unfinished = await asyncio.wait(tasks, timeout=_FINISH_SECONDS)
    everything: list[asyncio.Task[Any]] = [*tasks, *readers]
    errors = [
        f"{type(error).__name__}: {error}"
        for task in everything
        if task.done() and not task.cancelled() and (error := task.exception()) is not None
    ]
    for task in (*unfinished, *readers):
        task.cancel()
    await asyncio.gather(*everything, return_exceptions=True)
    return errors
