"""A local cluster behind proxies, with one spare storage. Touches processes, sockets and disks.

Every server and storage is reached through a proxy, and reaches ZooKeeper through a proxy of its
own. Each storage keeps its control file on a volume of its own (``storage.metaDirectory``). The
storages have the storage engines of an `EngineChoice`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from enum import StrEnum
from pathlib import Path

from typing_extensions import override

from tests.chaos.mounts import Mounts
from tests.chaos.proxies import Proxy
from waltz.local import LocalCluster, Shape
from waltz.local.core.plan import CLUSTER_NAME, HOST, ROOT, ZOOKEEPER
from waltz.local.ports import choose_ports
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import add_storage_node, assign_everything
from waltz.metadata.lifecycle import create_cluster

REPLICAS = 3
PARTITIONS = 2
SERVERS = 2
_SESSION_TIMEOUT_MS = 3000
_SEGMENT_BYTES = 1 << 20
_WAL_BYTES = 1 << 20
"""The smallest log that a storage accepts, so that it is full often."""


class EngineChoice(StrEnum):
    """Which storage engines the storages have."""

    FILES = "files"
    WAL = "wal"
    MIXED = "mixed"
    """Some storages have the engine ``wal``, and the others the engine ``files``."""

    def has_wal(self, number: int) -> bool:
        """Whether storage ``number`` has the engine ``wal``.

        With `MIXED`, storages 1 and 2 have it: one with the log beside the data, one apart.
        """
        return self is EngineChoice.WAL or (self is EngineChoice.MIXED and number in (1, 2))

    def has_wal_volume(self, number: int) -> bool:
        """Whether the log of storage ``number`` is on a volume of its own."""
        return self.has_wal(number) and number % 2 == 0


class ChaosCluster(LocalCluster):
    """Three storages with replicas, a fourth one in the group of the third, and two servers."""

    def __init__(self, directory: Path, mounts: Mounts, engines: EngineChoice) -> None:
        shape = Shape(partitions=PARTITIONS, storages=REPLICAS + 1, servers=SERVERS)
        super().__init__(directory, shape, session_timeout_ms=_SESSION_TIMEOUT_MS)
        self.mounts = mounts
        self._engines = engines
        self.links: dict[str, Proxy] = {}
        """The proxy in front of each process."""
        self.zookeeper_links: dict[str, Proxy] = {}
        """The proxy between each process and ZooKeeper."""
        self._ports = list(choose_ports(2 * shape.storages + 2 * shape.servers + 1))

    def meta(self, name: str) -> Path:
        """The volume of the control file of a storage."""
        return self.layout.directory / "meta" / name.replace("/", "-")

    def wal(self, name: str) -> Path | None:
        """The volume of the write-ahead log of a storage, None if it has none."""
        if not self._engines.has_wal_volume(self.plan.storage_names.index(name)):
            return None
        return self.layout.directory / "wal" / name.replace("/", "-")

    def volumes(self, name: str) -> tuple[Path, ...]:
        """All volumes of a storage."""
        wal = self.wal(name)
        return (self.data(name), self.meta(name), *((wal,) if wal is not None else ()))

    @override
    async def _start_all(self) -> None:
        for proxy in (*self.links.values(), *self.zookeeper_links.values()):
            await proxy.start()
        await super()._start_all()

    @override
    async def stop(self) -> None:
        for name in self.pids():
            self.resume(name)
        await super().stop()
        for proxy in (*self.links.values(), *self.zookeeper_links.values()):
            await proxy.stop()

    @override
    def _new_child(self, name: str, script: str, settings: dict[str, object]) -> None:
        behind, to_zookeeper = self._ports.pop(), self._ports.pop()
        self.zookeeper_links[name] = Proxy(to_zookeeper, self.plan.zookeeper_port)
        changed = settings | {"zookeeper.connectString": f"{HOST}:{to_zookeeper}"}
        if name.startswith("storage/"):
            port = int(str(settings["storage.port"]))
            self.meta(name).mkdir(parents=True, exist_ok=True)
            self.mounts.mount(name, self.layout.data(name))
            changed |= {
                "storage.port": behind,
                "storage.metaDirectory": str(self.meta(name)),
                "storage.directory": str(self.data(name)),
                "storage.segment.size.threshold": _SEGMENT_BYTES,
                **self._engine_settings(name),
            }
            self.data(name).mkdir(exist_ok=True)
        else:
            port = int(str(settings["server.port"]))
            changed |= {"server.port": behind, "server.advertised.port": port}
        self.links[name] = Proxy(port, behind)
        super()._new_child(name, script, changed)

    def _engine_settings(self, name: str) -> dict[str, object]:
        if not self._engines.has_wal(self.plan.storage_names.index(name)):
            return {"storage.engine": "files"}
        settings: dict[str, object] = {"storage.engine": "wal", "storage.wal.size": _WAL_BYTES}
        wal = self.wal(name)
        if wal is not None:
            wal.mkdir(parents=True, exist_ok=True)
            settings["storage.wal.directory"] = str(wal)
        return settings

    def data(self, name: str) -> Path:
        """The data volume: a mounted disk has more than the storage's own files."""
        return self.layout.data(name) / "data"

    @override
    async def _create(self, cluster: Cluster) -> None:
        storages, spare = self.plan.storages[:REPLICAS], self.plan.storages[REPLICAS]
        groups = {storage.address: group for group, storage in enumerate(storages)}
        ports = {storage.address: storage.admin for storage in storages}
        maps = assign_everything(groups, ports, PARTITIONS)
        await create_cluster(
            cluster.store,
            ROOT,
            CLUSTER_NAME,
            PARTITIONS,
            key=uuid.uuid4(),
            storages=add_storage_node(maps, spare.address, REPLICAS - 1, spare.admin),
        )

    def pause(self, name: str) -> None:
        """Stop a process with SIGSTOP."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a paused process go on."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        pid = self.pids().get(name)
        if pid is not None:
            os.kill(pid, number)

    async def first_problem(self) -> str | None:
        """Return why the cluster is not healthy, None if it is."""
        async with asyncio.timeout(20), self.metadata() as cluster:
            return await self._first_problem(cluster)

    @property
    def all_names(self) -> tuple[str, ...]:
        return (ZOOKEEPER, *self.plan.storage_names, *self.plan.server_names)
