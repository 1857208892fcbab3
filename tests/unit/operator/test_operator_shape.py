"""Test what a change of a cluster's shape does first, what stops it, and what the status says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.operator_world import NAMESPACE, Znodes, cluster_resource, pool_resource
from tests.support.planned import follow_until, next_plan
from tests.support.shape_world import ShapeWorld
from tests.unit.operator.test_operator_plan_properties import reach
from waltz.admin.core.steps import ChangeAssignment, CreateReplicas, DropReplicas, SwitchOff
from waltz_operator.core import names
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.resources import ClusterStatus, Condition
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import ClusterPlan, DeleteObject, ReleasePool

_NOW = "2026-01-01T12:00:00Z"


def storage(pool: str, ordinal: int = 0) -> str:
    return f"{pool}-storage-{ordinal}.{pool}-storage.{NAMESPACE}.svc:6000"


def running(**pool_spec: Any) -> ShapeWorld:
    """Return a running cluster of the pools a, b and c; the pool d exists, too."""
    resource = cluster_resource(partitions=3, tls={"mode": "None"})
    world = ShapeWorld(resource, [pool_resource(name, **pool_spec) for name in "abcd"])
    reach(world)
    return world


def specify(world: ShapeWorld, *pools: str, **spec: Any) -> None:
    assert world.cluster is not None
    world.cluster["spec"] |= {"pools": list(pools)} | spec
    world.cluster["metadata"]["generation"] += 1


def status(world: ShapeWorld, decided: ClusterPlan) -> tuple[ClusterStatus, dict[str, Condition]]:
    found = cluster_status(world.desired(), world.observed(), decided, _NOW)
    return found, {each.type: each for each in found.conditions}


def test_added_pool_creates_all_its_replicas_by_one_call_switched_off() -> None:
    world = running()
    specify(world, *"abcd")
    decided = follow_until(world, CreateReplicas)
    replicas = (storage("d"), (0, 1, 2))
    assert decided.steps == (CreateReplicas(*replicas), SwitchOff(*replicas))


def test_status_of_an_added_pool_has_progress_quorum_and_reason() -> None:
    world = running()
    specify(world, *"abcd")
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    decided = next_plan(world)
    found, conditions = status(world, decided)
    assert found.change == "pool d: partition 2 of 3"
    assert (conditions["Changing"].status, conditions["Changing"].reason) == ("True", "AddingPool")
    message = conditions["Changing"].message
    assert "of 4 copies, 3 are a quorum and 1 may fail" in message
    assert "pool d: partition 2 of 3 waits: the replica of partition 0 on storage d-" in message
    assert conditions["Ready"].status == "True", "the cluster serves while its shape changes"
    assert conditions["Reconciled"].status == "False"
    assert found.observed_generation == 0, "the new generation is not reconciled"


def test_status_after_a_change_says_that_none_is_under_way() -> None:
    world = running()
    specify(world, *"abcd")
    reach(world)
    found, conditions = status(world, next_plan(world))
    assert found.change == ""
    assert (conditions["Changing"].status, conditions["Changing"].reason) == ("False", "NoChange")
    assert found.observed_generation == 2


def test_unhealthy_replica_elsewhere_stops_a_removal_and_is_named() -> None:
    world = running()
    specify(world, *"abcd")
    reach(world)
    specify(world, *"abc")
    world.down.add(storage("b"))
    decided = next_plan(world)
    assert not any(isinstance(step, ChangeAssignment) for step in decided.steps)
    assert any(f"waits: storage {storage('b')} does not answer" in each for each in decided.waits)


@pytest.mark.parametrize("allowed", [False, True])
def test_pool_is_removed_below_three_copies_only_if_the_spec_allows_it(allowed: bool) -> None:
    world = running()
    specify(world, "a", "b", allowFewerCopies=allowed)
    if allowed:
        reach(world)
        assert isinstance(world.znodes, Znodes)
        assert sorted(world.znodes.maps.groups.groups) == [storage("a"), storage("b")]
        return
    decided = next_plan(world)
    assert decided.steps == ()
    assert "pool c is not removed: only 2 copies would remain" in decided.problems[0]
    assert "set spec.allowFewerCopies to true" in decided.problems[0]


def test_pool_is_not_removed_while_any_partition_would_keep_fewer_than_three_copies() -> None:
    """Pool d was removed from the spec when only partition 0 had its copy there."""
    world = running()
    specify(world, *"abcd")
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    specify(world, "a", "b")
    world.settle()
    decided = next_plan(world)
    assert decided.steps == ()
    assert "pool c is not removed: only 2 copies would remain" in decided.problems[0]


@pytest.mark.parametrize("policy", ["Keep", "Delete"])
def test_files_and_claims_of_a_removed_pool_follow_its_policy(policy: str) -> None:
    world = running(volumes={"data": {"size": "1Gi"}, "onScaleDown": policy})
    key = ObjectKey("PersistentVolumeClaim", "data-c-storage-0")
    labels = names.labels("log", Component.STORAGE, "c")
    claim = {"name": key.name, "labels": labels, "uid": "claim"}
    world.objects[key] = {"metadata": claim}
    specify(world, *"abd")
    (drop,) = (each for each in follow_until(world, DropReplicas).steps)
    assert drop == DropReplicas(storage("c"), (0, 1, 2), delete_files=policy == "Delete")
    follow_until(world, ReleasePool)
    assert (key in world.objects) == (policy == "Keep")


def test_claims_of_drained_storages_are_deleted_if_they_are_not_kept() -> None:
    world = running(storages=2, volumes={"data": {"size": "1Gi"}, "onScaleDown": "Delete"})
    labels = names.labels("log", Component.STORAGE, "a")
    for ordinal in range(2):
        key = ObjectKey("PersistentVolumeClaim", f"data-a-storage-{ordinal}")
        world.objects[key] = {"metadata": {"name": key.name, "labels": labels, "uid": key.name}}
    world.pools["a"]["spec"]["storages"] = 1
    decided = follow_until(world, DeleteObject)
    deleted = [step for step in decided.steps if isinstance(step, DeleteObject)]
    assert [step.key.name for step in deleted] == ["data-a-storage-1"]
    live = world.objects[ObjectKey("StatefulSet", "a-storage")]
    assert live["spec"]["replicas"] == 1, "the pod is gone before its claim"


def test_single_copy_becomes_three_by_one_change() -> None:
    resource = cluster_resource(partitions=1, pools=["a"], tls={"mode": "None"})
    world = ShapeWorld(resource, [pool_resource(name) for name in "abc"])
    reach(world)
    specify(world, *"abc")
    decided = follow_until(world, ChangeAssignment)
    (change,) = (each for each in decided.steps if isinstance(each, ChangeAssignment))
    assert change.changes[0].wanted == {storage("a"), storage("b"), storage("c")}
