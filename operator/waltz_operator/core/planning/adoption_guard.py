"""Refuse to adopt a cluster whose storages run elsewhere at the addresses of the pools. Pure.

Example: an operator in another Kubernetes cluster runs the Waltz cluster, with the same namespace
and the same names of pools. Servers here would resolve the registered addresses to the pods here,
whose storages are empty. These servers would take partitions that they cannot open. So no workload
starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import POOL_LABEL
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.steps import (
    EMPTY_PLAN,
    ClusterPlan,
    DeleteObject,
    ReleasePool,
    Step,
    problem,
)


def plan_storages_elsewhere(
    desired: DesiredCluster, observed: ObservedCluster, elsewhere: Mapping[str, str]
) -> ClusterPlan:
    """Report the storages that run elsewhere, and give up pools that cannot be used.

    ``elsewhere`` has the name of the pool of each of these storages
    (`core.adoption.storages_elsewhere`). Such a pool is given up only if the spec no longer names
    it and it has no volume claim here. Then its storages are foreign, and the adoption continues
    with other pools.
    """
    result = EMPTY_PLAN
    for storage, pool in elsewhere.items():
        result += problem(
            f"storage {storage} has the address of StoragePool {pool} and has partitions, but the "
            "pool has neither a StatefulSet nor the volume claim "
            f"data-{names.pod_of_storage(storage)} here: it runs elsewhere, and no workload "
            "starts. Name StoragePools of other names in spec.pools. If the storage ran here and "
            f"its volume is lost, remove its replicas: waltz storage unassign {storage} … --only "
            "zookeeper --force"
        )
    for leaving in desired.leaving_pools:
        name = leaving.metadata.name
        has_claim = any(
            is_ours(claim, desired.name) and claim["metadata"]["labels"].get(POOL_LABEL) == name
            for claim in observed.of_kind("PersistentVolumeClaim")
        )
        if name in elsewhere.values() and not has_claim:
            result += ClusterPlan(_release(desired, observed, name))
    return result


def _release(desired: DesiredCluster, observed: ObservedCluster, pool: str) -> tuple[Step, ...]:
    """Return the steps that give up a pool without pods, so that another cluster may use it.

    Its Service is deleted first, if the operator has created one.
    """
    key = ObjectKey("Service", names.storage_set(pool))
    live = observed.objects.get(key)
    if live is None or not is_ours(live, desired.name):
        return (ReleasePool(pool),)
    return (DeleteObject(key, live["metadata"].get("uid", "")), ReleasePool(pool))
