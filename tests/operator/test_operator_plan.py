"""The planner on a world in which nothing goes wrong: first start, steady state, deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.operator.operator_world import Log, World, cluster_resource, pool_resource
from waltz.admin.core.steps import ChangeAssignment
from waltz.metadata.core.formats import ReplicaAssignments
from waltz.metadata.core.storage_maps import StorageMaps
from waltz_operator.core.names import FINALIZER
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import Apply, Plan, Step

MOST_ROUNDS = 20


def run(world: World) -> list[Step]:
    """Follow plans until one says that everything is as it shall be; return the steps."""
    taken: list[Step] = []
    for _ in range(MOST_ROUNDS):
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
    raise AssertionError(f"not done after {MOST_ROUNDS} rounds; last: {decided}")


def next_plan(world: World) -> Plan:
    return plan(world.desired(), world.observed())


def started(**spec: Any) -> World:
    volumes = {"data": {"size": "1Gi"}, "meta": {"size": "10Mi"}}
    world = World(
        cluster_resource(**spec), [pool_resource(n, volumes=dict(volumes)) for n in "abc"]
    )
    run(world)
    return world


def index_of(steps: list[Step], text: str) -> int:
    return next(place for place, step in enumerate(steps) if text in str(step))


def test_first_start_is_in_order() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    steps = run(world)
    order = [
        "guarded by a finalizer",
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
    assert isinstance(world.log, Log)
    assert world.log.maps.groups.groups == {
        f"{pool}-storage-0.{pool}-storage.logs.svc:6000": group for group, pool in enumerate("abc")
    }
    for partition in range(4):
        assert len(world.view(partition).replicas) == 3
        assert world.view(partition).metadata.session_id >= 0


def test_partitions_are_dealt_evenly_in_each_pool() -> None:
    pools = [pool_resource("a", storages=3), pool_resource("b", storages=2), pool_resource("c")]
    world = World(cluster_resource(partitions=7), pools)
    run(world)
    assert isinstance(world.log, Log)
    held = world.log.maps.assignments.partitions
    counts = sorted(len(partitions) for partitions in held.values())
    assert counts == [2, 2, 3, 3, 4, 7]


def test_empty_zookeeper_members_found_nothing_once_there_is_a_cluster() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    key = ObjectKey("ConfigMap", "log-zookeeper")
    values = []
    for _ in range(MOST_ROUNDS):
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
        if isinstance(s, Apply)
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
def test_what_was_deleted_is_made_again(key: ObjectKey) -> None:
    world = started()
    del world.objects[key]
    first = next_plan(world)
    assert [step.manifest.key for step in first.steps if isinstance(step, Apply)] == [key]
    run(world)
    assert key in world.objects


def test_an_edited_statefulset_is_repaired_and_nothing_else_is_touched() -> None:
    world = started()
    key = ObjectKey("StatefulSet", "a-storage")
    world.objects[key]["spec"]["updateStrategy"] = {"type": "RollingUpdate"}
    world.objects[key]["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    world.objects[key]["metadata"]["annotations"]["somebody.else/s"] = "stays"
    (step,) = next_plan(world).steps
    assert str(step) == "StatefulSet a-storage is repaired"
    run(world)
    assert world.objects[key]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert world.objects[key]["metadata"]["annotations"]["somebody.else/s"] == "stays"


def test_a_statefulset_never_shrinks_below_what_is_registered() -> None:
    world = World(cluster_resource(pools=["a"]), [pool_resource("a", storages=3)])
    run(world)
    world.pools["a"]["spec"]["storages"] = 1
    assert next_plan(world).steps == ()
    world.objects[ObjectKey("StatefulSet", "a-storage")]["spec"]["replicas"] = 1
    (step,) = next_plan(world).steps
    assert isinstance(step, Apply)
    assert step.manifest.body["spec"]["replicas"] == 3


def test_a_partition_that_was_switched_off_is_switched_on() -> None:
    world = started()
    storage = "b-storage-0.b-storage.logs.svc:6000"
    world.disks[storage][2] = replace(world.disks[storage][2], readable=False, writable=False)
    assert [str(step) for step in next_plan(world).steps] == [
        f"partition 2 is switched on at storage {storage}"
    ]
    run(world)


def test_a_replica_that_was_taken_away_by_hand_comes_back_when_the_others_are_well() -> None:
    world = started()
    assert isinstance(world.log, Log)
    storage = "c-storage-0.c-storage.logs.svc:6000"
    held = dict(world.log.maps.assignments.partitions)
    held[storage] = tuple(p for p in held[storage] if p not in (1, 3))
    maps = world.log.maps
    world.log.maps = StorageMaps(maps.groups, maps.connections, ReplicaAssignments(held))
    world.settle()
    steps = run(world)
    changes = [step for step in steps if isinstance(step, ChangeAssignment)]
    assert [len(each.changes) for each in changes] == [1, 1], "one disturbance at a time"


def test_a_lost_replica_is_left_to_a_person() -> None:
    world = started()
    world.disks["a-storage-0.a-storage.logs.svc:6000"].clear()
    decided = next_plan(world)
    assert decided.steps == ()
    assert "bring it back by waltz storage recover" in decided.problems[0]


def test_others_objects_are_never_touched() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    key = ObjectKey("Service", "a-storage")
    world.objects[key] = {"metadata": {"name": "a-storage", "uid": "theirs"}, "spec": {}}
    for _ in range(MOST_ROUNDS):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    assert world.objects[key] == {"metadata": {"name": "a-storage", "uid": "theirs"}, "spec": {}}
    assert "Service a-storage is there already" in next_plan(world).problems[0]


def test_anothers_root_is_never_touched() -> None:
    first = started()
    assert isinstance(first.log, Log)
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    assert world.cluster is not None
    world.log = Log("elsewhere/log", 4, first.log.key)
    for _ in range(5):
        world.settle()
        for step in next_plan(world).steps:
            world.perform(step)
    assert world.log.maps.groups.groups == {}
    assert any("use another root" in each for each in next_plan(world).problems)
    assert ObjectKey("StatefulSet", "a-storage") not in world.objects


def test_a_pool_of_another_cluster_is_a_problem() -> None:
    world = World(cluster_resource(), [pool_resource(name) for name in "abc"])
    world.pools["b"]["metadata"]["labels"] = {"waltz.dev/cluster": "other"}
    world.perform(next_plan(world).steps[0])
    assert "belongs to WaltzCluster other" in next_plan(world).problems[0]


def test_paused_means_that_nothing_is_done() -> None:
    world = World(cluster_resource(paused=True), [])
    decided = next_plan(world)
    assert decided.steps == ()
    assert "paused" in decided.waits[0]


def delete(world: World) -> None:
    assert world.cluster is not None
    world.cluster["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def add_claims(world: World) -> set[ObjectKey]:
    """Add the claims of a pod of pool a, as Kubernetes makes them of the templates."""
    workload = world.objects[ObjectKey("StatefulSet", "a-storage")]
    keys = set()
    for template in workload["spec"]["volumeClaimTemplates"]:
        metadata = template["metadata"]
        key = ObjectKey("PersistentVolumeClaim", f"{metadata['name']}-a-storage-0")
        world.objects[key] = {"metadata": {**metadata, "name": key.name, "uid": key.name}}
        keys.add(key)
    assert len(keys) == 2
    return keys


def test_deletion_keeps_volumes_and_znodes_unless_asked() -> None:
    world = started(zookeeper={"external": {"connectString": "zk:2181"}})
    claims = add_claims(world)
    delete(world)
    run(world)
    assert world.cluster is None
    assert set(world.objects) == claims
    assert isinstance(world.log, Log)
    assert world.pools["a"]["metadata"]["finalizers"] == []


def test_deletion_takes_volumes_and_znodes_when_asked() -> None:
    world = started(zookeeper={"external": {"connectString": "zk:2181"}})
    for pool in world.pools.values():
        pool["spec"]["volumes"]["onDeletion"] = "Delete"
    add_claims(world)
    delete(world)
    run(world)
    assert world.objects == {}
    assert world.log is None


def test_deletion_ends_without_zookeeper_and_with_pods_that_stay() -> None:
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
    assert "1 pods of the server are ending" in next_plan(world).waits
    world.deleting_seconds = 61.0
    run(world)
    assert world.cluster is None


def test_a_deletion_may_come_before_anything_was_made() -> None:
    world = World(cluster_resource(), [])
    delete(world)
    assert next_plan(world).done
    assert world.cluster is not None
    world.cluster["metadata"]["finalizers"] = [FINALIZER]
    run(world)
    assert world.cluster is None
