"""Plan the removal of pools that the spec no longer names. Pure.

A pool leaves partition by partition, by the order `Retirement` of `waltz.admin`. A replica is
unassigned in ZooKeeper only if the other replicas are healthy, form a quorum, and have equal range
checksums. The pool's storages drop their replicas only after all partitions have recovered in
sessions without them. Then the storages are unregistered, and `shape_objects` removes the pool's
objects.

A *session* is a store session: the exclusive right of one server to write the replicas of a
partition. It begins with a recovery (`waltz.admin.core.replicas`).
"""

from __future__ import annotations

from waltz.admin.core.replica_removal import next_step_after_removal
from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import ChangeAssignment, UnregisterStorage
from waltz_operator.core.desired import DesiredCluster, ordinal_of
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_orders import follow_order, waiting
from waltz_operator.core.planning.znodes import groups_of, known_storages
from waltz_operator.core.resources import Disposal, StoragePool
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan

MIN_COPIES = 3
"""With fewer remaining copies, a pool is removed only if ``spec.allowFewerCopies`` is true."""


def plan_reassignment(present: ClusterPresent) -> ClusterPlan:
    """Return the plan that assigns removed replicas again; usually empty.

    A removed replica still counts in the quorum of its partition's last session, until a session
    without it has recovered. If another replica fails meanwhile, the partition opens only with the
    removed one. So this plan comes before all others. It does not depend on the spec, which may
    have changed since the removal. It does not wait for other changes or for replacements of
    volumes, because these may wait for the partition.
    """
    views = [present.replicas.partitions[each] for each in sorted(present.replicas.partitions)]
    # ZooKeeper can assign a partition only to these storages.
    storages = frozenset(present.maps.assignments.partitions)
    # A `ChangeAssignment` that this call returns only assigns removed replicas again. The call may
    # also return a `Wait` for sessions without the removed replicas. It is ignored here, because
    # the orders that unassign replicas wait for these sessions themselves.
    step = next_step_after_removal(present.replicas, views, storages)
    return ClusterPlan((step,)) if isinstance(step, ChangeAssignment) else EMPTY_PLAN


def plan_removal(desired: DesiredCluster, present: ClusterPresent) -> ClusterPlan:
    """Return the plan that removes the replicas of the first pool that leaves; empty without one.

    Pools of which no storage is registered any more do not count.
    """
    for pool in desired.leaving_pools:
        if members := registered_storages(pool, present):
            return _plan_pool(desired, present, pool, members)
    return EMPTY_PLAN


def registered_storages(pool: StoragePool, present: ClusterPresent) -> frozenset[str]:
    """Return the storages of a pool that any of the storage maps contains."""
    known = known_storages(present.maps)
    return frozenset(storage for storage in known if ordinal_of(pool, storage) is not None)


def _plan_pool(
    desired: DesiredCluster, present: ClusterPresent, pool: StoragePool, members: frozenset[str]
) -> ClusterPlan:
    """Return the next steps of a pool's removal; ``members`` are its registered storages."""
    views = present.replicas.partitions.values()
    affected = [view for view in views if view.replicas & members]
    # The number of copies that the affected partition with the fewest copies keeps. If no partition
    # is affected, no copy is removed, so the default is a number that is not refused.
    remaining = min((len(view.replicas - members) for view in affected), default=MIN_COPIES)
    change = _change(present, pool, len(affected), remaining)
    if affected and not is_growth_complete(desired, present):
        return waiting(change, "a pool of the spec does not have its copy yet")
    if remaining < MIN_COPIES and not desired.cluster.spec.allow_fewer_copies:
        copies = "copy" if remaining == 1 else "copies"
        reason = (
            f"pool {change.pool} is not removed: only {remaining} {copies} would remain; set "
            "spec.allowFewerCopies to true to allow that, or name the pool in spec.pools again"
        )
        return ClusterPlan(problems=(reason,), change=change)
    group_of_storage = present.maps.groups.groups
    # Normally this is one group. A pool whose storages were registered by hand may have several.
    for group in sorted({group_of_storage[s] for s in members if s in group_of_storage}):
        if other_storages := sorted({*present.maps.group_members(group)} - members):
            reason = (
                f"pool {change.pool} is not removed: its group {group} has other storages, too "
                f"({', '.join(other_storages)}); correct their registration by hand"
            )
            return ClusterPlan(problems=(reason,), change=change)
        delete_files = pool.spec.volumes.on_scale_down is Disposal.DELETE
        order = Retirement(group, delete_files, at_once=1, prove=True)
        if (plan := follow_order(order, present.replicas, change)) is not None:
            return plan
    return ClusterPlan(tuple(UnregisterStorage(each) for each in sorted(members)), change=change)


def is_growth_complete(desired: DesiredCluster, present: ClusterPresent) -> bool:
    """Whether every pool that the spec names exists and has a replica of every partition."""
    group_of_pool = groups_of(desired, present.maps)
    group_of_storage = present.maps.groups.groups
    wanted = {group_of_pool.get(pool.metadata.name) for pool in desired.wanted_pools} - {None}
    if len(wanted) < len(desired.cluster.spec.pools):
        return False  # A pool does not exist, is not claimed yet, or has no group of its own.
    views = present.replicas.partitions.values()
    return all(
        wanted <= {group_of_storage.get(storage) for storage in view.replicas} for view in views
    )


def _change(
    present: ClusterPresent, pool: StoragePool, num_affected: int, remaining: int
) -> ShapeChange:
    """Return the change that removes ``pool``.

    ``num_affected`` is the number of partitions that still have a replica on the pool.
    ``remaining`` is the smallest number of copies that one of these partitions keeps.
    """
    name, total = pool.metadata.name, present.num_partitions
    if num_affected:
        num_complete = total - num_affected
        progress = f"pool {name}: partition {num_complete + 1} of {total}"
        return ShapeChange(ShapeChangeKind.REMOVING_POOL, name, progress, remaining)
    progress = f"pool {name}: its storages drop their replicas"
    views = present.replicas.partitions.values()
    copies = min((len(view.replicas) for view in views), default=1)
    return ShapeChange(ShapeChangeKind.REMOVING_POOL, name, progress, copies)
