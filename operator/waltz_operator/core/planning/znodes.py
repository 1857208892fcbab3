"""The cluster's znodes, and which storages they name. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from waltz.admin.core.steps import RegisterStorage, UnregisterStorage
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.desired import Desired, addresses_of, ordinal_of
from waltz_operator.core.observed import Absent, Present, Strange, Unfinished
from waltz_operator.core.resources import StoragePool
from waltz_operator.core.steps import (
    NOTHING,
    CreateMetadata,
    DeleteMetadata,
    Plan,
    problem,
)


def plan_metadata(desired: Desired, found: Absent | Unfinished | Strange | Present) -> Plan:
    """Return how the znodes come to be; a problem if there are others' at the root."""
    root, count = desired.root, desired.cluster.spec.partitions
    match found:
        case Absent():
            return Plan((CreateMetadata(desired.metadata_name, count, desired.key),))
        case Strange(reason):
            return problem(f"{root} in ZooKeeper cannot be understood: {reason}; use another root")
        case Unfinished() if not is_own_beginning(desired, found):
            return problem(
                f"{root} in ZooKeeper has an incomplete cluster ({found.name or 'without a name'}) "
                "that this one did not begin, or that was used: restore it, or use another root"
            )
        case Unfinished():
            return Plan((DeleteMetadata(desired.metadata_name),))
        case Present(name, partitions, key) if (name, key) != (desired.metadata_name, desired.key):
            return problem(
                f"{root} in ZooKeeper has the cluster {name} with the key {key}, which is not this "
                f"one: use another root; or, to take it over with its volumes, set "
                f"spec.clusterKey to {key}"
                if name == desired.metadata_name
                else f"{root} in ZooKeeper has another cluster, {name}: use another root"
            )
        case Present(_, partitions, _) if partitions != count:
            return problem(
                f"the cluster at {root} in ZooKeeper has {partitions} partitions: set "
                "spec.partitions to that in a new WaltzCluster"
            )
        case Present():
            return NOTHING


def is_own_beginning(desired: Desired, found: Unfinished) -> bool:
    """Whether an incomplete cluster is what a broken off creation of this one left."""
    return (
        not found.used
        and found.name in (None, desired.metadata_name)
        and found.key in (None, desired.key)
    )


def plan_storages(desired: Desired, present: Present) -> Plan:
    """Return which storages are to be registered, in which groups."""
    maps, result = present.maps, NOTHING
    groups = groups_of(desired, maps)
    for pool in desired.own_pools:
        group = groups.get(pool.metadata.name)
        if group is None:
            result += problem(
                f"the storages of StoragePool {pool.metadata.name} have partitions in several "
                "groups, or in one with another pool: move them into one by hand"
            )
            continue
        for storage in addresses_of(pool):
            if is_registered(maps, storage, group, pool.spec.admin_port):
                continue
            if maps.assignments.partitions.get(storage):
                result += problem(
                    f"storage {storage} has partitions, but ZooKeeper does not know it as one of "
                    f"group {group} with admin port {pool.spec.admin_port}: correct that by hand"
                )
                continue
            if _is_known(maps, storage):
                result += Plan((UnregisterStorage(storage),))
            result += Plan((RegisterStorage(storage, group, pool.spec.admin_port),))
    return result


def is_registered(maps: StorageMaps, storage: str, group: int, admin_port: int) -> bool:
    """Whether all three maps know a storage as it shall be."""
    return (
        maps.groups.groups.get(storage) == group
        and maps.connections.admin_ports.get(storage) == admin_port
        and storage in maps.assignments.partitions
    )


def groups_of(desired: Desired, maps: StorageMaps) -> Mapping[str, int]:
    """Return which group each pool is, by what its storages are known as.

    Storages with partitions decide first, then those without; a pool of which nothing is known
    gets the smallest id that nobody has. A pool that cannot be one group has none.
    """
    pools = desired.own_pools
    known = {pool.metadata.name: _groups_of_pool(pool, maps) for pool in pools}
    chosen: dict[str, int] = {}
    for name, (full, _) in known.items():
        if len(full) == 1 and not full & set(chosen.values()):
            chosen |= dict.fromkeys((name,), *full)
    for name, (full, empty) in known.items():
        free = [group for group in empty if group not in chosen.values()]
        if not full and free:
            chosen[name] = free[0]
    taken = {*chosen.values(), *_foreign_groups(desired, maps)}
    for name, (full, _) in known.items():
        if not full and name not in chosen:
            chosen[name] = next(group for group in range(len(taken) + 1) if group not in taken)
            taken.add(chosen[name])
    return chosen


def _groups_of_pool(pool: StoragePool, maps: StorageMaps) -> tuple[set[int], list[int]]:
    """Return the groups of the pool's storages that have partitions, and of those that have none.

    The latter are in the order of the storages.
    """
    full, empty = set(), []
    members = {s: n for s in maps.groups.groups if (n := ordinal_of(pool, s)) is not None}
    for storage in sorted(members, key=lambda each: members[each]):
        group = maps.groups.groups[storage]
        if maps.assignments.partitions.get(storage):
            full.add(group)
        else:
            empty.append(group)
    return full, empty


def _foreign_groups(desired: Desired, maps: StorageMaps) -> set[int]:
    """Return the groups of storages that are no pool's of this cluster."""
    return {
        group
        for storage, group in maps.groups.groups.items()
        if all(ordinal_of(pool, storage) is None for pool in desired.own_pools)
    }


def _is_known(maps: StorageMaps, storage: str) -> bool:
    return (
        storage in maps.groups.groups
        or storage in maps.connections.admin_ports
        or storage in maps.assignments.partitions
    )
