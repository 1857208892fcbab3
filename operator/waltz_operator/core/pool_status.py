"""Derive the status of a pool from the observed state. Pure.

The conditions of a pool:

* *Ready* is true while at least as many storages of the pool are ready as its spec wants.
* *Resized* is true while every volume has at least the size in the spec. While Resized is false,
  its reason is ResizeRefused if the API server would refuse to enlarge a volume, otherwise
  Resizing.
"""

from __future__ import annotations

from waltz_operator.core import names
from waltz_operator.core.conditions import MAX_MESSAGE_CHARACTERS, Statement, condition
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import POOL_LABEL, Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ClusterPresent, ObservedCluster
from waltz_operator.core.planning.znodes import groups_of
from waltz_operator.core.pods_of_sets import is_processed, is_ready
from waltz_operator.core.rebalance import answered_request
from waltz_operator.core.resources import LostVolume, PoolStatus, StoragePool
from waltz_operator.core.status import metadata_with_key
from waltz_operator.core.volume_growth import (
    UNCHECKED,
    refusal_text,
    refused_kinds,
    requested_sizes,
    volume_growths,
)
from waltz_operator.core.volume_replacement import volume_losses


def pool_status(
    desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool, now: str
) -> PoolStatus:
    """Return the status of one of the cluster's pools.

    ``now`` is the present time in UTC, as in a condition.
    """
    generation, old = pool.metadata.generation, pool.status
    # None if ZooKeeper did not answer, or has other metadata than this cluster's. Then the lost
    # volumes and the group of the earlier status stay. If the losses were left out, their times
    # would begin again at the next observation, and with them the delay before a volume is
    # replaced.
    metadata = metadata_with_key(desired, observed)
    name = pool.metadata.name
    ready_pods = _count_ready_pods(observed, name)
    all_ready = ready_pods >= pool.spec.storages
    missing = "" if all_ready else f"{ready_pods} of {pool.spec.storages} storages are ready"
    lost = old.lost_volumes
    if metadata is not None:
        lost = _lost_volumes(desired, observed, metadata, pool, now)
    resized = _resized(desired, observed, pool)
    statements = (
        Statement("Ready", all_ready, "AllServe" if all_ready else "SomeMissing", missing),
        resized,
    )
    message = "; ".join(text for text in (missing, resized.message) if text)
    group = old.group if metadata is None else groups_of(desired, metadata.maps).get(name)
    return PoolStatus(
        observed_generation=generation,
        conditions=tuple(condition(old.conditions, each, generation, now) for each in statements),
        cluster=desired.name,
        group=group,
        storages=f"{ready_pods}/{pool.spec.storages}",
        lost_volumes=lost,
        requested_sizes=requested_sizes(desired, observed, pool),
        rebalanced=answered_request(pool),
        message=message[:MAX_MESSAGE_CHARACTERS],
    )


def _count_ready_pods(observed: ObservedCluster, pool: str) -> int:
    """Return how many storages of a pool are ready.

    The status of the StatefulSet has this number. It has none while the operator creates the
    StatefulSet again: the set is absent, or Kubernetes has not processed it yet. Meanwhile the pods
    continue to run, so the ready pods are counted here.
    """
    live = observed.objects.get(ObjectKey("StatefulSet", names.storage_set(pool)))
    if live is not None and live.get("status") and is_processed(live):
        return int(live["status"].get("readyReplicas", 0))
    pods = observed.of_kind("Pod", Component.STORAGE)
    return sum(is_ready(pod) for pod in pods if pod["metadata"]["labels"].get(POOL_LABEL) == pool)


def _resized(desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool) -> Statement:
    """Return the statement of Resized."""
    name = pool.metadata.name
    all_growths = volume_growths(desired, observed)
    growths = tuple(each for each in all_growths if each.pool == name)
    if not growths:
        return Statement("Resized", True, "AllResized", "")
    refused = refused_kinds(growths, observed, name)
    sizes = requested_sizes(desired, observed, pool)
    texts = [refusal_text(growth, reason, sizes) for growth, reason in refused.values()]
    texts += [str(growth) for growth in growths if growth.kind not in refused]
    is_refused = any(each != UNCHECKED for _, each in refused.values())
    reason = "ResizeRefused" if is_refused else "Resizing"
    return Statement("Resized", False, reason, "; ".join(texts)[:MAX_MESSAGE_CHARACTERS])


def _lost_volumes(
    desired: DesiredCluster,
    observed: ObservedCluster,
    present: ClusterPresent,
    pool: StoragePool,
    now: str,
) -> tuple[LostVolume, ...]:
    """Return the pods of a pool whose volume is lost; a known loss keeps its time."""
    since = {lost.pod: lost.since for lost in pool.status.lost_volumes}
    name = pool.metadata.name
    return tuple(
        LostVolume(pod=loss.pool_pod.pod, since=since.get(loss.pool_pod.pod, now))
        for loss in volume_losses(desired, observed, present)
        if loss.pool_pod.pool.metadata.name == name
    )
