"""Plan the rebalance of a pool by bytes, which a user has requested. Pure.

`core.balance` chooses the moves once, while every replica of the cluster is healthy, and
`core.rebalance` defines how the moves are recorded. They are then followed in their order, each as
any other move (`planning.shape_moves`). If a move is no longer an improvement when its turn comes,
it is left out: for example, a partition has grown meanwhile. A move that has begun is completed,
also if the request is withdrawn.

While a request is *open* (not complete), the partitions of the pool are not spread by count. After
the request is complete, they are not spread by count as long as the number of storages stays the
same. Otherwise the two rules could move a partition to and fro
(tests/unit/operator/test_operator_rebalance_properties.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from waltz.admin.core.move import Move
from waltz.admin.core.replicas import PartitionView
from waltz_operator.core.balance import PlannedMove, VolumeUse, choose_moves, is_improvement
from waltz_operator.core.desired import ordinal_of
from waltz_operator.core.disruption import health_obstacle
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_members import PoolMembers, move_text
from waltz_operator.core.planning.shape_orders import waiting
from waltz_operator.core.rebalance import BeginRebalance, EndRebalance, Rebalance, RebalanceEnd
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan

Capacities = Mapping[str, int]
"""The size in bytes of the data volume of each storage, as far as it is known."""


def next_recorded_move(
    present: ClusterPresent, members: PoolMembers, capacities: Capacities
) -> Move | None:
    """Return the recorded move that comes next; None if none is left.

    A move that has begun comes first: its destination holds a replica that is not assigned yet.
    After it, no other move follows if the request was withdrawn, or if the number of storages has
    changed.
    """
    remaining_moves = []
    for planned in members.record.moves:
        move = members.recorded_move(planned)
        if move is None or not _is_to_move(present, members, move):
            continue
        if present.replicas.held(move.destination, move.partition) is not None:
            return move  # It has begun.
        remaining_moves.append((planned, move))
    if not remaining_moves or not _is_followed(members):
        return None
    uses = _volume_uses(present, members, capacities)
    return next(
        (move for planned, move in remaining_moves if _is_still_improvement(uses, planned)), None
    )


def plan_record(
    present: ClusterPresent, members: PoolMembers, capacities: Capacities
) -> ClusterPlan:
    """Return the plan that begins or ends a rebalance; the empty plan if neither is due.

    This function is called only when no move of the pool is under way and no recorded move is left.
    """
    # Three requests: ``request`` is the open one of the user, ``record.request`` the one whose
    # moves are recorded, and ``record.answered`` the last one that is complete. Each is empty if
    # there is none.
    record, request, storages = members.record, members.request, members.pool.spec.storages
    if request and not _is_followed(members):
        # No moves are recorded for this request, or they are for another number of storages.
        return _plan_begin(present, members, capacities)
    ended = replace(record, request="", moves=())
    if request:
        # The recorded moves are those of this request, and none is left.
        return _end(
            present, members, replace(ended, answered=request), request, RebalanceEnd.COMPLETE
        )
    if record.request:
        # Moves are recorded, but no request is open: the user has changed or removed it.
        return _end(present, members, ended, record.request, RebalanceEnd.WITHDRAWN)
    # ``record.storages`` is the number of storages at the last rebalance, 0 if the partitions are
    # spread by count. If the number has changed, they are spread by count from now on.
    if record.storages not in (0, storages):
        rescaled = replace(ended, storages=0)
        return _end(present, members, rescaled, record.answered, RebalanceEnd.RESCALED)
    return EMPTY_PLAN


def recorded_change(
    present: ClusterPresent, members: PoolMembers, move: Move
) -> ShapeChange | None:
    """Return the change of which ``move`` is a part; None if ``move`` is not a recorded one."""
    moves = members.record.moves
    for number, planned in enumerate(moves, start=1):
        if members.recorded_move(planned) == move:
            what = f"rebalance, move {number} of {len(moves)}: {move_text(move)}"
            return members.change(present, what, ShapeChangeKind.REBALANCING)
    return None


def _is_followed(members: PoolMembers) -> bool:
    """Whether the recorded moves answer the open request for the present number of storages."""
    record, request = members.record, members.request
    answers_request = request != "" and record.request == request
    return answers_request and record.storages == members.pool.spec.storages


def _is_to_move(present: ClusterPresent, members: PoolMembers, move: Move) -> bool:
    """Whether the partition of a move is assigned only to its source, and can move at all."""
    assigned, partition = members.assigned, move.partition
    return (
        partition in assigned[move.source]
        and partition not in assigned[move.destination]
        and _is_movable(present.replicas.partitions[partition])
    )


def _is_movable(view: PartitionView) -> bool:
    """Whether a partition can move: one with a single replica cannot (`waltz.admin.core.move`)."""
    return len(view.replicas) > 1


def _is_still_improvement(uses: tuple[VolumeUse, ...] | str, planned: PlannedMove) -> bool:
    """Whether a recorded move improves the balance by the present sizes.

    ``uses`` is the result of `_volume_uses`. If a size is unknown, the answer is True, so the move
    is not left out. It begins only when all replicas are healthy (`shape_moves`).
    """
    if isinstance(uses, str):
        return True
    by_ordinal = {use.ordinal: use for use in uses}
    source, destination = by_ordinal[planned.source], by_ordinal[planned.destination]
    return is_improvement(source, destination, source.sizes[planned.partition])


def _plan_begin(
    present: ClusterPresent, members: PoolMembers, capacities: Capacities
) -> ClusterPlan:
    """Return the plan that records the moves of the open request, or says why it waits."""
    request, storages = members.request, members.pool.spec.storages
    change = members.change(present, "the rebalance begins", ShapeChangeKind.REBALANCING)
    if len(members.staying) < storages:
        return waiting(change, f"{len(members.staying)} of {storages} storages are registered")
    # While all replicas are healthy, all of them are open and report their sizes.
    if reason := health_obstacle(present):
        return waiting(change, reason)
    uses = _volume_uses(present, members, capacities)
    if isinstance(uses, str):
        return waiting(change, f"{uses}; remove the annotation to do without the rebalance")
    views = present.replicas.partitions
    balancing = choose_moves(uses, {p for p, view in views.items() if _is_movable(view)})
    record = Rebalance(members.record.answered, request, storages, balancing.moves)
    step = BeginRebalance(members.pool.metadata.name, record, balancing)
    return ClusterPlan((step,), change=change)


def _end(
    present: ClusterPresent,
    members: PoolMembers,
    record: Rebalance,
    request: str,
    reason: RebalanceEnd,
) -> ClusterPlan:
    """Return the plan that ends the rebalance of ``request``."""
    change = members.change(present, f"the rebalance {reason}", ShapeChangeKind.REBALANCING)
    step = EndRebalance(members.pool.metadata.name, record, request, reason)
    return ClusterPlan((step,), change=change)


def _volume_uses(
    present: ClusterPresent, members: PoolMembers, capacities: Capacities
) -> tuple[VolumeUse, ...] | str:
    """Return the use of the volume of each storage, or the text that says which size is unknown."""
    uses = []
    for storage in members.staying:
        capacity, ordinal = capacities.get(storage), ordinal_of(members.pool, storage)
        assert ordinal is not None, f"{storage} is no storage of its pool"
        if capacity is None:
            return f"the size of the volume of {storage} is not known"
        sizes = {}
        for partition in sorted(members.assigned[storage]):
            size = _size(present, partition)
            if size is None:
                return f"no storage reports the size of partition {partition}"
            sizes[partition] = size
        uses.append(VolumeUse(ordinal, capacity, sizes))
    return tuple(uses)


def _size(present: ClusterPresent, partition: int) -> int | None:
    """Return the size in bytes of the largest replica of a partition; None if none is reported.

    All replicas have the same records, but a replica that is not open yet reports the size 0.
    """
    replicas = present.replicas
    reported = (
        held.size_bytes
        for storage in replicas.partitions[partition].replicas
        if (held := replicas.held(storage, partition)) is not None
    )
    return max((size for size in reported if size is not None), default=None)
