"""Plan more copies: give every partition a replica on each pool that the spec names. Pure.

Pools are filled one after the other, with one exception: a partition with a single copy gets
replicas on two pools at once, because two copies would survive no failure
(`waltz.admin.core.replica_addition`). First each storage creates all of its new replicas by one
request, and switches them off: servers do not use an incomplete replica that is off. Then, one
partition after the other, the new replica is filled, switched on, compared and assigned. The next
partition waits until every replica is healthy and holds all committed transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from waltz.admin.core.replica_addition import ReplicaAddition
from waltz.admin.core.replicas import PartitionView
from waltz.admin.core.steps import CreateReplicas, SwitchOff
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.disruption import health_obstacle
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_orders import follow_order, waiting
from waltz_operator.core.planning.znodes import groups_of
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, Step


def plan_added_copies(
    desired: DesiredCluster,
    present: ClusterPresent,
    missing: Iterable[tuple[PartitionView, frozenset[str]]],
    obstacle: str | None = None,
) -> ClusterPlan:
    """Return the plan that adds the replicas on the first pool that lacks some.

    ``missing`` are the partitions that lack replicas, in ascending order, each with the storages
    that must get a replica. ``obstacle`` is why no replica may be filled and assigned now, None if
    this is allowed. Empty replicas are created in spite of an obstacle. The plan is empty if no
    pool lacks replicas.
    """
    # The group of a storage says to which pool the storage belongs.
    groups = groups_of(desired, present.maps)
    pools = [pool.metadata.name for pool in desired.wanted_pools if pool.metadata.name in groups]
    order_of_groups = [groups[pool] for pool in pools]
    additions = [
        (view, _in_order_of_pools(present, order_of_groups, new)) for view, new in missing if new
    ]
    # The first storage of each partition is on the first pool that lacks a replica of it.
    lacking_groups = {_group(present, storages[0]) for _, storages in additions}
    group = next((group for group in order_of_groups if group in lacking_groups), None)
    if group is None:
        return EMPTY_PLAN
    chosen = [
        (view, frozenset(storages[: _num_at_once(view)]))
        for view, storages in additions
        if _group(present, storages[0]) == group
    ]
    return _plan_pool(present, pools[order_of_groups.index(group)], chosen, obstacle)


def _num_at_once(view: PartitionView) -> int:
    """Return how many replicas a partition gets at once; see the docstring of the module."""
    return 2 if len(view.replicas) == 1 else 1


def _plan_pool(
    present: ClusterPresent,
    pool: str,
    additions: Sequence[tuple[PartitionView, frozenset[str]]],
    obstacle: str | None,
) -> ClusterPlan:
    """Return the plan that adds the replicas of the first of ``additions``.

    ``additions`` are the partitions that lack a replica on ``pool``, each with the storages that
    must get one. The replicas of all of them are created first.
    """
    first, storages_of_first = additions[0]
    total = present.num_partitions
    num_complete = total - len(additions)
    change = ShapeChange(
        ShapeChangeKind.ADDING_POOL,
        pool,
        f"pool {pool}: partition {num_complete + 1} of {total}",
        copies=len(first.replicas | storages_of_first),
    )
    storages = sorted({storage for _, new in additions for storage in new})
    for storage in storages:
        if reason := present.replicas.storage_problem(storage):
            return waiting(change, f"storage {storage} does not answer: {reason}")
    if creations := _creations(present, storages, additions):
        return ClusterPlan(creations, change=change)
    if reason := obstacle or health_obstacle(present):
        return waiting(change, reason)
    order = ReplicaAddition(first.partition, storages_of_first)
    plan = follow_order(order, present.replicas, change)
    assert plan is not None, f"partition {first.partition} lacks no replica"
    return plan


def _creations(
    present: ClusterPresent,
    storages: Iterable[str],
    additions: Sequence[tuple[PartitionView, frozenset[str]]],
) -> tuple[Step, ...]:
    """Return the steps by which each storage creates all its replicas, switched off."""
    steps: list[Step] = []
    for storage in storages:
        absent = tuple(
            view.partition
            for view, new in additions
            if storage in new and present.replicas.held(storage, view.partition) is None
        )
        if absent:
            steps += (CreateReplicas(storage, absent), SwitchOff(storage, absent))
    return tuple(steps)


def _in_order_of_pools(
    present: ClusterPresent, order_of_groups: Sequence[int], storages: Iterable[str]
) -> list[str]:
    """Return the storages in the order of their pools."""
    return sorted(storages, key=lambda storage: order_of_groups.index(_group(present, storage)))


def _group(present: ClusterPresent, storage: str) -> int:
    """Return the group of a registered storage."""
    return present.maps.groups.groups[storage]
