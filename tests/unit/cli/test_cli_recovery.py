"""Test the recovery of several replicas by one command: one that fails does not stop the others."""

from __future__ import annotations

from waltz.cli.running import Failed
from waltz.cli.storage.orders import RecoveryResult, recover_each


async def test_partition_that_fails_does_not_stop_recovery_of_others() -> None:
    tried = []

    async def recover(partition: int) -> int:
        tried.append(partition)
        if partition == 1:
            raise Failed("no healthy replica to copy from")
        return 3

    recovered = await recover_each((0, 1, 2), recover)
    assert recovered == RecoveryResult(6, {1: "no healthy replica to copy from"})
    assert tried == [0, 1, 2]
