"""Plan changes of the cluster's shape: copies are added, copies are removed, partitions move. Pure.

Every change of an assignment comes from an *order* of `waltz.admin`. The command line uses these
orders, too. An order has a goal, such as a move, and returns the next step for the observed state.
The modules here decide which order is next. They also create the empty replicas before an order
fills them, and unregister storages that are empty after an order:

* `shape_growth` adds copies on pools that the spec names.
* `shape_removal` removes the copies of pools that the spec does not name.
* `shape_adoption` removes the copies of an adopted cluster's foreign groups.
* `shape_moves` moves partitions between the storages of a pool; `shape_rebalance` chooses moves by
  bytes if a user requests it.

They act in this order, so that no copy is given up before every added copy is complete. None acts
while the volume of a storage is replaced (`planning.replicas`). One partition changes at a time.
Before the next partition changes, all replicas of all partitions must be healthy. A healthy replica
is also *level*: it holds every transaction that was committed when the observation began
(tests/unit/operator/test_operator_shape_properties.py).
"""

from __future__ import annotations

from waltz.admin.core.replicas import PartitionView
from waltz_operator.core.adoption import ForeignParts
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape_adoption import plan_foreign_groups
from waltz_operator.core.planning.shape_growth import plan_added_copies
from waltz_operator.core.planning.shape_moves import plan_moves
from waltz_operator.core.planning.shape_rebalance import Capacities
from waltz_operator.core.planning.shape_removal import plan_removal
from waltz_operator.core.steps import ClusterPlan

Missing = list[tuple[PartitionView, frozenset[str]]]
"""The partitions that lack replicas, each with the storages that must get one."""


def plan_shape(
    desired: DesiredCluster,
    present: ClusterPresent,
    missing: Missing,
    capacities: Capacities,
    foreign: ForeignParts,
) -> ClusterPlan:
    """Return the plan of the change that comes first; the empty plan if there is none.

    ``capacities`` are the sizes of the data volumes in bytes, by storage. ``foreign`` are the
    storages and servers that the operator does not run.
    """
    growth = plan_added_copies(
        desired, present, missing, obstacle=foreign.obstacle_to_copies_on_pools()
    )
    if not growth.done:
        return growth
    removal = plan_removal(desired, present)
    if not removal.done:
        return removal
    retirement = plan_foreign_groups(desired, present, foreign.storages)
    if not retirement.done:
        return retirement
    return plan_moves(desired, present, capacities)
