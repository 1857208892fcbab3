"""A cluster in a ZooKeeper that somebody else runs; here, that of the cluster that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.witnessing import Witness

_READY_SECONDS = 120.0
_GONE_SECONDS = 90.0
_DELETE = {"data": {"size": "1Gi"}, "onDeletion": "Delete"}


@pytest.fixture
def guests(log: Kubectl) -> Iterator[Kubectl]:
    made = Kubectl("guests")
    made.create_namespace()
    yield made
    made.delete_namespace(wait=False)


def guest(log: Kubectl, name: str, pool: str) -> dict[str, Any]:
    """Return a cluster with a place of its own in the shared ZooKeeper."""
    address = f"log-zookeeper.{log.namespace}.svc:2181"
    zookeeper = {"external": {"connectString": address}, "root": f"/guests/{name}"}
    return resources.cluster(name, [pool], zookeeper=zookeeper)


def work(guests: Kubectl, cluster: dict[str, Any]) -> None:
    name, zookeeper = cluster["metadata"]["name"], cluster["spec"]["zookeeper"]
    witness = Witness(guests)
    address = zookeeper["external"]["connectString"]
    witness.begin(name, zookeeper=address, root=zookeeper["root"])
    witness.await_progress(30)
    witness.end()


def test_two_clusters_live_beside_another_in_one_zookeeper(log: Kubectl, guests: Kubectl) -> None:
    clusters = [guest(log, "one", "p"), guest(log, "two", "q")]
    guests.apply(*(resources.pool(name, volumes=_DELETE) for name in ("p", "q")), *clusters)
    for each in ("one", "two"):
        guests.await_condition(f"waltzcluster/{each}", "Ready", _READY_SECONDS)
    for cluster in clusters:
        work(guests, cluster)
    assert guests.find("pod", "waltz.dev/component=zookeeper") == []

    # With its volumes its znodes go, so that another cluster may have its place.
    guests.delete("waltzcluster", "one", wait=False)
    guests.await_gone("waltzcluster", "one", _GONE_SECONDS)
    guests.apply(clusters[0])
    guests.await_condition("waltzcluster/one", "Ready", _READY_SECONDS)
    work(guests, clusters[1])
    for each in ("one", "two"):
        guests.delete("waltzcluster", each, wait=False)
        guests.await_gone("waltzcluster", each, _GONE_SECONDS)
