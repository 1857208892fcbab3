"""Plan moves inside a pool: storages are drained, and partitions are spread evenly. Pure.

The order `Move` of `waltz.admin` performs each move; one partition moves at a time. A storage whose
ordinal is not below ``spec.storages`` is drained: its partitions move to the other storages, and it
is unregistered when it holds nothing. Only then is its StatefulSet scaled down
(`planning.workloads`). While no drained storage has partitions, a partition moves from the storage
with the most partitions to the one with the fewest, as long as the two numbers differ by more than
one. The partitions cannot be spread evenly by fewer moves. If a user has requested it, the
partitions are arranged by bytes instead (`planning.shape_rebalance`).

The plan does not depend on earlier plans. If the spec is changed back during a drain, the next
plans spread the partitions again. A move that was interrupted ends at the storage that the present
spec prefers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from waltz.admin.core.move import Move
from waltz.admin.core.steps import UnregisterStorage
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.disruption import health_obstacle
from waltz_operator.core.names import REBALANCED_ANNOTATION
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_members import PoolMembers, move_text
from waltz_operator.core.planning.shape_orders import follow_order, waiting
from waltz_operator.core.planning.shape_rebalance import (
    Capacities,
    next_recorded_move,
    plan_record,
    recorded_change,
)
from waltz_operator.core.planning.znodes import groups_of
from waltz_operator.core.rebalance import recorded_rebalance
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, problem


def plan_moves(
    desired: DesiredCluster, present: ClusterPresent, capacities: Capacities
) -> ClusterPlan:
    """Return the plan of the first pool whose partitions have to move.

    ``capacities`` are the sizes of the data volumes, by storage.
    """
    groups = groups_of(desired, present.maps)
    for pool in desired.wanted_pools:
        group = groups.get(pool.metadata.name)
        if group is None:
            continue
        try:
            record = recorded_rebalance(pool)
        except ValueError as malformed:
            return problem(
                f"the annotation {REBALANCED_ANNOTATION} of StoragePool {pool.metadata.name} "
                f"cannot be decoded ({malformed}): remove it"
            )
        plan = _plan_pool(present, PoolMembers.of(pool, present, group, record), capacities)
        if not plan.done:
            return plan
    return EMPTY_PLAN


def _plan_pool(
    present: ClusterPresent, members: PoolMembers, capacities: Capacities
) -> ClusterPlan:
    """Return the plan for one pool.

    The plan completes the moves that have begun. If there are none, it begins the next one. If no
    partition has to move, it unregisters the drained storages. A rebalance begins or ends only when
    nothing of this is left to do.
    """
    if not members.staying:
        return EMPTY_PLAN  # No storage can get a partition yet.
    move = _next_drain(members)
    if move is None and members.is_spread_by_count:
        move = _next_spread(members)
    elif move is None:
        move = next_recorded_move(present, members, capacities)
    for begun in (*_half_done_moves(members), *_leftover_moves(present, members, move)):
        if (plan := _follow(present, members, begun)) is not None:
            return plan
    if move is not None and not _is_skipped(present, members, move):
        return _begin(present, members, move)
    # From the highest ordinal down, as the partitions leave (`_next_drain`).
    unregistered = tuple(map(UnregisterStorage, reversed(members.drained)))
    if not unregistered:
        return plan_record(present, members, capacities)
    what = "its empty storages are removed"
    change = members.change(present, what, ShapeChangeKind.MOVING_PARTITIONS)
    for storage in members.drained:
        # Only a storage that answers is known to hold nothing.
        if reason := present.replicas.storage_problem(storage):
            return waiting(change, f"storage {storage} does not answer: {reason}")
    return ClusterPlan(unregistered, change=change)


def _storages_by_partition(members: PoolMembers) -> dict[int, list[str]]:
    """Return the storages of the pool to which each partition is assigned."""
    result: dict[int, list[str]] = {}
    for storage, partitions in members.assigned.items():
        for partition in partitions:
            result.setdefault(partition, []).append(storage)
    return result


def _half_done_moves(members: PoolMembers) -> Iterator[Move]:
    """Yield the moves of which the partition is assigned to both the source and the destination.

    Which storage was the source is recorded only for a rebalance. Otherwise the present spec
    decides: the partition stays on a storage that is not drained. Of several such storages, it
    stays on the one with the fewest partitions (`PoolMembers.keep_key`).
    """
    for partition, storages in sorted(_storages_by_partition(members).items()):
        if len(storages) == 1:
            continue
        keep = min(storages, key=partial(members.keep_key, partition))
        for source in storages:
            if source != keep:
                yield members.move(partition, source, keep)


def _leftover_moves(
    present: ClusterPresent, members: PoolMembers, move: Move | None
) -> Iterator[Move]:
    """Yield a move for each *leftover*.

    A leftover is a replica on a storage to which its partition is not assigned, while the partition
    is assigned to another storage of the pool. It is at the source of a move whose assignment has
    changed, or at the destination of an interrupted move that the present spec does not want. The
    only step that such a move still needs is that the storage drops the leftover.

    ``move`` is the next move. The replica at its destination is being filled, so it is no leftover,
    although it is not assigned yet.
    """
    assigned = _storages_by_partition(members)
    being_filled = None if move is None else (move.destination, move.partition)
    for storage in (*members.staying, *members.drained):
        report = present.replicas.storages.get(storage)
        if report is None:
            continue
        for partition in sorted(report.held):
            assigned_storages = assigned.get(partition, [])
            is_assigned_elsewhere = bool(assigned_storages) and storage not in assigned_storages
            if is_assigned_elsewhere and (storage, partition) != being_filled:
                yield members.move(partition, storage, assigned_storages[0])


def _next_drain(members: PoolMembers) -> Move | None:
    """Return the next move away from a drained storage, None if all drained ones are empty."""
    target = min(members.staying, key=members.load_key)
    # From the highest ordinal down, because a StatefulSet removes its highest pods first.
    for source in reversed(members.drained):
        if members.assigned[source]:
            return members.move(min(members.assigned[source]), source, target)
    return None


def _next_spread(members: PoolMembers) -> Move | None:
    """Return the next move that spreads the partitions by count, None if they are spread."""
    target = min(members.staying, key=members.load_key)
    source = max(members.staying, key=lambda each: len(members.assigned[each]))
    if len(members.assigned[source]) - len(members.assigned[target]) < 2:
        return None
    return members.move(min(members.assigned[source]), source, target)


def _is_skipped(present: ClusterPresent, members: PoolMembers, move: Move) -> bool:
    """Whether a move that spreads the partitions is skipped, because it moves a single copy.

    During the move there are two copies, and one copy is no quorum of two. A move that drains a
    storage is not skipped: the order `Move` refuses it, and the refusal becomes a problem of the
    plan.
    """
    view = present.replicas.partitions[move.partition]
    return len(view.replicas) == 1 and move.source in members.staying


def _begin(present: ClusterPresent, members: PoolMembers, move: Move) -> ClusterPlan:
    """Return the plan that begins a move, if all replicas of all partitions are healthy."""
    change = _move_change(present, members, move)
    if reason := health_obstacle(present):
        return waiting(change, reason)
    return follow_order(move, present.replicas, change) or EMPTY_PLAN


def _follow(present: ClusterPresent, members: PoolMembers, move: Move) -> ClusterPlan | None:
    """Return the plan that continues a move, None if the move is complete."""
    return follow_order(move, present.replicas, _move_change(present, members, move))


def _move_change(present: ClusterPresent, members: PoolMembers, move: Move) -> ShapeChange:
    """Return the change of which ``move`` is the next part; its progress has the moves left."""
    if (recorded := recorded_change(present, members, move)) is not None:
        return recorded
    num_to_drain = sum(len(members.assigned[each]) for each in members.drained)
    loads = sorted(len(members.assigned[each]) for each in members.staying)
    # A move counts until its source has dropped the replica, also when no partition has to move.
    num_left = max(1, num_to_drain or _num_moves(loads))
    what = f"{move_text(move)}, {num_left} left to move"
    return members.change(present, what, ShapeChangeKind.MOVING_PARTITIONS)


def _num_moves(loads: Sequence[int]) -> int:
    """Return how many moves spread the partitions of storages with these ``loads`` evenly.

    ``loads`` are ascending. The loads 0, 1 and 6 become 2, 2 and 3, by 3 moves.
    """
    share, extra = divmod(sum(loads), len(loads))
    wanted = [share] * (len(loads) - extra) + [share + 1] * extra
    return sum(max(0, load - target) for load, target in zip(loads, wanted, strict=True))
