"""Plan rolling changes: replace the pods of an earlier version one at a time. Pure.

Kubernetes creates pods of the current version only in the place of pods that were deleted (the
update strategy OnDelete). So this module decides which pod is deleted next. It distinguishes these
states of the pods of one component:

* `Current`: every pod runs the current version.
* `Replacing`: a pod was deleted or starts. Nothing is done until it works.
* `Stopped`: a pod of the current version does not start. No pod that works is replaced, so a broken
  version stops at one pod. After a correction that pod is outdated, and the first to be replaced.
* `Waiting`: outdated pods exist, but none may be away now.
* `Next`: one pod is deleted now.

Rules of every roll (tests/unit/operator/test_operator_rolls.py):

*One copy.* A storage that works is stopped only if all replicas of all partitions are healthy and a
session of each partition opens without this storage (`core.disruption`). So the next storage waits
until the replicas of the one before take part again and are level. Evictions are forbidden while a
storage is outdated (`is_rolling`), because the eviction of another storage could happen at the same
moment. With a single pool every restart interrupts appends; then all replicas must be healthy.

*Failed pods first.* A pod that does not run is replaced without any condition about partitions,
because its replicas are absent already. Only one is replaced at a time, and only while no pod of
the current version fails. A storage that runs without taking part in its sessions is replaced if
all other storages are healthy.

*ZooKeeper before storages, followers before the leader.* A restart of the leader interrupts
ZooKeeper for an election, so there is only one. A storage that works is stopped only when all
members are current and ready.

The Deployment of the servers is rolled by Kubernetes: it starts a new server before it stops an old
one, and a server hands its partitions over when it is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from waltz_operator.core import names
from waltz_operator.core.desired import DesiredCluster, address_of
from waltz_operator.core.disruption import absence_obstacle, may_be_away, may_be_repaired
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey, is_ours
from waltz_operator.core.observed import ObservedCluster, Present
from waltz_operator.core.pods_of_sets import PodSet, SetPod, pods_of_set
from waltz_operator.core.resources import StoragePool
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, ReplacePod, wait


@dataclass(frozen=True, slots=True)
class Current:
    """Every pod runs the current version."""


@dataclass(frozen=True, slots=True)
class Replacing:
    """The pod was deleted or starts, and outdated pods remain."""

    pod: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The pod runs the current version and does not start."""

    pod: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the rolling change has stopped: pod {self.pod} of the current version does not "
            f"start: {self.reason}; correct the resource, and this pod is replaced first"
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """Outdated pods remain, and none of them may be replaced now."""

    reason: str


@dataclass(frozen=True, slots=True)
class Next:
    """The step that replaces one pod."""

    step: ReplacePod


RollState = Current | Replacing | Stopped | Waiting | Next


def plan_roll(desired: DesiredCluster, observed: ObservedCluster) -> ClusterPlan:
    """Return the replacement of at most one pod, and the reasons why others have to wait."""
    result = EMPTY_PLAN
    for state in roll_states(desired, observed):
        match state:
            case Current():
                continue
            case Replacing(pod):
                result += wait(f"pod {pod} is being replaced by its current version")
            case Stopped():
                result += wait(str(state))
            case Waiting(reason):
                result += wait(f"the rolling change waits: {reason}")
            case Next(step):
                return result + ClusterPlan((step,))
    return result


def roll_states(desired: DesiredCluster, observed: ObservedCluster) -> tuple[RollState, RollState]:
    """Return the state of ZooKeeper's members and that of the storages."""
    members = _zookeeper_state(desired, observed)
    return members, _storages_state(
        desired, observed, _members_obstacle(desired, observed, members)
    )


def is_rolling(desired: DesiredCluster, observed: ObservedCluster, component: Component) -> bool:
    """Whether pods of storages or of ZooKeeper are outdated, so that evictions are forbidden."""
    if component is Component.ZOOKEEPER:
        return any(each.outdated for each in _zookeeper_sets(desired, observed))
    return any(each.outdated for _, each in _storage_sets(desired, observed))


def _zookeeper_state(desired: DesiredCluster, observed: ObservedCluster) -> RollState:
    sets = _zookeeper_sets(desired, observed)
    leader = observed.zookeeper_leader
    outdated = [pod for each in sets for pod in each.outdated]
    several = sum(len(each.pods) for each in sets) > 1

    def obstacle(pod: SetPod) -> str | None:
        # `_state` chooses failed members first. So all members are ready here.
        if several and leader is None:
            return "the leader of ZooKeeper is not known"
        if pod.name == leader and len(outdated) > 1:
            return f"pod {pod.name} is the leader of ZooKeeper and is replaced last"
        return None

    return _state(sets, outdated, _is_ready, lambda pod: False, obstacle)


