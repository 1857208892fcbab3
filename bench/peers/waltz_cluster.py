"""This project as a peer: a local cluster of 3 storages and 1 server. Starts processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version

from typing_extensions import override

from bench.cluster import MeasuredCluster, measured_cluster
from bench.peers.measured import Description, Measured, Peer, PeerLoad, ReadRun, RunningPeer
from bench.streaming import measure_reads


class Waltz(Peer):
    """A cluster of this checkout."""

    @override
    async def describe(self) -> Description:
        return Description(
            "Waltz",
            version("waltz-log"),
            durability="2 of 3 storages have called fdatasync",
            lock="one write lock, with a pseudo-random id",
        )

    @override
    @asynccontextmanager
    async def start(self) -> AsyncIterator[RunningPeer]:
        async with measured_cluster() as cluster:
            yield _RunningWaltz(cluster)


class _RunningWaltz(RunningPeer):
    def __init__(self, cluster: MeasuredCluster) -> None:
        self._cluster = cluster

    @override
    async def append(self, load: PeerLoad) -> Measured:
        before = self._cluster.usage()
        result = await self._cluster.put_load(
            load.clients, load.window, load.size, load.records, locks=load.locks
        )
        used = self._cluster.usage().since(before)
        return Measured(
            seconds=result.seconds,
            records=result.committed,
            p50_ms=result.p50_ms,
            p99_ms=result.p99_ms,
            client_seconds=result.cpu_seconds,
            server_seconds=used.server_seconds + used.storage_seconds,
        )

    @override
    async def read(self, size: int, records: int) -> Mapping[str, ReadRun]:
        # The log may begin with records of earlier runs. They have the same size, so it does not
        # matter that these are read.
        await self._cluster.put_load(clients=4, window=100, size=size, records=records, locks=False)
        runs = {}
        for read in await measure_reads(self._cluster, records):
            servers = read.server_seconds + read.storage_seconds
            runs[read.name] = ReadRun(
                seconds=records / read.rate,
                records=records,
                client_seconds=read.client_seconds * records,
                server_seconds=servers * records,
            )
        return runs
