"""Plan rolling changes: replace the pods of an earlier version one at a time. Pure.

Kubernetes creates pods of the current version only in the place of pods that were deleted (the
update strategy OnDelete). So this module decides which pod is deleted next. A pod of an earlier
version is *outdated*. A pod of a storage *works* if it is started, a pod of ZooKeeper if it is
ready. The *roll* of a component (storages or ZooKeeper members) has one of these states:

* `AllPodsCurrent`: every pod runs the current version.
* `RollInProgress`: a pod was deleted or starts. Nothing is done until it works.
* `RollStopped`: a pod of the current version does not start. No pod that works is replaced, so a
  broken version stops at one pod. After a correction that pod is outdated, and is replaced first.
* `RollWaiting`: outdated pods exist, but none of them may be replaced now. Or Kubernetes has not
  processed the current version yet: then it is not known which pods are outdated.
* `RollNextPod`: one pod is deleted now.

Rules of every roll (tests/unit/operator/test_operator_rolls.py):

*One copy.* A storage whose replicas are healthy is stopped only if all replicas of all partitions
are healthy and a store session of each partition opens without this storage (`core.disruption`). So
the next storage waits until the replicas of the storage before it take part in their sessions again
and have all committed transactions. Evictions are forbidden while a storage is outdated
(`is_rolling`), because the eviction of another storage could happen at the same moment. With a
single pool no session opens without the storage, and every restart interrupts appends. So with a
single pool only the health of all replicas is required.

*Failed pods first.* An outdated pod that does not work is replaced without any condition about
partitions, because its replicas are absent already. Only one such pod is replaced at a time, and
only while no pod of the current version fails. A storage that runs and has unhealthy replicas is
replaced if all replicas on the other storages are healthy and the partitions open without it.

*ZooKeeper before storages, followers before the leader.* A restart of the leader interrupts
ZooKeeper for an election, so the leader is restarted only once, as the last member. A storage whose
replicas are healthy is stopped only when all members are current and ready.

The Deployment of the servers is rolled by Kubernetes: it starts a new server before it stops an old
one, and a server hands its partitions over when it is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, address_of
from waltz_operator.core.disruption import absence_obstacle, may_be_away, may_be_repaired
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import ClusterPresent, ObservedCluster
from waltz_operator.core.pods_of_sets import PodSet, SetPod, pods_of_set
from waltz_operator.core.resources import StoragePool
from waltz_operator.core.shape_change import ShapeChange
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, ReplacePod, wait
from waltz_operator.core.volume_growth import pods_to_restart


@dataclass(frozen=True, slots=True)
class AllPodsCurrent:
    """Every pod runs the current version."""


@dataclass(frozen=True, slots=True)
class RollInProgress:
    """The pod was deleted or starts, and outdated pods exist."""

    pod: str


@dataclass(frozen=True, slots=True)
class RollStopped:
    """The pod runs the current version and does not start."""

    pod: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the rolling change has stopped: pod {self.pod} of the current version does not "
            f"start: {self.reason}; correct the resource, and this pod is replaced first"
        )


@dataclass(frozen=True, slots=True)
class RollWaiting:
    """No pod may be replaced now, although outdated pods exist or may exist."""

    reason: str


@dataclass(frozen=True, slots=True)
class RollNextPod:
    """One outdated pod may be replaced now; ``step`` replaces it."""

    step: ReplacePod


RollState = AllPodsCurrent | RollInProgress | RollStopped | RollWaiting | RollNextPod


def plan_roll(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the replacement of at most one pod, and the reasons why others have to wait."""
    result = EMPTY_PLAN
    for state in roll_states(desired, observed):
        match state:
            case AllPodsCurrent():
                continue
            case RollInProgress(pod):
                result += wait(f"pod {pod} is being replaced by its current version")
            case RollStopped():
                result += wait(str(state))
            case RollWaiting(reason):
                result += wait(f"the rolling change waits: {reason}")
            case RollNextPod(step):
                return result + ClusterPlan((step,))
    return result


def explain_delayed_roll(
    desired: DesiredCluster, observed: ObservedCluster, change: ShapeChange
) -> ClusterPlan:
    """Return why no pod is replaced while ``change`` has steps; empty if every pod is current.

    Evictions stay forbidden meanwhile (`is_rolling`): a pod that the roll has deleted before may
    still be shutting down with healthy replicas, and an eviction would stop a second storage.
    """
    states = roll_states(desired, observed)
    if all(isinstance(state, AllPodsCurrent) for state in states):
        return EMPTY_PLAN
    stopped = [str(state) for state in states if isinstance(state, RollStopped)]
    return wait(*stopped, f"the rolling change waits: {change.progress} comes first")