def _members_obstacle(
    desired: DesiredCluster, observed: ObservedCluster, members: RollState
) -> str | None:
    """Return why no storage may be replaced because of ZooKeeper's members, None if one may.

    ``members`` is the state of the members. They are `Current` as soon as the last outdated member
    was deleted. That member is the leader, so ZooKeeper elects a new one at that time.
    """
    if members != Current():
        return "the members of ZooKeeper are replaced before the storages"
    for each in _zookeeper_sets(desired, observed):
        unready = (*each.absent, *(pod.name for pod in each.pods if not pod.is_ready))
        if unready:
            return f"pod {unready[0]} of ZooKeeper is not ready"
    return None


def _storages_state(
    desired: DesiredCluster, observed: ObservedCluster, members_obstacle: str | None
) -> RollState:
    found = _storage_sets(desired, observed)
    addresses = {
        pod.name: address_of(pool, pod.ordinal) for pool, each in found for pod in each.pods
    }
    present = observed.metadata
    is_own = isinstance(present, Present) and present.key == desired.key
    copies = len(desired.cluster.spec.pools)

    def can_be_repaired(pod: SetPod) -> bool:
        storage = frozenset({addresses[pod.name]})
        return (
            isinstance(present, Present)
            and is_own
            and not may_be_away(present, storage)
            and may_be_repaired(present, storage)
        )

    def obstacle(pod: SetPod) -> str | None:
        if members_obstacle is not None:
            return members_obstacle
        if not isinstance(present, Present) or not is_own:
            return "the replicas of the storages are not observed"
        if copies > 1 and not _evictions_are_forbidden(desired, observed):
            return "evictions of storages are not forbidden yet"
        # With a single copy no storage may ever be away, and a restart interrupts its partitions.
        storage = frozenset({addresses[pod.name]} if copies > 1 else ())
        return absence_obstacle(present, storage)

    sets = [each for _, each in found]
    outdated = [pod for each in sets for pod in each.outdated]
    return _state(sets, outdated, _is_started, can_be_repaired, obstacle)


def _state(
    sets: Sequence[PodSet],
    outdated: Sequence[SetPod],
    works: Callable[[SetPod], bool],
    can_be_repaired: Callable[[SetPod], bool],
    obstacle: Callable[[SetPod], str | None],
) -> RollState:
    """Return the state of one component, whose pods are ``sets``.

    ``works``: whether a pod runs. ``can_be_repaired``: whether a pod that runs does not take part
    and may be stopped for that reason. ``obstacle``: why a pod that works must not be replaced now.
    """
    for each in sets:
        if not each.is_processed:
            return Waiting(f"Kubernetes has not processed the current version of {each.key} yet")
    if not outdated:
        return Current()
    if (begun := _begun(sets, works)) is not None:
        return begun
    failed = next((pod for pod in outdated if not works(pod)), None)
    chosen = failed or next((pod for pod in outdated if can_be_repaired(pod)), None)
    if chosen is not None:
        return Next(ReplacePod(chosen.name, chosen.uid))
    reasons = []
    for pod in outdated:
        reason = obstacle(pod)
        if reason is None:
            return Next(ReplacePod(pod.name, pod.uid))
        reasons.append(reason)
    return Waiting(reasons[0])


def _begun(sets: Sequence[PodSet], works: Callable[[SetPod], bool]) -> RollState | None:
    """Return the state of a replacement that has begun and is not complete, None without one."""
    for each in sets:
        if each.absent:
            return Replacing(each.absent[0])
    for pod in (pod for each in sets for pod in each.pods):
        if pod.is_current and not works(pod):
            return Replacing(pod.name) if pod.failure is None else Stopped(pod.name, pod.failure)
    return None


def _is_started(pod: SetPod) -> bool:
    return pod.is_started


def _is_ready(pod: SetPod) -> bool:
    return pod.is_ready


def _evictions_are_forbidden(desired: DesiredCluster, observed: ObservedCluster) -> bool:
    """Whether the disruption budget of the storages, as it was observed, allows no eviction.

    Otherwise the API server could allow an eviction at the moment at which the operator deletes
    another pod, and two copies would be away.
    """
    key = ObjectKey("PodDisruptionBudget", names.budget(desired.name, Component.STORAGE))
    live = observed.objects.get(key)
    return live is not None and (live.get("spec") or {}).get("maxUnavailable") == 0


def _storage_sets(
    desired: DesiredCluster, observed: ObservedCluster
) -> list[tuple[StoragePool, PodSet]]:
    keys = (
        (pool, ObjectKey("StatefulSet", names.storage_set(pool.metadata.name)))
        for pool in desired.own_pools
    )
    return [(pool, each) for pool, key in keys for each in _read(desired, observed, key)]


def _zookeeper_sets(desired: DesiredCluster, observed: ObservedCluster) -> list[PodSet]:
    if desired.cluster.spec.zookeeper.managed is None:
        return []
    key = ObjectKey("StatefulSet", names.zookeeper_set(desired.name))
    return list(_read(desired, observed, key))


def _read(desired: DesiredCluster, observed: ObservedCluster, key: ObjectKey) -> Iterable[PodSet]:
    """Yield the pods of a StatefulSet, if it exists and belongs to the cluster."""
    live = observed.objects.get(key)
    if live is not None and is_ours(live, desired.name):
        yield pods_of_set(live, observed)
