"""When clusters are reconciled: no event is lost, errors are retried with growing delays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz_operator.shell import controller as controller_module
from waltz_operator.shell.controller import Controller, ReconcileResult
from waltz_operator.shell.kube_api import KubeError

NEVER = 10_000.0


class Reconciles:
    """Records the reconciles of all clusters; ``during`` is called in each one."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.running = 0
        self.result: ReconcileResult | Exception | None = ReconcileResult(NEVER, ready=True)
        self.during: Callable[[str], None] = lambda _: None
        self.proceed: asyncio.Event | None = None

    async def __call__(self, namespace: str, name: str) -> ReconcileResult | None:
        self.begun.append(f"{namespace}/{name}")
        self.running += 1
        assert self.running == 1, "reconciles of one cluster overlap"
        if self.proceed is not None:
            await self.proceed.wait()
        self.during(name)
        self.running -= 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def reconciles() -> Reconciles:
    return Reconciles()


@pytest.fixture
async def controller(reconciles: Reconciles) -> AsyncIterator[Controller]:
    controller = Controller(reconciles)
    yield controller
    await controller.close()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_event_during_a_reconcile_causes_another_one(
    controller: Controller, reconciles: Reconciles
) -> None:
    reconciles.proceed = asyncio.Event()
    controller.enqueue("logs", "a")
    await eventually(lambda: reconciles.begun)
    controller.enqueue("logs", "a")
    reconciles.proceed.set()
    await turns()
    assert reconciles.begun == ["logs/a"] * 2
    await turns()
    assert reconciles.begun == ["logs/a"] * 2, "without an event there is no further reconcile"


async def test_event_between_two_reconciles_ends_the_pause(
    controller: Controller, reconciles: Reconciles
) -> None:
    controller.enqueue("logs", "a")
    await turns()
    assert len(reconciles.begun) == 1
    controller.enqueue("logs", "a")
    await turns()
    assert len(reconciles.begun) == 2
    assert controller.ready == {("logs", "a"): True}


async def test_pauses_after_errors_grow_and_a_success_resets_them(
    controller: Controller, reconciles: Reconciles, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(_: object, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            reconciles.result = ReconcileResult(7.0, ready=False)
        elif len(pauses) == 4:
            reconciles.result = KubeError("gone again")
        elif len(pauses) == 5:
            await asyncio.Event().wait()

    monkeypatch.setattr(Controller, "_wait", staticmethod(pause))
    reconciles.result = KubeError("no answer")
    controller.enqueue("logs", "a")
    await eventually(lambda: len(pauses) == 5)
    first = controller_module._BACKOFF.first_seconds
    assert pauses == [first, 2 * first, 4 * first, 7.0, first]
    assert controller.metrics.failures == 4
    assert controller.metrics.reconciles == 5


async def test_unexpected_exception_of_one_cluster_is_retried_and_stops_no_other_cluster(
    controller: Controller, reconciles: Reconciles, caplog: pytest.LogCaptureFixture
) -> None:
    reconciles.result = ValueError("unexpected")
    controller.enqueue("logs", "bad")
    await turns()
    reconciles.result = ReconcileResult(NEVER, ready=True)
    controller.enqueue("logs", "good")
    await turns()
    assert controller.ready == {("logs", "bad"): False, ("logs", "good"): True}
    assert controller.metrics.failures == 1
    assert "cluster logs/bad: reconcile failed unexpectedly, retrying in 1 s" in caplog.text
    assert "Traceback" in caplog.text
    controller.enqueue("logs", "bad")
    await turns()
    assert controller.ready == {("logs", "good"): True, ("logs", "bad"): True}


@on_virtual_time
async def test_check_replaces_a_reconcile_unless_there_was_an_event() -> None:
    calls: list[str] = []
    check_suffices = True

    async def reconcile(_namespace: str, _name: str) -> ReconcileResult:
        calls.append("reconcile")
        return ReconcileResult(0.01, ready=True)

    async def check(_namespace: str, _name: str) -> ReconcileResult | None:
        calls.append("check")
        if not check_suffices:
            return None
        return ReconcileResult(0.01 if len(calls) < 3 else NEVER, ready=True)

    controller = Controller(reconcile, check)
    controller.enqueue("logs", "a")
    await eventually(lambda: len(calls) == 3)
    assert calls == ["reconcile", "check", "check"]
    controller.enqueue("logs", "a")
    await eventually(lambda: len(calls) == 4)
    assert calls[3:] == ["reconcile"], "an event needs a reconcile"
    check_suffices = False
    await eventually(lambda: len(calls) >= 6)
    assert calls[4:6] == ["check", "reconcile"]
    await controller.close()


@on_virtual_time
async def test_pauses_grow_while_the_state_is_unchanged_and_a_change_resets_them() -> None:
    clock, begun = asyncio.get_running_loop().time, [0.0]

    async def reconcile(_namespace: str, _name: str) -> ReconcileResult:
        begun.append(clock())
        state = 0 if len(begun) < 9 else 1  # It changes in the eighth reconcile.
        return ReconcileResult(1.0, ready=False, state=state)

    controller = Controller(reconcile)
    controller.enqueue("logs", "a")
    await asyncio.sleep(80)
    await controller.close()
    pauses = [round(after - before) for before, after in pairwise(begun[1:])]
    assert pauses[:9] == [1, 2, 4, 8, 15, 15, 15, 1, 2]


@on_virtual_time
async def test_pause_does_not_grow_without_a_state() -> None:
    begun: list[float] = []

    async def reconcile(_namespace: str, _name: str) -> ReconcileResult:
        begun.append(asyncio.get_running_loop().time())
        return ReconcileResult(1.0, ready=False)

    controller = Controller(reconcile)
    controller.enqueue("logs", "a")
    await asyncio.sleep(4.5)
    await controller.close()
    assert len(begun) == 5


async def test_event_during_the_last_reconcile_of_a_cluster_causes_another_one(
    controller: Controller, reconciles: Reconciles
) -> None:
    """The event may be the creation of a new cluster with the same name."""

    def create_again(name: str) -> None:
        controller.enqueue("logs", name)
        reconciles.during = lambda _: None

    reconciles.result = None
    reconciles.during = create_again
    controller.enqueue("logs", "a")
    await turns()
    assert reconciles.begun == ["logs/a"] * 2
    assert controller.num_clusters == 0


async def test_cluster_that_no_longer_exists_is_forgotten(
    controller: Controller, reconciles: Reconciles
) -> None:
    reconciles.result = None
    controller.enqueue("logs", "a")
    await turns()
    assert controller.num_clusters == 0
    controller.enqueue("logs", "a")
    await turns()
    assert reconciles.begun == ["logs/a"] * 2
