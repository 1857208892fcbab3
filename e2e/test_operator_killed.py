"""Test that a first start and a roll complete although the operator is killed after its steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import installing, resources
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_POD = "killed-operator"
_PROGRAM = Path(__file__).with_name("killed_operator.py")
_READY_SECONDS = 540.0
"""Each of about 25 steps includes the start of an operator, which takes 10 s on a busy machine."""
_MIN_STEPS = 20
"""A first start has at least this number of steps."""


@pytest.fixture
def no_other_operator(operator: Operator) -> Iterator[Operator]:
    """The chart's operator, scaled to zero during the test."""
    deployment = f"deployment/{installing.RELEASE}"
    operator.kubectl("scale", deployment, "--replicas=0")
    for pod in operator.pods():
        operator.kubectl.await_deleted("pod", pod, 60)
    yield operator
    operator.kubectl("scale", deployment, "--replicas=2")
    operator.kubectl.await_condition(deployment, "Available", 60)


def program_config_map() -> dict[str, Any]:
    """Return the ConfigMap with the program that runs an operator and kills it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _POD},
        "data": {_PROGRAM.name: _PROGRAM.read_text()},
    }


def killed_operator_pod(first: int, then: int) -> dict[str, Any]:
    """Return a pod that runs one operator after another.

    The first one is killed after ``first`` steps, each later one after ``then`` steps. With 0 steps
    an operator is never killed.
    """
    run = f"python3 /programs/{_PROGRAM.name} {{}}; echo killed"
    script = f"{run.format(first)}; while :; do {run.format(then)}; done"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _POD},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "serviceAccountName": installing.RELEASE,
            "enableServiceLinks": False,
            "volumes": [{"name": "programs", "configMap": {"name": _POD}}],
            "containers": [
                {
                    "name": "operator",
                    "image": f"waltz-operator:{resources.version()}",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", script],
                    "env": [
                        {"name": "WALTZ_OPERATOR_NAMESPACE", "value": "waltz-system"},
                        {"name": "WALTZ_OPERATOR_POD", "value": _POD},
                        {"name": "WALTZ_OPERATOR_LEASE", "value": installing.RELEASE},
                    ],
                    "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
                }
            ],
        },
    }


def start_cluster(namespace: Kubectl, operator: Operator, first: int, then: int) -> int:
    """Start a cluster with operators that are killed; return the number of killed operators.

    The first operator is killed after ``first`` steps, every later one after ``then`` steps.
    """
    pools = [resources.pool(name) for name in "xyz"]
    namespace.apply(*pools, resources.cluster("log", list("xyz")))
    operator.kubectl.apply(program_config_map(), killed_operator_pod(first, then))
    try:
        namespace.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    finally:
        log = operator.kubectl("logs", _POD)
        operator.kubectl.delete("pod", _POD, now=True)
        operator.kubectl.delete("configmap", _POD)
    return log.count("killed\n")


def test_first_start_with_operator_killed_after_every_step_reaches_ready(
    no_other_operator: Operator, namespace: Kubectl
) -> None:
    assert start_cluster(namespace, no_other_operator, 1, 1) >= _MIN_STEPS
    witness = Witness(namespace)
    witness.start("log")
    witness.await_progress(30)
    witness.finish()


@pytest.mark.parametrize("steps", [4, 13, 25])
def test_first_start_with_operator_killed_once_after_n_steps_reaches_ready(
    no_other_operator: Operator, namespace: Kubectl, steps: int
) -> None:
    start_cluster(namespace, no_other_operator, steps, 0)


def test_roll_with_operator_killed_after_every_step_replaces_every_storage(
    no_other_operator: Operator, namespace: Kubectl
) -> None:
    start_cluster(namespace, no_other_operator, 0, 0)
    witness = Witness(namespace)
    witness.start("log")
    selector = "waltz.dev/cluster=log,waltz.dev/component in (storage,zookeeper)"
    old = {pod["metadata"]["uid"] for pod in namespace.find("pod", selector)}
    namespace.patch("waltzcluster", "log", {"spec": {"restartedAt": "2026-01-31T12:00:00Z"}})
    no_other_operator.kubectl.apply(program_config_map(), killed_operator_pod(1, 1))

    def replaced() -> bool:
        now = {pod["metadata"]["uid"] for pod in namespace.find("pod", selector)}
        cluster = namespace.get("waltzcluster", "log")
        assert cluster is not None
        return (
            len(now) == len(old)
            and not now & old
            and cluster["status"]["updated"] == f"{len(now) + 1}/{len(now) + 1}"
        )

    try:
        until(replaced, _READY_SECONDS, "all pods are replaced", show=namespace.describe)
    finally:
        log = no_other_operator.kubectl("logs", _POD)
        no_other_operator.kubectl.delete("pod", _POD, now=True)
        no_other_operator.kubectl.delete("configmap", _POD)
    assert log.count("killed\n") >= len(old), "each replacement is one step"
    witness.await_progress(60)
    witness.finish()
