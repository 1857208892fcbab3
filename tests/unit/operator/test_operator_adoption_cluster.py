"""The operator adopts a cluster of real storages and servers while a client appends to it."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from tests.support.adopted_cluster import (
    InProcessEnvironment,
    PodRunner,
    adopting_world,
    kube_of,
)
from tests.support.operator_faults import RecordedEvents
from tests.support.operator_world import NAMESPACE
from tests.support.virtual_time import on_virtual_time
from waltz.metadata.cluster import Cluster
from waltz.protocol import ADMIN, CLIENT_SERVER, STORAGE
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT
from waltz_operator.shell.reconciler import Reconciler
from waltz_storage.core.log.segment_format import DATA_SUFFIX

_PARTITIONS = 2
_POOLS = "abc"
_MOST_ROUNDS = 300
_NOW = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


class Migration:
    """An operator, its Kubernetes, the adopted cluster, and a client that appends all the while."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        self.old_storages = tuple(cluster.storages)
        self.old_servers = tuple(cluster.servers)
        self.world = adopting_world(cluster, cluster._key, _POOLS)
        self.pods = PodRunner(cluster, self.world)
        self.events = RecordedEvents()
        self.environment = InProcessEnvironment(cluster)
        self.acknowledged: list[list[int]] = [[] for _ in range(_PARTITIONS)]
        self._reconciler = Reconciler(
            kube_of(self.world),
            self.environment,
            self.events,
            operator_namespace="waltz-system",
            clock=lambda: _NOW,
        )

    async def until(self, reached: Callable[[], bool]) -> None:
        """Reconcile, and let the pods run, until ``reached``."""
        for _ in range(_MOST_ROUNDS):
            await self._reconciler.reconcile(NAMESPACE, "log")
            await self.pods.run()
            await asyncio.sleep(1.0)
            if reached():
                return
        raise AssertionError(f"not reached: {self.status()}, {self.events.failures[-3:]}")

    def status(self) -> dict[str, object]:
        assert self.world.cluster is not None
        found: dict[str, object] = self.world.cluster["status"]
        return found

    def holds(self, condition: str, status: str = "True") -> bool:
        conditions = self.status()["conditions"]
        assert isinstance(conditions, list)
        return any(each["type"] == condition and each["status"] == status for each in conditions)

    def specify(self, **spec: object) -> None:
        assert self.world.cluster is not None
        self.world.cluster["spec"] |= spec
        self.world.cluster["metadata"]["generation"] += 1

    def is_done(self) -> bool:
        """Whether the present generation of the spec is reconciled, and nothing is missing."""
        assert self.world.cluster is not None
        generation = self.world.cluster["metadata"]["generation"]
        return self.holds("Healthy") and self.status()["observedGeneration"] == generation

    async def copies(self) -> list[set[str]]:
        """Return the hosts of the copies of each partition."""
        metadata = Cluster(self.cluster.zookeeper.connect(), ROOT)
        maps = await metadata.storage_maps()
        return [
            {storage.partition(":")[0] for storage in maps.assignments.storages_of(partition)}
            for partition in range(_PARTITIONS)
        ]

    async def append(self) -> None:
        """Append to every partition until cancelled; note which appends were acknowledged."""
        async with self.cluster.connect(append_timeout=60.0) as client:
            number = 0
            while True:
                for partition in range(_PARTITIONS):
                    await client.append(partition, b"%d" % number)
                    self.acknowledged[partition].append(number)
                number += 1
                await asyncio.sleep(0.2)

    def check_log(self) -> None:
        """Check that the log has every acknowledged append once, and in order."""
        for partition, acknowledged in enumerate(self.acknowledged):
            assert len(acknowledged) > 20, "appends succeeded all the while"
            found = [int(each.data) for each in self.cluster.transactions(partition)]
            assert found[: len(acknowledged)] == acknowledged


@asynccontextmanager
async def migration(*, older: bool = False) -> AsyncIterator[Migration]:
    """Start a cluster, with ``older`` of the protocol versions of 0.13.2, and a client of it."""
    cluster = InProcessCluster(_PARTITIONS, servers=1, storages=3)
    if older:
        for storage in cluster.storages:
            storage.versions = (STORAGE.limited_to(0), ADMIN.limited_to(0))
        for server in cluster.servers:
            server.versions = (CLIENT_SERVER.limited_to(0, 1, 2, 3, 4), STORAGE.limited_to(0))
    async with cluster:
        made = Migration(cluster)
        appending = asyncio.create_task(made.append())
        try:
            yield made
            assert not appending.done(), "no append failed"
        finally:
            appending.cancel()
            with suppress(asyncio.CancelledError):
                await appending
            await made.environment.disconnect(NAMESPACE, "log")


async def adopt(scene: Migration) -> None:
    """Let the operator's servers join, stop the old ones, and give every pool its copy."""
    await scene.until(lambda: scene.status()["servers"] == "2/1")
    assert "are no pods of this cluster" in str(scene.status()["message"])
    for server in scene.old_servers:
        await server.stop()
    await scene.until(scene.is_done)
    new = {storage.host for storage in scene.pods.storages.values()}
    old = {storage.host for storage in scene.old_storages}
    assert await scene.copies() == [new | old] * _PARTITIONS
    assert scene.holds("Foreign")
    assert any(" is copied from storage-" in step for step in scene.events.done)


@pytest.mark.parametrize("older", [False, True])
@on_virtual_time
async def test_adopted_and_retired_cluster_keeps_its_log_without_the_old_storages(
    older: bool,
) -> None:
    async with migration(older=older) as scene:
        await adopt(scene)
        scene.specify(adopt={"clusterName": scene.cluster.name, "foreignGroups": "Retire"})
        await scene.until(lambda: scene.is_done() and scene.holds("Foreign", "False"))
        new = {storage.host for storage in scene.pods.storages.values()}
        assert await scene.copies() == [new] * _PARTITIONS
        for storage in scene.old_storages:
            assert storage.node is not None
            assert not storage.node.directory.partitions
            await storage.stop()
            for partition in range(_PARTITIONS):
                names = storage.disk.names(str(partition))
                assert any(name.endswith(DATA_SUFFIX) for name in names), "it keeps its files"
        before = len(scene.acknowledged[0])
        await scene.until(lambda: len(scene.acknowledged[0]) >= before + 10)
        scene.check_log()


@on_virtual_time
async def test_adoption_that_is_given_up_leaves_the_old_storages_with_the_log() -> None:
    async with migration() as scene:
        await adopt(scene)
        scene.specify(pools=[])
        await scene.until(scene.is_done)
        old = {storage.host for storage in scene.old_storages}
        assert await scene.copies() == [old] * _PARTITIONS
        for server in scene.old_servers:
            await server.start()
        await scene.pods.stop()
        before = len(scene.acknowledged[0])
        await asyncio.sleep(20.0)  # On virtual time.
        assert len(scene.acknowledged[0]) >= before + 10
        scene.check_log()
