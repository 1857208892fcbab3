"""Plan the cluster's znodes and the registration of its storages. Pure.

The rules protect an existing log: znodes are created only where there are none and only for a
cluster that has never existed. If metadata was used and is incomplete, the plan only reports a
problem, which a person must solve. A new cluster at the same root would start with empty partitions
while the storages still have transactions.

The ``wanted_pools`` of a cluster are the claimed pools that its spec names. Its ``own_pools`` are
these and the pools that are leaving it, whose storages may still be registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from waltz.admin.core.steps import RegisterStorage, UnregisterStorage
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, addresses_of, ordinal_of
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import (
    ClusterAbsent,
    ClusterIncomplete,
    ClusterMalformed,
    ClusterPresent,
    ObservedCluster,
)
from waltz_operator.core.resources import StoragePool
from waltz_operator.core.steps import (
    EMPTY_PLAN,
    ClusterPlan,
    CreateMetadata,
    DeleteMetadata,
    problem,
)

_OTHER_ROOT = "create this WaltzCluster again with another zookeeper.root"
"""The remedy for a root that cannot be used: the root of a WaltzCluster cannot change."""


class _RegisteredGroups(NamedTuple):
    """The ids of the groups in which the storages of one pool are registered.

    ``with_partitions`` are the groups of the storages that have partitions.
    ``without_partitions`` are the groups of the other storages, in the order of the storages'
    ordinals. A group may be in both.
    """

    with_partitions: set[int]
    without_partitions: list[int]


def is_metadata_lost(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether the cluster existed before, and all or some of its znodes are gone.

    Such metadata must not be created again. New znodes would be those of an empty log: servers
    would truncate the logs of the storages, and all committed transactions would be lost
    (test_vanished_metadata_of_an_existing_cluster_is_never_created_again).
    """
    if not isinstance(observed.metadata, ClusterAbsent | ClusterIncomplete):
        return False
    # spec.clusterKey is the key of an earlier cluster, whose volumes still have the log.
    earlier_key = desired.cluster.status.cluster_key or desired.cluster.spec.cluster_key
    # Storages start only after the metadata exists. So a StatefulSet of storages shows that the
    # metadata existed, even if the status does not have the key yet.
    sets = (ObjectKey("StatefulSet", names.storage_set(p.metadata.name)) for p in desired.own_pools)
    return bool(earlier_key) or any(key in observed.objects for key in sets)


def plan_metadata(
    desired: DesiredCluster,
    metadata: ClusterAbsent | ClusterIncomplete | ClusterMalformed | ClusterPresent,
    *,
    is_lost: bool,
) -> ClusterPlan:
    """Return the plan that creates the znodes; the empty plan if they are as desired.

    The remains of an interrupted creation are deleted first. Any other content of the root is a
    problem: it belongs to another cluster, is damaged, or has another number of partitions. With
    ``is_lost`` (see `is_metadata_lost`), an absent or incomplete root is a problem, too.
    """
    root, count = desired.root, desired.cluster.spec.partitions
    adopt, status = desired.cluster.spec.adopt, desired.cluster.status
    match metadata:
        case ClusterAbsent() | ClusterIncomplete() if adopt is not None and not status.cluster_key:
            return problem(
                f"{root} in ZooKeeper at {desired.zookeeper} has no complete cluster, but "
                f"spec.adopt names the cluster {adopt.cluster_name}: nothing is created. Correct "
                "spec.zookeeper.external.connectString while spec.paused is true, or create this "
                "WaltzCluster again with the root of that cluster"
            )
        case ClusterAbsent() | ClusterIncomplete() if is_lost:
            state = "does not exist" if isinstance(metadata, ClusterAbsent) else "is incomplete"
            return problem(
                f"{root} in ZooKeeper {state}, but this cluster existed before: its metadata is "
                "lost. Nothing is created, because a new cluster would be empty. Restore "
                "ZooKeeper's data from a backup, or rebuild the metadata from the storages with "
                "`waltz cluster metadata restore` or, without a backup of the metadata, "
                f"`waltz cluster rescue` (cluster {desired.metadata_name}, key {desired.key})"
            )
        case ClusterAbsent():
            return ClusterPlan((CreateMetadata(desired.metadata_name, count, desired.key),))
        case ClusterMalformed(reason):
            return problem(
                f"{root} in ZooKeeper cannot be decoded: {reason}; restore its znodes from a "
                f"backup, or {_OTHER_ROOT}"
            )
        case ClusterIncomplete(name) if not is_own_incomplete_metadata(desired, metadata):
            return problem(
                f"{root} in ZooKeeper has an incomplete cluster ({name or 'without a name'}) "
                "that was used, or that another WaltzCluster created: restore its znodes, or "
                f"{_OTHER_ROOT}"
            )
        case ClusterIncomplete(_, key):
            return ClusterPlan((DeleteMetadata(desired.metadata_name, key, complete=False),))
        case ClusterPresent(name, _, _) if name != desired.metadata_name:
            return problem(
                f"{root} in ZooKeeper has another cluster, {name}: {_OTHER_ROOT}, or, to take over "
                f"that cluster, with spec.adopt.clusterName {name}"
            )
        case ClusterPresent(name, _, key) if key != desired.key and adopt is not None:
            return problem(
                f"the cluster {name} at {root} in ZooKeeper has the key {key}, but spec.clusterKey "
                f"is {desired.key}: nothing is changed. Create this WaltzCluster again with the "
                "root and the key of the cluster that you want to take over"
            )
        case ClusterPresent(name, _, key) if key != desired.key:
            return problem(
                f"{root} in ZooKeeper has an earlier cluster {name} with the key {key}: "
                f"{_OTHER_ROOT}; or, to take over that cluster with its volumes, set "
                f"spec.clusterKey to {key}"
            )
        case ClusterPresent(_, partitions, _) if partitions != count:
            return problem(
                f"the cluster at {root} in ZooKeeper has {partitions} partitions: create a new "
                f"WaltzCluster with spec.partitions {partitions}"
            )
        case ClusterPresent():
            return EMPTY_PLAN


