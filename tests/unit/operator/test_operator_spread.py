"""Which nodes several copies share, and which placement the pods prefer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.operator_world import World, cluster_resource, pool_resource
from tests.unit.operator.test_operator_plan_properties import reach
from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey, server_deployment, storage_set, zookeeper_set
from waltz_operator.core.observed import ClusterPresent, ObservedCluster
from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.spread import describe_shared_nodes
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import ClusterPlan

_NOW = "2026-01-01T12:00:00Z"


def started() -> World:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    reach(world)
    return world


def placed(world: World, nodes: dict[str, str]) -> tuple[ObservedCluster, ClusterPresent]:
    """Return what is observed when each pod in ``nodes`` is on its node."""
    for pod, node in nodes.items():
        is_storage = "storage" in pod
        component = Component.STORAGE if is_storage else Component.ZOOKEEPER
        world.objects[ObjectKey("Pod", pod)] = {
            "metadata": {"name": pod, "labels": names.labels("log", component)},
            "spec": {"nodeName": node} if node else {},
        }
    observed = world.observed()
    assert isinstance(observed.metadata, ClusterPresent)
    return observed, observed.metadata


def shared(world: World, nodes: dict[str, str]) -> tuple[str, ...]:
    observed, present = placed(world, nodes)
    return describe_shared_nodes(world.desired(), observed, present)


def storages(*nodes: str) -> dict[str, str]:
    return {f"{pool}-storage-0": node for pool, node in zip("abc", nodes, strict=False)}


def members(*nodes: str) -> dict[str, str]:
    return {f"log-zookeeper-{number}": node for number, node in enumerate(nodes)}


@pytest.mark.parametrize(
    "nodes",
    [
        storages("n1", "n2", "n3"),
        storages("n1", "n2"),
        storages("n1", "", ""),
        members("n1", "n2", "n3"),
        members("n1", "n2", ""),
        members("n1"),
        storages("n1", "n2", "n3") | members("n1", "n2", "n3"),
    ],
)
def test_spread_check_reports_nothing_when_copies_are_on_different_nodes(
    nodes: dict[str, str],
) -> None:
    assert shared(started(), nodes) == ()


def test_two_copies_on_one_node_are_named_with_their_node() -> None:
    assert shared(started(), storages("n1", "n2", "n1")) == (
        "node n1 has several copies of 4 partitions, in the pods a-storage-0, c-storage-0: add "
        "nodes, then delete one of these pods while the cluster is Healthy",
    )


def test_storages_of_one_pool_may_share_a_node() -> None:
    """They hold different partitions, so the loss of the node costs each partition one copy."""
    world = World(cluster_resource(), [pool_resource(name, storages=2) for name in "abc"])
    reach(world)
    nodes = {f"{pool}-storage-{number}": f"n-{pool}" for pool in "abc" for number in range(2)}
    assert shared(world, nodes) == ()


@pytest.mark.parametrize("third", ["n2", ""])
def test_node_with_two_of_three_zookeeper_members_is_named(third: str) -> None:
    (sentence,) = shared(started(), members("n1", "n1", third))
    assert sentence == (
        "node n1 has 2 of 3 ZooKeeper members, the pods log-zookeeper-0, log-zookeeper-1: add "
        "nodes, then delete one of these pods while all members are ready"
    )


def test_only_member_of_an_ensemble_shares_no_node() -> None:
    world = World(
        cluster_resource(zookeeper={"managed": {"members": 1}}),
        [pool_resource(name) for name in "abc"],
    )
    reach(world)
    assert shared(world, members("n1")) == ()


def spread_condition(world: World, observed: ObservedCluster) -> tuple[str, str, str]:
    status = cluster_status(world.desired(), observed, ClusterPlan(), _NOW)
    (found,) = (each for each in status.conditions if each.type == "Spread")
    return found.status, found.reason, found.message


def test_spread_condition_is_false_while_copies_share_a_node_and_ready_stays_true() -> None:
    world = started()
    observed, _ = placed(world, storages("n1", "n2", "n3"))
    assert spread_condition(world, observed) == ("True", "CopiesOnDifferentNodes", "")
    observed, _ = placed(world, storages("n1", "n1", "n1"))
    status, reason, message = spread_condition(world, observed)
    assert (status, reason) == ("False", "CopiesShareNode")
    assert "node n1 has several copies of 4 partitions" in message
    conditions = cluster_status(world.desired(), observed, ClusterPlan(), _NOW).conditions
    assert {each.type: each.status for each in conditions}["Ready"] == "True"


def test_spread_condition_is_unknown_while_the_replicas_are_not_observed() -> None:
    world = started()
    world.zookeeper_up = False
    assert spread_condition(world, world.observed())[:2] == ("Unknown", "NotObserved")


def affinity_of(manifest_body: Any) -> dict[str, Any]:
    found: dict[str, Any] = manifest_body["spec"]["template"]["spec"]["affinity"]
    return found


def test_storage_avoids_storages_of_other_pools_and_prefers_the_zone_of_its_own() -> None:
    desired = started().desired()
    affinity = affinity_of(storage_set(desired.cluster, desired.own_pools[0], 1).body)
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    apart = affinity["podAntiAffinity"][preferred]
    assert [(each["weight"], each["podAffinityTerm"]["topologyKey"]) for each in apart] == [
        (100, "kubernetes.io/hostname"),
        (50, "topology.kubernetes.io/zone"),
    ]
    for each in apart:
        assert each["podAffinityTerm"]["labelSelector"] == {
            "matchLabels": names.selector("log", Component.STORAGE),
            "matchExpressions": [{"key": names.POOL_LABEL, "operator": "NotIn", "values": ["a"]}],
        }
    (together,) = affinity["podAffinity"][preferred]
    assert together["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/zone"
    assert together["podAffinityTerm"]["labelSelector"] == {
        "matchLabels": names.selector("log", Component.STORAGE, "a")
    }


def test_affinity_of_the_resource_replaces_only_the_default_of_the_same_name() -> None:
    required: dict[str, list[object]] = {"requiredDuringSchedulingIgnoredDuringExecution": []}
    scheduling = {"affinity": {"podAntiAffinity": required}}
    pools = [pool_resource(name, scheduling=scheduling) for name in "abc"]
    world = World(cluster_resource(), pools)
    desired = world.desired()
    affinity = affinity_of(storage_set(desired.cluster, desired.pools[0], 1).body)
    assert affinity["podAntiAffinity"] == required
    assert "podAffinity" in affinity


def test_every_pod_requests_resources_by_default_and_a_given_value_replaces_them() -> None:
    desired = started().desired()
    managed = desired.cluster.spec.zookeeper.managed
    assert managed is not None
    for workload in (
        storage_set(desired.cluster, desired.own_pools[0], 1),
        server_deployment(desired.cluster),
        zookeeper_set(desired.cluster, managed),
    ):
        (container,) = workload.body["spec"]["template"]["spec"]["containers"]
        assert {"cpu", "memory"} == container["resources"]["requests"].keys()
        assert container["resources"]["limits"] == {}
    given = cluster_resource(servers={"resources": {"limits": {"memory": "1Gi"}}})
    servers = server_deployment(WaltzCluster.model_validate(given)).body
    (container,) = servers["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {}, "limits": {"memory": "1Gi"}}
