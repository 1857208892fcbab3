"""Changes of the storage maps: the storages of a cluster, and the partitions of each. Pure.

A *storage* is a storage node. Its name is ``host:port``, the address of its port for servers. Each
operation takes the three maps and returns new maps, or raises ChangeRefused with a sentence for the
user. `waltz.metadata.cluster` reads and writes the maps under a lock. Source: spec/zookeeper.md
section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from waltz.metadata.core.formats import ConnectionMetadata, GroupDescriptor, ReplicaAssignments
from waltz.net.core.addresses import address_problem

V = TypeVar("V")

_MAX_PORT = 65_535


class ChangeRefused(ValueError):
    """The change would break a rule. Nothing was changed. The message names the rule."""


@dataclass(frozen=True, slots=True)
class StorageMaps:
    """The values of the three znodes about storages. The keys of each map are ``host:port``."""

    groups: GroupDescriptor
    connections: ConnectionMetadata
    assignments: ReplicaAssignments

    @classmethod
    def empty(cls) -> StorageMaps:
        """Return the maps of a cluster without storages."""
        return cls(GroupDescriptor({}), ConnectionMetadata({}), ReplicaAssignments({}))

    def group_members(self, group: int) -> tuple[str, ...]:
        """Return the storages of ``group``, in stored order."""
        entries = self.groups.groups.items()
        return tuple(storage for storage, its_group in entries if its_group == group)

    def num_maps_with(self, storage: str) -> int:
        """Return how many of the three maps have ``storage``.

        It is 1 or 2 after the adding or the removal of a storage was interrupted.
        """
        maps = (self.groups.groups, self.connections.admin_ports, self.assignments.partitions)
        return sum(storage in each for each in maps)

    def admin_addresses(self) -> dict[str, str]:
        """Return the address of the admin port, ``host:port``, of each storage that has one."""
        # The last colon precedes the port. So the brackets of an IPv6 address stay.
        ports = self.connections.admin_ports.items()
        return {storage: f"{storage.rpartition(':')[0]}:{port}" for storage, port in ports}


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """A change of the storages that hold ``partition``: from ``expected`` to ``wanted``.

    The change is refused if the storages are not ``expected`` any more.
    """

    partition: int
    expected: frozenset[str]
    wanted: frozenset[str]


def add_storage_node(maps: StorageMaps, storage: str, group: int, admin_port: int) -> StorageMaps:
    """Add ``storage`` (``host:port``) to ``group``, with no partitions.

    Raises ChangeRefused if one of the maps has the storage already, or if ``storage``, ``group`` or
    ``admin_port`` is malformed.
    """
    _check_address(storage, admin_port)
    if group < 0:
        raise ChangeRefused(f"Storage {storage} cannot join group {group}: group ids start at 0.")
    match maps.num_maps_with(storage):
        case 0:
            pass
        case 3:
            known = maps.groups.groups[storage]
            raise ChangeRefused(f"Storage {storage} is already in the cluster, in group {known}.")
        case _:
            raise _half_known(storage)
    return StorageMaps(
        GroupDescriptor({**maps.groups.groups, storage: group}),
        ConnectionMetadata({**maps.connections.admin_ports, storage: admin_port}),
        ReplicaAssignments({**maps.assignments.partitions, storage: ()}),
    )


def remove_storage_node(maps: StorageMaps, storage: str) -> StorageMaps:
    """Remove ``storage`` from every map.

    Raises ChangeRefused if no map has the storage, or if partitions are assigned to it.
    """
    groups, ports = maps.groups.groups, maps.connections.admin_ports
    partitions = maps.assignments.partitions
    if maps.num_maps_with(storage) == 0:
        raise _unknown(maps, storage)
    if held := partitions.get(storage):
        raise ChangeRefused(
            f"Storage {storage} still has {_partition_list(held)} assigned; unassign first, "
            "so that no replica is lost."
        )
    return StorageMaps(
        GroupDescriptor(_without(groups, storage)),
        ConnectionMetadata(_without(ports, storage)),
        ReplicaAssignments(_without(partitions, storage)),
    )


def assign_partitions(
    maps: StorageMaps, storage: str, partitions: Iterable[int], num_partitions: int
) -> StorageMaps:
    """Give ``storage`` a replica of each of ``partitions``.

    Raises ChangeRefused if ``partitions`` is empty, a partition does not exist, the storage is
    unknown, or one of the partitions is already assigned to it.
    """
    wanted = _sorted_partitions(partitions)
    # The partitions are sorted: if the first and the last exist, the others exist, too.
    for partition in (wanted[0], wanted[-1]):
        if not 0 <= partition < num_partitions:
            raise ChangeRefused(
                f"Partition {partition} does not exist; the cluster has partitions "
                f"0 to {num_partitions - 1}."
            )
    held = _partitions_of(maps, storage)
    if held_already := [p for p in wanted if p in held]:
        raise ChangeRefused(f"Storage {storage} already has {_partition_list(held_already)}.")
    return _with_partitions(maps, {storage: tuple(sorted((*held, *wanted)))})


def unassign_partitions(maps: StorageMaps, storage: str, partitions: Iterable[int]) -> StorageMaps:
    """Remove the replicas of ``partitions`` from ``storage``.

    A group must keep a replica of every partition. So ChangeRefused is raised if one of the
    partitions has no other replica in the group. It is also raised if ``partitions`` is empty, the
    storage is unknown or in no group, or one of the partitions is not assigned to it.
    """
    wanted = _sorted_partitions(partitions)
    held = _partitions_of(maps, storage)
    group = maps.groups.groups.get(storage)
    if group is None:
        raise ChangeRefused(
            f"Storage {storage} is in no group, so it is unknown whether the "
            "partitions have another replica."
        )
    if missing := [p for p in wanted if p not in held]:
        raise ChangeRefused(f"Storage {storage} does not have {_partition_list(missing)}.")
    held_by_others: set[int] = set()
    for member in maps.group_members(group):
        if member != storage:
            held_by_others.update(maps.assignments.partitions.get(member, ()))
    if only_here := [p for p in wanted if p not in held_by_others]:
        raise ChangeRefused(
            f"Storage {storage} holds the only replica of {_partition_list(only_here)} in group "
            f"{group}; assign to another storage of the group first, or remove the replicas of the "
            f"whole group with: waltz storage retire-group {group}"
        )
    return _with_partitions(maps, {storage: tuple(p for p in held if p not in wanted)})


def change_replicas(maps: StorageMaps, changes: Iterable[ReplicaChange]) -> StorageMaps:
    """Assign each partition of ``changes`` to exactly its wanted storages.

    The caller must make sure that a quorum remains. Raises ChangeRefused if a storage is unknown, a
    partition would have no storage, or a partition's storages are not the expected ones.
    """
    held = {storage: set(partitions) for storage, partitions in maps.assignments.partitions.items()}
    changed_storages: set[str] = set()
    for change in changes:
        present = frozenset(s for s, partitions in held.items() if change.partition in partitions)
        if present != change.expected:
            raise ChangeRefused(
                f"Partition {change.partition} is on {_storage_list(present)}, no longer on "
                f"{_storage_list(change.expected)}: another process has moved it. Read the maps "
                "again."
            )
        if not change.wanted:
            raise ChangeRefused(f"No storage would hold partition {change.partition}.")
        for storage in change.wanted - held.keys():
            raise _unknown(maps, storage)
        for storage in change.wanted - present:
            held[storage].add(change.partition)
        for storage in present - change.wanted:
            held[storage].discard(change.partition)
        # The storages in only one of the two sets get or lose the partition.
        changed_storages.update(change.wanted ^ present)
    return _with_partitions(
        maps, {storage: tuple(sorted(held[storage])) for storage in changed_storages}
    )


def auto_assign(maps: StorageMaps, group: int, num_partitions: int) -> StorageMaps:
    """Assign all partitions round-robin to the storages of ``group``.

    Raises ChangeRefused if the group has no storage, or one of its storages has partitions.
    """
    members = maps.group_members(group)
    if not members:
        raise ChangeRefused(f"Group {group} has no storage; add one first.")
    for member in members:
        if held := _partitions_of(maps, member):
            raise ChangeRefused(
                f"Storage {member} of group {group} already has {_partition_list(held)}; only a "
                "group without any can be assigned automatically."
            )
    return _with_partitions(
        maps,
        {
            member: tuple(range(place, num_partitions, len(members)))
            for place, member in enumerate(members)
        },
    )


def assign_everything(
    groups: Mapping[str, int], admin_ports: Mapping[str, int], num_partitions: int
) -> StorageMaps:
    """Return the maps of a new cluster in which every storage holds every partition.

    Raises ChangeRefused if a storage, a group or an admin port is malformed.
    """
    maps = StorageMaps.empty()
    for storage, group in groups.items():
        maps = add_storage_node(maps, storage, group, admin_ports[storage])
    return _with_partitions(maps, {storage: tuple(range(num_partitions)) for storage in groups})


def is_address(storage: str) -> bool:
    """Return whether ``storage`` has the form of an address, ``host:port``.

    This check is for names that are already in a map: it only makes sure that a server can split
    the name into host and port. A name that is to be added must pass `address_problem`, which also
    checks the host.
    """
    host, _, port = storage.rpartition(":")
    # Not more than five digits: `int` refuses a very long text.
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    return bool(host) and is_number and 0 < int(port) <= _MAX_PORT


def _check_address(storage: str, admin_port: int) -> None:
    if (problem := address_problem(storage)) is not None:
        raise ChangeRefused(f"{storage!r} is not the address of a storage; {problem}.")
    if not 0 < admin_port <= _MAX_PORT:
        raise ChangeRefused(f"{admin_port} is not a port; it must be between 1 and {_MAX_PORT}.")


def _sorted_partitions(partitions: Iterable[int]) -> list[int]:
    """Return the partitions of a change, sorted, each once; raises ChangeRefused if none."""
    wanted = sorted(set(partitions))
    if not wanted:
        raise ChangeRefused("No partition was given; give at least one.")
    return wanted


def _partitions_of(maps: StorageMaps, storage: str) -> tuple[int, ...]:
    """Return the partitions of a storage; raises ChangeRefused if the storage is unknown."""
    held = maps.assignments.partitions.get(storage)
    if held is None:
        raise _unknown(maps, storage)
    return held


def _half_known(storage: str) -> ChangeRefused:
    """Return the error for a storage that is in some of the maps, but not in all."""
    return ChangeRefused(
        f"Storage {storage} is only in some of the maps, because adding or removing it was "
        "interrupted; remove it, then add it again."
    )


def _unknown(maps: StorageMaps, storage: str) -> ChangeRefused:
    """Return the error for a storage that the caller has not found in one of the maps."""
    if storage in maps.groups.groups:
        return _half_known(storage)
    known = ", ".join(maps.groups.groups) or "none"
    return ChangeRefused(f"Storage {storage} is not in the cluster; its storages are: {known}.")


def _partition_list(ids: Iterable[int]) -> str:
    listed = sorted(ids)
    return f"partition{'s' if len(listed) > 1 else ''} {', '.join(map(str, listed))}"


def _storage_list(storages: Iterable[str]) -> str:
    return ", ".join(sorted(storages)) or "no storage"


def _without(entries: Mapping[str, V], storage: str) -> dict[str, V]:
    return {name: value for name, value in entries.items() if name != storage}


def _with_partitions(maps: StorageMaps, changed: Mapping[str, tuple[int, ...]]) -> StorageMaps:
    return replace(maps, assignments=ReplicaAssignments({**maps.assignments.partitions, **changed}))
