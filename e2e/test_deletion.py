"""Test that every deletion of a cluster ends, and that volumes are kept or deleted by the spec."""

from __future__ import annotations

import pytest

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_DELETED_SECONDS = 90.0
_KEEP = {"data": {"size": "1Gi"}, "meta": {"size": "10Mi"}}
"""The volumes of a pool that stay when the cluster is deleted, which is the default."""
_DELETE = _KEEP | {"onDeletion": "Delete"}
"""The volumes of a pool that are deleted with the cluster."""


@pytest.fixture(scope="module", autouse=True)
def without_zookeeper(module_namespace: Kubectl) -> Kubectl:
    """The namespace of a cluster that is being deleted, and whose ZooKeeper does not exist.

    The deletion lasts a minute. The fixture starts it before the first test of the module, so that
    it runs while the other tests run.
    """
    unreachable = {"external": {"connectString": "unreachable.example:2181"}}
    cluster = resources.cluster("small", ["p"], zookeeper=unreachable)
    module_namespace.apply(resources.pool("p", volumes=_DELETE), cluster)
    module_namespace.await_condition("waltzcluster/small", "Ready=False", _READY_SECONDS)
    module_namespace.delete("waltzcluster", "small", wait=False)
    return module_namespace


def claim_names(namespace: Kubectl) -> set[str]:
    return {each["metadata"]["name"] for each in namespace.find("persistentvolumeclaim")}


def test_deletion_keeps_volumes_and_a_new_cluster_uses_them(namespace: Kubectl) -> None:
    small = resources.cluster("small", ["p"])
    namespace.apply(resources.pool("p", volumes=_KEEP), small)
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    found = namespace.get("waltzcluster", "small")
    assert found is not None
    witness = Witness(namespace)
    witness.start("small")
    num_read = witness.finish().read  # One number for each partition.

    namespace.delete("waltzcluster", "small", wait=False)
    namespace.await_deleted("waltzcluster", "small", _DELETED_SECONDS)
    assert not namespace.find("pod", "waltz.dev/cluster=small")
    assert claim_names(namespace) == {
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
    witness.start("small")
    printed = witness.waltz("log", "read", "0", f"0-{num_read[0] - 1}")
    assert len(printed.strip().splitlines()) == num_read[0]
    witness.finish()


def test_deletion_with_on_deletion_delete_deletes_volumes(namespace: Kubectl) -> None:
    zookeeper = {"managed": {"members": 1, "onDeletion": "Delete"}}
    namespace.apply(
        resources.pool("p", volumes=_DELETE), resources.cluster("small", ["p"], zookeeper=zookeeper)
    )
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    namespace.delete("waltzcluster", "small", wait=False)
    namespace.await_deleted("waltzcluster", "small", _DELETED_SECONDS)
    for claim in claim_names(namespace):
        namespace.await_deleted("persistentvolumeclaim", claim, _DELETED_SECONDS)


def test_namespace_with_a_cluster_can_be_deleted(namespace: Kubectl) -> None:
    namespace.apply(resources.pool("p"), resources.cluster("small", ["p"]))
    namespace.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    namespace.delete_namespace(_DELETED_SECONDS)


def test_cluster_without_its_zookeeper_can_be_deleted(without_zookeeper: Kubectl) -> None:
    without_zookeeper.await_deleted("waltzcluster", "small", _DELETED_SECONDS)
    without_zookeeper.delete("storagepool", "p")
