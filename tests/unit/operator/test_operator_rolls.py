"""The states of a rolling change: which pod is replaced next, and why none is."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from tests.support.operator_world import Znodes, cluster_resource, pool_resource
from tests.support.rolling_world import RollingWorld
from tests.unit.operator.test_operator_plan_properties import reach
from waltz_operator.core.names import Component
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.planning.rolls import (
    AllPodsCurrent,
    RollInProgress,
    RollStopped,
    RollWaiting,
    is_rolling,
    roll_states,
)
from waltz_operator.core.status import cluster_status
from waltz_operator.core.steps import ApplyObject, ClusterPlan, ReplacePod

_NOW = "2026-01-01T12:00:00Z"
_BUDGET = ObjectKey("PodDisruptionBudget", "log-storage")
_MEMBERS_BUDGET = ObjectKey("PodDisruptionBudget", "log-zookeeper")


def started(pools: str = "abc", members: int = 3, **pool_spec: Any) -> RollingWorld:
    resource = cluster_resource(pools=list(pools), zookeeper={"managed": {"members": members}})
    world = RollingWorld(resource, [pool_resource(name, **pool_spec) for name in pools])
    reach(world)
    return world


def specify_images(world: RollingWorld, **images: str) -> None:
    assert world.cluster is not None
    world.cluster["spec"]["images"] = images


def step(world: RollingWorld) -> ClusterPlan:
    """Perform the next plan without what controllers and processes do afterwards."""
    decided = plan(world.desired(), world.observed())
    for each in decided.steps:
        world.perform(each)
    return decided


def prepare(world: RollingWorld) -> None:
    """Perform plans until only the replacement of pods is left to do."""
    for _ in range(10):
        world.settle()
        decided = plan(world.desired(), world.observed())
        if not decided.steps or any(isinstance(each, ReplacePod) for each in decided.steps):
            return
        step(world)
    raise AssertionError(f"still other steps: {decided}")


def finish(world: RollingWorld) -> None:
    for _ in range(40):
        world.settle()
        if step(world).done:
            return
    raise AssertionError("the roll has not ended")


def states(world: RollingWorld) -> tuple[object, object]:
    return roll_states(world.desired(), world.observed())


def next_pod(world: RollingWorld) -> str:
    """Return the pod that the next plan replaces."""
    (found,) = plan(world.desired(), world.observed()).steps
    assert isinstance(found, ReplacePod)
    return found.pod


def test_cluster_whose_pods_are_current_has_no_roll() -> None:
    world = started()
    assert states(world) == (AllPodsCurrent(), AllPodsCurrent())
    assert plan(world.desired(), world.observed()).done


def test_storages_are_replaced_in_the_order_of_the_pools() -> None:
    world = started()
    specify_images(world, storage="new")
    finish(world)
    assert world.replaced == ["a-storage-0", "b-storage-0", "c-storage-0"]
    assert world.outdated() == []
    assert world.objects[_BUDGET]["spec"]["maxUnavailable"] == 1


def test_no_pod_is_replaced_before_kubernetes_has_processed_the_new_version() -> None:
    world = started()
    specify_images(world, storage="new")
    assert all(isinstance(each, ApplyObject) for each in step(world).steps)
    reason = "Kubernetes has not processed the current version of StatefulSet a-storage yet"
    assert states(world)[1] == RollWaiting(reason)
    assert f"the rolling change waits: {reason}" in step(world).waits


def test_evictions_are_forbidden_before_the_first_storage_is_replaced() -> None:
    world = started()
    specify_images(world, storage="new")
    step(world)
    world.settle()
    assert is_rolling(world.desired(), world.observed(), Component.STORAGE)
    assert states(world)[1] == RollWaiting("evictions of storages are not forbidden yet")
    decided = step(world)
    assert [type(each) for each in decided.steps] == [ApplyObject]
    assert world.objects[_BUDGET]["spec"]["maxUnavailable"] == 0
    assert next_pod(world) == "a-storage-0"


def test_roll_waits_until_restarted_storage_rejoins_its_sessions() -> None:
    world = started()
    specify_images(world, storage="new")
    prepare(world)
    assert step(world).steps != ()
    world.run_servers()
    assert states(world)[1] == RollInProgress("a-storage-0")
    world.create_pods()
    assert states(world)[1] == RollInProgress("a-storage-0"), "the pod does not run yet"
    world.start_pods()
    state = states(world)[1]
    assert isinstance(state, RollWaiting)
    assert "takes no part in session" in state.reason
    world.run_servers()
    assert next_pod(world) == "b-storage-0"


def test_roll_waits_while_a_storage_of_the_current_version_is_away() -> None:
    world = started()
    world.pools["a"]["spec"]["restartedAt"] = "2026-01-31T12:00:00Z"
    prepare(world)
    assert next_pod(world) == "a-storage-0"
    world.down.add(world.address("c-storage-0"))
    state = states(world)[1]
    assert isinstance(state, RollWaiting)
    assert "storage c-storage-0.c-storage.logs.svc:6000 does not answer" in state.reason


def test_storage_that_runs_without_taking_part_is_replaced_first_if_all_others_are_healthy() -> (
    None
):
    world = started()
    specify_images(world, storage="new")
    prepare(world)
    stay_out_of_sessions(world, "b-storage-0")
    assert next_pod(world) == "b-storage-0"
    stay_out_of_sessions(world, "c-storage-0")
    assert isinstance(states(world)[1], RollWaiting), "two copies are unhealthy"


def stay_out_of_sessions(world: RollingWorld, pod: str) -> None:
    held = world.disks[world.address(pod)]
    for partition, replica in held.items():
        held[partition] = replace(replica, session_id=replica.session_id - 1)


def test_single_copy_is_restarted_while_it_is_healthy() -> None:
    world = started("a", members=1, storages=2)
    specify_images(world, storage="new")
    finish(world)
    assert world.replaced == ["a-storage-0", "a-storage-1"]


def test_broken_version_stops_at_one_pod_and_the_status_has_the_reason_of_the_kubelet() -> None:
    world = started()
    specify_images(world, storage="broken")
    prepare(world)
    step(world)
    world.settle()
    assert states(world)[1] == RollStopped("a-storage-0", "its image broken cannot be pulled")
    decided = step(world)
    assert decided.steps == ()
    status = cluster_status(world.desired(), world.observed(), decided, _NOW)
    conditions = {each.type: each for each in status.conditions}
    assert (conditions["Updated"].status, conditions["Updated"].reason) == ("False", "RollStopped")
    for text in (conditions["Updated"].message, status.message):
        assert "pod a-storage-0 of the current version does not start: its image broken" in text
    assert status.updated == "6/8", "two servers, three members and the broken storage"
    assert conditions["Ready"].status == "True", "Ready speaks of what runs"
    specify_images(world, storage="corrected")
    prepare(world)
    assert next_pod(world) == "a-storage-0"
    finish(world)
    assert world.replaced == ["a-storage-0", "a-storage-0", "b-storage-0", "c-storage-0"]


def test_broken_version_of_the_only_storage_is_not_reported_as_updated() -> None:
    world = started("a", members=1)
    specify_images(world, storage="broken")
    prepare(world)
    step(world)
    world.settle()
    assert world.outdated() == []
    status = cluster_status(world.desired(), world.observed(), ClusterPlan(), _NOW)
    (updated,) = (each for each in status.conditions if each.type == "Updated")
    assert (updated.status, updated.reason) == ("False", "PodsFailing")
    assert updated.message == "pod a-storage-0: its image broken cannot be pulled"


def test_pods_that_never_started_are_replaced_one_at_a_time_after_a_correction() -> None:
    """No partition has a replica yet, so a condition about replicas would never be true."""
    resource = cluster_resource(images={"storage": "broken", "zookeeper": "broken"})
    world = RollingWorld(resource, [pool_resource(name) for name in "abc"])
    for _ in range(10):
        world.settle()
        step(world)
    assert [pod["status"]["containerStatuses"][0]["started"] for pod in world.pods()] == [False] * 3
    specify_images(world, storage="good", zookeeper="good")
    reach(world)
    assert world.replaced == [f"log-zookeeper-{number}" for number in range(3)]


def test_followers_are_replaced_before_the_leader_and_members_before_storages() -> None:
    world = started()
    specify_images(world, storage="new", zookeeper="new")
    assert world.zookeeper_leader == "log-zookeeper-0"
    finish(world)
    members, storages = world.replaced[:3], world.replaced[3:]
    assert members == ["log-zookeeper-1", "log-zookeeper-2", "log-zookeeper-0"]
    assert storages == ["a-storage-0", "b-storage-0", "c-storage-0"]


def test_storage_waits_until_the_member_that_was_replaced_last_is_ready() -> None:
    world = started()
    specify_images(world, storage="new", zookeeper="new")
    for _ in range(3):
        prepare(world)
        step(world)
    assert world.replaced[-1] == "log-zookeeper-0"
    waiting = RollWaiting("pod log-zookeeper-0 of ZooKeeper is not ready")
    assert states(world) == (AllPodsCurrent(), waiting), "the pod is absent"
    world.create_pods()
    assert states(world) == (AllPodsCurrent(), waiting), "the pod does not run yet"
    world.start_pods()
    prepare(world)
    assert next_pod(world) == "a-storage-0"


def test_no_eviction_of_a_member_is_allowed_while_members_are_replaced() -> None:
    world = started()
    specify_images(world, zookeeper="new")
    prepare(world)
    assert world.objects[_MEMBERS_BUDGET]["spec"]["maxUnavailable"] == 0
    finish(world)
    assert world.objects[_MEMBERS_BUDGET]["spec"]["maxUnavailable"] == 1


def test_members_wait_while_their_leader_is_unknown() -> None:
    world = started()
    specify_images(world, zookeeper="new")
    prepare(world)
    observed = replace(world.observed(), zookeeper_leader=None)
    assert roll_states(world.desired(), observed) == (
        RollWaiting("the leader of ZooKeeper is not known"),
        AllPodsCurrent(),
    )


def test_member_that_is_not_ready_stops_the_roll_of_members() -> None:
    world = started()
    specify_images(world, zookeeper="broken")
    prepare(world)
    step(world)
    world.settle()
    state = states(world)[0]
    assert state == RollStopped("log-zookeeper-1", "its image broken cannot be pulled")
    specify_images(world, zookeeper="corrected")
    prepare(world)
    assert next_pod(world) == "log-zookeeper-1"


def test_paused_cluster_replaces_no_pod() -> None:
    world = started()
    specify_images(world, storage="new")
    prepare(world)
    assert world.cluster is not None
    world.cluster["spec"]["paused"] = True
    assert plan(world.desired(), world.observed()).steps == ()


def test_roll_waits_while_the_replicas_belong_to_another_cluster() -> None:
    world = started()
    specify_images(world, storage="new")
    prepare(world)
    assert isinstance(world.znodes, Znodes)
    world.znodes.key = uuid.UUID(int=7)
    assert states(world)[1] == RollWaiting("the replicas of the storages are not observed")


def test_cluster_restart_replaces_all_pods_and_pool_restart_only_its_storages() -> None:
    world = started()
    assert world.cluster is not None
    world.cluster["spec"]["restartedAt"] = "2026-01-31T12:00:00Z"
    finish(world)
    assert len(world.replaced) == 6
    world.replaced.clear()
    world.pools["b"]["spec"]["restartedAt"] = "2026-01-31T13:00:00Z"
    finish(world)
    assert world.replaced == ["b-storage-0"]


def test_template_that_kubectl_rollout_restart_has_annotated_is_rolled_and_not_repaired() -> None:
    world = started()
    template = world.objects[ObjectKey("StatefulSet", "c-storage")]["spec"]["template"]
    template["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": _NOW}
    finish(world)
    assert world.replaced == ["c-storage-0"]
