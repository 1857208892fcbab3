"""Run operators that are killed after their first step. Reads files, starts programs.

A pod runs the program `e2e.killed_operator`. Such operators show that a change completes although
no operator performs more than one step of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e import installing, resources
from e2e.kubectl import Kubectl, staying_node
from e2e.operators import LABELS, Operator

_POD = "killed-operator"
"""The name of the pod, and of the ConfigMap with its program."""

_PROGRAM = Path(__file__).with_name("killed_operator.py")


@dataclass(slots=True)
class KilledOperators:
    """How many operators were killed; 0 until the block of `killed_operators` ends."""

    count: int = 0


@contextmanager
def killed_operators(operator: Operator) -> Iterator[KilledOperators]:
    """Stop ``operator``, and run one operator after another in its place, until the block ends.

    Each one is killed after its first step. ``operator`` stays stopped.
    """
    killed = KilledOperators()
    operator.stop()
    start_killed_operators(operator.kubectl)
    try:
        yield killed
    finally:
        try:
            killed.count = count_killed_operators(operator.kubectl)
        finally:
            operator.kubectl.delete("pod", _POD, now=True)
            operator.kubectl.delete("configmap", _POD)


def start_killed_operators(kubectl: Kubectl) -> None:
    """Run one operator after another, as `killed_operators` does, until the pod is deleted.

    They run in the namespace of ``kubectl``, and watch what the chart's operator there watches.
    """
    watched = "" if kubectl == installing.OPERATOR else kubectl.namespace
    kubectl.apply(_program_config_map(), _pod(kubectl.namespace, watched))


def count_killed_operators(kubectl: Kubectl) -> int:
    """Return how many operators have been killed so far."""
    return kubectl("logs", _POD).count("killed\n")


def _program_config_map() -> dict[str, Any]:
    """Return the ConfigMap with the program that runs an operator and kills it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _POD},
        "data": {_PROGRAM.name: _PROGRAM.read_text()},
    }


def _pod(namespace: str, watched: str) -> dict[str, Any]:
    """Return the pod of `killed_operators`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _POD, "labels": LABELS},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            # Tests of nodes drain and stop the other nodes. There, nothing would replace this pod.
            "nodeName": staying_node(),
            "serviceAccountName": installing.RELEASE,
            "enableServiceLinks": False,
            "volumes": [{"name": "programs", "configMap": {"name": _POD}}],
            "containers": [
                {
                    "name": "operator",
                    "image": f"waltz-operator:{resources.version()}",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python3", f"/programs/{_PROGRAM.name}"],
                    "env": [
                        {"name": "WALTZ_OPERATOR_NAMESPACE", "value": namespace},
                        {"name": "WALTZ_OPERATOR_WATCHED_NAMESPACE", "value": watched},
                        {"name": "WALTZ_OPERATOR_POD", "value": _POD},
                        {"name": "WALTZ_OPERATOR_LEASE", "value": installing.RELEASE},
                    ],
                    "volumeMounts": [{"name": "programs", "mountPath": "/programs"}],
                }
            ],
        },
    }
