"""Protocol version 5 over real sockets: ranges, batches, waits; every request is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from tests.support.fake_storage import FakeStorage
from tests.support.server_host import (
    Client,
    Host,
    batched,
    connect,
    mount,
    new_append,
    req_id,
    serving,
)
from waltz.metadata.core.formats import UNRESOLVED
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.records import EMPTY_BATCH
from waltz_server.core.partition import PartitionSettings

THERE = 2
"""A partition that is on another server."""


@pytest.fixture
async def storage() -> AsyncIterator[FakeStorage]:
    storage = FakeStorage()
    storage.start()
    yield storage
    await storage.stop()


@pytest.fixture
async def host(storage: FakeStorage) -> AsyncIterator[Host]:
    async with serving(storage) as host:
        yield host


@pytest.fixture
async def five(host: Host) -> AsyncIterator[Client]:
    client = await connect(host, 5)
    yield client
    assert client.connection is not None
    client.connection.close()


async def test_every_request_to_a_partition_not_on_this_server_is_answered(
    five: Client,
) -> None:
    five.send_messages(
        cs.HighWaterMarkRequest(req_id(1, THERE)),
        cs.RecordsRequest(req_id(2, THERE), 0, 10, 1000, 5000),
        cs.HeadersRequest(req_id(3, THERE), 0, 10),
        cs.AppendBatchRequest(req_id(4, THERE), -1, (batched("a"), batched("b"))),
    )
    mark, records, headers, batch = await five.take(4)
    assert mark == cs.HighWaterMarkResponse(req_id(1, THERE), UNRESOLVED)
    assert (records.high_water_mark, records.records) == (UNRESOLVED, EMPTY_BATCH)
    assert (headers.high_water_mark, headers.headers) == (UNRESOLVED, ())
    assert "not on this server" in records.error
    assert records.error == headers.error
    assert batch == cs.AppendBatchResponse(
        req_id(4, THERE), (BatchedOutcome(OutcomeKind.ABSENT),) * 2
    )


async def test_batch_is_appended_read_and_fed(five: Client, storage: FakeStorage) -> None:
    await mount(five)
    five.send_messages(cs.FeedRequest(req_id(), -1))
    five.send_messages(cs.AppendBatchRequest(req_id(10), -1, tuple(batched(t) for t in "abc")))
    messages = await five.take(4)
    assert messages[0] == cs.AppendBatchResponse(
        req_id(10), tuple(BatchedOutcome(OutcomeKind.COMMITTED, n) for n in range(3))
    )
    assert messages[1:] == [cs.FeedData(req_id(10 + n), n, 5) for n in range(3)]
    assert storage.partitions[0].texts == ["a", "b", "c"]
    five.send_messages(
        cs.RecordsRequest(req_id(20), 1, 10, 1000), cs.HeadersRequest(req_id(21), 0, 2)
    )
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
    five: Client, storage: FakeStorage
) -> None:
    await mount(five)
    five.send_messages(
        new_append("first", 1),
        cs.AppendBatchRequest(req_id(2), -1, (batched("second"), batched("third"))),
        new_append("fourth", 9),
        cs.FlushRequest(req_id(10)),
    )
    await five.take(2)
    assert storage.partitions[0].texts == ["first", "second", "third", "fourth"]


async def test_repeated_range_reads_with_a_wait_follow_the_log(five: Client, host: Host) -> None:
    writer = await connect(host, 4)
    await mount(writer)
    got: list[bytes] = []
    for number in range(20):
        five.send_messages(cs.RecordsRequest(req_id(number), len(got), 100, 1 << 20, 10_000))
        writer.send_messages(new_append(f"{number}", number))
        (answer,) = await five.take()
        got += [r.data for r in answer.records]
    await eventually(lambda: len(got) == 20)
    assert got == [b"%d" % number for number in range(20)]
    assert writer.connection is not None
    writer.connection.close()


async def test_range_read_with_a_wait_ends_with_an_empty_answer(five: Client, host: Host) -> None:
    await eventually(lambda: host.hosted[0].core.store.is_open)
    five.send_messages(cs.RecordsRequest(req_id(1), 0, 10, 1000, 30))
    (answer,) = await five.take()
    assert answer == cs.RecordsResponse(req_id(1), None, -1, EMPTY_BATCH)


async def test_records_not_in_memory_come_from_the_storage(
    storage: FakeStorage,
) -> None:
    async with serving(storage, PartitionSettings(recent_bytes=0)) as host:
        client = await connect(host, 5)
        await mount(client)
        appends = tuple(batched(f"{n}") for n in range(50))
        client.send_messages(cs.AppendBatchRequest(req_id(1), -1, appends))
        await client.take()
        client.send_messages(cs.RecordsRequest(req_id(60), 10, 5, 1 << 20))
        (answer,) = await client.take()
        assert client.connection is not None
        client.connection.close()
    assert [r.data for r in answer.records] == [b"10", b"11", b"12", b"13", b"14"]
    assert any(
        type(r).__name__ in ("RecordListRequest", "BoundedRecordListRequest")
        for r in storage.requests
    )


async def test_malformed_batch_closes_the_connection(five: Client) -> None:
    frame = cs.encode(cs.AppendBatchRequest(req_id(1), -1, (batched("a"),)), 5)
    assert five.connection is not None
    five.connection.send(frame[:-1] + bytes((frame[-1] ^ 1,)))
    await eventually(lambda: five.lost_because is not None)


@pytest.mark.parametrize("version", range(5))
async def test_batch_on_an_older_connection_is_malformed(host: Host, version: int) -> None:
    client = await connect(host, version)
    client.send_messages(
        cs.HighWaterMarkRequest(req_id(1, THERE)), cs.HighWaterMarkRequest(req_id(2))
    )
    (answer,) = await client.take()
    assert answer.req_id == req_id(2), "about what is elsewhere, 0.13.2 says nothing"
    assert client.connection is not None
    frame = cs.encode(cs.AppendBatchRequest(req_id(1), -1, (batched("a"),)), 5)
    client.connection.send(frame[:1] + version.to_bytes(2, "big") + frame[3:])
    await eventually(lambda: client.lost_because is not None)
