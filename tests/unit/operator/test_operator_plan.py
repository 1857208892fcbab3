"""The planner without faults: first start, repairs in the steady state, deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.operator_world import World, Znodes, cluster_resource, pool_resource
from tests.support.planned import next_plan
from waltz.admin.core.steps import ChangeAssignment
from waltz.metadata.core.formats import ReplicaAssignments
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.names import CLUSTER_LABEL, FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.steps import ApplyObject, DeleteObject, Step

MAX_ROUNDS = 20


def run(world: World) -> list[Step]:
    """Perform plans until one is empty; return the steps."""
    taken: list[Step] = []
    for _ in range(MAX_ROUNDS):
        world.settle()
        decided = next_plan(world)
        if decided.done:
            return taken
        assert not decided.problems, decided.problems
        for step in decided.steps:
            world.perform(step)
            taken.append(step)
        if world.cluster is None:
            return taken
    raise AssertionError(f"not done after {MAX_ROUNDS} rounds; last: {decided}")


def started(**spec: Any) -> World:
    volumes = {"data": {"size": "1Gi"}, "meta": {"size": "10Mi"}}
    world = World(
        cluster_resource(**spec), [pool_resource(n, volumes=dict(volumes)) for n in "abc"]
    )
    run(world)
    return world


def index_of(steps: list[Step], text: str) -> int:
    return next(place for place, step in enumerate(steps) if text in str(step))


def test_first_start_performs_steps_in_order() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    steps = run(world)
    order = [
        "finalizer added",
        "StoragePool a is claimed",
        "StatefulSet log-zookeeper is created",
        "is created in ZooKeeper",
        "StatefulSet a-storage is created",
        "is registered in group 0",
        "ZooKeeper assigns",
        "Deployment log-server is created",
    ]
    places = [index_of(steps, text) for text in order]
    assert places == sorted(places)
    assert isinstance(world.znodes, Znodes)
    assert world.znodes.maps.groups.groups == {
        f"{pool}-storage-0.{pool}-storage.logs.svc:6000": group for group, pool in enumerate("abc")
    }
    for partition in range(4):
        assert len(world.view(partition).replicas) == 3
        assert world.view(partition).metadata.session_id >= 0


def test_servers_that_only_lack_their_certificates_wait_for_nothing_else() -> None:
    resource = cluster_resource(tls={"mode": "Secret", "secretName": "mine"})
    world = World(resource, [pool_resource(name) for name in "abc"])
    world.objects[ObjectKey("Secret", "mine")] = {
        "metadata": {"name": "mine"},
        "data": dict.fromkeys(("ca.crt", "tls.crt", "tls.key"), ""),
    }
    run(world)
    del world.objects[ObjectKey("Secret", "mine")]
    del world.objects[ObjectKey("Deployment", "log-server")]
    waits = next_plan(world).waits
    assert waits == ("the secret mine, which spec.tls.secretName names, does not exist",)


def test_partitions_are_assigned_evenly_in_each_pool() -> None:
    pools = [pool_resource("a", storages=3), pool_resource("b", storages=2), pool_resource("c")]
    world = World(cluster_resource(partitions=7), pools)
    run(world)
    assert isinstance(world.znodes, Znodes)
    held = world.znodes.maps.assignments.partitions
    counts = sorted(len(partitions) for partitions in held.values())
    assert counts == [2, 2, 3, 3, 4, 7]


def test_switch_forbids_empty_members_a_new_ensemble_once_the_cluster_exists() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    key = ObjectKey("ConfigMap", "log-zookeeper")
    values = []
    for _ in range(MAX_ROUNDS):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
        if key in world.objects:
            values.append(world.objects[key]["data"]["found"])
    assert values[0] == "yes"
    assert values[-1] == "no"
    assert values == sorted(values, reverse=True)
    world.zookeeper_up = False
    world.objects.pop(ObjectKey("StatefulSet", "log-zookeeper"))
    assert all(
        getattr(s, "manifest", None) is None or s.manifest.key != key
        for s in next_plan(world).steps
        if isinstance(s, ApplyObject)
    )


@pytest.mark.parametrize(
    "key",
    [
        ObjectKey("Service", "a-storage"),
        ObjectKey("StatefulSet", "b-storage"),
        ObjectKey("Deployment", "log-server"),
        ObjectKey("PodDisruptionBudget", "log-storage"),
        ObjectKey("NetworkPolicy", "a-storage"),
        ObjectKey("ServiceAccount", "log-server"),
        ObjectKey("StatefulSet", "log-zookeeper"),
    ],
    ids=str,
)
def test_deleted_object_is_created_again(key: ObjectKey) -> None:
    world = started()
    del world.objects[key]
    first = next_plan(world)
    expected = [key]
    if key == ObjectKey("StatefulSet", "log-zookeeper"):
        # Without ZooKeeper the replicas are not observed, so no storage may be evicted.
        expected.insert(0, ObjectKey("PodDisruptionBudget", "log-storage"))
    assert [step.manifest.key for step in first.steps if isinstance(step, ApplyObject)] == expected
    run(world)
    assert key in world.objects


def test_edited_stateful_set_is_repaired_and_foreign_fields_stay() -> None:
    world = started()
    key = ObjectKey("StatefulSet", "a-storage")
    world.objects[key]["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    world.objects[key]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    world.objects[key]["metadata"]["annotations"]["foreign/annotation"] = "stays"
    (step,) = next_plan(world).steps
    assert str(step) == "StatefulSet a-storage is repaired"
    run(world)
    assert world.objects[key]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert world.objects[key]["metadata"]["annotations"]["foreign/annotation"] == "stays"


def test_stateful_set_is_never_scaled_below_registered() -> None:
    world = World(cluster_resource(pools=["a"]), [pool_resource("a", storages=3)])
    run(world)
    world.pools["a"]["spec"]["storages"] = 1
    assert next_plan(world).steps == ()
    world.objects[ObjectKey("StatefulSet", "a-storage")]["spec"]["replicas"] = 1
    (step,) = next_plan(world).steps
    assert isinstance(step, ApplyObject)
    assert step.manifest.body["spec"]["replicas"] == 3


def test_replica_switched_off_by_hand_is_switched_on() -> None:
    world = started()
    storage = "b-storage-0.b-storage.logs.svc:6000"
    world.disks[storage][2] = replace(world.disks[storage][2], readable=False, writable=False)
    assert [str(step) for step in next_plan(world).steps] == [
        "PodDisruptionBudget log-storage is repaired",
        f"partition 2 is switched on at storage {storage}",
    ]
    run(world)


def test_replicas_unassigned_by_hand_come_back_one_at_a_time() -> None:
    world = started()
    assert isinstance(world.znodes, Znodes)
    storage = "c-storage-0.c-storage.logs.svc:6000"
    held = dict(world.znodes.maps.assignments.partitions)
    held[storage] = tuple(p for p in held[storage] if p not in (1, 3))
    maps = world.znodes.maps
    world.znodes.maps = StorageMaps(maps.groups, maps.connections, ReplicaAssignments(held))
    world.settle()
    steps = run(world)
    changes = [step for step in steps if isinstance(step, ChangeAssignment)]
    assert [len(each.changes) for each in changes] == [1, 1], "one disturbance at a time"


def test_lost_replica_is_a_problem_for_a_person() -> None:
    world = started()
    world.disks["a-storage-0.a-storage.logs.svc:6000"].clear()
    decided = next_plan(world)
    assert [str(step) for step in decided.steps] == ["PodDisruptionBudget log-storage is repaired"]
    assert "recover it by waltz storage recover" in decided.problems[0]


def test_foreign_objects_are_never_changed() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    key = ObjectKey("Service", "a-storage")
    world.objects[key] = {"metadata": {"name": "a-storage", "uid": "theirs"}, "spec": {}}
    for _ in range(MAX_ROUNDS):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    assert world.objects[key] == {"metadata": {"name": "a-storage", "uid": "theirs"}, "spec": {}}
    assert "Service a-storage exists already" in next_plan(world).problems[0]


def test_foreign_root_is_never_changed() -> None:
    first = started()
    assert isinstance(first.znodes, Znodes)
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    assert world.cluster is not None
    world.znodes = Znodes("elsewhere/log", 4, first.znodes.key)
    for _ in range(5):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    assert world.znodes.maps.groups.groups == {}
    assert any("again with another zookeeper.root" in each for each in next_plan(world).problems)
    assert ObjectKey("StatefulSet", "a-storage") not in world.objects


def test_pool_of_another_cluster_is_a_problem() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    world.pools["b"]["metadata"]["labels"] = {"waltz.dev/cluster": "other"}
    world.perform(next_plan(world).steps[0])
    assert "belongs to WaltzCluster other" in next_plan(world).problems[0]


def test_paused_cluster_gets_no_steps() -> None:
    world = World(cluster_resource(paused=True), [])
    decided = next_plan(world)
    assert decided.steps == ()
    assert "paused" in decided.waits[0]


def delete(world: World) -> None:
    assert world.cluster is not None
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def add_claims(world: World) -> set[ObjectKey]:
    """Add the claims of a pod of pool a, as Kubernetes creates them from the templates."""
    workload = world.objects[ObjectKey("StatefulSet", "a-storage")]
    keys = set()
    for template in workload["spec"]["volumeClaimTemplates"]:
        metadata = template["metadata"]
        key = ObjectKey("PersistentVolumeClaim", f"{metadata['name']}-a-storage-0")
        world.objects[key] = {"metadata": {**metadata, "name": key.name, "uid": key.name}}
        keys.add(key)
    assert len(keys) == 2
    return keys


def test_deletion_keeps_volumes_and_znodes_by_default() -> None:
    world = started(zookeeper={"external": {"connectString": "zk:2181"}})
    claims = add_claims(world)
    delete(world)
    run(world)
    assert world.cluster is None
    assert set(world.objects) == claims
    assert isinstance(world.znodes, Znodes)
    assert world.pools["a"]["metadata"]["finalizers"] == []


def test_deletion_with_on_deletion_delete_deletes_volumes_and_znodes() -> None:
    world = started(zookeeper={"external": {"connectString": "zk:2181"}})
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    add_claims(world)
    delete(world)
    run(world)
    assert world.objects == {}
    assert world.znodes is None


@pytest.mark.parametrize("missing", [True, False])
def test_deletion_while_a_pool_is_missing_keeps_the_znodes(missing: bool) -> None:
    """A pool that no longer exists may have had volumes that are kept."""
    world = started(zookeeper={"external": {"connectString": "zk:2181"}})
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    if missing:
        del world.pools["b"]
    delete(world)
    run(world)
    assert world.cluster is None
    assert isinstance(world.znodes, Znodes) is missing


@pytest.mark.parametrize("missing", [True, False])
def test_deletion_while_a_pool_is_missing_keeps_the_volumes_of_zookeeper(missing: bool) -> None:
    world = started(zookeeper={"managed": {"onDeletion": "Delete"}})
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    claim = ObjectKey("PersistentVolumeClaim", "data-log-zookeeper-0")
    labels = world.objects[ObjectKey("StatefulSet", "log-zookeeper")]["metadata"]["labels"]
    world.objects[claim] = {"metadata": {"name": claim.name, "uid": "z", "labels": labels}}
    if missing:
        del world.pools["b"]
    delete(world)
    run(world)
    assert world.cluster is None
    assert (claim in world.objects) is missing


def with_leaving_pool(world: World) -> None:
    """Add a pool that leaves the cluster and keeps its volumes; the other pools delete theirs."""
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    leaving = pool_resource("d")
    leaving["metadata"]["labels"] = {CLUSTER_LABEL: "log"}
    leaving["metadata"]["finalizers"] = [FINALIZER]
    world.pools["d"] = leaving


def test_deletion_with_a_leaving_pool_that_keeps_its_volumes_keeps_the_znodes() -> None:
    """After its release, nothing would show that the cluster had this pool."""
    world = started(zookeeper={"external": {"connectString": "zk:2181"}})
    with_leaving_pool(world)
    delete(world)
    run(world)
    assert world.cluster is None
    assert isinstance(world.znodes, Znodes)
    assert world.pools["d"]["metadata"]["finalizers"] == []


def test_deletion_with_a_leaving_pool_that_keeps_its_volumes_keeps_those_of_zookeeper() -> None:
    world = started(zookeeper={"managed": {"onDeletion": "Delete"}})
    claim = ObjectKey("PersistentVolumeClaim", "data-log-zookeeper-0")
    labels = world.objects[ObjectKey("StatefulSet", "log-zookeeper")]["metadata"]["labels"]
    world.objects[claim] = {"metadata": {"name": claim.name, "uid": "z", "labels": labels}}
    with_leaving_pool(world)
    delete(world)
    run(world)
    assert world.cluster is None
    assert claim in world.objects


def test_deletion_without_zookeeper_and_with_stuck_pods_ends() -> None:
    world = started(zookeeper={"external": {"connectString": "zk:2181"}})
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    delete(world)
    world.zookeeper_up = False
    stuck = {"waltz.dev/component": "server", "waltz.dev/cluster": "log"}
    world.objects[ObjectKey("Pod", "log-server-x")] = {
        "metadata": {"name": "log-server-x", "labels": stuck}
    }
    world.perform(next_plan(world).steps[0])
    assert "1 pods of the server are shutting down" in next_plan(world).waits
    world.deleting_seconds = 61.0
    run(world)
    assert world.cluster is None


def test_deletion_does_not_delete_an_object_that_is_being_deleted() -> None:
    """Otherwise a finalizer of another controller would stop the deletion at this object."""
    world = started()
    delete(world)
    servers = ObjectKey("Deployment", "log-server")
    assert next_plan(world).steps == (
        DeleteObject(servers, world.objects[servers]["metadata"]["uid"]),
    )
    world.objects[servers]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert servers not in {
        step.key for step in next_plan(world).steps if isinstance(step, DeleteObject)
    }


def test_deletion_before_the_first_step_ends() -> None:
    world = World(cluster_resource(), [])
    delete(world)
    assert next_plan(world).done
    assert world.cluster is not None
    world.cluster["metadata"]["finalizers"] = [FINALIZER]
    run(world)
    assert world.cluster is None


def names_of(world: World, kind: str) -> list[str]:
    return sorted(key.name for key in world.objects if key.kind == kind)


def test_policies_and_budgets_that_the_spec_no_longer_wants_are_deleted_by_uid() -> None:
    world = started()
    assert world.cluster is not None
    assert len(names_of(world, "NetworkPolicy")) == 4
    foreign = {"metadata": {"name": "theirs", "uid": "x", "labels": {}}}
    world.objects[ObjectKey("NetworkPolicy", "theirs")] = foreign
    others = {key for key in world.objects if key.kind not in ("NetworkPolicy",)}
    world.cluster["spec"] |= {"networkPolicies": False, "servers": {"replicas": 1}}
    uid = world.objects[ObjectKey("NetworkPolicy", "a-storage")]["metadata"]["uid"]
    assert DeleteObject(ObjectKey("NetworkPolicy", "a-storage"), uid) in next_plan(world).steps
    run(world)
    assert names_of(world, "NetworkPolicy") == ["theirs"]
    assert "log-server" not in names_of(world, "PodDisruptionBudget")
    assert others - {*world.objects} == {ObjectKey("PodDisruptionBudget", "log-server")}
    world.cluster["spec"] |= {"networkPolicies": True, "servers": {"replicas": 2}}
    run(world)
    assert len(names_of(world, "NetworkPolicy")) == 5
    assert "log-server" in names_of(world, "PodDisruptionBudget")


def test_objects_of_a_temporarily_missing_pool_are_not_deleted() -> None:
    world = started()
    del world.pools["a"]
    assert not [step for step in next_plan(world).steps if isinstance(step, DeleteObject)]
