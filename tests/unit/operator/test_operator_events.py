"""What the operator's events say, and which failures are not posted again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import NAMESPACE, UID, World, cluster_resource
from waltz.admin.core.steps import ChangeAssignment, SwitchOn
from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import AddFinalizer
from waltz_operator.shell.event_recorder import MAX_QUEUED_EVENTS, KubeEventRecorder
from waltz_operator.shell.kube_api import KubeError

CLUSTER = WaltzCluster.model_validate(cluster_resource())


async def posted(recorder: KubeEventRecorder, world: World, count: int) -> list[dict[str, Any]]:
    posting = recorder.start()
    await eventually(lambda: len(world.objects) == count)
    posting.cancel()
    await asyncio.gather(posting, return_exceptions=True)
    return list(world.objects.values())


def new() -> tuple[World, KubeEventRecorder]:
    world = World(cluster_resource(), [])
    return world, KubeEventRecorder(FaultyKube(world, Faults()))


async def test_event_names_the_cluster_and_is_a_warning_only_for_failures() -> None:
    world, recorder = new()
    recorder.record_steps(CLUSTER, [AddFinalizer()])
    recorder.record_failed_reconcile(CLUSTER.metadata, "InvalidSpec", "no pools")
    done, failed = await posted(recorder, world, 2)
    for event in (done, failed):
        assert event["metadata"]["namespace"] == NAMESPACE
        involved = event["involvedObject"]
        assert (involved["kind"], involved["name"], involved["uid"]) == ("WaltzCluster", "log", UID)
        assert involved["namespace"] == NAMESPACE
    assert (done["type"], done["reason"]) == ("Normal", "AddFinalizer")
    assert (failed["type"], failed["reason"]) == ("Warning", "InvalidSpec")
    assert failed["message"] == "no pools"
    assert recorder.failed_steps == 0, "no step has failed"


async def test_failure_is_posted_again_after_another_one_and_after_a_step() -> None:
    world, recorder = new()
    recorder.record_failed_step(CLUSTER, "a")
    recorder.record_failed_step(CLUSTER, "a")
    recorder.record_failed_reconcile(CLUSTER.metadata, "KubeError", "b")
    recorder.record_failed_reconcile(CLUSTER.metadata, "KubeError", "b")
    recorder.record_failed_step(CLUSTER, "a")
    recorder.record_steps(CLUSTER, [AddFinalizer()])
    recorder.record_failed_step(CLUSTER, "a")
    events = await posted(recorder, world, 5)
    assert [event["message"] for event in events] == ["a", "b", "a", "finalizer added", "a"]


async def test_long_message_is_cut() -> None:
    world, recorder = new()
    recorder.record_failed_step(CLUSTER, "x" * 5000)
    (event,) = await posted(recorder, world, 1)
    assert event["message"] == "x" * 1000


async def test_event_that_cannot_be_posted_is_dropped_and_the_next_one_is_posted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, recorder = new()
    before = FaultyKube.create
    failures = [KubeError("no answer")]

    async def create(self: FaultyKube, body: dict[str, Any]) -> None:
        if failures:
            raise failures.pop()
        await before(self, body)

    monkeypatch.setattr(FaultyKube, "create", create)
    recorder.record_failed_step(CLUSTER, "first")
    recorder.record_failed_step(CLUSTER, "second")
    (event,) = await posted(recorder, world, 1)
    assert event["message"] == "second"
    assert "cluster logs/log: failed to post" in caplog.text


async def test_change_of_shape_posts_one_event_for_each_kind_of_step() -> None:
    world, recorder = new()
    added = ShapeChange(ShapeChangeKind.ADDING_POOL, "d", "pool d: partition 1 of 64", 4)
    for partition in range(64):
        progress = replace(added, progress=f"pool d: partition {partition + 1} of 64")
        recorder.record_steps(CLUSTER, [SwitchOn("d:1", (partition,))], progress)
        recorder.record_steps(CLUSTER, [ChangeAssignment(())], progress)
    removed = ShapeChange(ShapeChangeKind.REMOVING_POOL, "c", "pool c: partition 1 of 64", 3)
    recorder.record_steps(CLUSTER, [ChangeAssignment(())], removed)
    events = await posted(recorder, world, 3)
    reasons = [event["reason"] for event in events]
    assert reasons == ["SwitchOn", "ChangeAssignment", "ChangeAssignment"]
    assert recorder.steps == 129


async def test_event_dropped_at_a_full_queue_is_posted_when_it_occurs_again() -> None:
    world, recorder = new()
    change = ShapeChange(ShapeChangeKind.ADDING_POOL, "d", "pool d: partition 1 of 64", 4)
    for number in range(MAX_QUEUED_EVENTS):
        recorder.record_failed_step(CLUSTER, f"failure {number}")
    # The queue is full now: these two events are dropped.
    recorder.record_steps(CLUSTER, [ChangeAssignment(())], change)
    recorder.record_failed_step(CLUSTER, "last")
    await posted(recorder, world, MAX_QUEUED_EVENTS)
    for _ in range(2):
        recorder.record_failed_step(CLUSTER, "last")
    for _ in range(2):
        recorder.record_steps(CLUSTER, [ChangeAssignment(())], change)
    events = await posted(recorder, world, MAX_QUEUED_EVENTS + 2)
    reasons = [event["reason"] for event in events[MAX_QUEUED_EVENTS:]]
    assert reasons == ["StepFailed", "ChangeAssignment"]
