"""The replacement of a lost volume: when it begins, its phases, and why it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.healing_world import HealingWorld
from tests.support.operator_world import cluster_resource, pool_resource
from tests.unit.operator.test_operator_plan_properties import reach
from waltz.admin.core.replicas import LAG_ALLOWED
from waltz.admin.core.steps import CopyReplica, CreateReplicas, SwitchOn
from waltz_operator.core.names import REPLACEMENT_ANNOTATION
from waltz_operator.core.objects import ObjectKey
from waltz_operator.core.planning import plan
from waltz_operator.core.pool_status import pool_status
from waltz_operator.core.steps import (
    ClusterPlan,
    CompareReplica,
    DeleteObject,
    EmptyVolume,
    RecordReplacement,
    ReplacePod,
)
from waltz_operator.core.volume_replacement import Phase, Replacement

NOW = "2026-01-01T12:00:00Z"
LATER = "2026-01-01T13:00:00Z"
BUDGET = ObjectKey("PodDisruptionBudget", "log-storage")


def started(pools: str = "abc", **volumes: Any) -> HealingWorld:
    spec = {"volumes": {"data": {"size": "1Gi"}, **volumes}}
    world = HealingWorld(
        cluster_resource(pools=list(pools)), [pool_resource(name, **spec) for name in pools]
    )
    reach(world)
    return world


def step(world: HealingWorld) -> ClusterPlan:
    decided = plan(world.desired(), world.observed())
    for each in decided.steps:
        world.perform(each)
    return decided


def finish(world: HealingWorld) -> list[ClusterPlan]:
    """Perform plans until nothing is left to do, and return them."""
    plans = []
    for _ in range(80):
        world.settle()
        plans.append(step(world))
        if plans[-1].done:
            return plans
    raise AssertionError(f"not healed: {plans[-1]}")


def settled_plan(world: HealingWorld) -> ClusterPlan:
    """Return the plan after the budget was adapted."""
    step(world)
    return plan(world.desired(), world.observed())


def steps_of(plans: list[ClusterPlan]) -> list[object]:
    return [each for decided in plans for each in decided.steps]


def lose(world: HealingWorld, pod: str) -> None:
    """Delete the claim and the pod: the storage starts empty."""
    world.delete_claim(pod)
    world.stop_pod(pod)
    world.settle()


def test_lost_volume_waits_for_a_person_by_default() -> None:
    world = started()
    lose(world, "a-storage-0")
    decided = settled_plan(world)
    assert decided.steps == ()
    assert (
        "storage a-storage-0.a-storage.logs.svc:6000 has lost its volume: it holds none of its "
        "replicas; annotate StoragePool a with waltz.dev/replace-volume=a-storage-0 to replace it"
    ) in decided.waits
    assert "has lost its replica of partition 0" in decided.problems[0]


def test_lost_volume_is_replaced_after_its_delay() -> None:
    world = started(onLoss="Replace", lossDelaySeconds=60)
    lose(world, "a-storage-0")
    decided = step(world)
    assert any("replaced when the loss has lasted 60 s" in each for each in decided.waits)
    world.lost_seconds = {"a-storage-0": 60.0}
    steps = steps_of(finish(world))
    assert RecordReplacement("a", None) in steps
    assert world.replacement("a") is None
    assert {partition for _, partition in world.compared} == {0, 1, 2, 3}


def test_replicas_are_created_and_switched_on_by_one_request_each() -> None:
    world = started()
    lose(world, "a-storage-0")
    world.request("a-storage-0")
    steps = steps_of(finish(world))
    address = world.address("a-storage-0")
    created = [each for each in steps if isinstance(each, CreateReplicas)]
    assert created == [CreateReplicas(address, (0, 1, 2, 3))]
    assert not any(isinstance(each, ReplacePod) for each in steps), "the volume is new already"


def test_long_replicas_are_copied_one_after_the_other_before_servers_use_them() -> None:
    world = started()
    world.lengthen_logs(4 * LAG_ALLOWED)
    lose(world, "a-storage-0")
    world.request("a-storage-0")
    plans = finish(world)
    copies = [each for each in steps_of(plans) if isinstance(each, CopyReplica)]
    assert [each.partition for each in copies] == [0, 0, 1, 1, 2, 2, 3, 3]
    on = next(n for n, each in enumerate(steps_of(plans)) if isinstance(each, SwitchOn))
    assert on > steps_of(plans).index(copies[0])
    waits = [each for decided in plans for each in decided.waits]
    assert any(each.endswith("0 of 4 done, partition 0 is 0 % copied") for each in waits)
    assert any(each.endswith("0 of 4 done, partition 0 is 50 % copied") for each in waits)


def test_replicas_that_wait_for_a_source_are_not_compared_yet() -> None:
    world = started()
    world.lengthen_logs(4 * LAG_ALLOWED)
    lose(world, "a-storage-0")
    world.request("a-storage-0")
    for _ in range(20):
        replacement = world.replacement("a")
        if replacement is not None and replacement.phase is Phase.FILL:
            break
        world.settle()
        step(world)
    assert world.replacement("a") == replacement
    for pod in ("b-storage-0", "c-storage-0"):
        world.stop_pod(pod)
    for _ in range(4):
        step(world)
    found = world.replacement("a")
    assert found is not None
    assert found.phase is Phase.FILL


def test_claim_and_pod_are_deleted_only_while_evictions_are_forbidden() -> None:
    world = started()
    world.request("a-storage-0")
    claim = world.objects[ObjectKey("PersistentVolumeClaim", "data-a-storage-0")]
    pod = world.objects[ObjectKey("Pod", "a-storage-0")]
    uids = claim["metadata"]["uid"], pod["metadata"]["uid"]
    assert world.objects[BUDGET]["spec"]["maxUnavailable"] == 1
    assert step(world).steps == (RecordReplacement("a", Replacement("a-storage-0", (uids[0],))),)
    decided = plan(world.desired(), world.observed())
    assert any("evictions of storages are not forbidden yet" in each for each in decided.waits)
    assert not any(isinstance(each, DeleteObject | ReplacePod) for each in decided.steps)
    step(world)
    assert world.objects[BUDGET]["spec"]["maxUnavailable"] == 0
    assert step(world).steps == (
        DeleteObject(ObjectKey("PersistentVolumeClaim", "data-a-storage-0"), uids[0]),
        ReplacePod("a-storage-0", uids[1]),
    )
    finish(world)
    assert world.emptied == ["a-storage-0"]


def test_request_replaces_the_volume_once() -> None:
    world = started()
    world.request("a-storage-0")
    finish(world)
    assert world.emptied == ["a-storage-0"]
    assert world.pools["a"]["metadata"]["annotations"] == {}


def test_volume_is_not_replaced_while_another_replica_is_away() -> None:
    world = started(onLoss="Replace", lossDelaySeconds=0)
    world.stop_pod("b-storage-0")
    world.delete_claim("a-storage-0")
    decided = settled_plan(world)
    assert decided.steps == ()
    assert any(
        each.startswith("the volume of storage a-storage-0.a-storage.logs.svc:6000 is not replaced")
        and "b-storage-0.b-storage.logs.svc:6000 does not answer" in each
        for each in decided.waits
    ), decided


def test_storage_that_fails_after_the_beginning_delays_the_deletion() -> None:
    world = started()
    world.request("a-storage-0")
    step(world)
    world.settle()
    step(world)
    world.stop_pod("b-storage-0")
    decided = plan(world.desired(), world.observed())
    assert not any(isinstance(each, DeleteObject | ReplacePod) for each in decided.steps)
    assert any("is not deleted yet: storage b-storage-0" in each for each in decided.waits)


def test_volume_is_not_deleted_while_an_evicted_storage_shuts_down() -> None:
    """An eviction that was allowed before evictions were forbidden: the storage still answers."""
    world = started()
    world.request("a-storage-0")
    step(world)
    step(world)
    assert world.objects[BUDGET]["spec"]["maxUnavailable"] == 0
    evicted = world.objects[ObjectKey("Pod", "b-storage-0")]
    evicted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    decided = plan(world.desired(), world.observed())
    assert decided.steps == ()
    assert any(
        each.endswith("is not deleted yet: pod b-storage-0 is being stopped")
        for each in decided.waits
    ), decided.waits
    finish(world)
    assert world.emptied == ["a-storage-0"]


def test_volume_is_deleted_while_the_pod_of_another_lost_volume_cannot_end() -> None:
    """The pod of a lost node stays until a user deletes the node. Its replicas are lost."""
    world = started("abcde", onLoss="Replace", lossDelaySeconds=0)
    for pod in ("a-storage-0", "b-storage-0"):
        world.down.add(world.address(pod))
        world.delete_claim(pod)
    world.objects[ObjectKey("Pod", "b-storage-0")]["metadata"]["deletionTimestamp"] = NOW
    for _ in range(4):
        step(world)
    assert world.replaced == ["a-storage-0"]


@pytest.mark.parametrize("pod", ["a-storage-0", "b-storage-0"])
def test_malformed_record_of_a_replacement_is_kept_and_none_begins(pod: str) -> None:
    """It may be the record of a replacement that has begun: a second one could cost the quorum."""
    world = started(onLoss="Replace", lossDelaySeconds=0)
    annotations = world.pools["a"]["metadata"].setdefault("annotations", {})
    annotations[REPLACEMENT_ANNOTATION] = "malformed"
    lose(world, pod)
    step(world)
    decided = settled_plan(world)
    assert annotations[REPLACEMENT_ANNOTATION] == "malformed"
    assert not steps_of([decided])
    assert any("cannot be decoded" in each for each in decided.problems), decided
    assert any(
        each.startswith(f"storage {world.address(pod)} has lost its volume")
        and each.endswith("it is not replaced before the malformed annotation is removed")
        for each in decided.waits
    ), decided.waits
    del annotations[REPLACEMENT_ANNOTATION]
    finish(world)
    assert world.emptied == [pod]


def test_record_of_a_pod_that_left_its_pool_is_removed_and_evictions_are_allowed_again() -> None:
    world = started(onLoss="Replace", lossDelaySeconds=0)
    annotations = world.pools["a"]["metadata"].setdefault("annotations", {})
    annotations[REPLACEMENT_ANNOTATION] = Replacement("a-storage-7").to_json()
    lose(world, "b-storage-0")
    texts = [str(each) for each in steps_of(finish(world))]
    (text,) = (each for each in texts if each.startswith("StoragePool a: "))
    assert text.endswith("is removed, because the pool no longer has its pod")
    assert REPLACEMENT_ANNOTATION not in annotations
    assert world.emptied == ["b-storage-0"]
    assert world.objects[BUDGET]["spec"]["maxUnavailable"] == 1


def test_second_loss_waits_until_the_first_volume_is_replaced() -> None:
    world = started(onLoss="Replace", lossDelaySeconds=0)
    lose(world, "a-storage-0")
    step(world)
    world.delete_claim("b-storage-0")
    world.settle()
    decided = plan(world.desired(), world.observed())
    assert any(
        each.startswith("storage b-storage-0.b-storage.logs.svc:6000 has lost its volume")
        and each.endswith(
            "the volume of storage a-storage-0.a-storage.logs.svc:6000 is being replaced"
        )
        for each in decided.waits
    ), decided.waits
    finish(world)
    assert world.emptied == ["a-storage-0", "b-storage-0"]


def test_replacement_whose_old_volume_is_deleted_continues_when_another_volume_is_lost() -> None:
    """Without its record, an old copy on the new volume would not be emptied before it votes."""
    world = started("abcde", onLoss="Replace", lossDelaySeconds=0)
    world.request("a-storage-0")
    while world.emptied != ["a-storage-0"]:
        step(world)
        world.settle()
    assert world.replacement("a") is not None
    world.stop_pod("a-storage-0")
    world.delete_claim("b-storage-0")
    world.stop_pod("b-storage-0")
    step(world)
    assert world.replacement("a") is not None
    finish(world)
    assert world.emptied == ["a-storage-0", "b-storage-0"]


def test_replacement_whose_pod_shuts_down_continues_when_another_volume_is_lost() -> None:
    """The deletion of its volume can no longer be stopped, although its storage still answers."""
    world = started("abcde", onLoss="Replace", lossDelaySeconds=0)
    world.slow_shutdowns = True
    world.request("a-storage-0")
    while world.replaced != ["a-storage-0"]:
        world.settle()
        step(world)
    world.delete_claim("b-storage-0")
    world.stop_pod("b-storage-0")
    decided = step(world)
    assert world.replacement("a") is not None
    assert any(each.startswith("pod a-storage-0 shuts down") for each in decided.waits)
    finish(world)
    assert sorted(world.emptied) == ["a-storage-0", "b-storage-0"]


def test_of_five_copies_two_that_are_lost_together_are_replaced() -> None:
    world = started("abcde", onLoss="Replace", lossDelaySeconds=0)
    for pod in ("b-storage-0", "d-storage-0"):
        lose(world, pod)
    finish(world)
    assert world.emptied == ["b-storage-0", "d-storage-0"]


def test_of_three_copies_two_that_are_lost_together_wait_for_a_person() -> None:
    world = started(onLoss="Replace", lossDelaySeconds=0)
    for pod in ("b-storage-0", "c-storage-0"):
        world.delete_claim(pod)
        world.stop_pod(pod)
    world.settle()
    decided = step(world)
    assert not any(isinstance(each, RecordReplacement) for each in decided.steps)
    assert any("is not replaced yet" in each for each in decided.waits)


def test_only_copy_is_never_replaced() -> None:
    world = started("a", onLoss="Replace", lossDelaySeconds=0)
    world.request("a-storage-0")
    decided = step(world)
    assert decided.steps == ()
    assert any("has no quorum without a-storage-0" in each for each in decided.waits)


def test_volume_without_replicas_is_replaced_in_a_cluster_with_a_single_pool() -> None:
    """A single pool has no disruption budget, so none has to forbid evictions first."""
    world = HealingWorld(cluster_resource(pools=["a"]), [pool_resource("a", storages=5)])
    reach(world)
    assert not world.replicas().assigned(world.address("a-storage-4"))
    world.request("a-storage-4")
    finish(world)
    assert world.emptied == ["a-storage-4"]


def test_volume_that_holds_replicas_after_the_replacement_is_emptied_first() -> None:
    world = started()
    old = dict(world.disks[world.address("a-storage-0")])
    world.request("a-storage-0")
    for _ in range(3):
        step(world)
    world.settle()
    world.disks[world.address("a-storage-0")] = old
    begun = world.replacement("a")
    assert begun is not None
    decided = step(world)
    assert decided.steps == (EmptyVolume("a", world.address("a-storage-0"), (0, 1, 2, 3), begun),)
    finish(world)


def test_request_for_an_unknown_pod_is_a_problem() -> None:
    world = started()
    world.request("a-storage-7")
    assert "asks to replace the volume of a-storage-7" in step(world).problems[0]


@pytest.mark.parametrize(
    "record",
    [
        "{}",
        '{"pod": "a-storage-0", "claims": [], "phase": "fill", "partition": 1e999, "nextId": 0}',
    ],
)
def test_record_that_cannot_be_decoded_is_a_problem(record: str) -> None:
    world = started()
    world.pools["a"]["metadata"]["annotations"] = {REPLACEMENT_ANNOTATION: record}
    (problem,) = step(world).problems
    assert problem.startswith("the annotation of StoragePool a about the replacement")


def test_replacement_round_trips_through_its_annotation() -> None:
    full = Replacement("a-storage-0", ("x", "y"), Phase.COMPARE, 3, 17)
    assert Replacement.from_json(full.to_json()) == full


def test_time_of_a_loss_is_kept_until_the_volume_has_replicas() -> None:
    world = started()
    lose(world, "a-storage-0")
    desired = world.desired()
    status = pool_status(desired, world.observed(), desired.pools[0], NOW)
    assert [(each.pod, each.since) for each in status.lost_volumes] == [("a-storage-0", NOW)]
    pool = desired.pools[0].model_copy(update={"status": status})
    again = replace(desired, pools=(pool, *desired.pools[1:]))
    assert pool_status(again, world.observed(), pool, LATER).lost_volumes == status.lost_volumes
    world.request("a-storage-0")
    finish(world)
    healed = world.desired()
    before = healed.pools[0].model_copy(update={"status": status})
    with_old_status = replace(healed, pools=(before, *healed.pools[1:]))
    assert pool_status(with_old_status, world.observed(), before, LATER).lost_volumes == ()


def test_comparison_continues_where_it_ended() -> None:
    world = started()
    begun = Replacement("a-storage-0", ("gone",), Phase.COMPARE, 2, 500)
    world.pools["a"]["metadata"]["annotations"] = {REPLACEMENT_ANNOTATION: begun.to_json()}
    found = [each for each in step(world).steps if isinstance(each, CompareReplica)]
    assert found[0] == CompareReplica("a", world.address("a-storage-0"), begun)


def test_comparison_continues_at_the_beginning_after_a_partition_that_is_unassigned() -> None:
    world = started()
    storage = world.address("a-storage-0")
    first, *_ = sorted(world.replicas().assigned(storage))
    begun = Replacement("a-storage-0", ("gone",), Phase.COMPARE, first - 1, 500)
    world.pools["a"]["metadata"]["annotations"] = {REPLACEMENT_ANNOTATION: begun.to_json()}
    found = [each for each in step(world).steps if isinstance(each, CompareReplica)]
    assert found[0] == CompareReplica("a", storage, replace(begun, partition=first, next_id=0))


@pytest.mark.parametrize("labels", [{}, {"waltz.dev/cluster": "another"}])
def test_requested_replacement_of_a_claim_without_the_labels_waits_until_it_is_labelled(
    labels: dict[str, str],
) -> None:
    """Otherwise the old volume would be emptied in place and reported as a new one."""
    world = started()
    key = ObjectKey("PersistentVolumeClaim", "data-a-storage-0")
    metadata, before = (
        world.objects[key]["metadata"],
        dict(world.disks[world.address("a-storage-0")]),
    )
    metadata["labels"] = labels
    world.request("a-storage-0")
    for _ in range(3):
        decided = step(world)
        assert decided.steps == ()
    assert world.disks[world.address("a-storage-0")] == before
    (reason,) = (each for each in decided.waits if "is not replaced yet" in each)
    prefix, _, command = reason.partition("run: ")
    assert f"{key} lacks labels of this cluster" in prefix
    start = f"kubectl label persistentvolumeclaim {key.name} --namespace logs --overwrite "
    assert command.startswith(start)
    added = command.removeprefix(start).split()
    metadata["labels"] = {**labels, **dict(each.split("=") for each in added)}
    steps = steps_of(finish(world))
    assert DeleteObject(key, metadata["uid"]) in steps
    assert world.emptied == ["a-storage-0"]
    assert not any(isinstance(each, EmptyVolume) for each in steps)


def test_requested_replacement_waits_while_a_running_pod_has_no_claim() -> None:
    world = started()
    del world.objects[ObjectKey("PersistentVolumeClaim", "data-a-storage-0")]
    world.request("a-storage-0")
    decided = settled_plan(world)
    assert decided.steps == ()
    assert any(
        "data-a-storage-0 does not exist, but pod a-storage-0 does" in each
        for each in decided.waits
    )
    world.stop_pod("a-storage-0")
    begin = RecordReplacement("a", Replacement("a-storage-0"))
    assert begin in plan(world.desired(), world.observed()).steps


def test_storage_that_has_started_empty_is_filled_although_its_claim_has_no_labels() -> None:
    world = started()
    claim = world.objects[ObjectKey("PersistentVolumeClaim", "data-a-storage-0")]
    claim["metadata"]["labels"] = {}
    world.lose_volume("a-storage-0")
    world.settle()
    world.request("a-storage-0")
    steps = steps_of(finish(world))
    assert RecordReplacement("a", Replacement("a-storage-0")) in steps
    assert not any(isinstance(each, DeleteObject) for each in steps)
