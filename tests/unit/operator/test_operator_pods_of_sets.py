"""What the status of a pod says about it: version, start, readiness."""

from __future__ import annotations

from typing import Any

import pytest

from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.observed import ObservedCluster, ZooKeeperUnreachable
from waltz_operator.core.pods_of_sets import REVISION_LABEL, PodSet, SetPod, pods_of_set

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}
ENDED = {"terminated": {"exitCode": 1}}


def container(started: bool | None, state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "x", "image": "x:1", "started": started, "state": state}


def pod(
    *containers: dict[str, Any], revision: str = "x-2", ready: str = "True", **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", "labels": {REVISION_LABEL: revision}, **metadata},
        "status": {
            "containerStatuses": list(containers),
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": ready},
            ],
        },
    }


def the_set(
    *pods: dict[str, Any] | None, generation: int = 3, observed: int = 3, revision: str = "x-2"
) -> PodSet:
    """Return what the operator reads of a set whose pods are ``pods``; None: no such pod."""
    live = {
        "metadata": {"name": "x", "generation": generation},
        "spec": {"replicas": len(pods)},
        "status": {"updateRevision": revision, "observedGeneration": observed},
    }
    objects = {ObjectKey("Pod", f"x-{n}"): each for n, each in enumerate(pods) if each is not None}
    return pods_of_set(live, ObservedCluster(objects, ZooKeeperUnreachable("not observed")))


def only(*containers: dict[str, Any], **options: Any) -> SetPod:
    (found,) = the_set(pod(*containers, **options)).pods
    return found


@pytest.mark.parametrize(
    ("containers", "started"),
    [
        ([container(True, RUNNING)], True),
        ([container(False, RUNNING)], False),
        ([container(None, RUNNING)], False),
        # The kubelet may leave the mark of the container that ended before.
        ([container(True, WAITING)], False),
        ([container(True, ENDED)], False),
        ([container(True, RUNNING), container(True, WAITING)], False),
        ([], False),
    ],
    ids=["running", "probed", "unknown", "waiting", "ended", "one of two", "no container"],
)
def test_pod_has_started_only_if_every_container_runs_and_passed_its_startup_probe(
    containers: list[dict[str, Any]], started: bool
) -> None:
    assert only(*containers).is_started is started


@pytest.mark.parametrize(
    ("status", "ready"), [("True", True), ("False", False), ("Unknown", False)]
)
def test_pod_is_ready_only_if_its_condition_ready_is_true(status: str, ready: bool) -> None:
    assert only(container(True, RUNNING), ready=status).is_ready is ready


def test_pod_of_another_revision_is_outdated() -> None:
    pods = the_set(pod(revision="x-1"), pod(revision="x-2"))
    assert [each.name for each in pods.outdated] == ["x-0"]


def test_pod_that_is_deleted_or_does_not_exist_is_absent() -> None:
    pods = the_set(pod(deletionTimestamp="2026-01-01T00:00:00Z"), pod(), None)
    assert pods.absent == ("x-0", "x-2")
    assert [(each.name, each.ordinal, each.uid) for each in pods.pods] == [("x-1", 1, "u")]


@pytest.mark.parametrize(("observed", "processed"), [(2, False), (3, True), (4, True)])
def test_set_is_processed_if_kubernetes_has_observed_its_generation(
    observed: int, processed: bool
) -> None:
    assert the_set(pod(), generation=3, observed=observed).is_processed is processed
