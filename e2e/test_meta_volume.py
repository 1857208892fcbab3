"""Test a pool with a separate volume for control files."""

from __future__ import annotations

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.waiting import until
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_START_SECONDS = 90.0
_REPORTED_SECONDS = 60.0
_POD = "p-storage-0"


def list_files(namespace: Kubectl, directory: str) -> set[str]:
    return set(namespace("exec", _POD, "--", "ls", directory).split())


def pod_uid(namespace: Kubectl) -> str | None:
    found = namespace.get("pod", _POD)
    return None if found is None else str(found["metadata"]["uid"])


def kill(namespace: Kubectl) -> None:
    """Kill the pod; return when a new one exists."""
    old = pod_uid(namespace)
    namespace.delete("pod", _POD, now=True)
    until(lambda: pod_uid(namespace) not in (None, old), _START_SECONDS, "a new pod exists")


def test_storage_restarts_with_both_volumes_and_refuses_to_start_with_one(
    namespace: Kubectl,
) -> None:
    volumes = {"data": {"size": "1Gi"}, "meta": {"size": "10Mi"}}
    namespace.apply(resources.pool("p", volumes=volumes), resources.cluster("small", ["p"]))
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    claims = {
        each["metadata"]["name"]
        for each in namespace.find("persistentvolumeclaim", "waltz.dev/pool=p")
    }
    assert claims == {f"data-{_POD}", f"meta-{_POD}"}
    assert list_files(namespace, "/meta") == {
        "waltz-storage.ctl",
        "waltz-storage.flushed",
        "waltz-storage.meta",
    }
    assert list_files(namespace, "/data") == {"0", "waltz-storage.data"}

    witness = Witness(namespace)
    witness.start("small")
    witness.await_progress(30)
    kill(namespace)
    namespace.await_condition(f"pod/{_POD}", "Ready", _START_SECONDS)
    witness.await_progress(_START_SECONDS)
    witness.finish()

    namespace("exec", _POD, "--", "rm", "/meta/waltz-storage.ctl", "/meta/waltz-storage.meta")
    kill(namespace)

    def reported() -> bool:
        cluster = namespace.get("waltzcluster", "small")
        assert cluster is not None
        return "is missing in storage.metaDirectory" in cluster["status"]["message"]

    until(
        reported,
        _REPORTED_SECONDS,
        "the cluster's message says why its storage does not start",
        show=namespace.describe,
    )
