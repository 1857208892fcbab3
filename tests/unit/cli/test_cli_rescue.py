"""A rescue that is interrupted says what it has written to ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from waltz.admin import FencingFailed
from waltz.cli.cluster import rescue
from waltz.cli.cluster_options import Target
from waltz.cli.running import Failed
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.cluster_backup import ClusterBackup
from waltz.metadata.core.storage_maps import StorageMaps, add_storage_node
from waltz.metadata.lifecycle import create_cluster
from waltz.net import TlsConfig
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT, KEY, PARTITIONS = "/waltz/orders", uuid.UUID(int=7), 2
STORAGES = add_storage_node(StorageMaps.empty(), "a:1", 0, 2)
BACKUP = ClusterBackup("orders", ROOT, KEY, PARTITIONS, 0, 0, STORAGES, {}, {})


@pytest.mark.parametrize(
    ("create_from", "assignments", "written"),
    [
        (None, {}, "nothing was written to ZooKeeper"),
        (BACKUP, {}, "ZooKeeper now has the cluster of the backup, but not"),
        (None, {"a:1": (0, 1)}, "ZooKeeper now has the assignment of partitions, but not"),
        (BACKUP, {"a:1": (1,)}, "has the cluster of the backup and the assignment of partitions"),
    ],
    ids=["nothing", "cluster", "assignment", "both"],
)
async def test_rescue_whose_storage_does_not_answer_says_what_was_written(
    monkeypatch: pytest.MonkeyPatch,
    create_from: ClusterBackup | None,
    assignments: Mapping[str, tuple[int, ...]],
    written: str,
) -> None:
    store = MemoryZooKeeper().connect()
    if create_from is None:
        await create_cluster(store, ROOT, "orders", PARTITIONS, key=KEY, storages=STORAGES)

    @asynccontextmanager
    async def open_cluster(where: Target) -> AsyncIterator[Cluster]:
        yield Cluster(store, where.root)

    async def fence_replicas(*_: Any, **__: Any) -> None:
        raise FencingFailed("storage a:1: connection refused")

    monkeypatch.setattr(rescue, "open_cluster", open_cluster)
    monkeypatch.setattr(rescue, "fence_replicas", fence_replicas)
    plan = rescue._RescuePlan([], create_from, assignments)
    with pytest.raises(
        Failed, match=f"^storage a:1: connection refused; .*{written}.*type the command again$"
    ):
        await rescue._write(Target("zk:1", ROOT, TlsConfig()), plan, create_from, 1.0)
