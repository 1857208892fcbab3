"""Test the first start of a cluster by the commands of the README."""

from __future__ import annotations

from e2e import resources
from e2e.conftest import FirstStart
from e2e.kubectl import Kubectl
from e2e.waiting import until

_MAX_SECONDS = 120.0


def test_readme_cluster_is_ready_within_two_minutes(first_start: FirstStart) -> None:
    assert first_start.seconds < _MAX_SECONDS


def test_client_pod_appends_and_reads(log: Kubectl) -> None:
    steps = ("log append 0 'hello, log'", "log read 0 0-", "cluster verify")
    script = " && ".join(f"python3 -m waltz.cli {step}" for step in steps)
    pod = resources.client_pod("client", "log", log.namespace, ["sh", "-c", script])
    log.apply(resources.programs("log", log.namespace), pod)
    try:
        until(lambda: _final_phase(log), 60, "the client ends", show=log.describe)
        printed = log("logs", "client")
        assert _final_phase(log) == "Succeeded", printed
        assert "hello, log" in printed
    finally:
        log.delete("pod", "client", now=True)


def test_kubectl_get_shows_readiness_and_counts_in_columns(log: Kubectl) -> None:
    table = log("get", "waltzclusters,storagepools").splitlines()
    rows = {row.split()[0]: row.split() for row in table if "/" in row}
    # Ready, and the numbers of partitions, storages and servers.
    assert rows["waltzcluster.waltz.dev/log"][1:5] == ["True", "4/4", "3/3", "2/2"]
    for pool in ("a", "b", "c"):
        assert rows[f"storagepool.waltz.dev/{pool}"][1:3] == ["True", "log"]
        assert "1/1" in rows[f"storagepool.waltz.dev/{pool}"]


def test_conditions_of_a_started_cluster_are_true_for_the_current_generation(log: Kubectl) -> None:
    # A pod that is slow on a busy machine may be unready for a moment after the cluster was ready.
    for condition in ("Ready", "Healthy", "Reconciled"):
        log.await_condition("waltzcluster/log", condition, 60)
    cluster = log.get("waltzcluster", "log")
    assert cluster is not None
    for each in cluster["status"]["conditions"]:
        assert each["observedGeneration"] == cluster["metadata"]["generation"]


def _final_phase(log: Kubectl) -> str | None:
    """Return the phase of the pod ``client`` if it has ended, otherwise None."""
    pod = log.get("pod", "client")
    phase = None if pod is None else pod["status"]["phase"]
    return phase if phase in ("Succeeded", "Failed") else None
