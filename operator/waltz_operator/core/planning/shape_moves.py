"""Plan moves inside a pool: storages are drained, and partitions are spread evenly. Pure.

The order `Move` of `waltz.admin` performs each move; one partition moves at a time. A storage whose
ordinal is not below ``spec.storages`` is drained: its partitions move to the other storages, and it
is unregistered when it holds nothing. Only then is its StatefulSet scaled down
(`planning.workloads`). While no storage is drained, a partition moves from the storage with the
most partitions to the one with the fewest, as long as the two numbers differ by more than one: no
plan needs fewer moves.

The plan does not depend on earlier plans. So a drain whose spec is changed back half-way turns into
a spread, and a move that was interrupted ends at the storage that the present spec prefers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from waltz.admin.core.move import Move
from waltz.admin.core.steps import UnregisterStorage
from waltz_operator.core.desired import DesiredCluster, ordinal_of
from waltz_operator.core.disruption import absence_obstacle
from waltz_operator.core.names import pod_of_storage
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_orders import follow_order, waiting
from waltz_operator.core.planning.shape_removal import registered_storages
from waltz_operator.core.planning.znodes import groups_of, is_registered
from waltz_operator.core.resources import Disposal, StoragePool
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan


def plan_moves(desired: DesiredCluster, present: ClusterPresent) -> ClusterPlan:
    """Return the plan of the first pool whose partitions have to move."""
    groups = groups_of(desired, present.maps)
    for pool in desired.wanted_pools:
        group = groups.get(pool.metadata.name)
        if group is None:
            continue
        plan = _plan_pool(present, _Members.of(pool, present, group))
        if not plan.done:
            return plan
    return EMPTY_PLAN


@dataclass(frozen=True, slots=True)
class _Members:
    """The registered storages of a pool; ``assigned`` has the partitions of each of them.

    ``staying`` and ``drained`` are in the order of their ordinals. A storage of the spec that is
    registered in another group or with another admin port is in neither: it gets no partitions.
    """

    pool: StoragePool
    staying: tuple[str, ...]
    drained: tuple[str, ...]
    assigned: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, pool: StoragePool, present: ClusterPresent, group: int) -> _Members:
        """Return the members of ``pool``; only those in its group can get partitions."""
        known = registered_storages(pool, present)
        ordinals = {
            storage: ordinal
            for storage in known
            if (ordinal := ordinal_of(pool, storage)) is not None
        }
        ordered = sorted(ordinals, key=lambda storage: ordinals[storage])
        count, port = pool.spec.storages, pool.spec.admin_port
        return cls(
            pool,
            tuple(
                storage
                for storage in ordered
                if ordinals[storage] < count and is_registered(present.maps, storage, group, port)
            ),
            tuple(storage for storage in ordered if ordinals[storage] >= count),
            {storage: present.replicas.assigned(storage) for storage in ordered},
        )

    def move(self, partition: int, source: str, destination: str) -> Move:
        """Return the move; the files stay only on a drained storage whose volume is kept."""
        kept = self.pool.spec.volumes.on_scale_down is Disposal.KEEP and source in self.drained
        return Move(partition, source, destination, delete_files=not kept, prove=True)

    def load_key(self, storage: str) -> tuple[int, int]:
        """Return the sort key: the number of partitions, then the order of the ordinals."""
        return len(self.assigned[storage]), self.staying.index(storage)

    def keep_key(self, storage: str) -> tuple[int, int, int]:
        """Return a sort key: of several storages with a partition, the first one keeps it.

        A storage that is registered wrongly comes last, because neither servers nor the operator
        may be able to use its replica (test_half_done_move_ends_at_the_storage_that_is_registered).
        """
        if storage in self.staying:
            return 0, *self.load_key(storage)
        if storage in self.drained:
            return 1, 0, 0
        return 2, 0, 0


def _plan_pool(present: ClusterPresent, members: _Members) -> ClusterPlan:
    """Complete the moves that have begun, then begin the next one; remove empty storages last."""
    if not members.staying:
        return EMPTY_PLAN
    move = _next_move(members)
    for begun in (*_half_done_moves(members), *_leftover_moves(present, members, move)):
        if (plan := _follow(present, members, begun)) is not None:
            return plan
    if move is not None and not _is_unmovable(present, members, move):
        return _begin(present, members, move)
    unregistered = tuple(map(UnregisterStorage, reversed(members.drained)))
    if not unregistered:
        return EMPTY_PLAN
    change = _change(members, "its empty storages are removed", present)
    for storage in members.drained:
        # Only a storage that answers is known to hold nothing.
        if reason := present.replicas.storage_problem(storage):
            return waiting(change, f"storage {storage} does not answer: {reason}")
    return ClusterPlan(unregistered, change=change)


def _storages_by_partition(members: _Members) -> dict[int, list[str]]:
    """Return the storages to which each partition is assigned."""
    result: dict[int, list[str]] = {}
    for storage, partitions in members.assigned.items():
        for partition in partitions:
            result.setdefault(partition, []).append(storage)
    return result


def _half_done_moves(members: _Members) -> Iterator[Move]:
    """Yield the moves whose source and destination are both assigned.

    Which storage was the source is recorded nowhere, so the present spec decides: the partition
    stays on a storage that is not drained; of several such storages, on the one with the fewest
    partitions.
    """
    for partition, storages in sorted(_storages_by_partition(members).items()):
        keep = min(storages, key=members.keep_key)
        for source in storages:
            if source != keep:
                yield members.move(partition, source, keep)


def _leftover_moves(
    present: ClusterPresent, members: _Members, move: Move | None
) -> Iterator[Move]:
    """Yield a move for each *leftover*: a replica on a storage that it is not assigned to.

    Such a move needs one more change: the storage drops the leftover. A leftover is at the source
    of a move whose assignment has changed, or at the destination of an interrupted move that the
    present spec does not want. The replica at the destination of the next ``move`` is no leftover,
    although it is not assigned yet: it is being filled.
    """
    assigned = _storages_by_partition(members)
    filled = None if move is None else (move.destination, move.partition)
    for storage in (*members.staying, *members.drained):
        report = present.replicas.storages.get(storage)
        for partition in sorted(() if report is None else report.held):
            is_filled = (storage, partition) == filled
            if not is_filled and partition in assigned and storage not in assigned[partition]:
                yield members.move(partition, storage, assigned[partition][0])


def _next_move(members: _Members) -> Move | None:
    """Return the move that comes next, None if no partition has to move."""
    target = min(members.staying, key=members.load_key)
    # From the highest ordinal down, because a StatefulSet removes its highest pods first.
    for source in reversed(members.drained):
        if members.assigned[source]:
            return members.move(min(members.assigned[source]), source, target)
    source = max(members.staying, key=lambda each: len(members.assigned[each]))
    if len(members.assigned[source]) - len(members.assigned[target]) < 2:
        return None
    return members.move(min(members.assigned[source]), source, target)


def _is_unmovable(present: ClusterPresent, members: _Members, move: Move) -> bool:
    """Whether a move that spreads the partitions is skipped, because it moves a single copy.

    One copy is no quorum of the two during the move. A move that drains a storage is not skipped:
    the order `Move` refuses it, and the refusal becomes a problem of the plan.
    """
    view = present.replicas.partitions[move.partition]
    return len(view.replicas) == 1 and move.source in members.staying


def _begin(present: ClusterPresent, members: _Members, move: Move) -> ClusterPlan:
    """Return the plan that begins a move, if all replicas of all partitions are healthy."""
    change = _move_change(present, members, move)
    if reason := absence_obstacle(present, frozenset()):
        return waiting(change, reason)
    return follow_order(move, present.replicas, change) or EMPTY_PLAN


def _follow(present: ClusterPresent, members: _Members, move: Move) -> ClusterPlan | None:
    """Return the plan that continues a move, None if the move is complete."""
    return follow_order(move, present.replicas, _move_change(present, members, move))


def _move_change(present: ClusterPresent, members: _Members, move: Move) -> ShapeChange:
    """Return the change of which ``move`` is the next part; its progress says how many are left."""
    num_to_drain = sum(len(members.assigned[each]) for each in members.drained)
    loads = sorted(len(members.assigned[each]) for each in members.staying)
    # A move counts until its source has dropped the replica, also when no partition has to move.
    left = max(1, num_to_drain or _num_moves(loads))
    source, destination = map(pod_of_storage, (move.source, move.destination))
    return _change(
        members,
        f"partition {move.partition} from {source} to {destination}, {left} left to move",
        present,
    )


def _num_moves(loads: Sequence[int]) -> int:
    """Return how many moves spread the partitions of storages with these ``loads`` evenly.

    ``loads`` are ascending. The loads 0, 1 and 6 become 2, 2 and 3, by 3 moves.
    """
    share, extra = divmod(sum(loads), len(loads))
    wanted = [share] * (len(loads) - extra) + [share + 1] * extra
    return sum(max(0, load - target) for load, target in zip(loads, wanted, strict=True))


def _change(members: _Members, what: str, present: ClusterPresent) -> ShapeChange:
    """Return the change of a pool's storages; ``what`` is its progress for users."""
    views = present.replicas.partitions.values()
    copies = max((len(view.replicas) for view in views), default=1)
    name = members.pool.metadata.name
    return ShapeChange(ShapeChangeKind.MOVING_PARTITIONS, name, f"pool {name}: {what}", copies)
