"""What a rescue and a restoration write to ZooKeeper."""

from __future__ import annotations

import uuid

import pytest

from waltz.admin.core.rescue import RebuildDecision, Verdict
from waltz.admin.rescue import (
    ID_ROOM,
    PartitionRescue,
    back_up,
    plan_rescue,
    restore_cluster,
    write_rescue,
)
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.cluster_backup import ClusterBackup
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.store import Node, OnChange
from waltz.net import PLAINTEXT
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/log"
KEY = uuid.UUID(int=1)
A = "a:1"


def metadata(session: int) -> PartitionMetadata:
    return PartitionMetadata(1, session, {A: ReplicaState(session, UNRESOLVED)})


async def test_rescue_keeps_metadata_that_a_server_wrote_after_the_plan() -> None:
    """The rebuilt session id is far above that of the server, and says nothing about the time."""
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 2, key=KEY)
    decision = RebuildDecision(Verdict.REBUILT, metadata(1000), "rebuilt")
    plans = [PartitionRescue(partition, (), decision) for partition in range(2)]
    version = (await cluster.partition_metadata(0)).version
    await cluster.write_partition_metadata(0, metadata(3), version)
    assert await write_rescue(cluster, plans) == plans[:1]
    assert (await cluster.partition_metadata(0)).value == metadata(3)
    assert (await cluster.partition_metadata(1)).value == metadata(1000)


async def test_rescue_gives_no_session_again_that_another_rescue_has_given() -> None:
    """A server has begun the next session since; a partition without records names no replica."""
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 1, key=KEY)
    decision = RebuildDecision(Verdict.NEW, PartitionMetadata(1, 1000, {}), "no records")
    plans = [PartitionRescue(0, (), decision)]
    assert await write_rescue(cluster, plans) == []
    version = (await cluster.partition_metadata(0)).version
    begun = PartitionMetadata(1, 1001, {})
    await cluster.write_partition_metadata(0, begun, version)
    assert await write_rescue(cluster, plans) == plans
    assert (await cluster.partition_metadata(0)).value == begun


async def test_restored_cluster_gives_no_id_that_was_given_after_the_backup() -> None:
    """A client with the id of another one would take its transactions for its own."""
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    maps = assign_everything({A: 0}, {A: 9001}, 1)
    await restore_cluster(cluster, ClusterBackup("log", ROOT, KEY, 1, 41, 7, maps, {}, {}))
    assert await cluster.next_client_id() == 41 + ID_ROOM + 1
    assert await cluster.next_server_id() == 7 + ID_ROOM + 1


async def test_back_up_and_plan_repeat_each_read_whose_answer_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryZooKeeper().connect()
    cluster = Cluster(store, ROOT)
    await create_cluster(store, ROOT, "log", 2, key=KEY)
    assert await cluster.next_client_id() == 1
    version = (await cluster.partition_metadata(0)).version
    await cluster.write_partition_metadata(0, metadata(3), version)
    get, read_before = store.get, set[str]()

    async def lose_first_answer(path: str, on_change: OnChange | None = None) -> Node | None:
        if path not in read_before:
            read_before.add(path)
            store.lose_next_answer()
        return await get(path, on_change)

    monkeypatch.setattr(store, "get", lose_first_answer)
    backup = await back_up(cluster)
    assert (backup.last_client_id, backup.partitions[0]) == (1, metadata(3))
    read_before.clear()
    maps, params = await cluster.storage_maps(), await cluster.store_params()
    plans = await plan_rescue(cluster, maps, params, PLAINTEXT, backup, timeout_seconds=5)
    assert plans[0].decision.verdict is Verdict.KEPT
