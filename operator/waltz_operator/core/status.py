"""Derive the statuses of a cluster and its pools from the observed state and the plan. Pure.

*Ready* is true while every partition has a quorum and a server, the current generation of the spec
is reconciled, and the plan has no problems. The operator does not reconcile a new generation of a
paused cluster. *Healthy* is true while the cluster is Ready and the plan has no waits. *Reconciled*
is false while the plan has steps or problems.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz.admin.core.replicas import PartitionView, quorum, unhealthy_reason
from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, addresses_of
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import LiveObject, ObservedCluster, Present
from waltz_operator.core.planning.znodes import groups_of, is_metadata_lost
from waltz_operator.core.resources import ClusterStatus, Condition, PoolStatus, StoragePool
from waltz_operator.core.steps import ClusterPlan

_MAX_MESSAGE_CHARACTERS = 1000
_MAX_REASONS = 3


def cluster_status(
    desired: DesiredCluster, observed: ObservedCluster, decided: ClusterPlan, now: str
) -> ClusterStatus:
    """Return the status of a WaltzCluster whose plan is ``decided`` at the time ``now``."""
    old, generation = desired.cluster.status, desired.cluster.metadata.generation
    # A plan without steps shows that the operator has nothing to change for this generation.
    idle = not decided.steps and not desired.cluster.spec.paused
    reconciled = generation if idle else old.observed_generation
    present = observed.metadata if isinstance(observed.metadata, Present) else None
    is_own = present is not None and present.key == desired.key
    with_quorum, total = _count_quorums(present), desired.cluster.spec.partitions
    message = _message(decided, observed)
    ready = with_quorum == total and reconciled == generation and not decided.problems
    reason = _reason(desired, decided, ready=ready, serving=with_quorum == total)
    if is_metadata_lost(desired, observed):
        reason = "MetadataLost"
    healthy = ready and not decided.waits
    done = not decided.steps and not decided.problems
    undone_reason = "NeedsAttention" if decided.problems else "Reconciling"
    statements = (
        ("Ready", ready, reason, message),
        ("Healthy", healthy, "AllWell" if healthy else "SomethingMissing", message),
        ("Reconciled", done, "NothingToDo" if done else undone_reason, "" if done else message),
    )
    return ClusterStatus(
        observed_generation=reconciled,
        conditions=tuple(
            _condition(old.conditions, statement, reconciled, now) for statement in statements
        ),
        # The key of another cluster at this root would make this cluster look like an older one.
        cluster_key=str(desired.key) if is_own else old.cluster_key,
        connect_string=desired.zookeeper,
        partitions=f"{with_quorum}/{total}",
        storages=_storages(desired.own_pools, present),
        servers=f"{0 if present is None else len(present.servers)}"
        f"/{desired.cluster.spec.servers.replicas}",
        message=message,
    )


def pool_status(
    desired: DesiredCluster, observed: ObservedCluster, pool: StoragePool, now: str
) -> PoolStatus:
    """Return the status of one of the cluster's pools."""
    generation, old = pool.metadata.generation, pool.status
    present = observed.metadata if isinstance(observed.metadata, Present) else None
    name = pool.metadata.name
    live = observed.objects.get(ObjectKey("StatefulSet", names.storage_set(name)))
    ready_pods = 0 if live is None else (live.get("status") or {}).get("readyReplicas", 0)
    ready = ready_pods >= pool.spec.storages
    message = "" if ready else f"{ready_pods} of {pool.spec.storages} storages are ready"
    statement = ("Ready", ready, "AllServe" if ready else "SomeMissing", message)
    group = None if present is None else groups_of(desired, present.maps).get(name)
    return PoolStatus(
        observed_generation=generation,
        conditions=(_condition(old.conditions, statement, generation, now),),
        cluster=desired.name,
        group=group,
        storages=f"{ready_pods}/{pool.spec.storages}",
        message=message,
    )


def has_quorum(present: Present, view: PartitionView) -> bool:
    """Whether a partition has a server and a quorum of healthy replicas in its session."""
    if view.server_problem is not None or not view.replicas:
        return False
    healthy = [s for s in view.replicas if unhealthy_reason(present.replicas, view, s) is None]
    return len(healthy) >= quorum(len(view.replicas))


def _count_quorums(present: Present | None) -> int:
    if present is None:
        return 0
    return sum(has_quorum(present, view) for view in present.replicas.partitions.values())


def _storages(pools: Iterable[StoragePool], present: Present | None) -> str:
    wanted = [storage for pool in pools for storage in addresses_of(pool)]
    known = {} if present is None else present.replicas.storages
    answering = [s for s in wanted if s in known and known[s].problem is None]
    return f"{len(answering)}/{len(wanted)}"


def _reason(desired: DesiredCluster, decided: ClusterPlan, *, ready: bool, serving: bool) -> str:
    if desired.cluster.spec.paused:
        return "Paused"
    if decided.problems:
        return "NeedsAttention"
    if ready:
        return "AllPartitionsServed"
    return "Reconciling" if serving or decided.steps else "NoQuorum"


def _message(decided: ClusterPlan, observed: ObservedCluster) -> str:
    """Return the problems; if there are none, the waits; if there are none either, the first step.

    Failures of pods follow problems and waits, because they are often the cause.
    """
    reasons = decided.problems or decided.waits
    if reasons:
        parts = [*reasons[:_MAX_REASONS], *_pod_failures(observed)]
    else:
        parts = [str(step) for step in decided.steps[:1]]
    return "; ".join(parts)[:_MAX_MESSAGE_CHARACTERS]


def _pod_failures(observed: ObservedCluster) -> list[str]:
    """Return the last line of output of pods in a crash loop, and images that cannot be pulled."""
    failures = {}
    for component in (Component.ZOOKEEPER, Component.STORAGE, Component.SERVER):
        for pod in observed.of_kind("Pod", component):
            for container in (pod.get("status") or {}).get("containerStatuses") or ():
                if (failure := _container_failure(container)) is not None:
                    failures[failure] = f"pod {pod['metadata']['name']}: {failure}"
    return list(failures.values())[:_MAX_REASONS]


def _container_failure(container: LiveObject) -> str | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if waiting.get("reason") == "CrashLoopBackOff" and ended.get("message"):
        return str(ended["message"]).strip().splitlines()[-1]
    if waiting.get("reason") in ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull"):
        return f"its image {container.get('image')} cannot be pulled"
    return None


def _condition(
    old: Iterable[Condition],
    statement: tuple[str, bool, str, str],
    generation: int,
    now: str,
) -> Condition:
    kind, holds, reason, message = statement
    status = "True" if holds else "False"
    before = next((each for each in old if each.type == kind), None)
    since = before.last_transition_time if before and before.status == status else now
    # The message says why a condition is false, so a true condition has no message. Only Healthy
    # keeps it: while nothing is missing, the message is the step that is being performed.
    return Condition(
        type=kind,
        status=status,
        observed_generation=generation,
        last_transition_time=since,
        reason=reason,
        message="" if holds and kind != "Healthy" else message,
    )
