"""Plan the growth of volumes whose pool specifies a larger size, without a restart. Pure.

First every claim requests the new size. If the API server would refuse the request for a *kind* of
volume (``data``, ``meta``, ``wal``), no further claim of this kind is changed, the StatefulSet
stays as it is, and a wait says how to get larger volumes. The claims of the other kinds still grow.

Then the claim templates of the StatefulSet must change, so that later pods get volumes of the new
size, too. Kubernetes does not change the claim templates of an existing StatefulSet. So the set is
deleted without its pods and created again. A wait names each volume until the volume has its size.

The StatefulSet is deleted only while nothing depends on it: all of its pods run its current version
(test_stateful_set_is_recreated_only_while_all_pods_run_and_are_current). Until it exists again,
Kubernetes would not replace a pod, and `planning.rolls` would not know which pods are outdated.

A pod template that a StatefulSet keeps (`core.pod_templates`) is recorded in the set itself, and
would be lost with it. So such a set is not deleted before a user has requested the update of its
pods. Until then a new pod gets a volume of the old size, which grows at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.names import Component, storage_set
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.objects.manifest import amount
from waltz_operator.core.observed import ClusterPresent, LiveObject, ObservedCluster
from waltz_operator.core.planning.rolls import is_rolling
from waltz_operator.core.planning.updates import kept_workloads
from waltz_operator.core.pods_of_sets import pods_of_set
from waltz_operator.core.resources import StoragePool
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, GrowVolume, OrphanPods, wait
from waltz_operator.core.volume_growth import (
    GrowthState,
    refusal_text,
    refused_kinds,
    requested_sizes,
    volume_growths,
)
from waltz_operator.core.volume_replacement import is_replacing


def template_sizes(live: LiveObject | None) -> Mapping[str, str]:
    """Return the sizes in the claim templates of a StatefulSet, by kind of volume.

    The result is empty without a StatefulSet, or if any of its templates has no size. Then the
    manifest gets the sizes that the pool specifies (`core.objects.storage`).
    """
    templates = () if live is None else live["spec"].get("volumeClaimTemplates") or ()
    try:
        return {
            each["metadata"]["name"]: str(each["spec"]["resources"]["requests"]["storage"])
            for each in templates
        }
    except (KeyError, TypeError):
        return {}


def plan_volume_growth(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the steps that request larger volumes, and a wait for each growth under way."""
    growths, result = volume_growths(desired, observed), EMPTY_PLAN
    for pool in desired.wanted_pools:
        name = pool.metadata.name
        refused = refused_kinds(growths, observed, name)
        sizes = requested_sizes(desired, observed, pool)
        for growth, reason in refused.values():
            result += wait(refusal_text(growth, reason, sizes))
        for growth in growths:
            if growth.pool != name or growth.kind in refused:
                continue
            if growth.state is GrowthState.NOT_REQUESTED:
                step = GrowVolume(growth.claim, growth.version, growth.wanted)
                result += ClusterPlan((step,))
            else:
                result += wait(str(growth))
    return result


def plan_recreation(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the deletion of one StatefulSet whose claim templates have other sizes than its pool.

    The pods of the set stay, and `planning.workloads` creates the set again. A StatefulSet that
    keeps its pod template is left as it is (see the docstring of the module). The plan has a wait
    for each set that is considered before and must not be deleted now.
    """
    result = EMPTY_PLAN
    for pool in desired.wanted_pools:
        live = _outdated_set(desired, observed, pool)
        if live is None:
            continue
        if ObjectKey("StatefulSet", live["metadata"]["name"]) in kept_workloads(desired, observed):
            continue
        obstacle = _obstacle(desired, observed, live)
        metadata = live["metadata"]
        if obstacle is None:
            return result + ClusterPlan((OrphanPods(metadata["name"], metadata.get("uid", "")),))
        result += wait(
            f"StatefulSet {metadata['name']} gets the new size of its volumes later: {obstacle}"
        )
    return result


def _outdated_set(
    desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool
) -> LiveObject | None:
    """Return the StatefulSet of a pool if its claim templates must get the specified sizes now.

    Otherwise None, also while the claim of a volume does not request the specified size yet: the
    templates change after the claims.
    """
    name = pool.metadata.name
    live = observed.objects.get(ObjectKey("StatefulSet", storage_set(name)))
    if live is None or not is_ours(live, desired.name):
        return None
    if live["metadata"].get("deletionTimestamp"):
        return None
    sizes = template_sizes(live)
    has_specified_sizes = all(
        amount(sizes.get(kind, volume.size)) == amount(volume.size)
        for kind, volume in pool.spec.volumes.by_kind.items()
    )
    if has_specified_sizes:
        return None
    growths = volume_growths(desired, observed)
    before_request = (GrowthState.FOREIGN, GrowthState.NOT_REQUESTED, GrowthState.NOT_BOUND)
    if any(each.pool == name and each.state in before_request for each in growths):
        return None
    return live


def _obstacle(desired: DesiredCluster, observed: ObservedCluster, live: LiveObject) -> str | None:
    """Return why a StatefulSet must not be deleted now; None if its pods do not need it."""
    present = observed.metadata
    if not isinstance(present, ClusterPresent) or present.key != desired.key:
        return "the cluster's metadata is not observed"
    if is_replacing(desired):
        return "a volume is being replaced"
    if is_rolling(desired, observed, Component.STORAGE):
        return "pods of storages are outdated"
    pod_set = pods_of_set(live, observed)
    if not pod_set.is_processed:
        return "Kubernetes has not processed its current version yet"
    not_running = (*pod_set.absent, *(pod.name for pod in pod_set.pods if not pod.is_started))
    return f"pod {not_running[0]} does not run" if not_running else None
