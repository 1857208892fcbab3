"""Run the program `witness` in a pod while a test changes the cluster. Starts programs."""

from __future__ import annotations

import json
from dataclasses import dataclass

from e2e import resources
from e2e.kubectl import CommandFailed, Kubectl
from e2e.waiting import until

_POD = "witness"


@dataclass(frozen=True, slots=True)
class Progress:
    """The counters of the witness, one number per partition, and the broken guarantees.

    ``longest_pauses`` are the longest times between two acknowledged appends, in seconds.
    """

    appended: list[int]
    read: list[int]
    longest_pauses: list[float]
    violations: list[str]


@dataclass(frozen=True, slots=True)
class Witness:
    """A pod, in the cluster's namespace, that appends to and reads from every partition."""

    kubectl: Kubectl

    def start(
        self,
        cluster: str,
        *,
        tls: bool = True,
        secret: str = "",
        zookeeper: str = "",
        root: str = "/waltz",
        node: str = "",
    ) -> None:
        """Start the pod; return when it has read a transaction of every partition.

        The parameters are those of `resources.client_pod`. With an empty ``node``, Kubernetes
        chooses the node.
        """
        namespace = self.kubectl.namespace
        command = ["python3", "/programs/witness.py", "/work"]
        pod = resources.client_pod(
            _POD,
            cluster,
            namespace,
            command,
            tls=tls,
            secret=secret,
            zookeeper=zookeeper,
            root=root,
        )
        if node:
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        # A probe of the start ends with its first success. A probe of readiness would go on, and
        # cost CPU time that the tests need.
        pod["spec"]["containers"][0]["startupProbe"] = {
            "exec": {"command": ["test", "-e", "/work/started"]},
            "periodSeconds": 1,
            "failureThreshold": 60,
        }
        self.kubectl.apply(resources.programs(cluster, namespace), pod)
        self.kubectl.await_condition(f"pod/{_POD}", "Ready", 60)

    def waltz(self, *arguments: str) -> str:
        """Run the command line ``waltz`` in the pod, and return its output."""
        return self.kubectl("exec", _POD, "--", "python3", "-m", "waltz.cli", *arguments)

    def progress(self) -> Progress:
        """Return the progress of the witness.

        Raises AssertionError if the witness has found a violation or has ended.
        """
        try:
            text = self.kubectl("exec", _POD, "--", "cat", "/work/progress")
        except CommandFailed as failed:
            raise CommandFailed(f"{failed}\n{self.kubectl('logs', _POD)}") from None
        progress = Progress(**json.loads(text))
        assert not progress.violations, progress.violations
        return progress

    def await_progress(self, seconds: float, appends: int = 10) -> Progress:
        """Return when the witness has appended and read ``appends`` more in every partition.

        Raises AssertionError after ``seconds``, or after a violation.
        """
        targets = [count + appends for count in self.progress().appended]

        def advanced() -> Progress | None:
            now = self.progress()
            reached = all(
                count >= target
                for counts in (now.appended, now.read)
                for count, target in zip(counts, targets, strict=True)
            )
            return now if reached else None

        return until(advanced, seconds, "every partition takes appends", show=self.kubectl.describe)

    def finish(self) -> Progress:
        """Let the witness check all transactions and end; return its last progress.

        Raises AssertionError if there is a violation.
        """
        self.kubectl("exec", _POD, "--", "touch", "/work/stop")
        phase = until(self._final_phase, 150, "the witness has ended", show=self.kubectl.describe)
        log = self.kubectl("logs", _POD)
        assert phase == "Succeeded", log
        self.kubectl.delete("pod", _POD)
        return Progress(**json.loads(log.strip().splitlines()[-1]))

    def _final_phase(self) -> str | None:
        """Return the phase of the pod if it has ended, otherwise None."""
        pod = self.kubectl.get("pod", _POD)
        phase = None if pod is None else pod["status"]["phase"]
        return phase if phase in ("Succeeded", "Failed") else None
