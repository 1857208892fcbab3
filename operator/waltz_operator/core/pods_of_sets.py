"""Read the pods of a StatefulSet: which version each one runs, and whether it works. Pure.

The *version* of a StatefulSet is that of its pod template. Kubernetes names it by a *revision*. The
status of the set has the revision of the current template, and a label of each pod has the revision
that the pod was created with.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import LiveObject, ObservedCluster

REVISION_LABEL = "controller-revision-hash"
"""The label with the revision of a StatefulSet's pod; Kubernetes sets it."""

_IMAGE_REASONS = ("ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull")
"""The reasons with which a container waits for an image that cannot be pulled."""

_ORDINARY_REASONS = ("ContainerCreating", "PodInitializing")
"""The reasons with which a container waits during an ordinary start."""


@dataclass(frozen=True, slots=True)
class SetPod:
    """One pod of a StatefulSet.

    ``is_current``: it runs the current version of the set. ``is_started``: its process runs and the
    startup probe has succeeded. ``is_ready``: the readiness probe succeeds. ``failure`` is why the
    pod does not start, or ends again and again. The kubelet or the scheduler reports this reason;
    it is None if neither does.
    """

    name: str
    ordinal: int
    uid: str
    is_current: bool
    is_started: bool
    is_ready: bool
    failure: str | None


@dataclass(frozen=True, slots=True)
class PodSet:
    """The pods of one StatefulSet, in the order of their ordinals.

    ``pods`` are the pods that exist and are not being deleted. ``absent`` are the names of the
    other pods that the set must have. ``is_processed``: Kubernetes has processed the current
    version of the set. Before that, the status has the revision of an earlier version, so a pod of
    the earlier version still counts as ``is_current``.
    """

    key: ObjectKey
    is_processed: bool
    pods: tuple[SetPod, ...]
    absent: tuple[str, ...]

    @property
    def outdated(self) -> tuple[SetPod, ...]:
        """The pods that run an earlier version of the set."""
        return tuple(pod for pod in self.pods if not pod.is_current)


def pods_of_set(live: LiveObject, observed: ObservedCluster) -> PodSet:
    """Return the observed pods of the StatefulSet ``live``."""
    name, status = live["metadata"]["name"], live.get("status") or {}
    revision = status.get("updateRevision")
    pods, absent = [], []
    for ordinal in range(live["spec"].get("replicas", 0)):
        pod_name = f"{name}-{ordinal}"
        pod = observed.objects.get(ObjectKey("Pod", pod_name))
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            absent.append(pod_name)
            continue
        pods.append(
            SetPod(
                pod_name,
                ordinal,
                pod["metadata"].get("uid", ""),
                is_current=is_current(pod, revision),
                is_started=_is_started(pod),
                is_ready=is_ready(pod),
                failure=pod_failure(pod),
            )
        )
    return PodSet(
        ObjectKey("StatefulSet", name),
        is_processed(live),
        tuple(pods),
        tuple(absent),
    )


def is_processed(live: LiveObject) -> bool:
    """Return whether Kubernetes has processed the current version of a StatefulSet.

    Until then, the counts in its status are those of an earlier version; in a new set they are 0.
    """
    status = live.get("status") or {}
    observed: int = status.get("observedGeneration", 0)
    return observed >= int(live["metadata"].get("generation", 0))


def is_current(pod: LiveObject, revision: str | None) -> bool:
    """Return whether a pod has the current ``revision`` of its set.

    ``revision`` is None while the status of the set has none: Kubernetes has not processed the set
    yet, and no pod counts as outdated.
    """
    labels = pod["metadata"].get("labels") or {}
    return revision is None or labels.get(REVISION_LABEL) == revision


def is_ready(pod: LiveObject) -> bool:
    """Return whether the readiness probes of a pod succeed."""
    return _condition(pod, "Ready").get("status") == "True"


def is_orphaned(pod: LiveObject) -> bool:
    """Return whether a pod belongs to no workload, so that only the operator can end it.

    The StatefulSet of such a pod was deleted without its pods, and was not created again.
    """
    return not pod["metadata"].get("ownerReferences")


def pod_failure(pod: LiveObject) -> str | None:
    """Return why a pod does not start or ends again and again; None if no reason is reported."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        if (failure := _container_failure(container)) is not None:
            return failure
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"it is not scheduled: {_last_line(scheduled.get('message') or 'no reason given')}"
    return None


def _container_failure(container: LiveObject) -> str | None:
    """Return why a container does not start, or ends again and again; otherwise None.

    The result is None for a container that runs, starts as usual, or has just ended.
    """
    waiting = (container.get("state") or {}).get("waiting") or {}
    last_end = (container.get("lastState") or {}).get("terminated") or {}
    reason = waiting.get("reason")
    if reason is None or reason in _ORDINARY_REASONS:
        return None
    if reason == "CrashLoopBackOff":
        if last_end.get("message"):
            return _last_line(last_end["message"])
        return f"its process ends again and again, with exit code {last_end.get('exitCode', '?')}"
    if reason in _IMAGE_REASONS:
        return f"its image {container.get('image')} cannot be pulled"
    return f"{reason}: {_last_line(waiting.get('message') or 'no message')}"


def _last_line(text: str) -> str:
    """Return the last line of a text, which usually has the error; empty without any."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def _is_started(pod: LiveObject) -> bool:
    """Whether every container of the pod runs and has passed its startup probe."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return bool(containers) and all(
        each.get("started") and "running" in (each.get("state") or {}) for each in containers
    )


def _condition(pod: LiveObject, kind: str) -> LiveObject:
    """Return a condition of a pod, empty if the pod has no such condition."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})
