"""How a request to rebalance a pool by bytes is answered, stopped and recorded."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.support.operator_world import Znodes, cluster_resource, pool_resource
from tests.support.planned import follow_until, next_plan
from tests.support.rebalance_world import RebalanceWorld
from tests.unit.operator.test_operator_replacement_steps import Scene
from tests.unit.operator.test_operator_shape import status, storage
from tests.unit.operator.test_operator_shape_properties import finish
from waltz.admin.core.steps import ChangeAssignment, CreateReplicas
from waltz_operator.core.balance import Balancing, PlannedMove
from waltz_operator.core.event_reasons import EVENT_REASONS
from waltz_operator.core.names import REBALANCE_ANNOTATION, REBALANCED_ANNOTATION
from waltz_operator.core.pool_status import pool_status
from waltz_operator.core.preview import Ending, preview, report
from waltz_operator.core.rebalance import (
    BeginRebalance,
    EndRebalance,
    Rebalance,
    RebalanceEnd,
    volume_capacities,
)
from waltz_operator.core.shape_change import ShapeChangeKind
from waltz_operator.shell.executor import StepFailed

_MB = 1_000_000
_MOVE = PlannedMove(2, 0, 1, 20 * _MB)
_SHARES = (Fraction(1, 2),)


def running(*pools: str) -> RebalanceWorld:
    """Return a cluster whose pool a has the partitions 0 and 2 on one storage, 1 and 3 on another.

    By bytes, partition 2 has to move. By count, none has.
    """
    names = [*(pools or "abc")]
    resource = cluster_resource(
        partitions=4, pools=names, tls={"mode": "None"}, networkPolicies=False
    )
    world = RebalanceWorld(
        resource, [pool_resource(name, storages=2 if name == "a" else 1) for name in names]
    )
    finish(world)
    world.sizes |= {0: 40 * _MB, 1: _MB, 2: 20 * _MB, 3: _MB}
    assert on(world, 0) == {0, 2}
    return world


def on(world: RebalanceWorld, ordinal: int) -> set[int]:
    """Return the partitions that are assigned to a storage of the pool a."""
    assert isinstance(world.znodes, Znodes)
    return {*world.znodes.maps.assignments.partitions[storage("a", ordinal)]}


def answered(world: RebalanceWorld) -> str:
    """Return what the status of the pool a says about requests that are complete."""
    desired = world.desired()
    return pool_status(desired, world.observed(), desired.pools[0], "now").rebalanced


def begin(world: RebalanceWorld, request: str = "first") -> None:
    """Request a rebalance of the pool a, and record its moves."""
    world.request("a", request)
    for step in follow_until(world, BeginRebalance).steps:
        world.perform(step)
    world.settle()


def create_replica(world: RebalanceWorld) -> None:
    """Begin the recorded move, and stop after its first step."""
    first, *_ = follow_until(world, CreateReplicas).steps
    world.perform(first)
    assert on(world, 1) == {1, 3}, "no assignment has changed yet"


def test_request_moves_the_partition_that_balances_the_volumes_and_is_answered() -> None:
    world = running()
    world.request("a", "first")
    decided = next_plan(world)
    (step,) = decided.steps
    assert str(step) == (
        "StoragePool a: the rebalance first begins, 1 move; used shares of the volumes: "
        "0.2 % to 5.6 %, afterwards 2.0 % to 3.7 %"
    )
    assert isinstance(step, BeginRebalance)
    assert step.record == Rebalance("", "first", 2, (_MOVE,))
    assert answered(world) == ""
    finish(world)
    assert on(world, 1) == {1, 2, 3}
    assert answered(world) == "first"
    assert [each.reason for each in world.ends] == [RebalanceEnd.COMPLETE]
    assert world.record("a") == Rebalance("first", "", 2)


def test_status_of_a_rebalance_has_its_move_and_the_quorum() -> None:
    world = running()
    begin(world)
    found, conditions = status(world, next_plan(world))
    progress = "pool a: rebalance, move 1 of 1: partition 2 from a-storage-0 to a-storage-1"
    assert found.change == progress
    changing = conditions["Changing"]
    assert (changing.status, changing.reason) == ("True", "Rebalancing")
    assert changing.message == f"{progress}; of 3 copies, 2 are a quorum and 1 may fail"
    assert conditions["Ready"].status == "True"
    # The source drops its replica after the assignment has changed: still the same move.
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    world.settle()
    assert status(world, next_plan(world))[0].change == progress


def test_request_with_an_answered_value_is_not_answered_again() -> None:
    world = running()
    world.request("a", "first")
    finish(world)
    world.sizes[1] += 500 * _MB
    for value in (None, "first"):
        world.request("a", value)
        assert next_plan(world).done
    world.request("a", "second")
    assert isinstance(next_plan(world).steps[0], BeginRebalance)


def test_recorded_move_ends_at_its_destination_although_it_has_more_partitions() -> None:
    """By count, the source would keep the partition, and the move would begin again, for ever."""
    world = running()
    begin(world)
    for step in follow_until(world, ChangeAssignment).steps:
        world.perform(step)
    assert on(world, 0) == {0, 2}
    assert on(world, 1) == {1, 2, 3}
    (removal,) = follow_until(world, ChangeAssignment).steps
    assert isinstance(removal, ChangeAssignment)
    (change,) = removal.changes
    assert change.expected - change.wanted == {storage("a", 0)}


def test_request_withdrawn_before_its_move_moves_nothing() -> None:
    world = running()
    begin(world)
    world.request("a", None)
    finish(world)
    assert on(world, 0) == {0, 2}
    assert [each.reason for each in world.ends] == [RebalanceEnd.WITHDRAWN]
    assert answered(world) == ""
    world.request("a", "first")
    finish(world)
    assert on(world, 1) == {1, 2, 3}, "a request that was withdrawn is not answered yet"


def test_withdrawn_request_leaves_the_partitions_until_the_pool_is_scaled() -> None:
    world = running()
    begin(world)
    create_replica(world)
    world.request("a", None)
    finish(world)
    world.pools["a"]["spec"]["storages"] = 3
    finish(world)
    assert sorted(len(on(world, ordinal)) for ordinal in range(3)) == [1, 1, 2]
    assert str(world.ends[-1]).startswith("StoragePool a: the rebalance no longer holds, because")


def test_request_withdrawn_during_its_move_completes_it() -> None:
    world = running()
    begin(world)
    create_replica(world)
    world.request("a", None)
    finish(world)
    assert on(world, 1) == {1, 2, 3}
    assert [each.reason for each in world.ends] == [RebalanceEnd.WITHDRAWN]


def test_request_that_replaces_another_chooses_the_moves_again() -> None:
    world = running()
    begin(world)
    world.sizes |= {1: 80 * _MB}
    world.request("a", "second")
    (step,) = next_plan(world).steps
    assert isinstance(step, BeginRebalance)
    assert step.record.request == "second"
    assert step.record.moves != (_MOVE,)


def test_move_that_is_no_improvement_when_its_turn_comes_is_left_out() -> None:
    world = running()
    begin(world)
    world.sizes[1] += 500 * _MB
    finish(world)
    assert on(world, 0) == {0, 2}
    assert answered(world) == "first"


def test_move_that_has_begun_is_completed_although_sizes_have_changed() -> None:
    world = running()
    begin(world)
    create_replica(world)
    world.sizes[1] += 500 * _MB
    finish(world)
    assert on(world, 1) == {1, 2, 3}


def test_other_number_of_storages_spreads_by_count_again() -> None:
    world = running()
    world.request("a", "first")
    finish(world)
    world.pools["a"]["spec"]["storages"] = 3
    finish(world)
    assert world.ends[-1].reason is RebalanceEnd.RESCALED
    assert sorted(len(on(world, ordinal)) for ordinal in range(3)) == [1, 1, 2]
    world.pools["a"]["spec"]["storages"] = 2
    finish(world)
    assert {len(on(world, 0)), len(on(world, 1))} == {2}
    assert answered(world) == "first"


def test_other_number_of_storages_during_a_rebalance_chooses_the_moves_again() -> None:
    world = running()
    begin(world)
    world.pools["a"]["spec"]["storages"] = 3
    finish(world)
    assert world.record("a") == Rebalance("first", "", 3)
    assert max(world.shares("a")) < world.sizes[0] * 1.5 / 2**30
    assert on(world, 2)


def test_annotations_removed_after_a_rebalance_spread_by_count_again() -> None:
    world = running()
    world.request("a", "first")
    finish(world)
    world.request("a", None)
    world.annotate("a", REBALANCED_ANNOTATION, None)
    finish(world)
    assert len(on(world, 0)) == len(on(world, 1)) == 2


def test_partitions_of_a_single_pool_stay_and_the_request_is_answered() -> None:
    world = running("a")
    world.request("a", "first")
    finish(world)
    assert on(world, 0) == {0, 2}
    assert answered(world) == "first"


def test_request_waits_while_a_replica_is_unhealthy() -> None:
    world = running()
    world.request("a", "first")
    world.down.add(storage("b"))
    decided = next_plan(world)
    assert decided.change is not None
    assert decided.change.kind is ShapeChangeKind.REBALANCING
    assert any("rebalance begins waits: storage b-storage-0" in text for text in decided.waits)
    assert not any(isinstance(step, BeginRebalance) for step in decided.steps)


def test_request_waits_while_a_size_is_not_known() -> None:
    """A storage of Waltz 0.13.2 reports no sizes."""
    world = running()
    world.request("a", "first")
    before = world.observed()
    present = before.metadata
    storages = {
        name: replace(
            each, held={p: replace(held, size_bytes=None) for p, held in each.held.items()}
        )
        for name, each in world.replicas().storages.items()
    }
    replicas = replace(world.replicas(), storages=storages)
    world.observed = lambda: replace(before, metadata=replace(present, replicas=replicas))  # type: ignore
    assert next_plan(world).waits == (
        "pool a: the rebalance begins waits: no storage reports the size of partition 0; remove "
        "the annotation to do without the rebalance",
    )


def test_record_that_cannot_be_decoded_is_a_problem() -> None:
    for text in ("", "[]", "{}", '{"answered": "", "request": "", "storages": 1, "moves": [[1]]}'):
        world = running()
        world.annotate("a", REBALANCED_ANNOTATION, text)
        (problem,) = next_plan(world).problems
        assert problem.startswith("the annotation waltz.dev/rebalanced of StoragePool a cannot")
        assert answered(world) == ""


def test_record_is_decoded_as_it_was_written() -> None:
    record = Rebalance("first", "second", 2, (_MOVE, PlannedMove(7, 1, 0, 3)))
    assert Rebalance.from_json(record.to_json()) == record


def test_capacity_is_that_of_the_volume_or_else_what_the_claim_requests() -> None:
    world = running()
    world.enlarge("a", 0, "3Gi")
    world.enlarge("a", 1, "2Gi")
    for key, live in world.objects.items():
        if key.name == "data-a-storage-1":
            del live["status"]
    capacities = volume_capacities(world.desired(), world.observed())
    assert capacities[storage("a", 0)] == 3 * 2**30
    assert capacities[storage("a", 1)] == 2 * 2**30
    assert capacities[storage("b", 0)] == 2**30


def test_preview_of_a_request_has_moves_bytes_and_used_shares() -> None:
    world = running()
    world.request("a", "first")
    shown = preview(world.desired(), world.observed())
    assert shown.ending is Ending.COMPLETE
    lines = [*report(shown)]
    begins, gets = lines[1], f"   storage {storage('a', 1)} gets partition 2: up to 20.0 MB"
    assert lines[0] == "1. pool a is rebalanced by bytes"
    assert begins.startswith("   StoragePool a: the rebalance first begins, 1 move; used shares")
    assert f"{gets} are copied" in lines
    assert f"   storage {storage('a', 0)} gives up partition 2" in lines
    assert "time: about 1 minute, at 50 MB/s for copies and comparisons" in lines
    assert "time: about 11 minutes, at 0.1 MB/s for copies and comparisons" in [
        *report(shown, megabytes_per_second=0.1)
    ], "20 MB are copied once, and compared at both changes of the assignment"


@pytest.mark.parametrize(
    "step",
    [
        BeginRebalance("a", Rebalance("", "x", 2, (_MOVE,)), Balancing((_MOVE,), _SHARES, _SHARES)),
        EndRebalance("a", Rebalance("x", "", 2), "x", RebalanceEnd.COMPLETE),
    ],
)
async def test_record_step_changes_the_pool_only_in_the_version_that_was_planned(
    step: BeginRebalance | EndRebalance,
) -> None:
    scene = Scene()
    scene.annotations[REBALANCE_ANNOTATION] = "x"
    await scene.executor.perform(step)
    assert Rebalance.from_json(scene.annotations[REBALANCED_ANNOTATION]) == step.record
    assert scene.annotations[REBALANCE_ANNOTATION] == "x"
    scene.world.pools["a"]["metadata"]["resourceVersion"] = "8"
    with pytest.raises(StepFailed, match="has changed"):
        await scene.executor.perform(replace(step, record=Rebalance()))


def test_begin_and_end_of_a_rebalance_are_different_events() -> None:
    """The recorder posts one event of each reason for a change."""
    assert EVENT_REASONS[BeginRebalance] != EVENT_REASONS[EndRebalance]
