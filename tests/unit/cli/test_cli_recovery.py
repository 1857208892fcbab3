"""Test the recovery of several replicas by one command: one that fails does not stop the others."""

from __future__ import annotations

import re
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from waltz.admin import Order, RecordRepair, ReplicaRecovery
from waltz.cli.cluster_options import Target
from waltz.cli.running import Failed
from waltz.cli.storage import replicas
from waltz.cli.storage.orders import OrderFailed, RecoveryResult, Steps, recover_each
from waltz.metadata.core.codec import MalformedMetadata


@pytest.mark.parametrize(
    "problem",
    [Failed("no healthy replica to copy from"), MalformedMetadata("partition metadata", "no data")],
)
async def test_partition_that_fails_does_not_stop_recovery_of_others(problem: Exception) -> None:
    tried = []

    async def recover(partition: int) -> Steps:
        tried.append(partition)
        if partition == 1:
            raise problem
        return (f"fill {partition}",)

    recovered = await recover_each((0, 1, 2), recover)
    assert recovered == RecoveryResult(("fill 0", "fill 2"), {1: str(problem)})
    assert tried == [0, 1, 2]


async def test_steps_of_failed_recovery_are_in_the_result() -> None:
    async def recover(partition: int) -> Steps:
        raise OrderFailed("no progress", (f"copy {partition}",))

    recovered = await recover_each((0, 1), recover)
    expected = RecoveryResult(("copy 0", "copy 1"), {0: "no progress", 1: "no progress"})
    assert recovered == expected


class Performed:
    """Takes the place of `perform`: each order has one step; those of ``failing`` then fail."""

    def __init__(self, *failing: type[Order], problem: Exception | None = None) -> None:
        self.orders: list[tuple[Order, float]] = []
        self._failing = failing
        self._problem = problem

    async def __call__(self, _: Target, order: Order, *, max_stall: float, **__: Any) -> Steps:
        self.orders.append((order, max_stall))
        name = type(order).__name__
        if isinstance(order, self._failing):
            raise self._problem or OrderFailed(f"{name} failed", (name,))
        return (name,)


def recovering(monkeypatch: pytest.MonkeyPatch, performed: Performed) -> Coroutine[Any, Any, Steps]:
    monkeypatch.setattr(replicas, "perform", performed)
    return replicas._recover(cast(Target, None), 3, "a:1", "b:1", max_stall=300.0, dry_run=False)


@pytest.mark.parametrize("failing", [(), (RecordRepair,)])
async def test_replica_is_rebuilt_after_its_repair_even_if_the_repair_fails(
    monkeypatch: pytest.MonkeyPatch, failing: tuple[type[Order], ...]
) -> None:
    performed = Performed(*failing)
    steps = ("RecordRepair", "ReplicaRecovery")
    if failing:
        not_repaired = r"^the damaged records are not repaired: RecordRepair failed$"
        with pytest.raises(OrderFailed, match=not_repaired) as raised:
            await recovering(monkeypatch, performed)
        assert raised.value.steps == steps
    else:
        assert await recovering(monkeypatch, performed) == steps
    assert performed.orders == [
        (RecordRepair(3, "a:1", "b:1"), 10.0),
        (ReplicaRecovery(3, "a:1", "b:1"), 300.0),
    ]


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        (None, ("RecordRepair", "ReplicaRecovery")),
        (Failed("no healthy replica"), ("RecordRepair",)),
        (MalformedMetadata("partition metadata", "no data"), ("RecordRepair",)),
    ],
)
async def test_steps_of_repair_are_kept_if_the_rebuilding_fails(
    monkeypatch: pytest.MonkeyPatch, problem: Exception | None, steps: Steps
) -> None:
    reason = "ReplicaRecovery failed" if problem is None else str(problem)
    with pytest.raises(OrderFailed, match=f"^{re.escape(reason)}$") as raised:
        await recovering(monkeypatch, Performed(ReplicaRecovery, problem=problem))
    assert raised.value.steps == steps


async def test_recovery_whose_repair_and_rebuilding_fail_reports_both_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = (
        r"^ReplicaRecovery failed; the damaged records are not repaired: "
        r"RecordRepair failed$"
    )
    with pytest.raises(OrderFailed, match=both) as raised:
        await recovering(monkeypatch, Performed(RecordRepair, ReplicaRecovery))
    assert raised.value.steps == ("RecordRepair", "ReplicaRecovery")
