"""Plan what happens to the groups of an adopted cluster's foreign storages. Pure.

A *foreign* storage is registered in ZooKeeper, but is in no pool of the cluster (`core.adoption`).
A *group* is a replica group: its storages together hold one copy of all partitions, as those of a
pool. With ``adopt.foreignGroups: Retire`` the foreign groups give up their copies, one group after
the other. The order `Retirement` of `waltz.admin` retires a group, in the same way as a pool that
is removed from the spec (`shape_removal`): a replica is unassigned only if the other replicas are
healthy, form a quorum, and have equal range checksums. Of every partition, three copies in the
pools remain, whatever ``spec.allowFewerCopies`` says. The foreign storages keep their files. They
are unregistered when they hold no replica.

The operator changes nothing else at foreign storages: it neither creates replicas there, nor
switches them on, nor recovers them.
"""

from __future__ import annotations

from collections.abc import Set

from waltz.admin.core.retirement import Retirement
from waltz.admin.core.steps import UnregisterStorage
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_orders import follow_order, waiting
from waltz_operator.core.planning.shape_removal import MIN_COPIES, is_growth_complete
from waltz_operator.core.resources import ForeignGroups
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, problem


def plan_foreign_groups(
    desired: DesiredCluster, present: ClusterPresent, foreign: Set[str]
) -> ClusterPlan:
    """Return the plan of the first group of ``foreign`` storages that has to leave."""
    adopt = desired.cluster.spec.adopt
    if adopt is None or adopt.foreign_groups is ForeignGroups.KEEP or not foreign:
        return EMPTY_PLAN
    group_of_storage = present.maps.groups.groups
    without_group = sorted(storage for storage in foreign if storage not in group_of_storage)
    if without_group:
        return _plan_without_group(present, without_group)
    groups = sorted({group_of_storage[storage] for storage in foreign})
    for group in groups:
        if of_pools := sorted({*present.maps.group_members(group)} - foreign):
            return problem(
                f"foreign group {group} is not retired: it has storages of pools, too "
                f"({', '.join(of_pools)}); correct their registration by hand"
            )
    return _plan_group(desired, present, groups[0], foreign)


def _plan_group(
    desired: DesiredCluster,
    present: ClusterPresent,
    group: int,
    foreign: Set[str],
) -> ClusterPlan:
    """Return the next steps of the retirement of a group of ``foreign`` storages."""
    members = frozenset(present.maps.group_members(group))
    views = present.replicas.partitions.values()
    affected = [view for view in views if view.replicas & members]
    change = _change(present, group, members)
    if affected:
        if not is_growth_complete(desired, present):
            return waiting(change, "a pool of the spec does not have its copy yet")
        # Every partition counts, also one of which this group has given up its copy already.
        remaining = min(len(view.replicas - foreign) for view in views)
        if remaining < MIN_COPIES:
            copies = "copy" if remaining == 1 else "copies"
            reason = (
                f"foreign group {group} is not retired: the pools would have only {remaining} "
                f"{copies}; name at least {MIN_COPIES} pools in spec.pools, or set "
                "spec.adopt.foreignGroups to Keep"
            )
            return ClusterPlan(problems=(reason,), change=change)
    order = Retirement(group, delete_files=False, at_once=1, prove=True)
    if (plan := follow_order(order, present.replicas, change)) is not None:
        return plan
    return ClusterPlan(tuple(UnregisterStorage(each) for each in sorted(members)), change=change)


def _plan_without_group(present: ClusterPresent, storages: list[str]) -> ClusterPlan:
    """Return the plan for foreign storages that are registered in no group.

    Only an incomplete registration by hand leaves such storages.
    """
    for storage in storages:
        if present.replicas.assigned(storage):
            return problem(
                f"storage {storage} has partitions, but is in no group and in no pool: correct "
                "its registration by hand"
            )
    return ClusterPlan(tuple(UnregisterStorage(each) for each in storages))


def _change(present: ClusterPresent, group: int, members: Set[str]) -> ShapeChange:
    """Return the change that retires a group; ``members`` are its storages."""
    views = present.replicas.partitions.values()
    num_affected = sum(1 for view in views if view.replicas & members)
    copies = min((len(view.replicas - members) for view in views), default=MIN_COPIES)
    progress = f"foreign group {group}: its storages drop their replicas"
    if num_affected:
        num_complete = present.num_partitions - num_affected
        progress = (
            f"foreign group {group}: partition {num_complete + 1} of {present.num_partitions}"
        )
    return ShapeChange(ShapeChangeKind.RETIRING_FOREIGN_GROUP, str(group), progress, copies)
