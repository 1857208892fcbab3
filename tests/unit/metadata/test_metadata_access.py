"""Test reading, following and changing the access rules of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import pytest

from tests.support.eventually import eventually
from waltz.admin.rescue import back_up, restore_cluster
from waltz.metadata.access import (
    change_access_rules,
    delete_access_rules,
    follow_access_rules,
    read_access_rules,
)
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/test"
READER = Grant("reader", Right.READ, 0, 2)
WRITER = Grant("writer", Right.APPEND, 1, 1)


@pytest.fixture
async def cluster() -> Cluster:
    store = MemoryZooKeeper().connect()
    await create_cluster(store, ROOT, "test", 3, key=uuid.UUID(int=1))
    return Cluster(store, ROOT)


async def test_new_cluster_has_no_access_rules(cluster: Cluster) -> None:
    assert await read_access_rules(cluster) is None


async def test_changed_rules_are_read_back(cluster: Cluster) -> None:
    first = await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    second = await change_access_rules(cluster, lambda rules: rules.with_grant(WRITER))
    assert first == AccessRules((READER,))
    assert second == AccessRules((READER, WRITER))
    read = await read_access_rules(cluster)
    assert read is not None
    assert read.value == second


async def test_change_without_effect_creates_no_rules(cluster: Cluster) -> None:
    await change_access_rules(cluster, lambda rules: rules.without_grant(READER))
    assert await read_access_rules(cluster) is None


async def test_revoking_the_last_grant_keeps_empty_rules(cluster: Cluster) -> None:
    await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    await change_access_rules(cluster, lambda rules: rules.without_grant(READER))
    read = await read_access_rules(cluster)
    assert read is not None
    assert read.value == AccessRules()


async def test_changes_of_two_tasks_are_both_kept(cluster: Cluster) -> None:
    await asyncio.gather(
        change_access_rules(cluster, lambda rules: rules.with_grant(READER)),
        change_access_rules(cluster, lambda rules: rules.with_grant(WRITER)),
    )
    read = await read_access_rules(cluster)
    assert read is not None
    assert read.value == AccessRules((READER, WRITER))


async def test_deleted_rules_are_read_as_none(cluster: Cluster) -> None:
    await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    assert await delete_access_rules(cluster)
    assert await read_access_rules(cluster) is None
    assert not await delete_access_rules(cluster)


async def test_follower_gets_created_changed_and_deleted_rules(cluster: Cluster) -> None:
    followed: list[AccessRules | None] = []

    async def follow() -> None:
        async for rules in follow_access_rules(cluster):
            followed.append(rules)

    following = asyncio.create_task(follow())
    await eventually(lambda: followed == [None])
    await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    await eventually(lambda: followed[-1] == AccessRules((READER,)))
    await change_access_rules(cluster, lambda rules: rules.with_grant(WRITER))
    await eventually(lambda: followed[-1] == AccessRules((READER, WRITER)))
    await delete_access_rules(cluster)
    await eventually(lambda: followed[-1] is None)
    following.cancel()


async def test_malformed_rules_are_logged_and_the_next_ones_are_followed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    followed: list[AccessRules | None] = []

    async def follow() -> None:
        async for rules in follow_access_rules(cluster):
            followed.append(rules)

    await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    following = asyncio.create_task(follow())
    await eventually(lambda: followed == [AccessRules((READER,))])
    await cluster.store.set(cluster.paths.access, b"{", -1)
    await eventually(lambda: caplog.records)
    assert f"AccessRules at {ROOT}/access in ZooKeeper" in caplog.records[0].getMessage()
    assert "keeping the previous rules" in caplog.records[0].getMessage()
    assert followed == [AccessRules((READER,))]
    await cluster.store.set(cluster.paths.access, AccessRules((WRITER,)).encode(), -1)
    await eventually(lambda: followed[-1] == AccessRules((WRITER,)))
    following.cancel()


async def test_reading_malformed_rules_names_the_znode(cluster: Cluster) -> None:
    await cluster.store.create(cluster.paths.access, None)
    with pytest.raises(MalformedMetadata, match=f"AccessRules at {ROOT}/access in ZooKeeper"):
        await read_access_rules(cluster)


@pytest.mark.parametrize("rules", [AccessRules(), AccessRules((READER,))], ids=["empty", "some"])
async def test_new_cluster_with_rules_has_them_also_without_grants(rules: AccessRules) -> None:
    store = MemoryZooKeeper().connect()
    await create_cluster(store, ROOT, "test", 3, key=uuid.UUID(int=1), access=rules)
    read = await read_access_rules(Cluster(store, ROOT))
    assert read is not None
    assert read.value == rules


async def test_rescued_cluster_has_the_access_rules_of_the_backup(cluster: Cluster) -> None:
    await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    backup = await back_up(cluster)
    await delete_cluster(cluster.store, ROOT, "test")
    await restore_cluster(cluster, backup)
    read = await read_access_rules(cluster)
    assert read is not None
    assert read.value == AccessRules((READER,))


async def test_interrupted_restore_leaves_no_cluster_without_its_access_rules(
    cluster: Cluster,
) -> None:
    await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    backup = await back_up(cluster)
    turns, usable = 0, 0
    while usable == 0 or turns < 2 * usable:
        restored = Cluster(MemoryZooKeeper().connect(), ROOT)
        restoring = asyncio.create_task(restore_cluster(restored, backup))
        for _ in range(turns):
            await asyncio.sleep(0)
        restoring.cancel()
        await asyncio.gather(restoring, return_exceptions=True)
        with contextlib.suppress(MalformedMetadata, NoCluster):
            await restored.store_params()
            usable = usable or turns
            assert await read_access_rules(restored) is not None
        turns += 1


async def test_follow_access_rules_waits_for_the_next_change(cluster: Cluster) -> None:
    followed: list[AccessRules | None] = []

    async def follow() -> None:
        async for rules in follow_access_rules(cluster):
            followed.append(rules)
            await asyncio.sleep(0)

    following = asyncio.create_task(follow())
    await change_access_rules(cluster, lambda rules: rules.with_grant(READER))
    await eventually(lambda: followed and followed[-1] == AccessRules((READER,)))
    seen = len(followed)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(followed) == seen
    following.cancel()
