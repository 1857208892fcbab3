"""Test which partitions a server acquires and releases, and which generations it passes on."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.pausable_connection import PausableConnection
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import ReplicaAssignments
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.net import PLAINTEXT
from waltz.runtime.configuration import read_settings
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.node import ServerNode
from waltz_server.shell.storage_links import ExpectedCluster, StorageLinks

SETTINGS = {
    "WALTZ_ZOOKEEPER_CONNECT_STRING": "unused:1",
    "WALTZ_ZOOKEEPER_SESSION_TIMEOUT": "1",
    "WALTZ_CLUSTER_ROOT": "/unused",
    "WALTZ_SERVER_PORT": "0",
    "WALTZ_SERVER_TLS_ENABLED": "false",
}


class RecordingCore:
    """A partition's core that records its owner's calls."""

    def __init__(self) -> None:
        self.generations: list[int] = []
        self.replicas: list[tuple[str, ...]] = []
        self.overloaded = False
        self.feed_cache_misses = 0
        self.data_cache_misses = 0

    def set_generation(self, generation: int) -> None:
        self.generations.append(generation)

    def set_replicas(self, storages: Any) -> None:
        self.replicas.append(tuple(storages))


class RecordingPartition:
    """A hosted partition that counts how often its effects were performed."""

    def __init__(self) -> None:
        self.core = RecordingCore()
        self.performed = 0
        self.closed = False

    def perform_effects(self) -> None:
        self.performed += 1

    async def close(self) -> None:
        self.closed = True


class Node(ServerNode):
    """A server whose partitions only record."""

    def __init__(self) -> None:
        super().__init__(read_settings(ServerConfig, None, SETTINGS))
        self.made: list[RecordingPartition] = []
        self._cluster = Cluster(MemoryZooKeeper().connect(), "/test")
        self._links = StorageLinks(PLAINTEXT, ExpectedCluster(uuid.UUID(int=1), 2))
        self._assignments = ReplicaAssignments({"a:1": (0, 1), "b:1": (1,)})

    def _new_partition(self, partition: int) -> HostedPartition:
        self.made.append(RecordingPartition())
        return self.made[-1]  # type: ignore[return-value]


@pytest.fixture
async def node() -> Node:
    return Node()


async def test_later_generations_reach_a_partition_that_the_server_keeps(node: Node) -> None:
    node._set_owned({0: 1})
    node._set_owned({0: 3})
    (partition,) = node.made
    assert partition.core.generations == [1, 3]
    assert partition.performed == 2


async def test_acquired_partition_gets_its_replicas_before_its_generation(node: Node) -> None:
    released: list[int] = []
    acquired: list[HostedPartition] = []
    node.observe_partitions(acquired.append, released.append)
    node._set_owned({1: 4})
    (partition,) = node.made
    assert [set(each) for each in partition.core.replicas] == [{"a:1", "b:1"}]
    assert partition.core.generations == [4]
    assert len(acquired) == 1
    assert released == []


async def test_partition_that_is_not_owned_any_more_is_closed(node: Node) -> None:
    released: list[int] = []
    node.observe_partitions(lambda _: None, released.append)
    node._set_owned({0: 1, 1: 1})
    node._set_owned({1: 1})
    assert node.partition(0) is None
    assert node.partition(1) is not None
    assert released == [0]
    closing = list(node._closing)
    assert len(closing) == 1
    await closing[0]
    assert node.made[0].closed
    assert not node.made[1].closed


async def test_partition_that_returns_is_a_new_one(node: Node) -> None:
    node._set_owned({0: 1})
    node._set_owned({})
    node._set_owned({0: 2})
    assert [each.core.generations for each in node.made] == [[1], [2]]


async def test_counts_of_released_partitions_stay_in_the_totals(node: Node) -> None:
    node._set_owned({0: 1, 1: 1})
    for made in node.made:
        made.core.feed_cache_misses, made.core.data_cache_misses = 3, 5
    node._set_owned({1: 1})
    node._set_owned({0: 2, 1: 1})
    node.made[-1].core.feed_cache_misses += 1
    assert node.feed_cache_misses == 7
    assert node.data_cache_misses == 10


async def test_overloaded_connections_are_resumed_when_no_partition_is_overloaded(
    node: Node,
) -> None:
    node._set_owned({0: 1})
    core = node.made[0].core
    connections = [PausableConnection(), PausableConnection()]
    core.overloaded = True
    for connection in connections:
        node.pause_client(connection.frames, 0)
        node.pause_client(connection.frames, 0)
    assert [each.reading for each in connections] == [False, False]
    node.paused._check()
    assert [each.reading for each in connections] == [False, False]
    core.overloaded = False
    node.paused._check()
    assert [each.reading for each in connections] == [True, True]
    assert not len(node.paused)


async def test_changes_of_replicas_reach_the_partitions(node: Node) -> None:
    assert node._cluster is not None
    cluster = node._cluster
    maps = assign_everything({"a:1": 0, "b:1": 0}, {"a:1": 9001, "b:1": 9001}, 2)
    await create_cluster(cluster.store, "/test", "test", 2, key=uuid.UUID(int=1), storages=maps)
    node._set_owned({0: 1})
    (partition,) = node.made
    following = asyncio.create_task(node._follow_assignments())
    await eventually(lambda: partition.core.replicas[-1] == ("a:1", "b:1"))
    performed = partition.performed
    await cluster.unassign_partitions("a:1", [0])
    await eventually(lambda: partition.core.replicas[-1] == ("b:1",))
    assert partition.performed > performed
    following.cancel()
