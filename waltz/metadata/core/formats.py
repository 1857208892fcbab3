"""The data of every znode, as a frozen value and as bytes. Pure.

Each class has ``encode`` and ``decode``; ``decode`` raises MalformedMetadata. A decoded map keeps
the order of its entries, so that encoding the map again gives the same bytes. Other code must not
change a map in place. Source: spec/zookeeper.md section 2.

A *store session* is a server's exclusive right to write the replicas of one partition
(`waltz.protocol.storage`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from waltz.metadata.core.codec import FieldReader, MalformedMetadata, int32, int64, text
from waltz.net.core.addresses import join_address

K = TypeVar("K")
V = TypeVar("V")

UNRESOLVED = -(2**63)
"""The closing mark of a replica that has not left its store session; see `ReplicaState`."""

NO_SESSION = -1
"""The session id of a partition or a replica that has not had a store session yet."""

_CLUSTER_MAGIC = bytes.fromhex("b4e87347")
_VERSION_1 = b"\x01"
_ASSIGNMENT_VERSION = 3

# The sizes of fields. Their sum is the least size of an entry of a list. The reader needs it to
# check the number of entries before it allocates memory.
_INT_BYTES = 4
_LONG_BYTES = 8
_UUID_BYTES = 16
_EMPTY_TEXT_BYTES = 2


def encode_id(value: int) -> bytes:
    """Return the data of an id counter."""
    return int32(value)


def decode_id(raw: bytes) -> int:
    """Return the last id that a counter assigned; raise MalformedMetadata."""
    fields = FieldReader("id counter", raw)
    value = fields.int32()
    fields.finish()
    return value


@dataclass(frozen=True, slots=True)
class ClusterParams:
    """The name of the cluster and its number of partitions. They never change."""

    name: str
    num_partitions: int

    def encode(self) -> bytes:
        """Return the znode's data."""
        return b"".join((_CLUSTER_MAGIC, _VERSION_1, text(self.name), int32(self.num_partitions)))

    @classmethod
    def decode(cls, raw: bytes) -> ClusterParams:
        """Read the znode's data; raise MalformedMetadata."""
        fields = FieldReader("ClusterParams", raw)
        if fields.raw(len(_CLUSTER_MAGIC)) != _CLUSTER_MAGIC:
            raise fields.fail("it does not start with the cluster's magic number")
        fields.version(1)
        params = cls(fields.text(), fields.int32())
        fields.finish()
        return params


class OwnedPartition(NamedTuple):
    """A partition of a server. ``generation`` grows by 1 whenever the partition changes servers."""

    partition: int
    generation: int


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """Which server owns which partitions.

    ``servers`` maps a server id to the server's partitions. Their order matters: when a server
    joins, other servers release the last partitions of their lists.

    ``cversion`` says for which list of servers this assignment was computed. ZooKeeper increases
    the cversion of a znode with each change of its list of children. The servers' znodes have one
    parent, and ``cversion`` is the cversion that the parent had at that time.
    """

    cversion: int
    num_partitions: int
    servers: Mapping[int, tuple[OwnedPartition, ...]]

    def encode(self) -> bytes:
        """Return the znode's data."""
        parts = [bytes((_ASSIGNMENT_VERSION,)), int32(self.cversion), int32(self.num_partitions)]
        parts.append(int32(len(self.servers)))
        for server_id, owned in self.servers.items():
            parts += (int32(server_id), int32(len(owned)))
            for partition, generation in owned:
                parts += (int32(partition), int32(generation))
        return b"".join(parts)

    @classmethod
    def decode(cls, raw: bytes) -> PartitionAssignment:
        """Read the znode's data; raise MalformedMetadata."""
        fields = FieldReader("PartitionAssignment", raw)
        fields.version(_ASSIGNMENT_VERSION)
        cversion, num_partitions = fields.int32(), fields.int32()

        def read_owned() -> tuple[OwnedPartition, ...]:
            count = fields.count(2 * _INT_BYTES)
            return tuple(OwnedPartition(fields.int32(), fields.int32()) for _ in range(count))

        # The least entry is a server id and a count of 0 partitions.
        servers = _read_map(fields, 2 * _INT_BYTES, fields.int32, read_owned)
        fields.finish()
        return cls(cversion, num_partitions, servers)


