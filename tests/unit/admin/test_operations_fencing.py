"""Test that a storage that cannot be fenced is named."""

from __future__ import annotations

import uuid

import pytest

from waltz.admin import FencingFailed, PartitionRescue, RebuildDecision, Verdict, fence_replicas
from waltz.admin.core.replicas import HeldPartition
from waltz.admin.core.rescue import ReplicaReport
from waltz.metadata.core.formats import PartitionMetadata, StoreParams
from waltz.net import TlsConfig


async def test_storage_that_cannot_be_fenced_is_named() -> None:
    held = HeldPartition(
        partition=0,
        session_id=1,
        low_water_mark=5,
        local_low_water_mark=5,
        max_transaction_id=9,
        size_bytes=None,
        readable=True,
        writable=True,
    )
    # The storage cannot be dialed, because its address has no port.
    reports = (ReplicaReport("address-without-port", held),)
    decision = RebuildDecision(Verdict.REBUILT, PartitionMetadata(1, 1001, {}), "")
    plans = [PartitionRescue(0, reports, decision)]
    with pytest.raises(FencingFailed, match=r"^storage address-without-port: "):
        await fence_replicas(
            plans, TlsConfig(), StoreParams(uuid.UUID(int=1), 1), timeout_seconds=10.0
        )
