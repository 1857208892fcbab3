"""Test that a cluster of ``waltz local up`` moves to Kubernetes, and back, while a client appends.

The processes of the local cluster run on the machine of the tests. Pods must be able to dial that
machine's address.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e import resources
from e2e.killing import killed_operators
from e2e.kubectl import Kubectl
from e2e.local_cluster import ROOT, LocalCluster, local_cluster
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_PARTITIONS = 2
_POOLS = ["x", "y", "z"]
_OLD_SERVERS = 2
_NEW_SERVERS = 2
_SERVERS_SECONDS = 300.0
_CHANGE_SECONDS = 480.0
_OLD_GROUPS = 3
"""`waltz local up` starts three storages, each in a group of its own."""

_ADOPTION_STEPS = len(_POOLS) * _PARTITIONS + len(_POOLS) - 1
"""The least number of steps from the moment at which the old servers run until all pools are full.

For each pool and partition, one step assigns the partition to the pool. These steps wait until the
old servers have stopped. For each pool except the first, one step creates its replicas when the
pool before it is full. Steps that copy records are not counted: while the log is short, a killed
operator may need none.
"""

_RETIREMENT_STEPS = _OLD_GROUPS * (_PARTITIONS + 2)
"""The least number of steps of the retirement.

For each old group, there is one step for each partition that is taken from the group, one that
drops the group's replicas, and one that unregisters its storage.
"""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[LocalCluster]:
    """A running local cluster."""
    with local_cluster(tmp_path / "old", _PARTITIONS) as running:
        yield running


def start_witness(namespace: Kubectl, old: LocalCluster) -> Witness:
    """Start a client that finds the cluster by the ZooKeeper of the local cluster."""
    witness = Witness(namespace)
    witness.start("log", tls=False, zookeeper=old.zookeeper, root=ROOT)
    return witness


def adopt(namespace: Kubectl, old: LocalCluster) -> None:
    """Apply a WaltzCluster that takes the local cluster over."""
    name, key = old.name_and_key()
    namespace.apply(
        *(resources.pool(each) for each in _POOLS),
        resources.cluster(
            "log",
            _POOLS,
            partitions=_PARTITIONS,
            zookeeper={"external": {"connectString": old.zookeeper}, "root": ROOT},
            servers={"replicas": _NEW_SERVERS},
            tls={"mode": "None"},
            clusterKey=key,
            adopt={"clusterName": name},
        ),
    )


def await_servers(namespace: Kubectl, count: int) -> None:
    """Return when ``count`` servers have joined the cluster, old and new ones together."""
    expected = f"{count}/{_NEW_SERVERS}"

    def joined() -> bool:
        cluster = namespace.get("waltzcluster", "log")
        return cluster is not None and cluster.get("status", {}).get("servers") == expected

    until(joined, _SERVERS_SECONDS, f"servers: {expected}", show=namespace.describe)


def has_finalizer(namespace: Kubectl) -> bool:
    """Whether an operator has begun to manage the cluster."""
    cluster = namespace.get("waltzcluster", "log")
    return cluster is not None and bool(cluster["metadata"].get("finalizers"))


def stop_old_servers(namespace: Kubectl, old: LocalCluster) -> None:
    """Stop the local servers when the new ones are ready; return when they have left."""
    await_servers(namespace, _OLD_SERVERS + _NEW_SERVERS)
    namespace.await_condition("deployment/log-server", "Available", _SERVERS_SECONDS)
    old.stop("server")
    await_servers(namespace, _NEW_SERVERS)


def await_done(namespace: Kubectl, *, foreign: bool) -> None:
    """Return when the cluster is as its spec says.

    ``foreign`` is whether storages of the local cluster still belong to it then.
    """

    def reached() -> bool:
        cluster = namespace.get("waltzcluster", "log")
        assert cluster is not None
        status = cluster["status"]
        found = {each["type"]: each["status"] for each in status["conditions"]}
        is_current = status["observedGeneration"] == cluster["metadata"]["generation"]
        wanted = {"Changing": "False", "Healthy": "True", "Foreign": str(foreign)}
        return bool(is_current) and wanted.items() <= found.items()

    until(reached, _CHANGE_SECONDS, "the change is complete", show=namespace.describe)


def retire(namespace: Kubectl, old: LocalCluster) -> None:
    """Request that the local cluster's groups give up their copies."""
    name, _ = old.name_and_key()
    change = {"adopt": {"clusterName": name, "foreignGroups": "Retire"}}
    namespace.patch("waltzcluster", "log", {"spec": change})


