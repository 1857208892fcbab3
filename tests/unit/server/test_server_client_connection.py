"""Connections of clients to a real server: requests, answers, and separate failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, new_append, req_id
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import PartitionAssignment
from waltz.protocol import checksum
from waltz.protocol import client_server as cs
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT
from waltz_server.shell.node import ServerNode

PARTITIONS = 3


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster(partitions=PARTITIONS) as cluster:
        yield cluster


@pytest.fixture
async def two_servers() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster(partitions=PARTITIONS, servers=2) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: InProcessCluster) -> RawClient:
    return await RawClient.connect(cluster, 4)


def node_of(cluster: InProcessCluster, number: int = 0) -> ServerNode:
    node = cluster.servers[number].node
    assert node is not None
    return node


def preferred(node: ServerNode) -> frozenset[int]:
    assert node._membership is not None
    return node._membership.preferred


def texts(cluster: InProcessCluster, partition: int = 0) -> list[bytes]:
    return [t.data for t in cluster.transactions(partition)]


@pytest.mark.parametrize("version", range(7))
async def test_append_feed_and_read_work_in_every_version(
    cluster: InProcessCluster, version: int
) -> None:
    client = await RawClient.connect(cluster, version)
    await client.mount()
    client.send(cs.FeedRequest(req_id(), -1))
    client.send(new_append("first", 1), new_append("second", 2))
    assert await client.take(2) == [
        cs.FeedData(req_id(1), 0, 5),
        cs.FeedData(req_id(2), 1, 5),
    ]
    client.send(cs.TransactionDataRequest(req_id(3), 1), cs.HighWaterMarkRequest(req_id(4)))
    assert await client.take(2) == [
        cs.TransactionDataResponse(req_id(3), 1, b"second", checksum(b"second")),
        cs.HighWaterMarkResponse(req_id(4), 1),
    ]


async def test_appends_and_a_flush_in_one_chunk_keep_their_order(
    client: RawClient, cluster: InProcessCluster
) -> None:
    await client.mount()
    await client.mount(1)
    client.send(
        new_append("a", 1),
        new_append("b", 2, partition=1),
        cs.FlushRequest(req_id(3)),
        new_append("c", 4),
        cs.FlushRequest(req_id(5, partition=1)),
    )
    answers = await client.take(2)
    assert {m.req_id.seq: m.transaction_id >= 0 for m in answers} == {3: True, 5: True}
    await eventually(lambda: texts(cluster) == [b"a", b"c"])
    assert texts(cluster, 1) == [b"b"]


async def test_append_with_a_taken_lock_gets_lock_failure(client: RawClient) -> None:
    await client.mount()
    client.send(new_append("a", 1, locks=(7,)), cs.FlushRequest(req_id(2)))
    await client.take()
    client.send(new_append("b", 3, locks=(7,)))
    assert await client.take() == [cs.LockFailure(req_id(3), 0)]


async def test_requests_to_a_partition_not_on_this_server_are_refused(
    two_servers: InProcessCluster,
) -> None:
    client = await RawClient.connect(two_servers, 4)
    [there, *_] = (hosted.core.id for hosted in node_of(two_servers, 1).partitions())
    client.send(
        new_append("lost", 1, there),
        cs.FeedRequest(req_id(2, there), -1),
        cs.FlushRequest(req_id(3, there)),
        cs.HighWaterMarkRequest(req_id(4, there)),
        cs.MountRequest(req_id(5, there), -1, 0),
        cs.TransactionDataRequest(req_id(6, there), 0),
    )
    assert await client.take(2) == [
        cs.MountResponse(req_id(5, there), cs.MountState.NOT_READY),
        cs.TransactionDataResponse(req_id(6, there), 0, None, error="partition not ready"),
    ]
    assert client.messages == []


async def test_requests_about_the_server_are_answered(
    client: RawClient, cluster: InProcessCluster
) -> None:
    await cluster.kill_storage(2)
    here = range(PARTITIONS)
    for partition in here:
        await client.mount(partition)
    client.send(
        cs.ServerPartitionsAssignmentRequest(req_id(1)),
        cs.ServerPartitionsHealthStatRequest(req_id(2)),
        cs.CheckStorageConnectivityRequest(req_id(3)),
    )
    assert await client.take(3) == [
        cs.ServerPartitionsAssignmentResponse(req_id(1), tuple(here)),
        cs.ServerPartitionsHealthStatResponse(req_id(2), dict.fromkeys(here, True)),
        cs.CheckStorageConnectivityResponse(
            req_id(3), {storage.address: n != 2 for n, storage in enumerate(cluster.storages)}
        ),
    ]


async def test_preferred_partitions_are_changed_by_request(
    two_servers: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    client, node = await RawClient.connect(two_servers, 4), node_of(two_servers)
    add, remove = cs.AddPreferredPartitionRequest, cs.RemovePreferredPartitionRequest
    added, removed = cs.AddPreferredPartitionResponse, cs.RemovePreferredPartitionResponse
    client.send(add(req_id(1), (0, 2)))
    assert await client.take() == [added(req_id(1), True)]
    client.send(remove(req_id(2), (0,)))
    assert await client.take() == [removed(req_id(2), True)]
    assert preferred(node) == {2}
    changes = [text for text in caplog.messages if text.startswith("administrative change by ")]
    assert [text.partition(": ")[2] for text in changes] == [
        "add preferred partitions 0, 2",
        "remove preferred partitions 0",
    ]
    client.send(add(req_id(3), (0, PARTITIONS)), remove(req_id(4), (-1,)))
    assert await client.take(2) == [added(req_id(3), False), removed(req_id(4), False)]
    assert preferred(node) == {2}
    metadata = Cluster(two_servers.zookeeper.connect(), ROOT)
    membership = await metadata.membership()
    damaged = PartitionAssignment(membership.cversion, PARTITIONS, {})
    await metadata.write_partition_assignment(damaged, membership.version)
    client.send(add(req_id(5), (0,)))
    assert await client.take() == [added(req_id(5), True)]
    assert "preferred partitions added: 0; cannot compute the assignment now" in caplog.text
    client.send(add(req_id(6), ()))
    await eventually(lambda: client.lost_because is not None)


@pytest.mark.parametrize("znode", ["assignment", "descriptor of a server"])
async def test_change_of_preferred_partitions_with_malformed_znodes_is_refused(
    two_servers: InProcessCluster, caplog: pytest.LogCaptureFixture, znode: str
) -> None:
    metadata = Cluster(two_servers.zookeeper.connect(), ROOT)
    members = (await metadata.membership()).members
    path = metadata.paths.server_descriptors
    if znode != "assignment":
        path = metadata.paths.server_descriptor(members[1].node_name)
    await metadata.store.set(path, b"\x07broken", -1)
    client = await RawClient.connect(two_servers, 4)
    client.send(cs.AddPreferredPartitionRequest(req_id(1), (0,)))
    assert await client.take() == [cs.AddPreferredPartitionResponse(req_id(1), False)]
    assert "preferred partitions not changed, refusing the request: malformed" in caplog.text


async def test_refused_preference_is_not_part_of_a_later_change(
    two_servers: InProcessCluster,
) -> None:
    metadata = Cluster(two_servers.zookeeper.connect(), ROOT)
    path = metadata.paths.server_descriptors
    assignment = await metadata.store.get(path)
    assert assignment is not None
    assert assignment.data is not None
    await metadata.store.set(path, b"\x07broken", -1)
    client, node = await RawClient.connect(two_servers, 4), node_of(two_servers)
    client.send(cs.AddPreferredPartitionRequest(req_id(1), (0,)))
    assert await client.take() == [cs.AddPreferredPartitionResponse(req_id(1), False)]
    assert preferred(node) == frozenset()
    await metadata.store.set(path, assignment.data, -1)
    client.send(cs.AddPreferredPartitionRequest(req_id(2), (2,)))
    assert await client.take() == [cs.AddPreferredPartitionResponse(req_id(2), True)]
    assert preferred(node) == {2}
    assert (await metadata.membership()).servers()[node.server_id].preferred == (2,)


async def test_closed_connection_releases_its_client_id(
    cluster: InProcessCluster, client: RawClient
) -> None:
    client.send(cs.MountRequest(req_id(), -1, 9))
    await client.take()
    client.connection.close()
    await eventually(lambda: not node_of(cluster)._connections)
    other = await RawClient.connect(cluster)
    await other.mount()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x63", id="unknown type"),
        pytest.param(b"\x02\x00\x00", id="half an append"),
        pytest.param(cs.encode(cs.FeedSuspended(req_id()), 4)[7:], id="a message for clients"),
        pytest.param(cs.encode(new_append("x"), 4)[7:-1] + b"?", id="a wrong checksum"),
    ],
)
async def test_malformed_message_closes_only_its_own_connection(
    cluster: InProcessCluster, client: RawClient, body: bytes
) -> None:
    bad = await RawClient.connect(cluster, 4)
    bad.connection.send(cs.frame(body, 4))
    await eventually(lambda: bad.lost_because is not None)
    await eventually(lambda: len(node_of(cluster)._connections) == 1)
    await client.mount()


@pytest.mark.parametrize("decoder", ["cs.decode", "decode_append"])
async def test_decoder_error_closes_only_its_own_connection(
    cluster: InProcessCluster,
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    decoder: str,
) -> None:
    other = await RawClient.connect(cluster, 4)
    await other.mount()
    await client.mount(number=2)

    def fail(*_: object) -> None:
        raise IndexError("beyond the end")

    # In a server, an exception that reaches the event loop ends the process.
    unexpected: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))

    with monkeypatch.context() as broken:
        broken.setattr(f"waltz_server.shell.client_connection.{decoder}", fail)
        client.send(new_append("a", 1), cs.HighWaterMarkRequest(req_id(2)))
        await eventually(lambda: client.lost_because is not None)
    assert unexpected == []
    assert "IndexError" in caplog.text
    await other.mount(1)


async def test_feed_request_beyond_the_log_closes_the_connection(client: RawClient) -> None:
    await client.mount()
    client.send(cs.FeedRequest(req_id(), 7))
    await eventually(lambda: client.lost_because is not None)


async def test_messages_behind_one_that_closes_the_connection_are_dropped(
    client: RawClient, cluster: InProcessCluster
) -> None:
    """Otherwise the partition would feed the closed connection for ever."""
    await client.mount()
    client.send(
        cs.FeedRequest(req_id(), 7),
        cs.MountRequest(req_id(), -1, 1),
        cs.FeedRequest(req_id(), -1),
    )
    await eventually(lambda: client.lost_because is not None)
    hosted = node_of(cluster).partition(0)
    assert hosted is not None
    assert hosted.core.feeds.peers == []


async def test_client_that_does_not_read_does_not_delay_others(
    cluster: InProcessCluster, client: RawClient
) -> None:
    await client.mount()
    text = "x" * 100_000
    client.send(*(new_append(text, seq) for seq in range(50)), cs.FlushRequest(req_id(99)))
    await client.take()
    slow = await RawClient.connect(cluster, 4)
    slow.connection.pause_reading()
    slow.send(*(cs.TransactionDataRequest(req_id(n, client=2), n % 50) for n in range(500)))
    await eventually(lambda: any(c.congested for c in node_of(cluster)._connections.values()))
    client.send(new_append("quick", 100), cs.FlushRequest(req_id(101)))
    assert await client.take() == [cs.FlushResponse(req_id(101), 50)]


async def test_latency_is_measured_from_arrival_to_commit(
    cluster: InProcessCluster, client: RawClient
) -> None:
    await client.mount()
    client.send(*(new_append("x", seq) for seq in range(10)), cs.FlushRequest(req_id(99)))
    await client.take()
    [latency] = (h.latency for h in node_of(cluster).partitions() if h.core.id == 0)
    assert latency.count == 10
    shown = latency.sorted_durations()
    assert 0 < shown[0] <= shown[-1] < 10
