"""Test how storages are fenced before a rescue, and that one that cannot be fenced is named."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.virtual_time import on_virtual_time
from waltz.admin import FencingFailed, PartitionRescue, RebuildDecision, Verdict, fence_replicas
from waltz.admin.core.replicas import HeldPartition
from waltz.admin.core.rescue import ReplicaReport
from waltz.metadata.core.formats import PartitionMetadata, StoreParams
from waltz.net import RpcConnection, TlsConfig

CLUSTER = StoreParams(uuid.UUID(int=1), 1)


def plan(partition: int, storage: str) -> PartitionRescue:
    """Return the rescue of a partition that only ``storage`` holds."""
    held = HeldPartition(
        partition=partition,
        session_id=1,
        low_water_mark=5,
        local_low_water_mark=5,
        max_transaction_id=9,
        size_bytes=None,
        readable=True,
        writable=True,
    )
    decision = RebuildDecision(Verdict.REBUILT, PartitionMetadata(1, 1001, {}), "")
    return PartitionRescue(partition, (ReplicaReport(storage, held),), decision)


async def test_storage_that_cannot_be_fenced_is_named() -> None:
    # The storage cannot be dialed, because its address has no port.
    plans = [plan(0, "address-without-port")]
    with pytest.raises(FencingFailed, match=r"^storage address-without-port: "):
        await fence_replicas(plans, TlsConfig(), CLUSTER, timeout_seconds=10.0)


class SlowStorage:
    """A connection to a storage that takes ``seconds`` for each answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.fenced: list[int] = []
        self.closed = False

    async def call(self, request: Callable[[int], Any], expected: type[Any]) -> None:
        await asyncio.sleep(self._seconds)
        self.fenced.append(request(1).partition)

    def close(self) -> None:
        self.closed = True


def use(storage: SlowStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every connection to a storage be one to ``storage``."""

    async def open_storage(*_: Any, **__: Any) -> SlowStorage:
        return storage

    monkeypatch.setattr(RpcConnection, "open_storage", open_storage)


@on_virtual_time
async def test_storage_has_the_whole_time_for_the_fence_of_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = SlowStorage(seconds=6.0)
    use(storage, monkeypatch)
    plans = [plan(partition, "a:1") for partition in range(5)]
    await fence_replicas(plans, TlsConfig(), CLUSTER, timeout_seconds=10.0)
    assert (storage.fenced, storage.closed) == ([0, 1, 2, 3, 4], True)


@on_virtual_time
async def test_storage_that_is_late_with_a_fence_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SlowStorage(seconds=11.0)
    use(storage, monkeypatch)
    with pytest.raises(FencingFailed, match=r"^storage a:1 did not answer within 10 s$"):
        await fence_replicas([plan(0, "a:1")], TlsConfig(), CLUSTER, timeout_seconds=10.0)
    assert storage.closed