def storages_of(witness: Witness) -> set[str]:
    """Return the addresses of all registered storages."""
    shown = witness.waltz("cluster", "show", "-o", "template={storages.storage}")
    return {*shown.split()}


def check_moved(namespace: Kubectl, old: LocalCluster, witness: Witness) -> None:
    """Check that the log is in the pools alone, and stays in use without the local storages."""
    assert storages_of(witness) == {
        f"{pool}-storage-0.{pool}-storage.{namespace.namespace}.svc:6000" for pool in _POOLS
    }
    old.stop("storage")
    witness.await_progress(60)
    await_done(namespace, foreign=False)
    witness.finish()


def delete_cluster(namespace: Kubectl) -> None:
    """Delete the cluster while its ZooKeeper still runs."""
    namespace.delete("waltzcluster", "log", wait=False)
    namespace.await_deleted("waltzcluster", "log", 120)


def test_local_cluster_moves_to_kubernetes_without_a_stop(
    namespace: Kubectl, old: LocalCluster
) -> None:
    witness = start_witness(namespace, old)
    adopt(namespace, old)
    stop_old_servers(namespace, old)
    await_done(namespace, foreign=True)
    assert len(storages_of(witness)) == 2 * len(_POOLS)
    witness.await_progress(60)
    retire(namespace, old)
    await_done(namespace, foreign=False)
    check_moved(namespace, old, witness)
    delete_cluster(namespace)


def test_adoption_that_is_given_up_returns_to_the_local_cluster(
    namespace: Kubectl, old: LocalCluster
) -> None:
    witness = start_witness(namespace, old)
    adopt(namespace, old)
    stop_old_servers(namespace, old)

    def begun() -> bool:
        cluster = namespace.get("waltzcluster", "log")
        assert cluster is not None
        return "pool y: partition" in cluster["status"].get("change", "")

    until(begun, _CHANGE_SECONDS, "the pool y gets its copies", show=namespace.describe)
    namespace.patch("waltzcluster", "log", {"spec": {"pools": []}})
    await_done(namespace, foreign=True)
    assert storages_of(witness) == {*old.storages}
    for number in range(_OLD_SERVERS):
        old.start(f"server/{number}")
    await_servers(namespace, _OLD_SERVERS + _NEW_SERVERS)
    delete_cluster(namespace)
    witness.await_progress(60)
    assert storages_of(witness) == {*old.storages}
    witness.finish()


def test_migration_with_operator_killed_after_every_step_loses_nothing(
    own_operator: Operator, namespace: Kubectl, old: LocalCluster
) -> None:
    witness = start_witness(namespace, old)
    # The adoption begins with an operator that is not killed.
    adopt(namespace, old)
    until(lambda: has_finalizer(namespace), _SERVERS_SECONDS, "an operator manages the cluster")
    with killed_operators(own_operator) as killed_in_adoption:
        stop_old_servers(namespace, old)
        await_done(namespace, foreign=True)
    with killed_operators(own_operator) as killed_in_retirement:
        retire(namespace, old)
        await_done(namespace, foreign=False)
    # tests/unit/operator/test_operator_adoption_properties.py derives both numbers from the plans.
    assert killed_in_adoption.count >= _ADOPTION_STEPS
    assert killed_in_retirement.count >= _RETIREMENT_STEPS
    check_moved(namespace, old, witness)
