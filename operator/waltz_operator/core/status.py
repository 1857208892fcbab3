"""Derive the status of a cluster from the observed state and the plan. Pure.

`core.pool_status` derives the status of each of its pools.

The conditions of a cluster:

* *Ready* is true while three things hold:

  * Every partition has a quorum and a server.
  * The plan has no problems.
  * The current generation of the spec is reconciled, or the plan changes the cluster's shape (see
    *Changing*). A generation is *reconciled* once a plan for it had no steps and no change of the
    shape (``status.observedGeneration``). A paused cluster is not Ready: setting ``spec.paused``
    makes a new generation, which the operator does not reconcile.
* *Healthy* is true while the cluster is Ready and the plan has no waits.
* *Reconciled* is false while one of these holds:

  * The plan has steps, problems or a change of the cluster's shape.
  * The cluster is paused.
  * A pool of the spec does not exist.
  * The secret with the certificates of the processes does not exist (SecretMissing).

  Otherwise it is unknown while ZooKeeper does not answer: the plan then lacks the steps that follow
  from the cluster's metadata, such as the removal of a pool.
* *Updated* is true while every pod runs the current version of its object, and starts. It is false
  for one of these reasons:

  * RollStopped: a pod of the current version, of ZooKeeper or of a storage, does not start while
    pods of an earlier version wait to be replaced.
  * PodsOutdated: no roll has stopped, but a workload has fewer pods of its current version than it
    wants.
  * PodsFailing: no pod of the current version is missing, but a pod does not start.
* *Changing* is true while the plan has a change of the cluster's shape: a pool is added or removed,
  a foreign group is retired, or partitions move. Its message has the progress, the quorum, and why
  the operator waits.
* *Rotating* is true while the certificate authority is rotated, or will be. Its message has the
  step of the rotation, and why the operator waits.
* *Foreign* is true while storages are registered that no pool here runs, as those of a cluster that
  was adopted. Its message names them. It is unknown while the storage maps are not observed.
* *Spread* is true while no node has two copies of a partition, and no node has so many ZooKeeper
  members that the others are no quorum. It is unknown while the replicas are not observed.
* *UpdateAvailable* is true while a workload keeps the pods that an operator of another version has
  specified, because no user has requested other ones. Its message says how to request them.

Ready, Healthy, Reconciled and Updated do not depend on Spread, Rotating, Foreign and
UpdateAvailable.

Ready and Healthy are unknown while ZooKeeper does not answer for a cluster that existed before: the
operator then sees neither partitions nor servers, and they may work without ZooKeeper. Ready and
Healthy of a paused cluster are false then. While a resource is invalid or a reconcile fails
unexpectedly, Ready and Healthy are unknown, and Reconciled is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from waltz.admin.core.replicas import PartitionView, quorum, unhealthy_reason
from waltz_operator.core.authority import RotationPhase
from waltz_operator.core.conditions import (
    MAX_MESSAGE_CHARACTERS,
    MAX_REASONS,
    Statement,
    changing,
    condition,
    foreign,
    rotating,
    update_available,
)
from waltz_operator.core.desired import DesiredCluster, addresses_of
from waltz_operator.core.names import Component
from waltz_operator.core.observed import (
    ClusterPresent,
    LiveObject,
    ObservedCluster,
    ZooKeeperUnreachable,
)
from waltz_operator.core.planning.certificates import missing_secret
from waltz_operator.core.planning.outside_addresses import outside_status
from waltz_operator.core.planning.rolls import RollStopped, roll_states
from waltz_operator.core.planning.updates import available_update
from waltz_operator.core.planning.znodes import is_metadata_lost
from waltz_operator.core.pods_of_sets import pod_failure
from waltz_operator.core.resources import (
    ClusterStatus,
    Condition,
    StoragePool,
)
from waltz_operator.core.spread import describe_shared_nodes
from waltz_operator.core.steps import ClusterPlan


def cluster_status(
    desired: DesiredCluster,
    observed: ObservedCluster,
    plan: ClusterPlan,
    now: str,
    failure: str | None = None,
) -> ClusterStatus:
    """Return the status of a WaltzCluster for which the operator has made ``plan``.

    ``now`` is the present time in UTC, as in a condition. ``failure`` is the reason for which a
    step of the plan failed, None if none failed.
    """
    old, generation = desired.cluster.status, desired.cluster.metadata.generation
    present = metadata_with_key(desired, observed)
    with_quorum, total = _count_quorums(present), desired.cluster.spec.partitions
    # The conditions get this generation once its plan has no steps. During a pause, and during a
    # change of the shape, a plan without steps only waits. So the conditions keep the earlier
    # generation, and `kubectl wait` ignores them.
    is_idle = not plan.steps and plan.change is None and not desired.cluster.spec.paused
    # A plan without steps shows that this generation is reconciled, unless steps are only not
    # known yet: ZooKeeper does not answer, a pool of the spec does not exist, or the workloads of a
    # new cluster wait for a secret. Once all partitions are served, the workloads exist and their
    # pods have the secret: then a missing secret does not count.
    may_lack_steps = (
        isinstance(observed.metadata, ZooKeeperUnreachable)
        or bool(desired.missing_pools)
        or (with_quorum < total and missing_secret(desired, observed) is not None)
    )
    is_reconciled = generation == old.observed_generation or (is_idle and not may_lack_steps)
    num_servers = 0 if present is None else len(present.servers)
    message = _message(plan, observed, failure)
    statements = (
        *_ready_and_healthy(
            desired,
            observed,
            plan,
            all_served=with_quorum == total,
            # A cluster serves while its shape changes, which may last for hours.
            is_reconciled_or_changing=is_reconciled or plan.change is not None,
            message=message,
        ),
        _reconciled(desired, observed, plan, failure, message=message),
        _updated(desired, observed),
        _spread(desired, observed, present),
        changing(plan),
        rotating(plan),
        foreign(desired, observed, present),
        update_available(available_update(desired, observed)),
    )
    return ClusterStatus(
        observed_generation=generation if is_reconciled else old.observed_generation,
        conditions=tuple(
            condition(old.conditions, each, generation if is_idle else old.observed_generation, now)
            for each in statements
        ),
        # A key in the status shows that the cluster existed before, so its znodes are never created
        # again. The key is set only once metadata with this cluster's own key is observed. If any
        # metadata at this root set it, a new cluster would seem to have existed before.
        cluster_key=old.cluster_key if present is None else str(desired.key),
        connect_string=desired.zookeeper,
        outside=outside_status(desired, observed),
        partitions=f"{with_quorum}/{total}",
        storages=_count_answering_storages(desired.wanted_pools, present),
        servers=f"{num_servers}/{desired.cluster.spec.servers.replicas}",
        updated=_count_updated(observed),
        change="" if plan.change is None else plan.change.progress,
        rotated_ca=_rotated_for(observed) or old.rotated_ca,
        message=message,
    )


def failed_status(
    old: Iterable[Condition], generation: int, reason: str, message: str, now: str
) -> ClusterStatus:
    """Return the conditions and the message of a cluster whose reconcile failed.

    ``old`` are the conditions of the cluster so far. ``reason`` is the reason of the new ones. The
    caller must write only the fields ``conditions`` and ``message``: the other fields of the result
    are defaults.
    """
    message = message[:MAX_MESSAGE_CHARACTERS]
    statements = (
        Statement("Ready", None, reason, message),
        Statement("Healthy", None, reason, message),
        Statement("Reconciled", False, reason, message),
    )
    old, replaced = tuple(old), {statement.kind for statement in statements}
    kept = tuple(each for each in old if each.type not in replaced)
    failed = tuple(condition(old, each, generation, now) for each in statements)
    return ClusterStatus(conditions=failed + kept, message=message)


def _rotated_for(observed: ObservedCluster) -> str:
    """Return the request of the last rotation of the authority.

    It is empty while a rotation is under way, if the authority is not known, and if the last
    rotation began without a request.
    """
    authority = observed.authority
    if authority is None or authority.phase is not RotationPhase.SETTLED:
        return ""
    return authority.rotated_for


def metadata_with_key(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPresent | None:
    """Return the metadata that has the key of this cluster; None if no such metadata is observed.

    Unlike `desired.own_metadata`, this function does not compare the name in ZooKeeper. The
    partitions and servers of another cluster at this root say nothing about this cluster.
    """
    match observed.metadata:
        case ClusterPresent() as present if present.key == desired.key:
            return present
        case _:
            return None


def has_quorum(present: ClusterPresent, view: PartitionView) -> bool:
    """Whether a partition has a server, and a quorum of its assigned replicas is healthy."""
    if view.server_problem is not None or not view.replicas:
        return False
    reasons = [unhealthy_reason(present.replicas, view, storage) for storage in view.replicas]
    return reasons.count(None) >= quorum(len(view.replicas))


def _count_quorums(present: ClusterPresent | None) -> int:
    """Return how many partitions have a server and a quorum, 0 without ``present``."""
    if present is None:
        return 0
    return sum(has_quorum(present, view) for view in present.replicas.partitions.values())


def _count_answering_storages(pools: Iterable[StoragePool], present: ClusterPresent | None) -> str:
    """Return the number of storages of ``pools`` that answer, and of all of them, as ``2/3``."""
    wanted = [storage for pool in pools for storage in addresses_of(pool)]
    known = {} if present is None else present.replicas.storages
    answering = [s for s in wanted if s in known and known[s].problem is None]
    return f"{len(answering)}/{len(wanted)}"


def _ready_and_healthy(
    desired: DesiredCluster,
    observed: ObservedCluster,
    plan: ClusterPlan,
    *,
    all_served: bool,
    is_reconciled_or_changing: bool,
    message: str,
) -> tuple[Statement, Statement]:
    """Return the statements of Ready and Healthy.

    ``all_served``: whether every partition has a quorum and a server.
    ``is_reconciled_or_changing``: whether the present generation of the spec is reconciled, or the
    plan changes the cluster's shape. ``message`` is the message of both conditions.
    """
    if isinstance(observed.metadata, ZooKeeperUnreachable) and not desired.cluster.spec.paused:
        # A cluster that existed before may work without ZooKeeper. A new one does not work yet.
        existed_before = desired.cluster.status.cluster_key != ""
        holds = None if existed_before else False
        ready = Statement("Ready", holds, "ZooKeeperUnreachable", message)
        return ready, Statement("Healthy", holds, "ZooKeeperUnreachable", message)
    is_ready = all_served and is_reconciled_or_changing and not plan.problems
    is_healthy = is_ready and not plan.waits
    if desired.cluster.spec.paused:
        reason = "Paused"
    elif is_metadata_lost(desired, observed):
        reason = "MetadataLost"
    elif plan.problems:
        reason = "NeedsAttention"
    elif is_ready:
        reason = "AllPartitionsServed"
    else:
        # If all partitions are served, only the new generation is not reconciled yet. If steps are
        # left, partitions may lack a quorum only because of that, as in a new cluster.
        reason = "Reconciling" if all_served or plan.steps else "NoQuorum"
    return (
        Statement("Ready", is_ready, reason, message),
        Statement("Healthy", is_healthy, "AllWell" if is_healthy else "SomethingMissing", message),
    )


def _reconciled(
    desired: DesiredCluster,
    observed: ObservedCluster,
    plan: ClusterPlan,
    failure: str | None,
    *,
    message: str,
) -> Statement:
    """Return the statement of Reconciled."""
    if desired.cluster.spec.paused:
        return Statement("Reconciled", False, "Paused", message)
    if failure is not None:
        return Statement("Reconciled", False, "StepFailed", message)
    if plan.problems:
        return Statement("Reconciled", False, "NeedsAttention", message)
    if plan.steps or plan.change is not None or desired.missing_pools:
        return Statement("Reconciled", False, "Reconciling", message)
    if (sentence := missing_secret(desired, observed)) is not None:
        return Statement("Reconciled", False, "SecretMissing", sentence)
    if isinstance(observed.metadata, ZooKeeperUnreachable):
        return Statement("Reconciled", None, "ZooKeeperUnreachable", message)
    return Statement("Reconciled", True, "NothingToDo", "")


def _updated(desired: DesiredCluster, observed: ObservedCluster) -> Statement:
    """Return the statement of Updated: whether every pod runs the current version, and starts."""
    outdated = []
    for live in _workloads(observed):
        updated, wanted = _updated_pods(live)
        if updated < wanted:
            name = live["metadata"]["name"]
            outdated.append(f"{name} has {updated} of {wanted} pods of its current version")
    failing = _pod_failures(observed)
    if not outdated and not failing:
        return Statement("Updated", True, "AllPodsCurrent", "")
    stopped = [
        str(each) for each in roll_states(desired, observed) if isinstance(each, RollStopped)
    ]
    # A stopped roll comes first, because it is why the other pods stay outdated.
    if stopped:
        reason = "RollStopped"
    elif outdated:
        reason = "PodsOutdated"
    else:
        reason = "PodsFailing"
    message = "; ".join([*stopped, *outdated, *failing])[:MAX_MESSAGE_CHARACTERS]
    return Statement("Updated", False, reason, message)


def _count_updated(observed: ObservedCluster) -> str:
    """Return the number of pods of the current version, and of all pods, such as ``7/8``."""
    counts = [_updated_pods(live) for live in _workloads(observed)]
    return f"{sum(updated for updated, _ in counts)}/{sum(wanted for _, wanted in counts)}"


def _updated_pods(live: LiveObject) -> tuple[int, int]:
    """Return how many pods of a workload run its current version, and how many it wants."""
    status, wanted = live.get("status") or {}, live["spec"].get("replicas", 0)
    # Until Kubernetes has processed the current version, the status counts pods of an earlier one.
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return 0, wanted
    # During a rolling update of a Deployment, more pods than wanted may run.
    return min(status.get("updatedReplicas", 0), wanted), wanted


def _spread(
    desired: DesiredCluster, observed: ObservedCluster, present: ClusterPresent | None
) -> Statement:
    """Return the statement of Spread: true if no node has copies that must not be lost together.

    It is unknown if ``present`` is None: then the replicas are not observed.
    """
    if present is None:
        message = "the replicas of the partitions are not observed"
        return Statement("Spread", None, "NotObserved", message)
    if shared := describe_shared_nodes(desired, observed, present):
        message = "; ".join(shared)[:MAX_MESSAGE_CHARACTERS]
        return Statement("Spread", False, "CopiesShareNode", message)
    return Statement("Spread", True, "CopiesOnDifferentNodes", "")


def _workloads(observed: ObservedCluster) -> Iterator[LiveObject]:
    """Yield the StatefulSets and Deployments of the cluster."""
    for kind in ("StatefulSet", "Deployment"):
        yield from observed.of_kind(kind)


def _message(plan: ClusterPlan, observed: ObservedCluster, failure: str | None) -> str:
    """Return the message of the status, empty if there is nothing to say.

    It has the first of these: problems, the failed step, waits, the rotation, the next step. After
    problems, a failed step or waits, the failures of pods follow: they are often the cause.
    """
    failed = (f"step failed, retrying: {failure}",) if failure is not None else ()
    reasons = plan.problems or failed or plan.waits
    if reasons:
        parts = [*reasons[:MAX_REASONS], *_pod_failures(observed)]
    else:
        rotation = () if plan.rotation is None else (str(plan.rotation),)
        parts = [*rotation, *(str(step) for step in plan.steps)][:1]
    return "; ".join(parts)[:MAX_MESSAGE_CHARACTERS]


def _pod_failures(observed: ObservedCluster) -> list[str]:
    """Return at most `MAX_REASONS` sentences about pods that do not start.

    Each reason is given for one pod only.
    """
    failures = {}
    for component in (Component.ZOOKEEPER, Component.STORAGE, Component.SERVER):
        for pod in observed.of_kind("Pod", component):
            if (failure := pod_failure(pod)) is not None:
                failures[failure] = f"pod {pod['metadata']['name']}: {failure}"
    return list(failures.values())[:MAX_REASONS]
