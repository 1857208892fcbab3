"""When clusters are reconciled: no event is lost, errors are retried with growing delays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz_operator.shell import controller as controller_module
from waltz_operator.shell.controller import (
    SHORTEST_PERIOD_SECONDS,
    Controller,
    PersistentApiError,
    ReconcileResult,
)
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


@on_virtual_time
async def test_event_during_a_reconcile_causes_another_one() -> None:
    reconciles = Reconciles()
    controller = Controller(reconciles)
    reconciles.proceed = asyncio.Event()
    controller.enqueue("logs", "a")
    await eventually(lambda: reconciles.begun)
    controller.enqueue("logs", "a")
    reconciles.proceed.set()
    await asyncio.sleep(2)
    assert reconciles.begun == ["logs/a"] * 2
    await asyncio.sleep(2)
    assert reconciles.begun == ["logs/a"] * 2, "without an event there is no further reconcile"
    await controller.close()


@on_virtual_time
async def test_event_after_a_quiet_time_causes_a_reconcile_at_once() -> None:
    reconciles = Reconciles()
    controller = Controller(reconciles)
    for count in range(1, 4):
        controller.enqueue("logs", "a")
        await turns()
        assert len(reconciles.begun) == count
        await asyncio.sleep(SHORTEST_PERIOD_SECONDS)
    assert controller.ready == {("logs", "a"): True}
    await controller.close()


@pytest.mark.parametrize("seconds", [0.0, 0.4, 3.0])
def test_events_by_the_writes_of_each_reconcile_cause_at_most_one_per_second(
    seconds: float,
) -> None:
    @on_virtual_time
    async def act() -> None:
        clock, begun = asyncio.get_running_loop().time, list[float]()

        async def reconcile(namespace: str, name: str) -> ReconcileResult:
            begun.append(clock())
            await asyncio.sleep(seconds)
            asyncio.get_running_loop().call_later(0.05, made.enqueue, namespace, name)
            return ReconcileResult(NEVER, ready=False)

        made = Controller(reconcile)
        made.enqueue("logs", "a")
        await asyncio.sleep(20.5)
        await made.close()
        periods = [after - before for before, after in pairwise(begun)]
        expected = max(SHORTEST_PERIOD_SECONDS, seconds + 0.05)
        assert periods == pytest.approx([expected] * len(periods))
        assert len(periods) == int(20.5 / expected)

    act()


@on_virtual_time
async def test_result_without_a_pause_is_followed_by_a_reconcile_after_the_shortest_period() -> (
    None
):
    clock, begun = asyncio.get_running_loop().time, list[float]()

    async def reconcile(_namespace: str, _name: str) -> ReconcileResult:
        begun.append(clock())
        await asyncio.sleep(0.1 if len(begun) < 3 else 10)  # Copies of replicas take this long.
        return ReconcileResult(0.0, ready=True)

    controller = Controller(reconcile)
    controller.enqueue("logs", "a")
    await asyncio.sleep(25)
    await controller.close()
    assert begun == pytest.approx([begun[0] + each for each in (0, 1, 2, 12, 22)])


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
    monkeypatch.setattr(controller_module, "SHORTEST_PERIOD_SECONDS", 0.0)
    reconciles.result = KubeError("no answer")
    controller.enqueue("logs", "a")
    await eventually(lambda: len(pauses) == 5)
    first = controller_module._BACKOFF.first_seconds
    assert pauses == [first, 2 * first, 4 * first, 7.0, first]
    assert controller.metrics.failures == 4
    assert controller.metrics.reconciles == 5


@on_virtual_time
async def test_unexpected_exception_of_one_cluster_is_retried_and_stops_no_other_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reconciles = Reconciles()
    controller = Controller(reconciles)
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
    await asyncio.sleep(2)
    assert controller.ready == {("logs", "good"): True, ("logs", "bad"): True}
    await controller.close()


@on_virtual_time
async def test_short_errors_of_the_api_server_keep_the_readiness_and_persistent_ones_do_not() -> (
    None
):
    reconciles = Reconciles()
    reconciles.result = ReconcileResult(1.0, ready=True)
    controller = Controller(reconciles)
    controller.enqueue("logs", "a")
    await turns()
    reconciles.result = KubeError("no answer")
    await asyncio.sleep(3)
    assert controller.metrics.failures > 0
    assert controller.ready == {("logs", "a"): True}
    reconciles.result = PersistentApiError("still no answer")
    await asyncio.sleep(10)
    assert controller.ready == {("logs", "a"): False}
    reconciles.result = ReconcileResult(NEVER, ready=True)
    await asyncio.sleep(30)
    assert controller.ready == {("logs", "a"): True}
    await controller.close()


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
