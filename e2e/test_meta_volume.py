"""A pool whose control files have a volume of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_START_SECONDS = 90.0
_DAMAGE_SECONDS = 60.0
_POD = "p-storage-0"


@pytest.fixture
def namespace(operator: Operator) -> Iterator[Kubectl]:
    made = Kubectl("meta-volume")
    made.create_namespace()
    yield made
    made.delete_namespace(wait=False)


def files(namespace: Kubectl, directory: str) -> set[str]:
    return set(namespace("exec", _POD, "--", "ls", directory).split())


def uid(namespace: Kubectl) -> str | None:
    found = namespace.get("pod", _POD)
    return None if found is None else str(found["metadata"]["uid"])


def kill(namespace: Kubectl) -> None:
    old = uid(namespace)
    namespace.delete("pod", _POD, now=True)
    until(lambda: uid(namespace) not in (None, old), _START_SECONDS, "there is another pod")


def test_a_killed_storage_comes_back_with_both_volumes_and_never_with_one(
    namespace: Kubectl,
) -> None:
    volumes = {"data": {"size": "1Gi"}, "meta": {"size": "10Mi"}}
    namespace.apply(resources.pool("p", volumes=volumes), resources.cluster("small", ["p"]))
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    claims = {each["metadata"]["name"] for each in namespace.find("pvc", "waltz.dev/pool=p")}
    assert claims == {f"data-{_POD}", f"meta-{_POD}"}
    assert files(namespace, "/meta") == {"waltz-storage.ctl", "waltz-storage.meta"}
    assert files(namespace, "/data") == {"0", "waltz-storage.data"}

    witness = Witness(namespace)
    witness.begin("small")
    witness.await_progress(30)
    kill(namespace)
    namespace.await_condition(f"pod/{_POD}", "Ready", _START_SECONDS)
    witness.await_progress(_START_SECONDS)
    witness.end()

    namespace("exec", _POD, "--", "rm", "/meta/waltz-storage.ctl", "/meta/waltz-storage.meta")
    kill(namespace)

    def told() -> bool:
        cluster = namespace.get("waltzcluster", "small")
        assert cluster is not None
        return "is missing in storage.metaDirectory" in cluster["status"]["message"]

    until(
        told, _DAMAGE_SECONDS, "the cluster tells why its storage refuses", show=namespace.describe
    )
