"""Assignments of replicas that no server can use: logged, and the ones before are kept."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from tests.support.eventually import eventually
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ReplicaAssignments
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/test"
GOOD = ReplicaAssignments({"a:1": (0,)})
UNUSABLE = [
    ReplicaAssignments({"a:1": (0,), "abc": (0,)}).encode(),
    ReplicaAssignments({"a:99999": (0,)}).encode(),
    ReplicaAssignments({":1": (0,)}).encode(),
    b"\x01\x02",
]


@pytest.fixture
async def cluster() -> Cluster:
    store = MemoryZooKeeper().connect()
    maps = assign_everything({"a:1": 0}, {"a:1": 9001}, 1)
    await create_cluster(store, ROOT, "test", 1, key=uuid.UUID(int=1), storages=maps)
    return Cluster(store, ROOT)


@pytest.mark.parametrize("data", UNUSABLE)
async def test_unusable_assignments_are_logged_and_the_next_ones_are_followed(
    cluster: Cluster, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    followed: list[ReplicaAssignments] = []

    async def follow() -> None:
        async for assignments in cluster.follow_replica_assignments():
            followed.append(assignments)

    following = asyncio.create_task(follow())
    await eventually(lambda: followed == [GOOD])
    await cluster.store.set(cluster.paths.assignment, data, -1)
    await eventually(lambda: caplog.records)
    (record,) = caplog.records
    assert f"ReplicaAssignments at {ROOT}/store/assignment in ZooKeeper" in record.getMessage()
    assert "keeping the previous ones" in record.getMessage()
    new = ReplicaAssignments({"a:1": (0,), "b:1": (0,)})
    await cluster.store.set(cluster.paths.assignment, new.encode(), -1)
    await eventually(lambda: followed == [GOOD, new])
    following.cancel()


@pytest.mark.parametrize("data", UNUSABLE)
async def test_server_that_starts_with_unusable_assignments_names_the_znode(
    cluster: Cluster, data: bytes
) -> None:
    await cluster.store.set(cluster.paths.assignment, data, -1)
    with pytest.raises(MalformedMetadata, match=f"ReplicaAssignments at {ROOT}/store/assignment"):
        await cluster.usable_replica_assignments()


async def test_administrators_read_assignments_with_any_names(cluster: Cluster) -> None:
    """They must be able to remove such a storage."""
    await cluster.store.set(cluster.paths.assignment, UNUSABLE[0], -1)
    assert "abc" in (await cluster.replica_assignments()).value.partitions
