"""The end of a cluster: its processes, its znodes, its volumes if that was asked for. Pure.

Every wait has an end, so that a cluster can be deleted when its ZooKeeper, its nodes or its pools
are gone: what is then left behind is what nobody could reach.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz_operator.core import names
from waltz_operator.core.desired import Desired
from waltz_operator.core.names import COMPONENT_LABEL, POOL_LABEL, Component
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import Live, Observed, Present, Unfinished, Unreachable
from waltz_operator.core.planning.znodes import is_own_beginning
from waltz_operator.core.resources import Disposal
from waltz_operator.core.steps import NOTHING, Delete, DeleteMetadata, LetGo, Plan, Release, wait

PATIENCE_SECONDS = 60.0
"""After so long a deletion no longer waits for pods, or for a ZooKeeper that does not answer."""

_LEFT_TO_LAST = ("Pod", "PersistentVolumeClaim", "StoragePool", "WaltzCluster")


def plan_deletion(desired: Desired, observed: Observed) -> Plan:
    """Return what is next; the first of these that is not over."""
    if names.FINALIZER not in desired.cluster.metadata.finalizers:
        return NOTHING
    return (
        _processes(desired, observed, "Deployment", Component.SERVER)
        or _processes(desired, observed, "StatefulSet", Component.STORAGE)
        or _znodes(desired, observed)
        or _processes(desired, observed, "StatefulSet", Component.ZOOKEEPER)
        or _volumes(desired, observed)
        or _all_else(desired, observed)
        or _pools(desired)
        or Plan((LetGo(),))
    )


def keeps_nothing(desired: Desired) -> bool:
    """Whether all volumes go, so that nobody will ever need the znodes again.

    Every pool has to be there to say so, and still counts after it was released.
    """
    managed = desired.cluster.spec.zookeeper.managed
    pools_go = all(pool.spec.volumes.on_deletion is Disposal.DELETE for pool in desired.pools)
    return (
        pools_go
        and not desired.missing_pools
        and (managed is None or managed.on_deletion is Disposal.DELETE)
    )


def _processes(
    desired: Desired, observed: Observed, kind: str, component: Component
) -> Plan | None:
    """Delete the workload, then wait for its pods: they leave in good order."""
    workloads = tuple(_deletable(desired, observed.of_kind(kind, component)))
    if workloads:
        return _delete(kind, workloads)
    pods = len(list(observed.of_kind("Pod", component)))
    if pods and observed.deleting_seconds < PATIENCE_SECONDS:
        return wait(f"{pods} pods of the {component.value} are ending")
    return None


def _znodes(desired: Desired, observed: Observed) -> Plan | None:
    """Delete the znodes of an external ZooKeeper; those of a managed one go with its volumes.

    They stay if somebody else has znodes below them.
    """
    if desired.cluster.spec.zookeeper.managed is not None or not keeps_nothing(desired):
        return None
    match observed.metadata:
        case Present(others_below=True):
            return None
        case Present(name, _, key) if (name, key) == (desired.metadata_name, desired.key):
            return Plan((DeleteMetadata(desired.metadata_name),))
        case Unfinished() as found if is_own_beginning(desired, found):
            return Plan((DeleteMetadata(desired.metadata_name),))
        case Unreachable(reason) if observed.deleting_seconds < PATIENCE_SECONDS:
            return wait(f"ZooKeeper at {desired.zookeeper} does not answer: {reason}")
        case _:
            return None


def _volumes(desired: Desired, observed: Observed) -> Plan | None:
    going = {
        pool.metadata.name
        for pool in desired.own_pools
        if pool.spec.volumes.on_deletion is Disposal.DELETE
    }
    # A ZooKeeper that forgets while storages remember would be of no use.
    zookeeper_goes = keeps_nothing(desired)
    claims = [
        claim
        for claim in _deletable(desired, observed.of_kind("PersistentVolumeClaim"))
        if claim["metadata"]["labels"].get(POOL_LABEL) in going
        or (
            zookeeper_goes
            and claim["metadata"]["labels"].get(COMPONENT_LABEL) == Component.ZOOKEEPER
        )
    ]
    return _delete("PersistentVolumeClaim", claims) if claims else None


def _all_else(desired: Desired, observed: Observed) -> Plan | None:
    """Delete whatever else is the cluster's."""
    steps = NOTHING
    for kind in sorted({key.kind for key in observed.objects} - {*_LEFT_TO_LAST}):
        steps += _delete(kind, _deletable(desired, observed.of_kind(kind)))
    return None if steps == NOTHING else steps


def _pools(desired: Desired) -> Plan | None:
    held = tuple(Release(pool.metadata.name) for pool in desired.own_pools)
    return Plan(held) if held else None


def _deletable(desired: Desired, found: Iterable[Live]) -> Iterable[Live]:
    """Return what is the cluster's own and is not being deleted already."""
    return (
        live
        for live in found
        if is_ours(live, desired.name) and not live["metadata"].get("deletionTimestamp")
    )


def _delete(kind: str, found: Iterable[Live]) -> Plan:
    return Plan(
        tuple(
            Delete(ObjectKey(kind, live["metadata"]["name"]), live["metadata"].get("uid", ""))
            for live in found
        )
    )
