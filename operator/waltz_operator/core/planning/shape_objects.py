"""Plan the removal of Kubernetes objects that a change of the cluster's shape leaves behind. Pure.

The objects of a pool that leaves the cluster are removed when none of its storages is registered in
ZooKeeper any more. The pool is *retired* then.

If a pool of the spec gets fewer storages, the volume claims of a removed storage are deleted only
with ``volumes.onScaleDown: Delete`` of the pool, and only when the storage is not registered and
its pod does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, address_of, own_metadata
from waltz_operator.core.names import POOL_LABEL, Component
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import LiveObject, ObservedCluster
from waltz_operator.core.planning.shape_removal import registered_storages
from waltz_operator.core.pods_of_sets import is_orphaned
from waltz_operator.core.resources import Disposal, StoragePool
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, DeleteObject, ReleasePool

_POOL_KINDS = ("StatefulSet", "Service")
"""The kinds of a pool's objects that are deleted here, besides pods and volume claims.

`workloads` deletes its NetworkPolicy, `outside` its Services for access from outside.
"""


def retired_pools(desired: DesiredCluster, observed: ObservedCluster) -> frozenset[str]:
    """Return the pools that leave the cluster and of which no storage is registered any more."""
    present = own_metadata(desired, observed)
    if present is None:
        return frozenset()
    return frozenset(
        pool.metadata.name
        for pool in desired.leaving_pools
        if not registered_storages(pool, present)
    )


def plan_released_objects(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the plan that removes the objects of retired pools and of removed storages."""
    retired, result = retired_pools(desired, observed), EMPTY_PLAN
    for pool in desired.leaving_pools:
        if pool.metadata.name in retired:
            result += _plan_retired_pool(desired, observed, pool)
    for pool in desired.wanted_pools:
        result += ClusterPlan(tuple(_unused_claims(desired, observed, pool)))
    return result


def _plan_retired_pool(
    desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool
) -> ClusterPlan:
    """Return the plan of the next phase of the removal of a pool's objects.

    The phases are: delete the workload and its Service, delete pods that no workload owns, wait
    until all pods have ended, delete the volume claims unless the pool keeps them, release the
    pool. A phase begins when the phase before it has nothing left to do. The release does not wait
    for volume claims whose deletion has begun.
    """
    name = pool.metadata.name
    # Each remaining pool holds one copy of every partition. An adopted cluster may have no pools:
    # its foreign storages hold at least one copy.
    copies = max(1, len(desired.cluster.spec.pools))
    change = ShapeChange(
        ShapeChangeKind.REMOVING_POOL,
        name,
        f"pool {name}: its pods are removed",
        copies,
    )
    keys = (ObjectKey(kind, names.storage_set(name)) for kind in _POOL_KINDS)
    existing = ((key.kind, observed.objects[key]) for key in keys if key in observed.objects)
    deletions = tuple(
        _delete(kind, live)
        for kind, live in existing
        if is_ours(live, desired.name) and not live["metadata"].get("deletionTimestamp")
    )
    if deletions:
        return ClusterPlan(deletions, change=change)
    pods = _of_pool(observed, "Pod", name)
    orphans = tuple(
        _delete("Pod", pod)
        for pod in pods
        if is_orphaned(pod)
        and is_ours(pod, desired.name)
        and not pod["metadata"].get("deletionTimestamp")
    )
    if orphans:
        return ClusterPlan(orphans, change=change)
    if pods:
        return ClusterPlan(waits=(f"{len(pods)} pods of pool {name} shut down",), change=change)
    claims = [
        _delete("PersistentVolumeClaim", claim)
        for claim in _of_pool(observed, "PersistentVolumeClaim", name)
        if is_ours(claim, desired.name) and not claim["metadata"].get("deletionTimestamp")
    ]
    if claims and pool.spec.volumes.on_scale_down is Disposal.DELETE:
        return ClusterPlan(tuple(claims), change=change)
    return ClusterPlan((ReleasePool(name),), change=change)


def _unused_claims(
    desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool
) -> Iterator[DeleteObject]:
    """Yield the deletion of a removed storage's volume claims, if the pool does not keep them."""
    present, name = own_metadata(desired, observed), pool.metadata.name
    if pool.spec.volumes.on_scale_down is Disposal.KEEP:
        return
    if present is None:
        return
    registered = registered_storages(pool, present)
    workload = observed.objects.get(ObjectKey("StatefulSet", names.storage_set(name)))
    num_pods = 0 if workload is None else workload["spec"].get("replicas", 0)
    for claim in _of_pool(observed, "PersistentVolumeClaim", name):
        # The name of a claim is ``data-POD``, ``meta-POD`` or ``wal-POD``; POD ends in its ordinal.
        number = claim["metadata"]["name"].rpartition(f"-{names.storage_set(name)}-")[2]
        if not number.isdecimal() or claim["metadata"].get("deletionTimestamp"):
            continue
        pod = ObjectKey("Pod", f"{names.storage_set(name)}-{number}")
        # A pod below the StatefulSet's number of replicas comes back and needs its claim.
        if (
            is_ours(claim, desired.name)
            and int(number) >= max(pool.spec.storages, num_pods)
            and address_of(pool, int(number)) not in registered
            and pod not in observed.objects
        ):
            yield _delete("PersistentVolumeClaim", claim)


def _of_pool(observed: ObservedCluster, kind: str, pool: str) -> list[LiveObject]:
    """Return the objects of a kind that have the label of ``pool``."""
    objects = observed.of_kind(kind, Component.STORAGE)
    return [live for live in objects if live["metadata"]["labels"].get(POOL_LABEL) == pool]


def _delete(kind: str, live: LiveObject) -> DeleteObject:
    """Return the step that deletes the observed object ``live``."""
    metadata = live["metadata"]
    return DeleteObject(ObjectKey(kind, metadata["name"]), metadata.get("uid", ""))
