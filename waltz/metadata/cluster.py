"""Typed access to the znodes of one cluster: reads, compare-and-set writes, ids, storage maps.

Touches ZooKeeper. Every method retries until ZooKeeper answers. A caller that needs a time limit
uses asyncio.timeout. Source: spec/zookeeper.md sections 1 to 3 and 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from waltz.metadata.admin_lock import AdminLock
from waltz.metadata.core import storage_maps
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    NO_SESSION,
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ServerDescriptor,
    StoreParams,
    decode_id,
    encode_id,
)
from waltz.metadata.core.membership_steps import Member, Membership
from waltz.metadata.core.paths import SERVER_PREFIX, Paths
from waltz.metadata.core.storage_maps import ReplicaChange, StorageMaps
from waltz.metadata.retry import compare_and_set, until_answered
from waltz.metadata.store import MetadataStore, NodeExists, OnChange, VersionConflict

T = TypeVar("T")
log = logging.getLogger(__name__)
_StorageMap = GroupDescriptor | ReplicaAssignments | ConnectionMetadata
"""One of the three *storage maps*, which say where each storage is and what it holds."""


class NoCluster(Exception):
    """The configured root has no cluster, or a cluster whose creation did not finish."""


@dataclass(frozen=True, slots=True)
class VersionedValue(Generic[T]):
    """The value of a znode, and the version that the znode had when it was read."""

    value: T
    version: int


@dataclass(frozen=True, slots=True)
class _MapWrite:
    """A change of one storage map: its znode, the map as it was read, and the map to write."""

    path: str
    old: VersionedValue[Any]
    new: _StorageMap


class Cluster:
    """The cluster at the znode ``root``. Raises paths.BadRoot if ``root`` is no valid path.

    Every read raises MalformedMetadata if the data cannot be decoded. Every read, except that of a
    partition's metadata, raises NoCluster if the znode does not exist or has no data. For
    ``on_change``, see `MetadataStore`.
    """

    def __init__(self, store: MetadataStore, root: str) -> None:
        self.store = store
        self.paths = Paths(root)
        self.admin_lock = AdminLock(store, self.paths.admin_lock)

    async def params(self) -> ClusterParams:
        """Read the name of the cluster and the number of partitions."""
        return (await self._read(self.paths.root, ClusterParams.decode)).value

    async def store_params(self) -> StoreParams:
        """Read the cluster key and the number of partitions."""
        return (await self._read(self.paths.store, StoreParams.decode)).value

    async def groups(self) -> VersionedValue[GroupDescriptor]:
        """Read which storage is in which group."""
        return await self._read(self.paths.group, GroupDescriptor.decode)

    async def connections(self) -> VersionedValue[ConnectionMetadata]:
        """Read the admin port of each storage."""
        return await self._read(self.paths.connection, ConnectionMetadata.decode)

    async def replica_assignments(
        self, on_change: OnChange | None = None
    ) -> VersionedValue[ReplicaAssignments]:
        """Read which storage holds which partitions."""
        return await self._read(self.paths.assignment, ReplicaAssignments.decode, on_change)

    async def follow_replica_assignments(self) -> AsyncIterator[ReplicaAssignments]:
        """Yield the present assignments, and the new ones after each change.

        If several changes follow quickly, only the assignments after the last change are yielded.
        Assignments that no server can use are logged and not yielded: the caller keeps the previous
        assignments.
        """
        changed = asyncio.Event()
        yielded: VersionedValue[ReplicaAssignments] | None = None
        while True:
            changed.clear()
            try:
                stored = await self.usable_replica_assignments(changed.set)
            except MalformedMetadata as problem:
                log.error(
                    "replica assignments cannot be used: %s; keeping the previous ones; correct "
                    "the znode",
                    problem,
                )
            else:
                # After a lost connection, the znode is read again, although it may be unchanged.
                # Compare value and version: the version alone does not show each change, because a
                # znode that was deleted and restored has small versions again.
                if stored != yielded:
                    yielded = stored
                    yield stored.value
            await changed.wait()

    async def usable_replica_assignments(
        self, on_change: OnChange | None = None
    ) -> VersionedValue[ReplicaAssignments]:
        """Read which storage holds which partitions, for a server that connects to the storages.

        Raises MalformedMetadata also if the name of a storage is not an address.
        """
        stored = await self.replica_assignments(on_change)
        for storage in stored.value.partitions:
            if not storage_maps.is_address(storage):
                raise MalformedMetadata(
                    f"ReplicaAssignments at {self.paths.assignment} in ZooKeeper",
                    f"{storage!r} is not the address of a storage, which is host:port",
                )
        return stored

    async def membership(self, on_change: OnChange | None = None) -> Membership:
        """Read the servers and the assignment of partitions to them; see `Membership`.

        ``on_change`` is called when the assignment, or the list or the data of servers, changes.
        """

        async def read() -> Membership:
            while True:
                membership = await self._try_membership(on_change)
                if membership is not None:
                    return membership

        return await until_answered(self.store, read)

    async def partition_assignment(self) -> VersionedValue[PartitionAssignment]:
        """Read which server owns which partitions."""
        return await self._read(self.paths.server_descriptors, PartitionAssignment.decode)

    async def write_partition_assignment(self, new: PartitionAssignment, version: int) -> int:
        """Replace the assignment that was read at ``version``; return the new version.

        Raises VersionConflict.
        """
        path = self.paths.server_descriptors
        return await compare_and_set(self.store, path, new.encode(), version)

    async def partition_metadata(self, partition: int) -> VersionedValue[PartitionMetadata]:
        """Read a partition's metadata. Create the znode if it does not exist."""
        path = self.paths.partition(partition)

        def decode(data: bytes) -> PartitionMetadata:
            return PartitionMetadata.decode(data, partition)

        async def read() -> VersionedValue[PartitionMetadata]:
            node = await self.store.get(path)
            while node is None:
                with contextlib.suppress(NodeExists):
                    await self.store.create(path, NEW_PARTITION.encode(partition))
                node = await self.store.get(path)
            if node.data is None:  # "Not set" (spec/zookeeper.md section 2).
                return VersionedValue(NEW_PARTITION, node.version)
            return VersionedValue(_decode_znode(path, decode, node.data), node.version)

        return await until_answered(self.store, read)

    async def write_partition_metadata(
        self, partition: int, new: PartitionMetadata, version: int
    ) -> int:
        """Replace the metadata that were read at ``version``; return the new version.

        Only two kinds of processes may call this: the server that owns the partition in the
        generation of ``new``, and a rescue of lost metadata (`waltz.admin.rescue`). The reason is
        that `compare_and_set` takes equal data of another process for its own write. No other
        server writes data equal to those of this server. Two rescues may write equal data, but then
        it does not matter which of them wrote.

        Raises VersionConflict.
        """
        assert new.session_id > NO_SESSION, "metadata are written for a session"
        # The session of ``new`` is the newest one of the partition, so no replica has a larger
        # session id. If a larger id were recorded, a later session would get the same id, and
        # recovery could not distinguish the two sessions.
        assert all(state.session_id <= new.session_id for state in new.replicas.values())
        path = self.paths.partition(partition)
        return await compare_and_set(self.store, path, new.encode(partition), version)

    async def next_client_id(self) -> int:
        """Take a client id that no client has used before. The first id is 1."""
        return await self._take_id(self.paths.client_id)

    async def next_server_id(self) -> int:
        """Take a server id that no server has used before. The first id is 1."""
        return await self._take_id(self.paths.server_id)

    async def storage_maps(self) -> StorageMaps:
        """Read the three maps of storages. Another process may change a map between the reads."""
        groups = await self.groups()
        connections = await self.connections()
        assignments = await self.replica_assignments()
        return StorageMaps(groups.value, connections.value, assignments.value)

    async def add_storage_node(self, storage: str, group: int, admin_port: int) -> None:
        """See storage_maps.add_storage_node. Raises ChangeRefused."""
        await self._change_maps(
            lambda maps, _: storage_maps.add_storage_node(maps, storage, group, admin_port)
        )

    async def remove_storage_node(self, storage: str) -> None:
        """See storage_maps.remove_storage_node. Raises ChangeRefused."""
        await self._change_maps(
            lambda maps, _: storage_maps.remove_storage_node(maps, storage), assignments_first=True
        )

    async def assign_partitions(self, storage: str, partitions: Iterable[int]) -> None:
        """See storage_maps.assign_partitions. Raises ChangeRefused."""
        wanted = tuple(partitions)
        await self._change_maps(
            lambda maps, num_partitions: storage_maps.assign_partitions(
                maps, storage, wanted, num_partitions
            )
        )

    async def unassign_partitions(self, storage: str, partitions: Iterable[int]) -> None:
        """See storage_maps.unassign_partitions. Raises ChangeRefused."""
        wanted = tuple(partitions)
        await self._change_maps(
            lambda maps, _: storage_maps.unassign_partitions(maps, storage, wanted)
        )

    async def change_replicas(self, changes: Iterable[ReplicaChange]) -> None:
        """See storage_maps.change_replicas. One write makes all changes. Raises ChangeRefused."""
        wanted = tuple(changes)
        await self._change_maps(lambda maps, _: storage_maps.change_replicas(maps, wanted))

    async def auto_assign(self, group: int) -> None:
        """See storage_maps.auto_assign. Raises ChangeRefused."""
        await self._change_maps(
            lambda maps, num_partitions: storage_maps.auto_assign(maps, group, num_partitions)
        )

    async def _change_maps(
        self,
        change: Callable[[StorageMaps, int], StorageMaps],
        *,
        assignments_first: bool = False,
    ) -> None:
        """Read, change and write the maps under the admin lock.

        ``change`` gets the maps and the number of partitions, and returns the new maps. Raises
        ChangeRefused, or VersionConflict if the lock was lost and another process has written.

        The maps are written one after the other, so a crash may leave only some of them changed.
        `remove_storage_node` must be able to repair every such state. But it refuses a storage that
        has partitions, and `unassign_partitions` refuses a storage without a group. So a storage
        must have a list of partitions only while it is in a group: the groups are written first if
        a storage is added, and the assignments first if a storage is removed
        (test_remove_storage_node_added_in_part_removes_the_rest).
        """
        num_partitions = (await self.params()).num_partitions
        async with self.admin_lock:
            groups = await self.groups()
            connections = await self.connections()
            assignments = await self.replica_assignments()
            new = change(
                StorageMaps(groups.value, connections.value, assignments.value), num_partitions
            )
            paths = self.paths
            write_groups = _MapWrite(paths.group, groups, new.groups)
            write_assignments = _MapWrite(paths.assignment, assignments, new.assignments)
            write_connections = _MapWrite(paths.connection, connections, new.connections)
            if assignments_first:
                writes = (write_assignments, write_groups, write_connections)
            else:
                writes = (write_groups, write_assignments, write_connections)
            for write in writes:
                if write.new != write.old.value:
                    data = write.new.encode()
                    await compare_and_set(self.store, write.path, data, write.old.version)

    async def _try_membership(self, on_change: OnChange | None) -> Membership | None:
        """Read the membership once.

        Returns None if the assignment was written, or a server left, during the reading.
        """
        parent = self.paths.server_descriptors
        assignment = await self._read_once(parent, PartitionAssignment.decode, on_change)
        children = await self.store.children(parent, on_change)
        # The assignment is the data of ``parent``, and the servers are its children. If both reads
        # give the same version, the assignment had not changed when the children were read.
        if children.version != assignment.version:
            return None
        names = [name for name in children.names if name.startswith(SERVER_PREFIX)]
        paths = [self.paths.server_descriptor(name) for name in names]
        nodes = await asyncio.gather(*(self.store.get(path, on_change) for path in paths))
        members: list[Member] = []
        for name, path, node in zip(names, paths, nodes, strict=True):
            # The server has left since the list was read.
            if node is None:
                return None
            descriptor = _decode_znode(path, ServerDescriptor.decode, node.data or b"")
            members.append(Member(name, node.owner, descriptor))
        return Membership(assignment.value, assignment.version, children.cversion, tuple(members))

    async def _take_id(self, path: str) -> int:
        """Increment the counter at ``path``, and return its new value."""

        async def take() -> int:
            while True:
                last = await self._read_once(path, decode_id, None)
                assert last.value >= 0, f"the counter {path} is never below 0"
                try:
                    await self.store.set(path, encode_id(last.value + 1), last.version)
                except VersionConflict:
                    continue
                return last.value + 1

        # After a lost answer, the number in the node may be this process's or another's. So `take`
        # is repeated as a whole, and takes the next number. An id may be skipped, but is never
        # taken twice (test_ids_are_unique_when_answers_are_lost).
        return await until_answered(self.store, take)

    async def _read(
        self, path: str, decode: Callable[[bytes], T], on_change: OnChange | None = None
    ) -> VersionedValue[T]:
        return await until_answered(self.store, lambda: self._read_once(path, decode, on_change))

    async def _read_once(
        self, path: str, decode: Callable[[bytes], T], on_change: OnChange | None
    ) -> VersionedValue[T]:
        """Read and decode the znode at ``path``, without retries.

        Raises NoCluster if the znode does not exist or has no data.
        """
        node = await self.store.get(path, on_change)
        if node is None and await self.store.get(self.paths.root) is None:
            raise NoCluster(
                f"there is no Waltz cluster at {self.paths.root} in ZooKeeper; create it, or "
                "correct the root: root of waltz.connect, --root, WALTZ_ROOT or cluster.root"
            )
        if node is None or node.data is None:
            raise NoCluster(
                f"the Waltz cluster at {self.paths.root} is incomplete: {path} is not set in "
                "ZooKeeper; if its creation was interrupted, delete it and create it again"
            )
        return VersionedValue(_decode_znode(path, decode, node.data), node.version)


def _decode_znode(path: str, decode: Callable[[bytes], T], data: bytes) -> T:
    """Return the decoded data of the znode at ``path``.

    Raises MalformedMetadata, whose text names the path.
    """
    try:
        return decode(data)
    except MalformedMetadata as problem:
        raise MalformedMetadata(
            f"{problem.kind} at {path} in ZooKeeper", problem.reason
        ) from problem
