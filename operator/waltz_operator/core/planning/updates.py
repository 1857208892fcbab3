"""Find the workloads whose pods an operator of another version has specified. Pure.

Such pods stay until a user requests the update: `core.pod_templates` has this rule, and `workloads`
applies it.
"""

from __future__ import annotations

from collections.abc import Iterator

from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import UPDATE_PODS_ANNOTATION
from waltz_operator.core.objects import (
    ObjectKey,
    is_ours,
    server_deployment,
    storage_set,
    zookeeper_set,
)
from waltz_operator.core.observed import ObservedCluster
from waltz_operator.core.pod_templates import RenderedWorkload, is_kept


def kept_workloads(desired: DesiredCluster, observed: ObservedCluster) -> tuple[ObjectKey, ...]:
    """Return the workloads that keep a template that differs from the one this operator renders."""
    kept = []
    for workload in _rendered_workloads(desired):
        key = workload.manifest.key
        live = observed.objects.get(key)
        if live is not None and is_ours(live, desired.name) and is_kept(workload, live):
            kept.append(key)
    return tuple(kept)


def available_update(desired: DesiredCluster, observed: ObservedCluster) -> str:
    """Return a sentence about the `kept_workloads` and how to update them; empty without any."""
    kept = kept_workloads(desired, observed)
    if not kept:
        return ""
    count = "1 workload runs" if len(kept) == 1 else f"{len(kept)} workloads run"
    return (
        f"{count} the pods that an operator of another version has specified: "
        f"{', '.join(map(str, kept))}; to replace these pods: kubectl annotate waltzcluster "
        f"{desired.name} --namespace {desired.namespace} --overwrite "
        f"{UPDATE_PODS_ANNOTATION}=$(date +%s)"
    )


def _rendered_workloads(desired: DesiredCluster) -> Iterator[RenderedWorkload]:
    """Yield the workloads of a cluster as this operator renders them, in the order of a roll.

    Only their pod templates are valid: their other fields do not follow the observed state.
    """
    cluster = desired.cluster
    managed = cluster.spec.zookeeper.managed
    if managed is not None:
        yield RenderedWorkload(cluster, zookeeper_set(cluster, managed))
    for pool in desired.own_pools:
        yield RenderedWorkload(cluster, storage_set(cluster, pool, pool.spec.storages), pool)
    yield RenderedWorkload(cluster, server_deployment(cluster))
