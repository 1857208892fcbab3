"""The end of a cluster: it always comes, and volumes are kept or deleted as was asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.operators import Operator
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_GONE_SECONDS = 90.0
_KEEP = {"data": {"size": "1Gi"}, "meta": {"size": "10Mi"}}
_DELETE = _KEEP | {"onDeletion": "Delete"}


def new_namespace() -> Kubectl:
    made = Kubectl(f"ending-{uuid.uuid4().hex[:6]}")
    made.create_namespace()
    return made


@pytest.fixture
def namespace(operator: Operator) -> Iterator[Kubectl]:
    made = new_namespace()
    yield made
    made.delete_namespace(wait=False)


@pytest.fixture(scope="module", autouse=True)
def without_zookeeper(operator: Operator) -> Iterator[Kubectl]:
    """The namespace of a cluster without a ZooKeeper, which is deleted: that takes its minute."""
    made = new_namespace()
    nobody = {"external": {"connectString": "nobody.example:2181"}}
    made.apply(
        resources.pool("p", volumes=_DELETE), resources.cluster("small", ["p"], zookeeper=nobody)
    )
    made.await_condition("waltzcluster/small", "Ready=False", _READY_SECONDS)
    made.delete("waltzcluster", "small", wait=False)
    yield made
    made.delete_namespace(wait=False)


def claims(namespace: Kubectl) -> set[str]:
    return {each["metadata"]["name"] for each in namespace.find("pvc")}


def test_volumes_are_kept_and_a_new_cluster_takes_them_over(namespace: Kubectl) -> None:
    small = resources.cluster("small", ["p"])
    namespace.apply(resources.pool("p", volumes=_KEEP), small)
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    found = namespace.get("waltzcluster", "small")
    assert found is not None
    witness = Witness(namespace)
    witness.begin("small")
    end = witness.end()

    namespace.delete("waltzcluster", "small", wait=False)
    namespace.await_gone("waltzcluster", "small", _GONE_SECONDS)
    assert not namespace.find("pod", "waltz.dev/cluster=small")
    assert claims(namespace) == {
        "data-p-storage-0",
        "meta-p-storage-0",
        "data-small-zookeeper-0",
    }
    pool = namespace.get("storagepool", "p")
    assert pool is not None
    assert "finalizers" not in pool["metadata"]

    small["spec"]["clusterKey"] = found["status"]["clusterKey"]
    namespace.apply(small)
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    witness.begin("small")
    told = witness.waltz("log", "read", "0", f"0-{end.read[0] - 1}")
    assert len(told.strip().splitlines()) == end.read[0]
    witness.end()


def test_volumes_are_deleted_if_that_was_asked_for(namespace: Kubectl) -> None:
    zookeeper = {"managed": {"members": 1, "onDeletion": "Delete"}}
    namespace.apply(
        resources.pool("p", volumes=_DELETE), resources.cluster("small", ["p"], zookeeper=zookeeper)
    )
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    namespace.delete("waltzcluster", "small", wait=False)
    namespace.await_gone("waltzcluster", "small", _GONE_SECONDS)
    for claim in claims(namespace):
        namespace.await_gone("pvc", claim, _GONE_SECONDS)


def test_a_namespace_with_a_cluster_can_be_deleted(namespace: Kubectl) -> None:
    namespace.apply(resources.pool("p"), resources.cluster("small", ["p"]))
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    namespace.delete_namespace(_GONE_SECONDS)


def test_a_cluster_can_be_deleted_without_its_zookeeper(without_zookeeper: Kubectl) -> None:
    without_zookeeper.await_gone("waltzcluster", "small", _GONE_SECONDS)
    without_zookeeper.delete("storagepool", "p")
