"""Test the recovery of several replicas by one command: one that fails does not stop the others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from waltz.admin import Order, RecordRepair, ReplicaRecovery
from waltz.cli.cluster_options import Target
from waltz.cli.running import Failed
from waltz.cli.storage import replicas
from waltz.cli.storage.orders import RecoveryResult, Steps, recover_each
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


@pytest.mark.parametrize("fails", [False, True])
async def test_replica_is_rebuilt_after_its_repair_even_if_the_repair_fails(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    performed: list[tuple[Order, float]] = []

    async def perform(_: Target, order: Order, *, max_stall: float, **__: Any) -> Steps:
        performed.append((order, max_stall))
        if fails and isinstance(order, RecordRepair):
            raise Failed("no healthy replica to repair from")
        return (type(order).__name__,)

    monkeypatch.setattr(replicas, "perform", perform)
    recovering = replicas._recover(
        cast(Target, None), 3, "a:1", "b:1", max_stall=300.0, dry_run=False
    )
    if fails:
        with pytest.raises(Failed, match="no healthy replica to repair from"):
            await recovering
    else:
        assert await recovering == ("RecordRepair", "ReplicaRecovery")
    assert performed == [
        (RecordRepair(3, "a:1", "b:1"), 10.0),
        (ReplicaRecovery(3, "a:1", "b:1"), 300.0),
    ]


async def test_recovery_whose_repair_and_rebuilding_fail_reports_both_reasons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def perform(_: Target, order: Order, **__: Any) -> Steps:
        raise Failed("no copy" if isinstance(order, RecordRepair) else "no quorum")

    monkeypatch.setattr(replicas, "perform", perform)
    both = r"^no quorum; the damaged records of the replica are not repaired: no copy$"
    with pytest.raises(Failed, match=both):
        await replicas._recover(cast(Target, None), 3, "a:1", None, max_stall=300.0, dry_run=False)
