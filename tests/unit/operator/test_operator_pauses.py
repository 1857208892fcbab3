"""When a cluster is reconciled again, and what persistent errors of the API server do."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.operator_faults import Faults, FaultyKube, RecordedEvents
from tests.support.operator_world import NAMESPACE
from tests.unit.operator.test_operator_reconcile import Operation
from waltz.admin.core.steps import CopyReplica
from waltz_operator.core import planning
from waltz_operator.core.steps import ClusterPlan, CompareReplica
from waltz_operator.core.volume_replacement import Phase, Replacement
from waltz_operator.shell.controller import PersistentApiError, ReconcileResult
from waltz_operator.shell.executor import Executor, StepFailed
from waltz_operator.shell.kube_api import KubeError, Refused
from waltz_operator.shell.reconciler import (
    BUSY_REQUEUE_SECONDS,
    IDLE_REQUEUE_SECONDS,
    Reconciler,
)

_BEGUN = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)
_COPY = CopyReplica("a:6000", "b:6000", 0)
_COMPARISON = CompareReplica("a", "a:6000", Replacement("a-storage-0", ("1",), Phase.COMPARE))


class FailingKube(FaultyKube):
    """An API server that refuses to list or to return a kind, or to write statuses."""

    refused: str | None = None
    refuses_statuses = False

    async def get(self, kind: str, namespace: str, name: str) -> Any:
        if kind == self.refused:
            raise KubeError(f"GET {kind}: no answer in time")
        return await super().get(kind, namespace, name)

    async def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Any]:
        if kind == self.refused:
            raise Refused(f"GET {kind}: 403 forbidden", "forbidden")
        return await super().find(kind, namespace, labels)

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        if part and self.refuses_statuses:
            raise Refused(f"PATCH {kind}: 403 forbidden", "forbidden")
        await super().patch(kind, namespace, name, change, part=part)


class Scene:
    """A cluster that needs nothing, and one operator with a clock."""

    def __init__(self) -> None:
        self.operation = Operation(Faults())
        self.world = self.operation.world
        self.kube = FailingKube(self.world, Faults())
        self.events = RecordedEvents()
        self.seconds = 0.0
        self.reconciler = Reconciler(
            self.kube,
            self.operation.environment,
            self.events,
            operator_namespace="waltz-system",
            clock=lambda: _BEGUN + datetime.timedelta(seconds=self.seconds),
        )

    async def reconcile(self) -> ReconcileResult:
        result = await self.reconciler.reconcile(NAMESPACE, "log")
        assert result is not None
        return result


async def begin() -> Scene:
    scene = Scene()
    await scene.operation.until_done()
    assert (await scene.reconcile()).requeue_seconds == IDLE_REQUEUE_SECONDS
    scene.events.done.clear()
    return scene


@pytest.mark.parametrize("step", [_COPY, _COMPARISON])
async def test_copy_that_has_succeeded_is_followed_by_the_next_reconcile_without_a_pause(
    step: CopyReplica | CompareReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part has the same plan as the one before, so the pauses would grow to 15 s."""
    scene, fails = await begin(), False

    async def perform(_: Executor, __: object) -> None:
        if fails:
            raise StepFailed("storage a:6000 does not answer")

    monkeypatch.setattr(planning, "plan", lambda *_: ClusterPlan((step,)))
    monkeypatch.setattr(Executor, "perform", perform)
    for _ in range(3):
        result = await scene.reconcile()
        assert (result.requeue_seconds, result.state) == (0.0, None)
    fails = True
    await scene.reconcile()
    results = [await scene.reconcile() for _ in range(2)]
    assert results[0].requeue_seconds == BUSY_REQUEUE_SECONDS
    assert results[0].state == results[1].state is not None, "the pauses grow"


async def test_written_status_is_followed_by_a_reconcile_although_its_event_is_ignored() -> None:
    scene = await begin()
    assert scene.world.cluster is not None
    del scene.world.cluster["status"]["partitions"]
    result = await scene.reconcile()
    assert (result.requeue_seconds, result.state) == (BUSY_REQUEUE_SECONDS, None)
    result = await scene.reconcile()
    assert result.requeue_seconds == IDLE_REQUEUE_SECONDS
    assert result.state is not None


async def test_status_that_cannot_be_written_lets_the_pauses_grow() -> None:
    scene = await begin()
    assert scene.world.cluster is not None
    del scene.world.cluster["status"]["partitions"]
    scene.kube.refuses_statuses = True
    results = [await scene.reconcile() for _ in range(2)]
    assert results[0].state == results[1].state is not None


async def test_paused_cluster_whose_status_becomes_the_old_one_again_shows_it() -> None:
    scene = await begin()
    world = scene.world
    assert world.cluster is not None
    world.cluster["spec"]["paused"] = True
    for _ in range(3):
        await scene.reconcile()
    assert world.cluster["status"]["partitions"] == "3/3"
    stopped, world.disks = dict(world.disks), {}
    assert await scene.reconciler.check(NAMESPACE, "log") is None
    await scene.reconcile()
    assert world.cluster["status"]["partitions"] == "0/3"
    world.disks = stopped
    assert await scene.reconciler.check(NAMESPACE, "log") is None, "a reconcile is needed"
    await scene.reconcile()
    assert world.cluster["status"]["partitions"] == "3/3"


async def test_errors_of_the_api_server_that_persist_become_a_condition_and_an_event() -> None:
    scene = await begin()
    operation = scene.operation
    scene.kube.refused = "NetworkPolicy"
    for seconds in (0.0, 3.0, 14.0):
        scene.seconds = seconds
        with pytest.raises(Refused):
            await scene.reconcile()
    assert scene.events.failures == [], "a short outage has no event"
    assert operation.condition("Ready")["status"] == "True"
    scene.seconds = 15.0
    with pytest.raises(PersistentApiError, match="403 forbidden"):
        await scene.reconcile()
    reconciled = operation.condition("Reconciled")
    assert (reconciled["status"], reconciled["reason"]) == ("False", "ApiServerError")
    assert "GET NetworkPolicy: 403 forbidden" in str(reconciled["message"])
    assert operation.condition("Ready")["status"] == "Unknown"
    assert len(scene.events.failures) == 1
    assert scene.events.failures[0].startswith("ApiServerError: ")
    scene.kube.refused = None
    await scene.reconcile()
    assert operation.condition("Ready")["status"] == "True"
    scene.kube.refused = "NetworkPolicy"
    scene.seconds = 1000.0
    with pytest.raises(Refused):
        await scene.reconcile()
    assert len(scene.events.failures) == 1, "the errors before the success do not count"


async def test_resource_that_cannot_be_read_for_a_while_has_an_unknown_state() -> None:
    scene = await begin()
    scene.kube.refused = "WaltzCluster"
    for seconds in (100.0, 114.0):
        scene.seconds = seconds
        with pytest.raises(KubeError) as raised:
            await scene.reconcile()
        assert not isinstance(raised.value, PersistentApiError)
    scene.seconds = 115.0
    with pytest.raises(PersistentApiError):
        await scene.reconcile()
    assert scene.events.failures == []


async def test_clock_that_is_set_back_delays_the_report_of_errors_only_once() -> None:
    scene = await begin()
    scene.kube.refused = "Pod"
    for seconds in (100.0, -50.0, -36.0):
        scene.seconds = seconds
        with pytest.raises(Refused):
            await scene.reconcile()
    scene.seconds = -35.0
    with pytest.raises(PersistentApiError):
        await scene.reconcile()
