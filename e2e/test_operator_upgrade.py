"""Test that an upgrade of the operator, and its rollback, restart no pod of the cluster unasked.

The fixture `other_pods` makes pods as an operator of another version would specify them. It adds an
environment variable to the pod template of two workloads, and to the annotation that records this
template. It applies both with the operator's field manager, as if the operator had written them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from e2e import installing, resources
from e2e.kubectl import Kubectl, run
from e2e.operators import Operator
from e2e.test_rolling_changes import condition, is_running
from e2e.waiting import until
from e2e.witnessing import Witness

pytestmark = pytest.mark.alone

_ROLL_SECONDS = 300.0
_SOON_SECONDS = 90.0
_WORKLOADS = (("statefulset", "c-storage"), ("deployment", "log-server"))
_RECORD = "waltz.dev/pod-template"
"""The annotation in which the operator records the pod template of a workload."""

_VARIABLE = {"name": "OTHER_OPERATOR", "value": "1"}


def pods(log: Kubectl) -> dict[str, dict[str, Any]]:
    """Return all pods of the cluster by name."""
    return {pod["metadata"]["name"]: pod for pod in log.find("pod", "waltz.dev/cluster=log")}


def uids(log: Kubectl) -> dict[str, str]:
    """Return the uids of all pods of the cluster by name."""
    return {name: pod["metadata"]["uid"] for name, pod in pods(log).items()}


def workloads_of_other_operator(log: Kubectl) -> set[str]:
    """Return the workloads of which at least one pod has the variable."""
    return {
        "c-storage" if name.startswith("c-storage-") else "log-server"
        for name, pod in pods(log).items()
        if _VARIABLE in pod["spec"]["containers"][0]["env"]
    }


def specify_as_other_operator(log: Kubectl, kind: str, name: str) -> None:
    """Apply a workload as an operator would whose pod template has one more variable."""
    live = log.get(kind, name)
    assert live is not None
    metadata, annotations = live["metadata"], live["metadata"]["annotations"]
    record = json.loads(annotations[_RECORD])
    record["template"]["spec"]["containers"][0]["env"].append(_VARIABLE)
    body = {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": {
            **{part: metadata[part] for part in ("name", "namespace", "labels", "ownerReferences")},
            "annotations": {
                "waltz.dev/manifest": annotations["waltz.dev/manifest"],
                _RECORD: json.dumps(record),
            },
        },
        "spec": {**live["spec"], "template": record["template"]},
    }
    options = ("--server-side", "--force-conflicts", "--field-manager=waltz-operator")
    log("apply", *options, "-f", "-", given=json.dumps(body))


def await_pods(log: Kubectl, wanted: set[str]) -> None:
    """Return when only the pods of the ``wanted`` workloads have the variable, and all run."""

    def reached() -> bool:
        conditions = {condition(log, kind)["status"] for kind in ("Updated", "Healthy")}
        all_run = all(is_running(pod) for pod in pods(log).values())
        return workloads_of_other_operator(log) == wanted and all_run and conditions == {"True"}

    until(reached, _ROLL_SECONDS, f"pods of the other operator: {wanted}", show=log.describe)


@pytest.fixture
def other_pods(log: Kubectl, operator: Operator) -> Iterator[None]:
    """Pods of a storage and of all servers that an operator of another version has specified."""
    deployment = f"deployment/{installing.RELEASE}"
    operator.kubectl("scale", deployment, "--replicas=0")
    until(lambda: not operator.pods(), _SOON_SECONDS, "the operator's pods are deleted")
    for kind, name in _WORKLOADS:
        specify_as_other_operator(log, kind, name)
    operator.kubectl("scale", deployment, "--replicas=2")
    await_pods(log, {name for _, name in _WORKLOADS})
    yield
    request_update(log, "afterwards")
    await_pods(log, set())


def request_update(log: Kubectl, value: str) -> None:
    log("annotate", "waltzcluster", "log", "--overwrite", f"waltz.dev/update-pods={value}")


def replace_operator(log: Kubectl, operator: Operator, *helm: str) -> None:
    """Run a command of Helm that replaces the operator's pods.

    Return when the new pods have reconciled the cluster.
    """
    before = {*operator.pods()}
    run("helm", *helm, "-n", operator.kubectl.namespace)

    def replaced() -> bool:
        return not before & {*operator.pods()} and operator.reconciles() >= 1

    until(replaced, _SOON_SECONDS, "the operator is replaced", show=operator.leader)
    # These reconciles may be those of other clusters. So one of this cluster is requested.
    before_request = operator.reconciles()
    log("annotate", "waltzcluster", "log", "--overwrite", f"waltz.dev/resync={time.time_ns()}")
    until(
        lambda: operator.reconciles() > before_request, _SOON_SECONDS, "the cluster is reconciled"
    )


def test_upgrade_and_rollback_of_the_operator_restart_no_pod_until_a_user_asks(
    log: Kubectl, operator: Operator, witness: Witness, other_pods: None
) -> None:
    old = uids(log)
    replace_operator(
        log,
        operator,
        "upgrade",
        installing.RELEASE,
        str(resources.CHART),
        "--reuse-values",
        "--set",
        "podAnnotations.upgraded=yes",
    )
    available = condition(log, "UpdateAvailable")
    assert (available["status"], available["reason"]) == ("True", "PodsOfOtherVersion")
    assert "StatefulSet c-storage, Deployment log-server" in available["message"]
    command = ("waltz-operator", "plan", "log", "--namespace", log.namespace)
    planned = operator.kubectl("exec", f"deployment/{installing.RELEASE}", "--", *command)
    assert "not updated: 2 workloads run the pods" in planned
    assert uids(log) == old

    request_update(log, "now")
    await_pods(log, set())
    now = uids(log)
    changed = {name for name in old if now.get(name) != old[name]}
    assert changed == {
        name for name in old if name == "c-storage-0" or name.startswith("log-server")
    }
    until(
        lambda: condition(log, "UpdateAvailable")["status"] == "False",
        _SOON_SECONDS,
        "no update is left",
        show=log.describe,
    )

    replace_operator(log, operator, "rollback", installing.RELEASE)
    assert condition(log, "UpdateAvailable")["status"] == "False"
    assert uids(log) == now
