"""Test what the operator does when a storage fails, or a roll begins, during a change of shape."""

from __future__ import annotations

from typing import Any

from tests.support.healing_world import HealingWorld
from tests.support.operator_world import cluster_resource, pool_resource
from tests.support.planned import follow_until, next_plan
from tests.unit.operator.test_operator_plan_properties import reach
from waltz.admin.core.steps import ChangeAssignment, CopyReplica
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.resources import ClusterStatus, Condition
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import ClusterPlan

_NOW = "2026-01-01T12:00:00Z"
_PARTITIONS = range(4)
_LOST = "a-storage-0"


def running(pools: str, others: str = "", **volumes: Any) -> HealingWorld:
    """Return a running cluster of ``pools``; the pools ``others`` exist, too."""
    spec = {"volumes": {"data": {"size": "1Gi"}, **volumes}}
    world = HealingWorld(
        cluster_resource(pools=list(pools)),
        [pool_resource(name, **spec) for name in pools + others],
    )
    reach(world)
    record(world, next_plan(world))
    return world


def specify(world: HealingWorld, **spec: Any) -> None:
    assert world.cluster is not None
    world.cluster["spec"] |= spec
    world.cluster["metadata"]["generation"] += 1


def perform(world: HealingWorld) -> ClusterPlan:
    """Perform the next plan and record its status."""
    decided = next_plan(world)
    record(world, decided)
    for each in decided.steps:
        world.perform(each)
    return decided


def record(world: HealingWorld, decided: ClusterPlan) -> dict[str, Condition]:
    """Write the status of a plan as the operator does; return its conditions."""
    assert world.cluster is not None
    found = cluster_status(world.desired(), world.observed(), decided, _NOW)
    world.cluster["status"] = found.to_json()
    return {each.type: each for each in found.conditions}


def lose_volume(world: HealingWorld) -> None:
    """Let a storage start again with an empty volume, after one replica was unassigned."""
    world.delete_claim(_LOST)
    world.stop_pod(_LOST)


def finish(world: HealingWorld) -> None:
    """Perform plans until nothing is left to do."""
    for _ in range(120):
        world.settle()
        for pod in [each["metadata"]["name"] for each in world.pods()]:
            # The pods of a pool that has left end.
            if ObjectKey("StatefulSet", pod.rpartition("-")[0]) not in world.objects:
                world.stop_pod(pod)
        if perform(world).done:
            return
    raise AssertionError(f"not done: {next_plan(world)}")


def test_removed_replica_is_assigned_again_while_a_lost_volume_waits_for_its_replacement() -> None:
    world = running("abcd", onLoss="Replace", lossDelaySeconds=0)
    specify(world, pools=list("abc"))
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    # The session of four copies needs three of them, and two of the assigned three are left.
    lose_volume(world)
    world.settle()
    assert not world.opens(0)
    perform(world)
    assert all(map(world.opens, _PARTITIONS))
    finish(world)
    assert world.pools["d"]["metadata"].get("labels") == {}, "the pool has left afterwards"
    assert all(len(world.view(each).replicas) == 3 for each in _PARTITIONS)


def test_removed_replica_is_assigned_again_while_an_added_pool_does_not_answer() -> None:
    world = running("abcd", "e")
    specify(world, pools=list("abc"))
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    specify(world, pools=list("abce"))
    world.stop_pod(_LOST)
    for _ in range(8):
        # No pod is created: that of pool a does not return, that of pool e never starts.
        world.process_sets()
        world.run_servers()
        decided = perform(world)
    assert any("pool e: partition 1 of 4 waits" in each for each in decided.waits)
    assert all(map(world.opens, _PARTITIONS))
    finish(world)
    assert all(len(world.view(each).replicas) == 4 for each in _PARTITIONS)


def test_change_is_not_reconciled_while_the_volume_of_a_storage_is_lost() -> None:
    world = running("abcde", onLoss="Replace", lossDelaySeconds=300)
    specify(world, pools=list("abc"))
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    world.settle()
    lose_volume(world)
    for _ in range(3):
        world.settle()
        decided = perform(world)
    assert decided.steps == ()
    progress = "pool d: partition 2 of 4"
    why = f"the volume of storage {world.address(_LOST)} is replaced first"
    assert f"{progress} waits: {why}" in decided.waits
    conditions = record(world, decided)
    assert world.cluster is not None
    status = ClusterStatus.model_validate(world.cluster["status"])
    assert status.change == progress
    assert status.observed_generation == 1
    assert conditions["Changing"].status == "True"
    assert conditions["Reconciled"].status == "False"
    world.lost_seconds = {_LOST: 300.0}
    finish(world)
    assert all(len(world.view(each).replicas) == 3 for each in _PARTITIONS)


def test_roll_during_the_copies_of_an_added_pool_says_what_it_waits_for() -> None:
    world = running("abc", "d")
    world.lengthen_logs(10_000_000)
    specify(world, pools=list("abcd"))
    decided = follow_until(world, CopyReplica)
    assert not any("rolling" in each for each in decided.waits)
    specify(world, images={"storage": "waltz-storage:fixed"})
    for _ in range(4):
        # A copy takes many steps, which end before it is complete.
        for step in next_plan(world).steps:
            if not isinstance(step, CopyReplica):
                world.perform(step)
        world.settle()
    decided = next_plan(world)
    assert [type(each) for each in decided.steps] == [CopyReplica]
    assert decided.waits == ("the rolling change waits: pool d: partition 1 of 4 comes first",)
    assert record(world, decided)["Healthy"].status == "False"
    budget = world.objects[ObjectKey("PodDisruptionBudget", "log-storage")]
    assert budget["spec"]["maxUnavailable"] == 0, "evictions stay forbidden, as in every roll"
    finish(world)
    assert len(world.replaced) >= 4
