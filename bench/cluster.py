"""Run a local cluster, put load on it, and read the CPU time that its processes have used.

Starts processes, touches the network and the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import urllib.request
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from typing_extensions import override

from bench.cpu_times import cpu_time
from bench.load import Load, LoadResult
from waltz.local.cluster import LocalCluster
from waltz.local.core.plan import Shape


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources used so far: CPU seconds of servers and storages, and flushes of storages."""

    server_seconds: float
    storage_seconds: float
    flushes: int

    def since(self, before: Usage) -> Usage:
        """Return the resources used after ``before``."""
        return Usage(
            self.server_seconds - before.server_seconds,
            self.storage_seconds - before.storage_seconds,
            self.flushes - before.flushes,
        )


class MeasuredCluster:
    """A running local cluster; `put_load` puts load on it, and `usage` reads the resources used."""

    def __init__(self, cluster: LocalCluster, tls: bool) -> None:
        self.local = cluster
        self._tls = tls
        self._next_client_id = 1_000_000
        """The id of the next client of the load generator.

        The server takes the appends of a client id only from its newest connection. So no two
        clients may have the same id. Each run has new ids, and they are far above those that the
        cluster gives to other clients.
        """

    @property
    def num_storages(self) -> int:
        """The number of storages."""
        return len(self.local.plan.storages)

    async def put_load(
        self, clients: int, window: int, size: int, records: int, *, locks: bool
    ) -> LoadResult:
        """Run the load generator in a separate process and return its result.

        All ``clients`` together append ``records`` of ``size`` bytes. Each client keeps ``window``
        appends open. With ``locks``, every append has one lock with a pseudo-random id. Raises
        RuntimeError if the load generator fails.
        """
        host, _, port = self.local.plan.servers[0].address.rpartition(":")
        load = Load(
            host=host,
            port=int(port),
            generations=await self._generations(),
            clients=clients,
            window=window,
            size=size,
            records=records,
            locks=locks,
            tls=self._tls,
            first_client_id=self._next_client_id,
        )
        self._next_client_id += clients
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.load", json.dumps(asdict(load)), stdout=PIPE
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"the load generator ended with {process.returncode}")
        return LoadResult(**json.loads(out))

    def usage(self) -> Usage:
        """Return the resources that the processes have used since they started."""
        pids = self.local.pids()
        storages = [name for name in pids if name.startswith("storage/")]
        return Usage(
            sum(_cpu_seconds(pids[name]) for name in pids if name.startswith("server/")),
            sum(_cpu_seconds(pids[name]) for name in storages),
            sum(self._flushes(index) for index in range(len(storages))),
        )

    async def _generations(self) -> dict[int, int]:
        """Return the generation of each partition, which every request must name."""
        async with self.local.metadata() as cluster:
            assignment = (await cluster.partition_assignment()).value
        return {p: generation for owned in assignment.servers.values() for p, generation in owned}

    def _flushes(self, index: int) -> int:
        """Return how many flushes the storage ``storage/index`` has made."""
        url = f"http://127.0.0.1:{self.local.plan.storages[index].http}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(json.load(answer)["gauges"]["waltz-storage.flushes"]["value"])


class MeasuredEngine(StrEnum):
    """The storage engine of a measured cluster."""

    FILES = "files"
    WAL = "wal"
    WAL_APART = "wal apart"
    """The engine ``wal`` with its write-ahead log in a directory of its own."""


class _EngineCluster(LocalCluster):
    """A local cluster whose storages have the storage engine ``engine``."""

    def __init__(
        self, directory: Path, shape: Shape, engine: MeasuredEngine, checkpoint_interval: int
    ) -> None:
        settings = {"storage.checkpointInterval": checkpoint_interval}
        super().__init__(directory, shape, server_settings=settings)
        self._engine = engine

    @override
    def _new_child(self, name: str, script: str, settings: dict[str, object]) -> None:
        """Add the settings of the engine to those of a storage; leave other processes unchanged."""
        if name.startswith("storage/") and self._engine is not MeasuredEngine.FILES:
            settings = settings | {"storage.engine": "wal"}
            if self._engine is MeasuredEngine.WAL_APART:
                wal_folder = self.layout.directory / "wal" / name.replace("/", "-")
                wal_folder.mkdir(parents=True, exist_ok=True)
                settings["storage.wal.directory"] = str(wal_folder)
        super()._new_child(name, script, settings)


@contextlib.asynccontextmanager
async def measured_cluster(
    *,
    partitions: int = 1,
    storages: int = 3,
    tls: bool = False,
    checkpoint_interval: int = 250_000,
    engine: MeasuredEngine = MeasuredEngine.FILES,
) -> AsyncIterator[MeasuredCluster]:
    """Run a cluster of 1 server and of storages in a temporary directory.

    Each of the ``storages`` holds a replica of every partition.
    ``checkpoint_interval`` is the number of transactions in one store session.
    """
    with tempfile.TemporaryDirectory(prefix="waltz-bench-") as directory:
        shape = Shape(partitions=partitions, storages=storages, servers=1, tls=tls)
        cluster = _EngineCluster(Path(directory), shape, engine, checkpoint_interval)
        async with cluster:
            yield MeasuredCluster(cluster, tls)


def _cpu_seconds(pid: int | None) -> float:
    """Return the CPU time of a process, 0 if it does not run."""
    return 0.0 if pid is None else cpu_time(pid).own_seconds
