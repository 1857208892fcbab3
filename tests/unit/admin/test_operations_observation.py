"""Which storages an observation queries."""

from __future__ import annotations

import uuid

from waltz.admin import ObservationScope
from waltz.admin.core.replicas import StorageReplicas
from waltz.admin.core.verification import ServerReport
from waltz.admin.observation import ReplicaObserver, _server_state
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import PartitionMetadata, ReplicaState, StoreParams
from waltz.metadata.lifecycle import create_cluster
from waltz.net import PLAINTEXT
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/log"
ASSIGNED, FORMER, UNUSED = "assigned:1", "former:1", "unused:1"


class NamingObserver(ReplicaObserver):
    """Answers for each storage instead of querying it."""

    async def _query_storage(
        self, storage: str, admin_port: int | None, params: StoreParams, *, with_damage: bool
    ) -> StorageReplicas:
        return StorageReplicas({})


async def _observer() -> NamingObserver:
    """Return the observer of a cluster whose partition 0 has left the storage `FORMER`."""
    store = MemoryZooKeeper().connect()
    await create_cluster(store, ROOT, "log", 1, key=uuid.UUID(int=1))
    cluster = Cluster(store, ROOT)
    for storage in (ASSIGNED, FORMER, UNUSED):
        await cluster.add_storage_node(storage, 0, 9001)
    await cluster.assign_partitions(ASSIGNED, [0])
    states = {storage: ReplicaState(4, 10) for storage in (ASSIGNED, FORMER)}
    version = (await cluster.partition_metadata(0)).version
    await cluster.write_partition_metadata(0, PartitionMetadata(1, 4, states), version)
    return NamingObserver(cluster, PLAINTEXT, answer_seconds=1)


async def test_storages_of_the_assignment_and_of_the_last_session_are_queried() -> None:
    """A change of replicas is complete only when the former replica is out of the session."""
    observation = await (await _observer()).observe(ObservationScope((0,)))
    assert set(observation.storages) == {ASSIGNED, FORMER}


async def test_scope_selects_the_storages_of_the_assignment_and_leaves_some_out() -> None:
    observer = await _observer()
    for without, queried in ((frozenset(), {ASSIGNED}), (frozenset({ASSIGNED}), set())):
        scope = ObservationScope((0,), query_peers=False, assigned=True, without=without)
        assert set((await observer.observe(scope)).storages) == queried


class LaterObserver(ReplicaObserver):
    """Answers for a storage, and says whether it was asked before."""

    queried = False

    async def _query_storage(
        self, storage: str, admin_port: int | None, params: StoreParams, *, with_damage: bool
    ) -> StorageReplicas:
        before, self.queried = self.queried, True
        return StorageReplicas(problem="asked again") if before else StorageReplicas({})


async def test_replicas_are_compared_with_marks_that_were_read_before() -> None:
    """Otherwise a replica that has received all since would seem to lag."""
    store = MemoryZooKeeper().connect()
    await create_cluster(store, ROOT, "log", 1, key=uuid.UUID(int=1))
    cluster = Cluster(store, ROOT)
    await cluster.add_storage_node(ASSIGNED, 0, 9001)
    await cluster.assign_partitions(ASSIGNED, [0])
    observer = LaterObserver(cluster, PLAINTEXT, answer_seconds=1)
    observation = await observer.observe(ObservationScope((0,)))
    assert observation.storages[ASSIGNED].problem == "asked again"


def test_partition_that_its_server_could_not_open_is_a_problem() -> None:
    healthy, closed = ({7: ServerReport(frozenset({0}), {}, {0: each})} for each in (True, False))
    assert _server_state(0, 7, healthy) == (None, frozenset())
    assert _server_state(0, 7, closed)[0] == "server 7 could not open partition 0"
