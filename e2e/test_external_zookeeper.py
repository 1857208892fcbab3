"""Test clusters with an external ZooKeeper. The tests use the ZooKeeper of the shared cluster."""

from __future__ import annotations

from typing import Any

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_DELETED_SECONDS = 90.0
_DELETE = {"data": {"size": "1Gi"}, "onDeletion": "Delete"}


def guest_cluster(log: Kubectl, name: str, pool: str) -> dict[str, Any]:
    """Return a cluster with its own root in the ZooKeeper of the shared cluster."""
    address = f"log-zookeeper.{log.namespace}.svc:2181"
    zookeeper = {"external": {"connectString": address}, "root": f"/guests/{name}"}
    return resources.cluster(name, [pool], zookeeper=zookeeper)


def append_and_read(namespace: Kubectl, cluster: dict[str, Any]) -> None:
    name, zookeeper = cluster["metadata"]["name"], cluster["spec"]["zookeeper"]
    witness = Witness(namespace)
    address = zookeeper["external"]["connectString"]
    witness.start(name, zookeeper=address, root=zookeeper["root"])
    witness.await_progress(30)
    witness.finish()


def test_two_clusters_share_one_external_zookeeper(log: Kubectl, namespace: Kubectl) -> None:
    clusters = [guest_cluster(log, "one", "p"), guest_cluster(log, "two", "q")]
    namespace.apply(*(resources.pool(name, volumes=_DELETE) for name in ("p", "q")), *clusters)
    for each in ("one", "two"):
        namespace.await_condition(f"waltzcluster/{each}", "Ready", _READY_SECONDS)
    for cluster in clusters:
        append_and_read(namespace, cluster)
    assert namespace.find("pod", "waltz.dev/component=zookeeper") == []

    # The znodes are deleted with the volumes, so that a new cluster can use the same root.
    namespace.delete("waltzcluster", "one", wait=False)
    namespace.await_deleted("waltzcluster", "one", _DELETED_SECONDS)
    namespace.apply(clusters[0])
    namespace.await_condition("waltzcluster/one", "Ready", _READY_SECONDS)
    # The deletion of one cluster has changed nothing of the other.
    append_and_read(namespace, clusters[1])
    for each in ("one", "two"):
        namespace.delete("waltzcluster", each, wait=False)
        namespace.await_deleted("waltzcluster", each, _DELETED_SECONDS)
