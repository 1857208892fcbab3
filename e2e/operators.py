"""Stop and start an operator, find the leader among its pods, read their metrics. Starts programs.

The leader is the pod that holds the Lease: only this pod manages clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e import installing
from e2e.kubectl import CommandFailed, Kubectl
from e2e.waiting import until

LABELS = {"app.kubernetes.io/name": "waltz-operator"}
"""The labels of the operator's pods; NetworkPolicies admit the operator by them."""
_SELECTOR = ",".join(f"{name}={value}" for name, value in LABELS.items())
_DEPLOYMENT = f"deployment/{installing.RELEASE}"
_SECONDS = 60.0
"""How long the operator's pods may take to end, or to start."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator that runs in the namespace of ``kubectl``."""

    kubectl: Kubectl

    def is_stopped(self) -> bool:
        """Whether the operator should have no pods, as after `stop`."""
        deployment = self.kubectl.get("deployment", installing.RELEASE)
        return deployment is not None and deployment["spec"]["replicas"] == 0

    def stop(self) -> None:
        """Stop all pods; return when they are deleted."""
        self.kubectl("scale", _DEPLOYMENT, "--replicas=0")
        until(lambda: not self.pods(), _SECONDS, "the operator's pods are deleted")

    def start(self) -> None:
        """Start two pods after `stop`; return when one of them is the leader."""
        self.kubectl("scale", _DEPLOYMENT, "--replicas=2")
        self.kubectl.await_condition(_DEPLOYMENT, "Available", _SECONDS)
        until(self.has_leader, _SECONDS, "an operator is the leader")

    def leader(self) -> str | None:
        """Return the name of the pod that holds the Lease, None if no pod does."""
        lease = self.kubectl.get("lease", installing.RELEASE)
        return None if lease is None else lease["spec"].get("holderIdentity") or None

    def pods(self) -> list[str]:
        """Return the names of the operator's pods."""
        return [each["metadata"]["name"] for each in self.kubectl.find("pod", _SELECTOR)]

    def metrics(self, pod: str) -> dict[str, float]:
        """Return a pod's metrics by name; an empty dictionary if the pod does not answer."""
        path = f"/api/v1/namespaces/{self.kubectl.namespace}/pods/{pod}:8080/proxy/metrics"
        try:
            text = self.kubectl("get", "--raw", path)
        except CommandFailed:
            return {}
        lines = (line.split() for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def is_leader(self, pod: str) -> bool:
        """Whether a pod's metrics say that it is the leader."""
        return self.metrics(pod).get("waltz_operator_is_leader") == 1.0

    def has_leader(self) -> bool:
        """Whether the metrics of any pod say that it is the leader."""
        return any(self.is_leader(pod) for pod in self.pods())

    def reconciles(self) -> float:
        """Return the number of reconciles that the leader has finished, 0 without a leader."""
        leader = self.leader()
        if leader is None:
            return 0.0
        return self.metrics(leader).get("waltz_operator_reconciles_total", 0)