UNASSIGNED = PartitionAssignment(-1, 0, {})
"""The assignment of a cluster that has never had a server."""


@dataclass(frozen=True, slots=True)
class ServerDescriptor:
    """A running server: its address for clients, and its preferred partitions (empty: any)."""

    server_id: int
    host: str
    port: int
    preferred: tuple[int, ...] = ()

    @property
    def address(self) -> str:
        """The address for clients, ``host:port``."""
        return join_address(self.host, self.port)

    def encode(self) -> bytes:
        """Return the znode's data."""
        head = (_VERSION_1, int32(self.server_id), text(self.host), int32(self.port))
        return b"".join((*head, _encode_ids(self.preferred)))

    @classmethod
    def decode(cls, raw: bytes) -> ServerDescriptor:
        """Read the znode's data; raise MalformedMetadata."""
        fields = FieldReader("ServerDescriptor", raw)
        fields.version(1)
        descriptor = cls(fields.int32(), fields.text(), fields.int32(), _read_ids(fields))
        fields.finish()
        return descriptor


@dataclass(frozen=True, slots=True)
class StoreParams:
    """The cluster key and the number of partitions.

    By the key, a storage recognises and refuses the servers of another cluster.
    """

    key: uuid.UUID
    num_partitions: int

    def encode(self) -> bytes:
        """Return the znode's data."""
        return b"".join((_VERSION_1, self.key.bytes, int32(self.num_partitions)))

    @classmethod
    def decode(cls, raw: bytes) -> StoreParams:
        """Read the znode's data; raise MalformedMetadata."""
        fields = FieldReader("StoreParams", raw)
        fields.version(1)
        key = uuid.UUID(bytes=fields.raw(_UUID_BYTES))
        params = cls(key, fields.int32())
        fields.finish()
        return params


@dataclass(frozen=True, slots=True)
class GroupDescriptor:
    """A map from storage (``host:port``) to group id. Each group has a copy of every partition."""

    groups: Mapping[str, int]

    def encode(self) -> bytes:
        """Return the znode's data."""
        return _VERSION_1 + _encode_storage_map(self.groups, int32)

    @classmethod
    def decode(cls, raw: bytes) -> GroupDescriptor:
        """Read the znode's data; raise MalformedMetadata."""
        fields = FieldReader("GroupDescriptor", raw)
        return cls(_read_storage_map(fields, fields.int32))


@dataclass(frozen=True, slots=True)
class ConnectionMetadata:
    """A map from storage (``host:port``) to its admin port, which is on the same host."""

    admin_ports: Mapping[str, int]

    def encode(self) -> bytes:
        """Return the znode's data."""
        return _VERSION_1 + _encode_storage_map(self.admin_ports, int32)

    @classmethod
    def decode(cls, raw: bytes) -> ConnectionMetadata:
        """Read the znode's data; raise MalformedMetadata."""
        fields = FieldReader("ConnectionMetadata", raw)
        return cls(_read_storage_map(fields, fields.int32))


