"""Test a hosted partition: timeouts of metadata operations, its turns, and its end."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast

import pytest

from tests.support.eventually import eventually
from waltz.metadata.cluster import Cluster, VersionedValue
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import NEW_PARTITION, PartitionMetadata
from waltz.metadata.store import StoreConnectionLost
from waltz.net import PLAINTEXT
from waltz_server.core.effects import (
    RangeReadTick,
    ReadMetadata,
    ScheduleTurn,
    StartTimer,
    Timer,
    WriteMetadata,
)
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.shell import hosted_partition
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.storage_links import ExpectedCluster, StorageLinks


class Metadata:
    """A cluster whose metadata operations answer, hang, or fail."""

    def __init__(self) -> None:
        self.hangs = False
        self.error: Exception | None = None
        self.calls: list[str] = []

    async def partition_metadata(self, partition: int) -> VersionedValue[PartitionMetadata]:
        await self._answer("read")
        return VersionedValue(NEW_PARTITION, 3)

    async def write_partition_metadata(
        self, partition: int, new: PartitionMetadata, version: int
    ) -> int:
        await self._answer("write")
        return version + 1

    async def _answer(self, call: str) -> None:
        self.calls.append(call)
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error


class Store:
    """Records the results that reach the core."""

    def __init__(self) -> None:
        self.results: list[tuple[Any, ...]] = []

    def metadata_read(self, operation: Any, value: PartitionMetadata, version: int) -> None:
        self.results.append(("read", value, version))

    def metadata_written(self, operation: Any, version: int) -> None:
        self.results.append(("written", version))

    def metadata_failed(self, operation: Any, reason: str) -> None:
        self.results.append(("failed", reason))


class Core(Partition):
    """A core whose store only records results, and that counts its turns and expired timers."""

    turns = 0
    expired = 0

    def turn(self) -> None:
        self.turns += 1

    def timer_expired(self, timer: Timer) -> None:
        self.expired += 1


class Scene:
    def __init__(self) -> None:
        self.metadata, self.store = Metadata(), Store()
        self.core = Core(0, PartitionSettings(), DataCache(1000))
        links = StorageLinks(PLAINTEXT, ExpectedCluster(uuid.UUID(int=1), 1))
        self.hosted = HostedPartition(self.core, cast(Cluster, self.metadata), links, {})
        self.core.store = cast(Any, self.store)

    def perform(self, effect: Any) -> None:
        self.hosted._perform(effect)

    async def result(self) -> tuple[Any, ...]:
        await eventually(lambda: self.store.results)
        return self.store.results.pop()


_WRITE = WriteMetadata(PartitionMetadata(1, 1, {}), 3)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_metadata_results_reach_the_core(scene: Scene) -> None:
    scene.perform(ReadMetadata())
    assert await scene.result() == ("read", NEW_PARTITION, 3)
    scene.perform(_WRITE)
    assert await scene.result() == ("written", 4)


@pytest.mark.parametrize("operation", [ReadMetadata(), _WRITE], ids=["read", "write"])
async def test_metadata_operation_without_an_answer_fails_at_its_deadline(
    scene: Scene, operation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a deadline the partition would wait for ever: the store retries without a limit."""
    monkeypatch.setattr(hosted_partition, "_METADATA_SECONDS", 0.01)
    scene.metadata.hangs = True
    scene.perform(operation)
    assert await scene.result() == ("failed", "ZooKeeper did not answer within 0.01 s")


@pytest.mark.parametrize("operation", [ReadMetadata(), _WRITE], ids=["read", "write"])
async def test_failed_metadata_operation_is_reported_with_its_reason(
    scene: Scene, operation: Any
) -> None:
    scene.metadata.error = StoreConnectionLost("the connection broke")
    scene.perform(operation)
    assert await scene.result() == ("failed", "the connection broke")


async def test_malformed_metadata_are_reported_and_the_server_continues(scene: Scene) -> None:
    """One damaged znode must not end one server after the other."""
    scene.metadata.error = MalformedMetadata("PartitionMetadata at /partitions/0", "cut off")
    scene.perform(ReadMetadata())
    assert await scene.result() == (
        "failed",
        "malformed PartitionMetadata at /partitions/0: cut off",
    )


async def test_turns_scheduled_together_are_taken_once_and_later_ones_again(scene: Scene) -> None:
    for expected in (1, 2):
        scene.perform(ScheduleTurn())
        scene.perform(ScheduleTurn())
        assert scene.core.turns == expected - 1
        await asyncio.sleep(0)
        assert scene.core.turns == expected


async def test_close_ends_a_pending_metadata_operation(scene: Scene) -> None:
    scene.metadata.hangs = True
    scene.perform(ReadMetadata())
    await eventually(lambda: scene.metadata.calls)
    scene.core.store = Partition(0, PartitionSettings(), DataCache(1000)).store
    async with asyncio.timeout(60):
        await scene.hosted.close()
    assert scene.hosted._tasks == set()


class RecordingLinks:
    """Records the storages that a partition keeps links to."""

    def __init__(self) -> None:
        self.kept: list[frozenset[str]] = []

    def connect(self, user: HostedPartition, storages: frozenset[str]) -> dict[str, Any]:
        self.kept.append(storages)
        return {}


async def test_close_releases_the_links_to_storages() -> None:
    links = RecordingLinks()
    core = Partition(0, PartitionSettings(), DataCache(1000))
    hosted = HostedPartition(core, cast(Cluster, Metadata()), cast(StorageLinks, links), {})
    core.set_replicas(("a:1", "b:1"))
    core.set_generation(1)
    hosted.perform_effects()
    await hosted.close()
    assert links.kept[-1] == frozenset()


async def test_timer_of_a_closed_partition_does_not_expire() -> None:
    core = Core(0, PartitionSettings(), DataCache(1000))
    links = cast(StorageLinks, RecordingLinks())
    hosted = HostedPartition(core, cast(Cluster, Metadata()), links, {})
    hosted._perform(StartTimer(0.0, RangeReadTick()))
    await hosted.close()
    for _ in range(10):
        await asyncio.sleep(0)
    assert core.expired == 0
    open_one = HostedPartition(core, cast(Cluster, Metadata()), links, {})
    open_one._perform(StartTimer(0.0, RangeReadTick()))
    await eventually(lambda: core.expired == 1)
