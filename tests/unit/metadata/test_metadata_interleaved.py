"""Reads and creations between whose operations another process changes the znodes."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable

import pytest

from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import PartitionAssignment, ServerDescriptor
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.store import StoreError
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

ROOT = "/test"
KEY = uuid.UUID(int=7)


class Interleaved:
    """A session before whose operation number ``at`` (from 1) another process acts."""

    def __init__(self, zookeeper: MemoryZooKeeper) -> None:
        self.store: MemoryStore = zookeeper.connect(pause=self._before_operation)
        self._operations = 0
        self._at = 0
        self._act: Callable[[], Awaitable[object]] | None = None

    def before(self, at: int, act: Callable[[], Awaitable[object]]) -> None:
        """Act before the operation number ``at`` from now on."""
        self._operations, self._at, self._act = 0, at, act

    async def _before_operation(self) -> None:
        self._operations += 1
        if self._act is not None and self._operations == self._at:
            act, self._act = self._act, None
            await act()


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
async def other(zookeeper: MemoryZooKeeper) -> Cluster:
    """Return the cluster as another process sees it."""
    store = zookeeper.connect()
    await create_cluster(store, ROOT, "test", 2, key=KEY)
    return Cluster(store, ROOT)


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_membership_whose_assignment_changes_during_the_read_is_read_again(
    zookeeper: MemoryZooKeeper, other: Cluster, at: int
) -> None:
    """The operations are: the assignment, the list of servers, the node of a server."""
    await _join(other)
    reader = Interleaved(zookeeper)
    new = PartitionAssignment(1, 2, {})
    reader.before(at, lambda: other.write_partition_assignment(new, 0))
    found = await Cluster(reader.store, ROOT).membership()
    # A list of servers that was read after the change belongs to the changed assignment.
    has_new_assignment = at < 3
    assert found.version == (1 if has_new_assignment else 0)
    assert (found.assignment == new) is has_new_assignment


async def test_membership_whose_server_leaves_during_the_read_is_read_again(
    zookeeper: MemoryZooKeeper, other: Cluster
) -> None:
    path = await _join(other)
    reader = Interleaved(zookeeper)
    reader.before(3, lambda: other.store.delete(path))
    found = await Cluster(reader.store, ROOT).membership()
    assert found.members == ()
    assert found.cversion == 2, "the server's creation and its deletion"


async def test_cluster_creation_does_not_overwrite_data_of_a_concurrent_creation(
    zookeeper: MemoryZooKeeper,
) -> None:
    """Two creations that both succeed would leave storages with two keys."""
    theirs = b"written by another creation"
    creator, second = Interleaved(zookeeper), zookeeper.connect()

    async def write_if_unset() -> None:
        node = zookeeper.dump().get(f"{ROOT}/store")
        if node is None or node.data is not None:
            creator.before(1, write_if_unset)
        else:
            await second.set(f"{ROOT}/store", theirs, 0)

    creator.before(1, write_if_unset)
    with pytest.raises(StoreError, match="changed by another process"):
        await create_cluster(creator.store, ROOT, "test", 2, key=KEY)
    assert zookeeper.dump()[f"{ROOT}/store"].data == theirs


async def _join(cluster: Cluster) -> str:
    """Create a server's node; return its path."""
    descriptor = ServerDescriptor(1, "server", 1)
    return await cluster.store.create(
        cluster.paths.new_server_descriptor, descriptor.encode(), ephemeral=True, sequence=True
    )


class Killed(Exception):
    """The process ends before an operation."""


async def test_removal_of_a_storage_that_is_interrupted_leaves_it_in_its_group(
    zookeeper: MemoryZooKeeper, other: Cluster
) -> None:
    """A storage with a partition list and without a group could not be removed again."""

    async def kill() -> None:
        raise Killed

    interrupted = 0
    for at in range(1, 40):
        await other.add_storage_node("a:1", 0, 9001)
        process = Interleaved(zookeeper)
        process.before(at, kill)
        try:
            await Cluster(process.store, ROOT).remove_storage_node("a:1")
        except Killed:
            interrupted += 1
        await process.store.close()
        maps = await other.storage_maps()
        assert "a:1" in maps.groups.groups or "a:1" not in maps.assignments.partitions
        if "a:1" in maps.groups.groups or "a:1" in maps.connections.admin_ports:
            await other.remove_storage_node("a:1")
    assert interrupted > 10
