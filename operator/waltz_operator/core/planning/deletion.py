"""Plan the deletion of a cluster: processes, then znodes and volumes if the spec says so. Pure.

The time of waiting is limited, so that a cluster can be deleted when its ZooKeeper, its nodes or
its pools no longer exist (test_deletion_without_zookeeper_and_with_stuck_pods_ends). Pods that have
not ended within the limit are left behind, as are the znodes of a ZooKeeper that does not answer. A
step that fails is retried without a limit; the status has the reason.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz_operator.core import names
from waltz_operator.core.adoption import foreign_storages, storages_elsewhere
from waltz_operator.core.desired import DesiredCluster, is_own
from waltz_operator.core.names import COMPONENT_LABEL, POOL_LABEL, Component
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import (
    ClusterAbsent,
    ClusterIncomplete,
    ClusterMalformed,
    ClusterPresent,
    LiveObject,
    ObservedCluster,
    ZooKeeperUnreachable,
)
from waltz_operator.core.planning.outside import plan_addresses_removal
from waltz_operator.core.planning.znodes import is_own_incomplete_metadata
from waltz_operator.core.pods_of_sets import is_orphaned
from waltz_operator.core.resources import Disposal, ObjectMeta
from waltz_operator.core.steps import (
    EMPTY_PLAN,
    ClusterPlan,
    DeleteMetadata,
    DeleteObject,
    PoolStep,
    ReleasePool,
    RemoveFinalizer,
    wait,
)

WAIT_LIMIT_SECONDS = 60.0
"""How long after its request a deletion stops waiting.

This one limit applies to all waits together: for pods, and for a ZooKeeper that does not answer. If
the limit passes while the operator does not run, the deletion afterwards waits for nothing.
"""

_HANDLED_BY_OTHER_PHASES = ("Pod", "PersistentVolumeClaim", "StoragePool", "WaltzCluster")
"""The kinds of objects that `_plan_other_objects` leaves to the other phases of the deletion."""


def plan_deletion(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the plan of the first phase that is not complete; the empty plan after the last phase.

    Servers are deleted before storages, so that servers can finish their appends. Servers and
    storages are deleted before the znodes, which they use until they end.
    """
    if names.FINALIZER not in desired.cluster.metadata.finalizers:
        return EMPTY_PLAN  # The cleanup is complete, or was given up by a user.
    return (
        _plan_processes(desired, observed, "Deployment", Component.SERVER)
        or _plan_processes(desired, observed, "StatefulSet", Component.STORAGE)
        or plan_addresses_removal(desired, observed)
        or _plan_znodes(desired, observed)
        or _plan_processes(desired, observed, "StatefulSet", Component.ZOOKEEPER)
        or _plan_volumes(desired, observed)
        or _plan_other_objects(desired, observed)
        or _plan_named_pools(desired)
        or _plan_last_phase(desired)
    )


def plan_orphaned_pool(pool: ObjectMeta, *, cluster_exists: bool) -> tuple[PoolStep, ...]:
    """Return the release of a deleted pool whose cluster no longer exists.

    Without this release the pool would keep its finalizer forever, because otherwise only the plan
    of its cluster removes the finalizer.
    """
    if pool.deletion_timestamp is None or cluster_exists:
        return ()
    return (ReleasePool(pool.name),)


def deletes_all_volumes(desired: DesiredCluster) -> bool:
    """Whether all volumes are deleted with the cluster. Then nothing needs the znodes later.

    False if a pool that the spec names has no StoragePool object: then the operator does not know
    whether the pool's volumes are to be kept.

    The answer must not change while the deletion releases the pools: otherwise a later plan would
    delete the znodes that kept volumes need. ``desired.pools`` are the pools that the spec names,
    also those that are released already. The leaving pools are known only until their release, so
    they are released last (`_plan_last_phase`).
    """
    managed = desired.cluster.spec.zookeeper.managed
    all_pools_delete = all(
        pool.spec.volumes.on_deletion is Disposal.DELETE
        for pool in (*desired.pools, *desired.leaving_pools)
    )
    return (
        all_pools_delete
        and not desired.missing_pools
        and (managed is None or managed.on_deletion is Disposal.DELETE)
    )