def is_own_incomplete_metadata(desired: DesiredCluster, metadata: ClusterIncomplete) -> bool:
    """Whether incomplete metadata comes from an interrupted creation of this cluster.

    Only such metadata is deleted and created again. Metadata that was used belongs to a cluster
    that was complete before. Metadata with another name or key belongs to another cluster
    (test_incomplete_metadata_with_foreign_znodes_is_never_deleted).
    """
    return (
        not metadata.used
        and metadata.name in (None, desired.metadata_name)
        and metadata.key in (None, desired.key)
    )


def plan_storages(desired: DesiredCluster, present: ClusterPresent) -> ClusterPlan:
    """Return the steps that register storages in the groups of their pools.

    A registration that is wrong or incomplete is made again. If the storage has partitions, it is a
    problem instead: its group and its admin port must not change then (*Identity* in the docstring
    of the package).
    """
    maps, result = present.maps, EMPTY_PLAN
    groups = groups_of(desired, maps)
    for pool in desired.wanted_pools:
        group = groups.get(pool.metadata.name)
        if group is None:
            result += problem(
                f"the storages of StoragePool {pool.metadata.name} have partitions in several "
                "groups, or share a group with another pool: move them into one group of their "
                "own by hand"
            )
            continue
        for storage in addresses_of(pool):
            if is_registered(maps, storage, group, pool.spec.admin_port):
                continue
            if maps.assignments.partitions.get(storage):
                result += problem(
                    f"storage {storage} has partitions, but is not registered in ZooKeeper in "
                    f"group {group} with admin port {pool.spec.admin_port}: correct its "
                    "registration by hand"
                )
                continue
            if storage in known_storages(maps):
                result += ClusterPlan((UnregisterStorage(storage),))
            result += ClusterPlan((RegisterStorage(storage, group, pool.spec.admin_port),))
    return result


def is_registered(maps: StorageMaps, storage: str, group: int, admin_port: int) -> bool:
    """Whether a storage is in all three storage maps, with this group and this admin port."""
    return (
        maps.groups.groups.get(storage) == group
        and maps.connections.admin_ports.get(storage) == admin_port
        and storage in maps.assignments.partitions
    )


def known_storages(maps: StorageMaps) -> frozenset[str]:
    """Return the storages that any of the storage maps contains.

    After an incomplete change by hand, a storage without a group may have partitions.
    """
    return frozenset(
        {*maps.groups.groups, *maps.connections.admin_ports, *maps.assignments.partitions}
    )


def groups_of(desired: DesiredCluster, maps: StorageMaps) -> Mapping[str, int]:
    """Return the id of the group of each pool, by the pool's name.

    The registration of the pool's storages decides:

    1. A pool with partitions has the group of its storages with partitions. It is omitted if these
       storages are in several groups, or in the group of an earlier pool.
    2. A pool without partitions has the group of one of its storages: the first group, in the order
       of the storages' ordinals, that is free. A group is free if it is not chosen for another
       pool, has no partitions of any pool, and has no storage outside of the pools.
    3. If rule 2 finds no group, the pool without partitions gets the smallest free id.

    Two pools never get the same group, and no pool gets a group in which another pool has
    partitions, because two copies of a partition in one group count as one copy
    (test_new_pool_gets_no_group_of_a_pool_in_several_groups).
    """
    pools = desired.own_pools
    registered = {pool.metadata.name: _registered_groups(pool, maps) for pool in pools}
    chosen: dict[str, int] = {}
    for name, groups in registered.items():
        if len(groups.with_partitions) != 1:
            continue
        (group,) = groups.with_partitions
        if group not in chosen.values():
            chosen[name] = group
    # The groups that are not free. They include the groups that are chosen already.
    occupied = (groups.with_partitions for groups in registered.values())
    taken = _foreign_groups(desired, maps).union(*occupied)
    empty_pools = {
        name: groups for name, groups in registered.items() if not groups.with_partitions
    }
    for name, groups in empty_pools.items():
        if free_groups := [group for group in groups.without_partitions if group not in taken]:
            chosen[name] = free_groups[0]
            taken.add(free_groups[0])
    for name in empty_pools:
        if name not in chosen:
            chosen[name] = next(group for group in range(len(taken) + 1) if group not in taken)
            taken.add(chosen[name])
    assert len({*chosen.values()}) == len(chosen), "one group for two pools"
    return chosen


def _registered_groups(pool: StoragePool, maps: StorageMaps) -> _RegisteredGroups:
    """Return the groups in which the storages of ``pool`` are registered."""
    with_partitions, without_partitions = set(), []
    ordinals = {storage: ordinal_of(pool, storage) for storage in maps.groups.groups}
    members = {storage: ordinal for storage, ordinal in ordinals.items() if ordinal is not None}
    for storage in sorted(members, key=lambda member: members[member]):
        group = maps.groups.groups[storage]
        if maps.assignments.partitions.get(storage):
            with_partitions.add(group)
        else:
            without_partitions.append(group)
    return _RegisteredGroups(with_partitions, without_partitions)


def _foreign_groups(desired: DesiredCluster, maps: StorageMaps) -> set[int]:
    """Return the groups of registered storages that are in no pool of this cluster."""
    return {
        group
        for storage, group in maps.groups.groups.items()
        if all(ordinal_of(pool, storage) is None for pool in desired.own_pools)
    }
