"""Test that a first start and a roll complete although the operator is killed after its steps."""

from __future__ import annotations

from e2e import resources
from e2e.killing import killed_operators
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_READY_SECONDS = 540.0
"""Each of about 25 steps includes the start of an operator, which takes 10 s on a busy machine."""
_MIN_STEPS = 20
"""A first start has at least this number of steps."""


def start_cluster(namespace: Kubectl) -> None:
    """Start a cluster; return when it is Ready."""
    pools = [resources.pool(name) for name in "xyz"]
    namespace.apply(*pools, resources.cluster("log", list("xyz")))
    namespace.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)


def test_first_start_with_operator_killed_after_every_step_reaches_ready(
    own_operator: Operator, namespace: Kubectl
) -> None:
    with killed_operators(own_operator) as killed:
        start_cluster(namespace)
    assert killed.count >= _MIN_STEPS
    witness = Witness(namespace)
    witness.start("log")
    witness.await_progress(30)
    witness.finish()


def test_roll_with_operator_killed_after_every_step_replaces_every_storage(
    own_operator: Operator, namespace: Kubectl
) -> None:
    start_cluster(namespace)
    witness = Witness(namespace)
    witness.start("log")
    selector = "waltz.dev/cluster=log,waltz.dev/component in (storage,zookeeper)"
    old = {pod["metadata"]["uid"] for pod in namespace.find("pod", selector)}

    def replaced() -> bool:
        now = {pod["metadata"]["uid"] for pod in namespace.find("pod", selector)}
        num_pods = len(now) + 1  # One server.
        cluster = namespace.get("waltzcluster", "log")
        assert cluster is not None
        return (
            len(now) == len(old)
            and not now & old
            and cluster["status"]["updated"] == f"{num_pods}/{num_pods}"
        )

    with killed_operators(own_operator) as killed:
        namespace.patch("waltzcluster", "log", {"spec": {"restartedAt": "2026-01-31T12:00:00Z"}})
        until(replaced, _READY_SECONDS, "all pods are replaced", show=namespace.describe)
    assert killed.count >= len(old), "each replacement is one step"
    witness.await_progress(60)
    witness.finish()
