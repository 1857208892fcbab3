"""Combine the plans of a cluster's parts into one plan. Pure.

The docstring of the package states the invariants of every plan.
"""

from __future__ import annotations

from dataclasses import replace

from waltz_operator.core.adoption import foreign_parts, storages_elsewhere
from waltz_operator.core.desired import DesiredCluster, is_own
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.observed import (
    ClusterAbsent,
    ClusterIncomplete,
    ClusterMalformed,
    ClusterPresent,
    ObservedCluster,
    ZooKeeperUnreachable,
)
from waltz_operator.core.planning.adoption_guard import plan_storages_elsewhere
from waltz_operator.core.planning.deletion import plan_deletion
from waltz_operator.core.planning.healing import plan_healing, storages_to_heal
from waltz_operator.core.planning.outside import plan_outside
from waltz_operator.core.planning.replicas import plan_replicas
from waltz_operator.core.planning.rolls import explain_delayed_roll, plan_roll
from waltz_operator.core.planning.rotation import plan_rotation
from waltz_operator.core.planning.volume_sizes import plan_recreation, plan_volume_growth
from waltz_operator.core.planning.workloads import StartPermissions, plan_workloads
from waltz_operator.core.planning.znodes import (
    is_metadata_lost,
    known_storages,
    plan_metadata,
    plan_storages,
)
from waltz_operator.core.rebalance import volume_capacities
from waltz_operator.core.steps import (
    EMPTY_PLAN,
    AddFinalizer,
    ClaimPool,
    ClusterPlan,
    ReleasePool,
    problem,
    wait,
)


def plan(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the next steps of a cluster, and the reasons why other steps are not possible yet."""
    if desired.deleting:
        # A paused cluster is deleted, too: otherwise its namespace could not be deleted.
        return plan_deletion(desired, observed)
    rotation_plan = plan_rotation(desired, observed)
    # A step of the rotation is performed only when nothing else changes. Until then the plan has
    # the rotation and its problems without the step, because the status must show them.
    shown_rotation = replace(rotation_plan, steps=())
    if desired.cluster.spec.paused:
        paused = wait("the cluster is paused: set spec.paused to false to resume it")
        return paused + shown_rotation
    if FINALIZER not in desired.cluster.metadata.finalizers:
        # The finalizer comes before everything else: without it a deletion would leave objects and
        # znodes behind that no operator cleans up.
        return ClusterPlan((AddFinalizer(),))
    pool_claims = _plan_pool_claims(desired)
    metadata, permissions = _plan_metadata(desired, observed)
    workloads = plan_workloads(desired, observed, permissions)
    result = pool_claims + workloads + plan_volume_growth(desired, observed) + metadata
    if not result.steps:
        # A StatefulSet is deleted to be created again only when nothing else changes. The decision
        # relies on objects, budgets and assignments that are as the plan wants them.
        result += plan_recreation(desired, observed)
    # A pod, too, is replaced only when nothing else changes. The waits of the roll come before the
    # other waits, because the status shows only the first ones.
    if not result.steps:
        result = plan_roll(desired, observed) + result
    elif result.change is not None:
        # While the shape changes (pools, groups, moved partitions), no pod is replaced. That can
        # take hours, so the plan says why. Other steps need no explanation: they end within one
        # reconcile, or the plan names what they do (`plan_healing`).
        result = explain_delayed_roll(desired, observed, result.change) + result
    # The certificate authority, too, is rotated only when nothing else changes.
    result += shown_rotation if result.steps else rotation_plan
    # The steps of the access from outside come last, because nothing waits for this access. They
    # may fail for a long time: for example, the API server refuses a Service because of a quota.
    return result + plan_outside(desired, observed)


def _plan_pool_claims(desired: DesiredCluster) -> ClusterPlan:
    """Return the steps that claim pools, and the reasons why other pools cannot be claimed.

    A pool of a cluster that no longer exists is released first; the next plan claims it.
    """
    result = EMPTY_PLAN
    for name in desired.missing_pools:
        result += wait(f"StoragePool {name} does not exist: create it")
    for pool in desired.pools:
        name, owner = pool.metadata.name, pool.metadata.labels.get(CLUSTER_LABEL)
        if owner in desired.vanished_owners:
            # A cluster whose finalizer was removed by hand has not released its pools.
            result += ClusterPlan((ReleasePool(name),))
        elif owner not in (None, desired.name):
            result += problem(
                f"StoragePool {name} belongs to WaltzCluster {owner}: name another pool"
            )
        elif pool.metadata.deletion_timestamp is not None:
            result += problem(
                f"StoragePool {name} was deleted, but WaltzCluster {desired.name} uses it: the "
                "pool is kept until you remove it from spec.pools, or delete the WaltzCluster, too"
            )
        elif owner is None or FINALIZER not in pool.metadata.finalizers:
            result += ClusterPlan((ClaimPool(name, desired.name),))
    return result


def _plan_metadata(
    desired: DesiredCluster, observed: ObservedCluster
) -> tuple[ClusterPlan, StartPermissions]:
    """Return the plan for znodes, storages and replicas, and which workloads may start."""
    nothing_starts = StartPermissions(storages=False, servers=False, registered=None)
    match observed.metadata:
        case ZooKeeperUnreachable(reason):
            return (
                wait(f"ZooKeeper at {desired.zookeeper} does not answer: {reason}"),
                nothing_starts,
            )
        case ClusterAbsent() | ClusterIncomplete() | ClusterMalformed():
            is_lost = is_metadata_lost(desired, observed)
            return plan_metadata(desired, observed.metadata, is_lost=is_lost), nothing_starts
        case ClusterPresent() as present:
            # For complete metadata this plan has no steps: it reports problems, such as metadata of
            # another cluster, or it is empty.
            root_plan = plan_metadata(desired, present, is_lost=False)
            if root_plan.problems:
                return root_plan, nothing_starts
            # Metadata of another cluster was reported as a problem above, so the steps below change
            # only the metadata of this cluster.
            assert is_own(desired, present)
            # The storages of an adopted cluster may *run elsewhere*: at the addresses of a pool
            # here, but in another Kubernetes cluster. Then no workload starts, and the plan at most
            # gives up pools.
            if elsewhere := storages_elsewhere(desired, observed, present.maps):
                return plan_storages_elsewhere(desired, observed, elsewhere), nothing_starts
            storages = plan_storages(desired, present)
            to_heal = storages_to_heal(desired, observed, present)
            capacities = volume_capacities(desired, observed)
            # The *foreign* storages of an adopted cluster are in no pool, and its foreign servers
            # are no pods here. The plan goes on with them: they keep their copies and partitions
            # until the user retires them.
            foreign = foreign_parts(desired, observed, present)
            replicas, servers_may_start = plan_replicas(
                desired, present, to_heal, capacities, foreign
            )
            permissions = StartPermissions(
                storages=True,
                servers=servers_may_start,
                registered=known_storages(present.maps),
            )
            return storages + plan_healing(desired, observed, present) + replicas, permissions
