"""Protocol version 5 with a real server: ranges, batches, waits; every request is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, batched, new_append, req_id
from waltz.metadata.core.formats import UNRESOLVED
from waltz.protocol import client_server as cs
from waltz.protocol import storage as st
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.records import EMPTY_BATCH
from waltz.testing import InProcessCluster


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster() as cluster:
        yield cluster


@pytest.fixture
async def five(cluster: InProcessCluster) -> RawClient:
    return await RawClient.connect(cluster, 5)


@pytest.fixture
async def two_servers() -> AsyncIterator[InProcessCluster]:
    async with InProcessCluster(partitions=2, servers=2) as cluster:
        yield cluster


def partition_there(two_servers: InProcessCluster) -> int:
    """Return the partition that is on server 1."""
    node = two_servers.servers[1].node
    assert node is not None
    [hosted] = node.partitions()
    return hosted.core.id


def texts(cluster: InProcessCluster) -> list[bytes]:
    return [t.data for t in cluster.transactions(0)]


async def test_every_request_to_a_partition_not_on_this_server_is_answered(
    two_servers: InProcessCluster,
) -> None:
    five, there = await RawClient.connect(two_servers, 5), partition_there(two_servers)
    five.send(
        cs.HighWaterMarkRequest(req_id(1, there)),
        cs.RecordsRequest(req_id(2, there), 0, 10, 1000, 5000),
        cs.HeadersRequest(req_id(3, there), 0, 10),
        cs.AppendBatchRequest(req_id(4, there), -1, (batched("a"), batched("b"))),
    )
    mark, records, headers, batch = await five.take(4)
    assert mark == cs.HighWaterMarkResponse(req_id(1, there), UNRESOLVED)
    assert (records.high_water_mark, records.records) == (UNRESOLVED, EMPTY_BATCH)
    assert (headers.high_water_mark, headers.headers) == (UNRESOLVED, ())
    assert "not on this server" in records.error
    assert records.error == headers.error
    assert batch == cs.AppendBatchResponse(
        req_id(4, there), (BatchedOutcome(OutcomeKind.ABSENT),) * 2
    )


async def test_batch_is_appended_read_and_fed(five: RawClient, cluster: InProcessCluster) -> None:
    await five.mount()
    five.send(cs.FeedRequest(req_id(), -1))
    five.send(cs.AppendBatchRequest(req_id(10), -1, tuple(batched(t) for t in "abc")))
    messages = await five.take(4)
    assert messages[0] == cs.AppendBatchResponse(
        req_id(10), tuple(BatchedOutcome(OutcomeKind.COMMITTED, n) for n in range(3))
    )
    assert messages[1:] == [cs.FeedData(req_id(10 + n), n, 5) for n in range(3)]
    assert texts(cluster) == [b"a", b"b", b"c"]
    five.send(cs.RecordsRequest(req_id(20), 1, 10, 1000), cs.HeadersRequest(req_id(21), 0, 2))
    records, headers = await five.take(2)
    assert [(r.req_id, r.data) for r in records.records] == [
        (req_id(11), b"b"),
        (req_id(12), b"c"),
    ]
    assert [(h.transaction_id, h.req_id, h.header) for h in headers.headers] == [
        (0, req_id(10), 5),
        (1, req_id(11), 5),
    ]
    assert records.high_water_mark == headers.high_water_mark == 2


async def test_batch_and_single_appends_in_one_chunk_keep_their_order(
    five: RawClient, cluster: InProcessCluster
) -> None:
    await five.mount()
    five.send(
        new_append("first", 1),
        cs.AppendBatchRequest(req_id(2), -1, (batched("second"), batched("third"))),
        new_append("fourth", 9),
        cs.FlushRequest(req_id(10)),
    )
    await five.take(2)
    assert texts(cluster) == [b"first", b"second", b"third", b"fourth"]


async def test_repeated_range_reads_with_a_wait_follow_the_log(
    five: RawClient, cluster: InProcessCluster
) -> None:
    writer = await RawClient.connect(cluster, 4)
    await writer.mount()
    got: list[bytes] = []
    for number in range(20):
        five.send(cs.RecordsRequest(req_id(number), len(got), 100, 1 << 20, 10_000))
        writer.send(new_append(f"{number}", number))
        (answer,) = await five.take()
        got += [r.data for r in answer.records]
    await eventually(lambda: len(got) == 20)
    assert got == [b"%d" % number for number in range(20)]


async def test_range_read_with_a_wait_ends_with_an_empty_answer(five: RawClient) -> None:
    five.send(cs.RecordsRequest(req_id(1), 0, 10, 1000, 30))
    (answer,) = await five.take()
    assert answer == cs.RecordsResponse(req_id(1), None, -1, EMPTY_BATCH)


async def test_records_not_in_memory_come_from_a_storage(cluster: InProcessCluster) -> None:
    """A server that has started again has no records in memory."""
    async with cluster.connect() as client:
        for n in range(50):
            await client.append(0, b"%d" % n)
    await cluster.kill_server(0)
    await cluster.start_server(0)
    await cluster.ready()
    requests: list[object] = []
    for storage in cluster.storages:
        cluster.network.frame_rules["server-0", storage.host] = requests.append
    five = await RawClient.connect(cluster, 5)
    five.send(cs.RecordsRequest(replace(req_id(60), generation=2), 10, 5, 1 << 20))
    (answer,) = await five.take()
    assert [r.data for r in answer.records] == [b"10", b"11", b"12", b"13", b"14"]
    assert any(isinstance(r, st.BoundedRecordListRequest) for r in requests)


async def test_malformed_batch_closes_the_connection(five: RawClient) -> None:
    frame = cs.encode(cs.AppendBatchRequest(req_id(1), -1, (batched("a"),)), 5)
    five.connection.send(frame[:-1] + bytes((frame[-1] ^ 1,)))
    await eventually(lambda: five.lost_because is not None)


@pytest.mark.parametrize("version", range(5))
async def test_batch_on_an_older_connection_is_malformed(
    two_servers: InProcessCluster, version: int
) -> None:
    client, there = await RawClient.connect(two_servers, version), partition_there(two_servers)
    client.send(
        cs.HighWaterMarkRequest(req_id(1, there)), cs.HighWaterMarkRequest(req_id(2, 1 - there))
    )
    (answer,) = await client.take()
    assert answer.req_id == req_id(2, 1 - there), "about what is elsewhere, 0.13.2 says nothing"
    frame = cs.encode(cs.AppendBatchRequest(req_id(1), -1, (batched("a"),)), 5)
    client.connection.send(frame[:1] + version.to_bytes(2, "big") + frame[3:])
    await eventually(lambda: client.lost_because is not None)