@dataclass(frozen=True, slots=True)
class ReplicaAssignments:
    """A map from storage (``host:port``) to the partitions of which the storage has a replica."""

    partitions: Mapping[str, tuple[int, ...]]

    def storages_of(self, partition: int) -> tuple[str, ...]:
        """Return the storages that hold ``partition``, in stored order."""
        return tuple(s for s, held in self.partitions.items() if partition in held)

    def encode(self) -> bytes:
        """Return the znode's data."""
        return _VERSION_1 + _encode_storage_map(self.partitions, _encode_ids)

    @classmethod
    def decode(cls, raw: bytes) -> ReplicaAssignments:
        """Read the znode's data; raise MalformedMetadata."""
        fields = FieldReader("ReplicaAssignments", raw)
        return cls(_read_storage_map(fields, lambda: _read_ids(fields)))


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica's last store session, and its *closing mark*.

    The closing mark is the high-water mark at which the replica left this session: a recovery
    trusts the replica's log only up to this id. It is UNRESOLVED while the replica has not left the
    session.
    """

    session_id: int
    closing_mark: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The store session and the replica states of a partition (spec/zookeeper.md section 6)."""

    generation: int
    session_id: int
    replicas: Mapping[str, ReplicaState]

    def takes_part(self, storage: str) -> bool:
        """Return whether the replica on ``storage`` has recovered in the present store session."""
        return self.replicas.get(storage) == ReplicaState(self.session_id, UNRESOLVED)

    def encode(self, partition: int) -> bytes:
        """Return the data of the znode of ``partition``; every replica's entry contains this id."""
        parts = [_VERSION_1, int32(self.generation), int64(self.session_id)]
        parts.append(int32(len(self.replicas)))
        for storage, state in self.replicas.items():
            # The version of the ReplicaState, then the version of the ReplicaId in it.
            parts += (_VERSION_1, _VERSION_1, int32(partition), text(storage))
            parts += (int64(state.session_id), int64(state.closing_mark))
        return b"".join(parts)

    @classmethod
    def decode(cls, raw: bytes, partition: int) -> PartitionMetadata:
        """Read the data of the znode of ``partition``.

        Raises MalformedMetadata, for example if the entry of a replica has another partition.
        """
        fields = FieldReader("PartitionMetadata", raw)
        fields.version(1)
        generation, session_id = fields.int32(), fields.int64()

        def read_storage() -> str:
            fields.version(1)  # of the ReplicaState
            fields.version(1)  # of the ReplicaId in it
            stored_partition = fields.int32()
            if stored_partition != partition:
                raise fields.fail(
                    f"partition {partition} has a replica of partition {stored_partition}"
                )
            return fields.text()

        def read_state() -> ReplicaState:
            return ReplicaState(fields.int64(), fields.int64())

        # Two version bytes and the partition, the storage, the session id and the closing mark.
        entry_bytes = 2 + _INT_BYTES + _EMPTY_TEXT_BYTES + 2 * _LONG_BYTES
        replicas = _read_map(fields, entry_bytes, read_storage, read_state)
        fields.finish()
        return cls(generation, session_id, replicas)


NEW_PARTITION = PartitionMetadata(-1, NO_SESSION, {})
"""The metadata of a partition that no server has used yet."""


def _encode_ids(ids: Iterable[int]) -> bytes:
    """Return a count and the partition ids."""
    encoded = [int32(partition) for partition in ids]
    return b"".join((int32(len(encoded)), *encoded))


def _read_ids(fields: FieldReader) -> tuple[int, ...]:
    return tuple(fields.int32() for _ in range(fields.count(_INT_BYTES)))


def _encode_storage_map(entries: Mapping[str, V], encode: Callable[[V], bytes]) -> bytes:
    """Return a count and the entries, each with the storage before its value."""
    parts = [int32(len(entries))]
    for storage, value in entries.items():
        parts += (text(storage), encode(value))
    return b"".join(parts)


def _read_storage_map(fields: FieldReader, read_value: Callable[[], V]) -> dict[str, V]:
    """Read all data of a znode: a version and a map from storage to a value.

    Every value that ``read_value`` reads has at least a 32-bit number. So each entry has at least
    an empty text, the storage, and this number.
    """
    fields.version(1)
    entries = _read_map(fields, _EMPTY_TEXT_BYTES + _INT_BYTES, fields.text, read_value)
    fields.finish()
    return entries


def _read_map(
    fields: FieldReader, entry_bytes: int, read_key: Callable[[], K], read_value: Callable[[], V]
) -> dict[K, V]:
    """Read a count and that many entries, each of at least ``entry_bytes``; keep their order."""
    entries: dict[K, V] = {}
    for _ in range(fields.count(entry_bytes)):
        key = read_key()
        if key in entries:
            raise fields.fail(f"{key} is listed twice")
        entries[key] = read_value()
    return entries


__all__ = [
    "NEW_PARTITION",
    "NO_SESSION",
    "UNASSIGNED",
    "UNRESOLVED",
    "ClusterParams",
    "ConnectionMetadata",
    "GroupDescriptor",
    "MalformedMetadata",
    "OwnedPartition",
    "PartitionAssignment",
    "PartitionMetadata",
    "ReplicaAssignments",
    "ReplicaState",
    "ServerDescriptor",
    "StoreParams",
    "decode_id",
    "encode_id",
]