def roll_states(desired: DesiredCluster, observed: ObservedCluster) -> tuple[RollState, RollState]:
    """Return the state of the roll of ZooKeeper's members, and that of the storages."""
    members = _zookeeper_state(desired, observed)
    members_obstacle = _members_obstacle(desired, observed, members)
    return members, _storages_state(desired, observed, members_obstacle)


def is_rolling(desired: DesiredCluster, observed: ObservedCluster, component: Component) -> bool:
    """Whether pods of storages or of ZooKeeper are outdated, so that evictions are forbidden."""
    if component is Component.ZOOKEEPER:
        members = _zookeeper_set(desired, observed)
        return members is not None and bool(members.outdated)
    return any(pod_set.outdated for _, pod_set in _storage_sets(desired, observed))


def _zookeeper_state(desired: DesiredCluster, observed: ObservedCluster) -> RollState:
    """Return the state of the roll of ZooKeeper's members, of which the leader is replaced last."""
    members = _zookeeper_set(desired, observed)
    if members is None:
        return AllPodsCurrent()
    leader, outdated = observed.zookeeper_leader, members.outdated
    has_several_members = len(members.pods) > 1

    def obstacle(pod: SetPod) -> str | None:
        # `_roll_state` chooses failed members first. So all members are ready here.
        if has_several_members and leader is None:
            return "the leader of ZooKeeper is not known"
        if pod.name == leader and len(outdated) > 1:
            return f"pod {pod.name} is the leader of ZooKeeper and is replaced last"
        return None

    # A member that runs without being ready counts as failed (`_is_ready`), so the case of a pod
    # that runs and needs a repair does not exist here.
    return _roll_state(
        [members],
        outdated,
        works=_is_ready,
        can_be_repaired=lambda pod: False,
        obstacle=obstacle,
    )


def _members_obstacle(
    desired: DesiredCluster, observed: ObservedCluster, members: RollState
) -> str | None:
    """Return why ZooKeeper's members forbid the replacement of a storage; None if they do not.

    ``members`` is the state of their roll. It is `AllPodsCurrent` as soon as the last outdated
    member was deleted, because a pod that is absent is not outdated. That member is normally the
    leader, so ZooKeeper elects a new leader at that time. So the storages also wait until all
    members are ready again.
    """
    if members != AllPodsCurrent():
        return "the members of ZooKeeper are replaced before the storages"
    if (pod_set := _zookeeper_set(desired, observed)) is not None:
        unready = (*pod_set.absent, *(pod.name for pod in pod_set.pods if not pod.is_ready))
        if unready:
            return f"pod {unready[0]} of ZooKeeper is not ready"
    return None


def _storages_state(
    desired: DesiredCluster, observed: ObservedCluster, members_obstacle: str | None
) -> RollState:
    """Return the state of the roll of the storages.

    ``members_obstacle`` is the result of `_members_obstacle`.
    """
    pools_and_sets = _storage_sets(desired, observed)
    address_by_pod = {
        pod.name: address_of(pool, pod.ordinal)
        for pool, pod_set in pools_and_sets
        for pod in pod_set.pods
    }
    present: ClusterPresent | None = None
    if isinstance(observed.metadata, ClusterPresent) and observed.metadata.key == desired.key:
        present = observed.metadata

    def can_be_repaired(pod: SetPod) -> bool:
        storage = frozenset({address_by_pod[pod.name]})
        # If the storage may be away, all replicas are healthy: it needs no repair, and `obstacle`
        # decides.
        return (
            present is not None
            and not may_be_away(present, storage)
            and may_be_repaired(present, storage)
        )

    def obstacle(pod: SetPod) -> str | None:
        if members_obstacle is not None:
            return members_obstacle
        if present is None:
            return "the replicas of the storages are not observed"
        if reason := evictions_obstacle(desired, observed):
            return reason
        # With a single copy, no session of a partition opens without the storage that has the copy:
        # every restart interrupts appends. So only the health of all replicas is required, which
        # `absence_obstacle` checks for the empty set of storages.
        away = frozenset({address_by_pod[pod.name]} if desired.has_several_copies else ())
        return absence_obstacle(present, away)

    sets = [pod_set for _, pod_set in pools_and_sets]
    outdated = [pod for pod_set in sets for pod in pod_set.outdated]
    return _roll_state(
        sets,
        outdated,
        works=_is_started,
        can_be_repaired=can_be_repaired,
        obstacle=obstacle,
    )


