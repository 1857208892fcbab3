"""The operator killed by SIGKILL after every step of a first start: what is begun is finished."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e import installing, resources
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.witnessing import Witness

_POD = "mortal"
_READY_SECONDS = 330.0


@pytest.fixture
def namespace() -> Iterator[Kubectl]:
    made = Kubectl("killed")
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
    operator.kubectl.delete("pod", _POD, now=True)
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


def test_a_first_start_ends_at_ready_whatever_step_the_operator_is_killed_after(
    no_other_operator: Operator, namespace: Kubectl
) -> None:
    pools = [resources.pool(name) for name in "xyz"]
    namespace.apply(*pools, resources.cluster("log", list("xyz"), partitions=2))
    no_other_operator.kubectl.apply(mortal_operator(1, 1))
    try:
        namespace.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    finally:
        log = no_other_operator.kubectl("logs", _POD)
    assert log.count("killed\n") > 20, log
    witness = Witness(namespace)
    witness.begin("log")
    witness.await_progress(30)
    witness.end()