def _is_log_shared(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether foreign storages may have the log of this adopted cluster, too.

    Then no znodes and no volumes are deleted: the foreign storages need the znodes, and the copies
    in the pools count in the quorums of their partitions. While the storage maps cannot be read,
    the answer is True. If there is no metadata of this cluster, as after the deletion of the
    znodes, the last observation of the storage maps decides.
    """
    if desired.cluster.spec.adopt is None:
        return False
    match observed.metadata:
        case ClusterPresent() as present if is_own(desired, present):
            elsewhere = storages_elsewhere(desired, observed, present.maps)
            return bool(elsewhere or foreign_storages(desired, present.maps))
        case ZooKeeperUnreachable() | ClusterMalformed() | ClusterIncomplete():
            return True
        case ClusterPresent() | ClusterAbsent():
            return desired.may_have_foreign_storages


def _plan_processes(
    desired: DesiredCluster, observed: ObservedCluster, kind: str, component: Component
) -> ClusterPlan | None:
    """Plan to delete the workloads of a component, then to wait for the pods; None if complete.

    Pods that no workload owns are deleted, too: no controller ends them. The phase is complete when
    no pod exists, or when the wait has reached its limit.
    """
    workloads = tuple(_deletable(desired, observed.of_kind(kind, component)))
    if workloads:
        return _delete(kind, workloads)
    pods = list(observed.of_kind("Pod", component))
    if orphans := [pod for pod in _deletable(desired, pods) if is_orphaned(pod)]:
        return _delete("Pod", orphans)
    num_pods = len(pods)
    if num_pods and observed.deleting_seconds < WAIT_LIMIT_SECONDS:
        return wait(f"{num_pods} pods of the {component.value} are shutting down")
    return None


def _plan_znodes(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan | None:
    """Plan to delete the znodes in an external ZooKeeper; None if there is nothing to do.

    A managed ZooKeeper is deleted as a whole in a later phase. All znodes are kept if a volume is
    kept, if there are foreign znodes below the root
    (test_deletion_keeps_the_root_if_it_has_foreign_znodes), or if foreign storages are registered
    (`_is_log_shared`).
    """
    if desired.cluster.spec.zookeeper.managed is not None or not deletes_all_volumes(desired):
        return None
    match observed.metadata:
        case ClusterPresent() if _is_log_shared(desired, observed):
            return None
        case ClusterPresent(foreign_znodes=True):
            return None
        case ClusterPresent() as present if is_own(desired, present):
            return ClusterPlan((DeleteMetadata(present.name, present.key, complete=True),))
        case ClusterIncomplete() if desired.may_have_foreign_storages:
            # The storage maps are incomplete, so their last complete observation decides.
            # `_is_log_shared` must not decide here: for an adopted cluster it is true for all
            # incomplete metadata, so an interrupted deletion of the znodes would never continue.
            return None
        case ClusterIncomplete() as remains if is_own_incomplete_metadata(desired, remains):
            step = DeleteMetadata(desired.metadata_name, remains.key, complete=False)
            return ClusterPlan((step,))
        case ZooKeeperUnreachable(reason) if observed.deleting_seconds < WAIT_LIMIT_SECONDS:
            return wait(f"ZooKeeper at {desired.zookeeper} does not answer: {reason}")
        case _:
            return None


def _plan_volumes(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan | None:
    """Plan to delete the volumes that the spec does not keep; None if there are none."""
    if _is_log_shared(desired, observed):
        return None
    deleted_pools = {
        pool.metadata.name
        for pool in desired.own_pools
        if pool.spec.volumes.on_deletion is Disposal.DELETE
    }
    # ZooKeeper's volumes are kept if the volume of any storage is kept, because the log on that
    # volume could not be opened again without the metadata.
    zookeeper_volumes_are_deleted = deletes_all_volumes(desired)
    claims = [
        claim
        for claim in _deletable(desired, observed.of_kind("PersistentVolumeClaim"))
        if claim["metadata"]["labels"].get(POOL_LABEL) in deleted_pools
        or (
            zookeeper_volumes_are_deleted
            and claim["metadata"]["labels"].get(COMPONENT_LABEL) == Component.ZOOKEEPER
        )
    ]
    return _delete("PersistentVolumeClaim", claims) if claims else None


def _plan_other_objects(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan | None:
    """Plan to delete all objects that no other phase handles; None if there are none."""
    result = EMPTY_PLAN
    for kind in sorted({key.kind for key in observed.objects} - {*_HANDLED_BY_OTHER_PHASES}):
        result += _delete(kind, _deletable(desired, observed.of_kind(kind)))
    return None if result == EMPTY_PLAN else result


def _plan_named_pools(desired: DesiredCluster) -> ClusterPlan | None:
    """Plan to release the pools of the cluster that its spec names; None if there are none."""
    releases = tuple(ReleasePool(pool.metadata.name) for pool in desired.wanted_pools)
    return ClusterPlan(releases) if releases else None


def _plan_last_phase(desired: DesiredCluster) -> ClusterPlan:
    """Return the plan of the last phase.

    The pools that the spec does not name are released after the finalizer was removed. Only their
    label shows that they belong to the cluster. If the label were removed earlier, the next plan
    would not know that the volumes of these pools are kept, and would delete the znodes
    (test_deletion_with_a_leaving_pool_that_keeps_its_volumes_keeps_the_znodes). If the operator is
    killed between the two, such a pool still has the label of a cluster that no longer exists.
    Another cluster may claim it, and `plan_orphaned_pool` releases it when it is deleted.
    """
    releases = (ReleasePool(pool.metadata.name) for pool in desired.leaving_pools)
    return ClusterPlan((RemoveFinalizer(), *releases))


def _deletable(desired: DesiredCluster, objects: Iterable[LiveObject]) -> Iterable[LiveObject]:
    """Return the objects that belong to the cluster and are not being deleted already."""
    return (
        live
        for live in objects
        if is_ours(live, desired.name) and not live["metadata"].get("deletionTimestamp")
    )


def _delete(kind: str, objects: Iterable[LiveObject]) -> ClusterPlan:
    """Return the plan that deletes ``objects``, all of one kind."""
    return ClusterPlan(
        tuple(
            DeleteObject(ObjectKey(kind, live["metadata"]["name"]), live["metadata"].get("uid", ""))
            for live in objects
        )
    )
