"""The operator's pods: who leads, and what they tell of themselves."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.kubectl import CommandFailed, Kubectl

_LEASE = "waltz-operator"
_PODS = "app.kubernetes.io/name=waltz-operator"


@dataclass(frozen=True, slots=True)
class Operator:
    """What runs in the operator's namespace."""

    kubectl: Kubectl

    def leader(self) -> str | None:
        """Return the name of the pod that holds the Lease, None if nobody does."""
        lease = self.kubectl.get("lease", _LEASE)
        return None if lease is None else lease["spec"].get("holderIdentity") or None

    def pods(self) -> list[str]:
        """Return the names of its pods."""
        return [each["metadata"]["name"] for each in self.kubectl.find("pod", _PODS)]

    def metrics(self, pod: str) -> dict[str, float]:
        """Return a pod's metrics, none if it does not answer."""
        path = f"/api/v1/namespaces/{self.kubectl.namespace}/pods/{pod}:8080/proxy/metrics"
        try:
            told = self.kubectl("get", "--raw", path)
        except CommandFailed:
            return {}
        lines = (line.split() for line in told.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def leads(self, pod: str) -> bool:
        """Whether a pod says that it leads."""
        return self.metrics(pod).get("waltz_operator_leads") == 1.0

    def looks(self) -> float:
        """Return how many looks at clusters the leader has ended."""
        leader = self.leader()
        return 0.0 if leader is None else self.metrics(leader).get("waltz_operator_looks_total", 0)
