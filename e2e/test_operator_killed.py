"""The operator killed by SIGKILL after any step of a first start: what is begun is finished."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import installing, resources
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.witnessing import Witness

_POD = "mortal"
_READY_SECONDS = 330.0
_LEAST_STEPS = 20
"""A first start has more."""


@pytest.fixture
def namespace() -> Iterator[Kubectl]:
    made = Kubectl(f"killed-{uuid.uuid4().hex[:6]}")
    made.create_namespace()
    yield made
    made.delete_namespace(wait=False)


@pytest.fixture
def no_other_operator(operator: Operator) -> Iterator[Operator]:
    """The chart's operator rests."""
    deployment = f"deployment/{installing.RELEASE}"
    operator.kubectl("scale", deployment, "--replicas=0")
    for pod in operator.pods():
        operator.kubectl.await_gone("pod", pod, 60)
    yield operator
    operator.kubectl("scale", deployment, "--replicas=2")
    operator.kubectl.await_condition(deployment, "Available", 60)


def mortal_operator(first: int, then: int) -> dict[str, Any]:
    """Return a pod in which one operator follows another.

    The ``first`` one is killed after so many steps; each of those that follow after as many as
    ``then`` says, 0 for not at all.
    """
    live = "WALTZ_OPERATOR_DIES_AFTER_STEPS={} python3 -m waltz_operator; echo killed"
    script = f"{live.format(first)}; while :; do {live.format(then)}; done"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _POD},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "serviceAccountName": installing.RELEASE,
            "enableServiceLinks": False,
            "containers": [
                {
                    "name": "operator",
                    "image": f"waltz-operator:{resources.version()}",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", script],
                    "env": [
                        {"name": "WALTZ_OPERATOR_NAMESPACE", "value": "waltz-system"},
                        {"name": "WALTZ_OPERATOR_POD", "value": _POD},
                    ],
                }
            ],
        },
    }


def start(namespace: Kubectl, operator: Operator, first: int, then: int) -> int:
    """Have mortal operators bring a cluster to Ready; return how many of them were killed."""
    pools = [resources.pool(name) for name in "xyz"]
    namespace.apply(*pools, resources.cluster("log", list("xyz")))
    operator.kubectl.apply(mortal_operator(first, then))
    try:
        namespace.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    finally:
        log = operator.kubectl("logs", _POD)
        operator.kubectl.delete("pod", _POD, now=True)
    return log.count("killed\n")


def test_a_first_start_ends_at_ready_though_the_operator_is_killed_after_every_step(
    no_other_operator: Operator, namespace: Kubectl
) -> None:
    assert start(namespace, no_other_operator, 1, 1) >= _LEAST_STEPS
    witness = Witness(namespace)
    witness.begin("log")
    witness.await_progress(30)
    witness.end()


@pytest.mark.long
@pytest.mark.parametrize("steps", range(2, 41))
def test_a_first_start_ends_at_ready_though_the_operator_is_killed_after_this_step(
    no_other_operator: Operator, namespace: Kubectl, steps: int
) -> None:
    start(namespace, no_other_operator, steps, 0)
