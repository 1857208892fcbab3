"""Test two clusters that share an external ZooKeeper: the managed one of a third cluster."""

from __future__ import annotations

from typing import Any

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_DELETED_SECONDS = 90.0
_DELETE = {"data": {"size": "1Gi"}, "onDeletion": "Delete"}


def guest_cluster(namespace: Kubectl, name: str, pool: str) -> dict[str, Any]:
    """Return a cluster with its own root in the ZooKeeper of the cluster ``host``."""
    address = f"host-zookeeper.{namespace.namespace}.svc:2181"
    zookeeper = {"external": {"connectString": address}, "root": f"/guests/{name}"}
    return resources.cluster(name, [pool], zookeeper=zookeeper)


def append_and_read(namespace: Kubectl, cluster: dict[str, Any]) -> None:
    name, zookeeper = cluster["metadata"]["name"], cluster["spec"]["zookeeper"]
    witness = Witness(namespace)
    address = zookeeper["external"]["connectString"]
    witness.start(name, zookeeper=address, root=zookeeper["root"])
    witness.await_progress(30)
    witness.finish()


def test_two_clusters_share_one_external_zookeeper(namespace: Kubectl) -> None:
    namespace.apply(resources.pool("r"), resources.cluster("host", ["r"]))
    namespace.await_condition("waltzcluster/host", "Ready", _READY_SECONDS)
    clusters = [guest_cluster(namespace, "one", "p"), guest_cluster(namespace, "two", "q")]
    namespace.apply(*(resources.pool(name, volumes=_DELETE) for name in ("p", "q")), *clusters)
    for each in ("one", "two"):
        namespace.await_condition(f"waltzcluster/{each}", "Ready", _READY_SECONDS)
    for cluster in clusters:
        append_and_read(namespace, cluster)
    members = namespace.find("pod", "waltz.dev/component=zookeeper")
    assert {each["metadata"]["labels"]["waltz.dev/cluster"] for each in members} == {"host"}

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
