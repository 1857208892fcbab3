"""Test access to a cluster's metadata over a store in memory that may lose answers."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from tests.support.eventually import eventually
from waltz.metadata.cluster import Cluster, NoCluster, VersionedValue
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    UNRESOLVED,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
)
from waltz.metadata.core.storage_maps import ChangeRefused, assign_everything
from waltz.metadata.lifecycle import (
    ClusterExists,
    ClusterMismatch,
    DeletionIncomplete,
    create_cluster,
    delete_cluster,
)
from waltz.metadata.retry import retry_delays
from waltz.metadata.store import MetadataStore, VersionConflict
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/waltz/test"
KEY = uuid.UUID(int=7)


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper()


async def new_cluster(store: MetadataStore, num_partitions: int = 3) -> Cluster:
    await create_cluster(store, ROOT, "test", num_partitions, key=KEY)
    return Cluster(store, ROOT)


async def test_created_cluster_is_read_back(zookeeper: MemoryZooKeeper) -> None:
    cluster = await new_cluster(zookeeper.connect())
    params = await cluster.params()
    assert (params.name, params.num_partitions) == ("test", 3)
    store_params = await cluster.store_params()
    assert (store_params.key, store_params.num_partitions) == (KEY, 3)
    membership = await cluster.membership()
    assert (membership.members, membership.consistent, membership.version) == ((), False, 0)


async def test_created_cluster_contains_its_first_storages(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    maps = assign_everything({"a:1": 0, "b:1": 1}, {"a:1": 9001, "b:1": 9002}, 2)
    await create_cluster(store, ROOT, "test", 2, key=KEY, storages=maps)
    assert await Cluster(store, ROOT).storage_maps() == maps


async def test_create_at_an_existing_root_is_refused(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    await new_cluster(store)
    before = zookeeper.dump()
    with pytest.raises(ClusterExists, match=f"'test' exists already at {ROOT}"):
        await create_cluster(store, ROOT, "other", 1, key=KEY)
    with pytest.raises(ClusterExists, match="not a Waltz cluster"):
        await create_cluster(store, "/waltz", "other", 1, key=KEY)
    with pytest.raises(ValueError, match="at least one partition"):
        await create_cluster(store, "/other", "other", 0, key=KEY)
    assert zookeeper.dump() == before


async def test_delete_with_another_name_is_refused(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    await new_cluster(store)
    before = zookeeper.dump()
    for root, name, reason in (
        (ROOT, "tset", "is called 'test', not 'tset'"),
        ("/waltz", "test", "not a Waltz cluster"),
        (f"{ROOT}/ids/client", "test", "not a Waltz cluster"),
        ("/nothing", "test", "no cluster at /nothing"),
    ):
        for dry_run in (False, True):
            with pytest.raises(ClusterMismatch, match=reason):
                await delete_cluster(store, root, name, dry_run=dry_run)
    assert zookeeper.dump() == before
    await delete_cluster(store, ROOT, "test")
    assert list(zookeeper.dump()) == ["/waltz"]


async def test_delete_as_dry_run_changes_nothing(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    await new_cluster(store)
    before = zookeeper.dump()
    await delete_cluster(store, ROOT, "test", dry_run=True)
    assert zookeeper.dump() == before
    with pytest.raises(ClusterMismatch, match="no cluster at /nothing"):
        await delete_cluster(store, "/nothing", "test", dry_run=True)


class Interrupted(Exception):
    pass


def interrupt_after_one(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store delete one more node, and fail then."""
    deleted: list[str] = []
    delete = store.delete

    async def delete_one(path: str, version: int = -1) -> None:
        if deleted:
            raise Interrupted
        deleted.append(path)
        await delete(path, version)

    monkeypatch.setattr(store, "delete", delete_one)