def _roll_state(
    sets: Sequence[PodSet],
    outdated: Sequence[SetPod],
    works: Callable[[SetPod], bool],
    can_be_repaired: Callable[[SetPod], bool],
    obstacle: Callable[[SetPod], str | None],
) -> RollState:
    """Return the state of the roll of one component.

    ``sets`` are the pods of the component by StatefulSet. ``outdated`` are the outdated pods, in
    the order in which they are to be replaced. Three functions judge a pod:

    * ``works``: whether it works.
    * ``can_be_repaired``: whether a pod that works has unhealthy replicas, and may be stopped for
      that reason.
    * ``obstacle``: why a pod that works and needs no repair must not be replaced now, None if it
      may be replaced.
    """
    for pod_set in sets:
        if not pod_set.is_processed:
            return RollWaiting(
                f"Kubernetes has not processed the current version of {pod_set.key} yet"
            )
    if not outdated:
        return AllPodsCurrent()
    if (unfinished := _unfinished_replacement(sets, works)) is not None:
        return unfinished
    failed = next((pod for pod in outdated if not works(pod)), None)
    chosen = failed or next((pod for pod in outdated if can_be_repaired(pod)), None)
    if chosen is not None:
        return RollNextPod(ReplacePod(chosen.name, chosen.uid))
    reasons = []
    for pod in outdated:
        reason = obstacle(pod)
        if reason is None:
            return RollNextPod(ReplacePod(pod.name, pod.uid))
        reasons.append(reason)
    return RollWaiting(reasons[0])


def _unfinished_replacement(
    sets: Sequence[PodSet], works: Callable[[SetPod], bool]
) -> RollState | None:
    """Return the state of the roll if the replacement of a pod is not complete, otherwise None."""
    for pod_set in sets:
        if pod_set.absent:
            return RollInProgress(pod_set.absent[0])
    for pod_set in sets:
        for pod in pod_set.pods:
            if pod.is_current and not works(pod):
                if pod.failure is None:
                    return RollInProgress(pod.name)
                return RollStopped(pod.name, pod.failure)
    return None


def _is_started(pod: SetPod) -> bool:
    """Whether a storage works. It may not be ready: that also needs servers with open sessions."""
    return pod.is_started


def _is_ready(pod: SetPod) -> bool:
    """Whether a member of ZooKeeper works: it serves clients, in a quorum."""
    return pod.is_ready


def evictions_obstacle(desired: DesiredCluster, observed: ObservedCluster) -> str | None:
    """Return why a storage must not be stopped yet, None once evictions are forbidden.

    The disruption budget, as it was observed, must allow no eviction. Otherwise the API server
    could allow an eviction at the moment at which the operator deletes another pod, and two copies
    would be away. With a single copy there is no budget (`objects.protection.budgets`), and the
    result is None.
    """
    if not desired.has_several_copies:
        return None
    key = ObjectKey("PodDisruptionBudget", names.budget(desired.name, Component.STORAGE))
    live = observed.objects.get(key)
    if live is not None and (live.get("spec") or {}).get("maxUnavailable") == 0:
        return None
    return "evictions of storages are not forbidden yet"


def _storage_sets(
    desired: DesiredCluster, observed: ObservedCluster
) -> list[tuple[StoragePool, PodSet]]:
    """Return the claimed pools whose StatefulSet exists, each with its pods.

    A pod counts as outdated, too, if a file system of its volumes is resized only when the pod
    starts again (`volume_growth.pods_to_restart`). So its restart follows the rules of a roll.
    """
    result = []
    restarts = pods_to_restart(desired, observed)
    for pool in desired.own_pools:
        key = ObjectKey("StatefulSet", names.storage_set(pool.metadata.name))
        if (pod_set := _own_pod_set(desired, observed, key)) is not None:
            pods = (
                replace(pod, is_current=pod.is_current and pod.name not in restarts)
                for pod in pod_set.pods
            )
            result.append((pool, replace(pod_set, pods=tuple(pods))))
    return result


def _zookeeper_set(desired: DesiredCluster, observed: ObservedCluster) -> PodSet | None:
    """Return the members of a managed ZooKeeper, None if there are none."""
    if desired.cluster.spec.zookeeper.managed is None:
        return None
    key = ObjectKey("StatefulSet", names.zookeeper_set(desired.name))
    return _own_pod_set(desired, observed, key)


def _own_pod_set(
    desired: DesiredCluster, observed: ObservedCluster, key: ObjectKey
) -> PodSet | None:
    """Return the pods of the StatefulSet ``key``; None if it is missing or of another owner."""
    live = observed.objects.get(key)
    if live is None or not is_ours(live, desired.name):
        return None
    return pods_of_set(live, observed)