async def test_delete_that_is_interrupted_anywhere_can_be_repeated(
    zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = zookeeper.connect()
    await new_cluster(store)
    nodes = [path for path in zookeeper.dump() if path.startswith(ROOT)]
    for _ in nodes[1:]:
        with monkeypatch.context() as patch:
            interrupt_after_one(store, patch)
            with pytest.raises(Interrupted):
                await delete_cluster(store, ROOT, "test")
        left = [path for path in zookeeper.dump() if path.startswith(ROOT)]
        if any("/ids" not in path for path in left if path != ROOT):
            assert {ROOT, f"{ROOT}/ids/client", f"{ROOT}/ids/server"} <= set(left)
        with pytest.raises(ClusterMismatch, match="is called 'test', not 'other'"):
            await delete_cluster(store, ROOT, "other")
    await delete_cluster(store, ROOT, "test")
    assert list(zookeeper.dump()) == ["/waltz"]


@pytest.mark.parametrize(("additions", "is_deleted"), [(3, True), (100, False)])
async def test_delete_while_a_server_adds_nodes_continues_or_can_be_repeated(
    zookeeper: MemoryZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
    additions: int,
    is_deleted: bool,
) -> None:
    store, server = zookeeper.connect(), zookeeper.connect()
    await new_cluster(store)
    delete, added = store.delete, list(range(additions))

    async def delete_after_an_addition(path: str, version: int = -1) -> None:
        if path == ROOT and added:
            await server.create(f"{ROOT}/added-{added.pop()}", b"")
        await delete(path, version)

    monkeypatch.setattr(store, "delete", delete_after_an_addition)
    if is_deleted:
        await delete_cluster(store, ROOT, "test")
        assert list(zookeeper.dump()) == ["/waltz"]
        return
    with pytest.raises(DeletionIncomplete, match="Stop its servers, and repeat the same command"):
        await delete_cluster(store, ROOT, "test")
    added.clear()
    await delete_cluster(store, ROOT, "test")
    assert list(zookeeper.dump()) == ["/waltz"]


async def test_delete_after_an_interrupted_creation_needs_no_name(
    zookeeper: MemoryZooKeeper,
) -> None:
    store = zookeeper.connect()
    await store.create("/half", None)
    with pytest.raises(NoCluster, match=r"/half is not set.*delete it and create it again"):
        await Cluster(store, "/half").params()
    await delete_cluster(store, "/half", "any")
    assert zookeeper.dump() == {}


async def test_missing_or_damaged_nodes_are_named_in_the_error(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    cluster = Cluster(store, ROOT)
    with pytest.raises(NoCluster, match=f"no Waltz cluster at {ROOT}"):
        await cluster.params()
    await new_cluster(store)
    await store.set(cluster.paths.group, b"\x02", -1)
    with pytest.raises(MalformedMetadata, match=f"GroupDescriptor at {ROOT}/store/group.*version"):
        await cluster.groups()
    await store.delete(cluster.paths.connection)
    with pytest.raises(NoCluster, match="store/connection is not set"):
        await cluster.connections()


async def test_assigned_ids_start_at_one_and_are_unique(zookeeper: MemoryZooKeeper) -> None:
    first = await new_cluster(zookeeper.connect())
    second = Cluster(zookeeper.connect(), ROOT)
    taken = await asyncio.gather(
        *(cluster.next_client_id() for cluster in (first, second) for _ in range(10))
    )
    assert sorted(taken) == list(range(1, 21))
    assert await second.next_server_id() == 1


async def test_ids_are_unique_when_answers_are_lost(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    cluster = await new_cluster(store)
    taking = asyncio.create_task(cluster.next_client_id())
    # The counter is read in these two turns: the answer that is lost is that of the write.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store.lose_next_answer()
    assert await taking == 2


async def test_partition_metadata_is_created_at_first_use(zookeeper: MemoryZooKeeper) -> None:
    cluster = await new_cluster(zookeeper.connect())
    first, second = await asyncio.gather(
        cluster.partition_metadata(1), cluster.partition_metadata(1)
    )
    assert first == second == VersionedValue(NEW_PARTITION, 0)
    new = PartitionMetadata(1, 0, {"a:1": ReplicaState(0, UNRESOLVED)})
    assert await cluster.write_partition_metadata(1, new, 0) == 1
    assert await cluster.partition_metadata(1) == VersionedValue(new, 1)
    with pytest.raises(VersionConflict):
        await cluster.write_partition_metadata(1, new, 0)


async def test_write_whose_answer_was_lost_succeeds(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    cluster = await new_cluster(store)
    version = (await cluster.partition_metadata(0)).version
    store.lose_next_answer()
    new = PartitionMetadata(1, 0, {})
    assert await cluster.write_partition_metadata(0, new, version) == version + 1
    assert await cluster.partition_metadata(0) == VersionedValue(new, version + 1)


async def test_write_that_zookeeper_never_received_is_repeated(zookeeper: MemoryZooKeeper) -> None:
    store = zookeeper.connect()
    cluster = await new_cluster(store)
    version = (await cluster.partition_metadata(0)).version
    zookeeper.suspend(store)
    new = PartitionMetadata(1, 0, {})
    writing = asyncio.create_task(cluster.write_partition_metadata(0, new, version))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not writing.done()
    zookeeper.resume(store)
    assert await writing == version + 1


async def test_write_overtaken_by_another_process_conflicts(
    zookeeper: MemoryZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = zookeeper.connect(), zookeeper.connect()
    cluster = await new_cluster(store)
    version = (await cluster.partition_metadata(0)).version
    zookeeper.suspend(store)
    writing = asyncio.create_task(
        cluster.write_partition_metadata(0, PartitionMetadata(1, 0, {}), version)
    )
    # The first attempt must fail before the node changes: otherwise that attempt would conflict.
    await eventually(lambda: "no answer to a write" in caplog.text)
    await Cluster(other, ROOT).write_partition_metadata(0, PartitionMetadata(2, 0, {}), version)
    zookeeper.resume(store)
    with pytest.raises(VersionConflict):
        await writing


async def test_changes_of_storages_are_read_back(zookeeper: MemoryZooKeeper) -> None:
    cluster = await new_cluster(zookeeper.connect())
    await cluster.add_storage_node("a:1", 0, 9001)
    await cluster.add_storage_node("b:1", 0, 9002)
    await cluster.auto_assign(0)
    await cluster.assign_partitions("b:1", [0])
    await cluster.unassign_partitions("a:1", [0])
    assignments = (await cluster.replica_assignments()).value
    assert assignments.partitions == {"a:1": (2,), "b:1": (0, 1)}
    with pytest.raises(ChangeRefused):
        await cluster.remove_storage_node("a:1")
    await cluster.assign_partitions("b:1", [2])
    await cluster.unassign_partitions("a:1", [2])
    await cluster.remove_storage_node("a:1")
    assert (await cluster.groups()).value.groups == {"b:1": 0}
    assert (await cluster.connections()).value.admin_ports == {"b:1": 9002}
    assert cluster.paths.admin_lock not in zookeeper.dump()


async def test_admin_lock_lets_one_change_run_at_a_time(zookeeper: MemoryZooKeeper) -> None:
    """Changes from one session and from several are all made, and none conflicts."""
    first = await new_cluster(zookeeper.connect())
    clusters = [first, first, *(Cluster(zookeeper.connect(), ROOT) for _ in range(3))]
    await asyncio.gather(
        *(c.add_storage_node(f"host{n}:1", 0, 9000) for n, c in enumerate(clusters))
    )
    assert set((await first.groups()).value.groups) == {f"host{n}:1" for n in range(5)}


async def test_admin_lock_of_an_expired_session_is_free(zookeeper: MemoryZooKeeper) -> None:
    holder, waiter = zookeeper.connect(), zookeeper.connect()
    cluster = await new_cluster(waiter)
    await holder.create(cluster.paths.admin_lock, None, ephemeral=True)
    adding = asyncio.create_task(cluster.add_storage_node("a:1", 0, 9001))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not adding.done()
    zookeeper.expire(holder)
    await adding
    assert "a:1" in (await cluster.groups()).value.groups


async def test_admin_lock_is_free_after_a_cancelled_wait(zookeeper: MemoryZooKeeper) -> None:
    """A change that a timeout interrupts must not block the later changes of its session."""
    holder = zookeeper.connect()
    cluster = await new_cluster(zookeeper.connect())
    await holder.create(cluster.paths.admin_lock, None, ephemeral=True)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cluster.add_storage_node("a:1", 0, 9001)
    zookeeper.expire(holder)
    async with asyncio.timeout(60):
        await cluster.add_storage_node("b:1", 0, 9002)
    assert (await cluster.groups()).value.groups == {"b:1": 0}


async def test_admin_lock_is_free_after_a_cancelled_creation(
    zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time limit ends after ZooKeeper has created the node and before the answer arrives."""
    store = zookeeper.connect()
    cluster = await new_cluster(store)
    create = store.create

    async def create_without_answer(path: str, data: bytes | None, *, ephemeral: bool) -> str:
        await create(path, data, ephemeral=ephemeral)
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    monkeypatch.setattr(store, "create", create_without_answer)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cluster.add_storage_node("a:1", 0, 9001)
    assert cluster.paths.admin_lock not in zookeeper.dump()


async def test_admin_lock_whose_creation_was_not_answered_is_held(
    zookeeper: MemoryZooKeeper,
) -> None:
    store = zookeeper.connect()
    cluster = await new_cluster(store)
    async with asyncio.timeout(60):
        for _ in range(2):
            lock = cluster.admin_lock
            store.lose_next_answer()
            async with lock:
                assert zookeeper.dump()[cluster.paths.admin_lock].owner == store.health.session_id
                store.lose_next_answer()
            assert cluster.paths.admin_lock not in zookeeper.dump()


async def test_admin_lock_lost_with_the_session_is_not_taken_from_its_next_holder(
    zookeeper: MemoryZooKeeper,
) -> None:
    store, other = zookeeper.connect(), zookeeper.connect()
    cluster = await new_cluster(store)
    async with cluster.admin_lock:
        zookeeper.expire(store)
        zookeeper.resume(store)
        await other.create(cluster.paths.admin_lock, None, ephemeral=True)
    assert zookeeper.dump()[cluster.paths.admin_lock].owner == other.health.session_id


async def test_change_under_a_lock_lost_with_the_session_conflicts(
    zookeeper: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = zookeeper.connect(), zookeeper.connect()
    cluster = await new_cluster(store)
    read = cluster.replica_assignments

    async def read_and_lose_the_session() -> VersionedValue[ReplicaAssignments]:
        assignments = await read()
        zookeeper.expire(store)
        zookeeper.resume(store)
        await Cluster(other, ROOT).add_storage_node("b:1", 0, 9002)
        return assignments

    monkeypatch.setattr(cluster, "replica_assignments", read_and_lose_the_session)
    with pytest.raises(VersionConflict):
        await cluster.add_storage_node("a:1", 0, 9001)
    assert (await cluster.groups()).value.groups == {"b:1": 0}


async def test_write_of_metadata_without_a_session_is_refused(zookeeper: MemoryZooKeeper) -> None:
    cluster = await new_cluster(zookeeper.connect())
    later = PartitionMetadata(1, 4, {"a:1": ReplicaState(5, UNRESOLVED)})
    for wrong in (NEW_PARTITION, later):
        version = (await cluster.partition_metadata(0)).version
        with pytest.raises(AssertionError):
            await cluster.write_partition_metadata(0, wrong, version)
    assert await cluster.partition_metadata(0) == VersionedValue(NEW_PARTITION, 0)


async def test_replica_assignments_are_followed_over_a_suspended_session(
    zookeeper: MemoryZooKeeper,
) -> None:
    store = zookeeper.connect()
    cluster = await new_cluster(store)
    seen: list[ReplicaAssignments] = []

    async def follow() -> None:
        async for assignments in cluster.follow_replica_assignments():
            seen.append(assignments)

    following = asyncio.create_task(follow())
    await eventually(lambda: seen)
    other = Cluster(zookeeper.connect(), ROOT)
    await other.add_storage_node("a:1", 0, 9001)
    await eventually(lambda: seen[-1].partitions == {"a:1": ()})
    zookeeper.suspend(store)
    await other.auto_assign(0)
    zookeeper.resume(store)
    await eventually(lambda: seen[-1].partitions == {"a:1": (0, 1, 2)})
    assert len(seen) == 3
    following.cancel()
    await asyncio.wait([following])


async def test_replica_assignments_of_a_restored_cluster_are_followed(
    zookeeper: MemoryZooKeeper,
) -> None:
    """The znode was deleted and created meanwhile, and has the version of the earlier one."""
    store, other = zookeeper.connect(), zookeeper.connect()
    cluster = await new_cluster(store)
    followed = cluster.follow_replica_assignments()
    assert (await anext(followed)).partitions == {}
    zookeeper.suspend(store)
    await delete_cluster(other, ROOT, "test")
    maps = assign_everything({"a:1": 0}, {"a:1": 9001}, 3)
    await create_cluster(other, ROOT, "test", 3, key=KEY, storages=maps)
    zookeeper.resume(store)
    async with asyncio.timeout(5):
        assert (await anext(followed)).partitions == {"a:1": (0, 1, 2)}


def test_metadata_retry_delays_grow_up_to_eight_seconds() -> None:
    delays = retry_delays()
    assert [next(delays) for _ in range(7)] == [0.1, 1, 2, 4, 8, 8, 8]
