"""Streams and reads of a client over real connections that are lost and opened again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.fake_partition import FETCH
from tests.support.fake_server import fake_cluster
from waltz.client import (
    AnswerLate,
    ClientAhead,
    ClientClosed,
    DataCorrupt,
    LogStream,
    PartitionUnknown,
    Transaction,
    TransactionNotFound,
)
from waltz.client.core.requests import CHECKSUM_ATTEMPTS
from waltz.client.stream import ServerStream
from waltz.protocol.client_server import FeedData, MountRequest, TransactionDataRequest


async def ids(stream: LogStream) -> list[int]:
    return [transaction.id async for transaction in stream]


async def test_stream_ends_at_until() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(50)
        client = await cluster.client()
        assert await ids(client.stream(0, after=17, until=40)) == list(range(18, 41))
        assert await ids(client.stream({0: 48}, until={0: 49})) == [49]
        assert await ids(client.stream(0, after=10, until=10)) == []
        assert await ids(client.stream({})) == []


async def test_transaction_has_id_request_id_and_header() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        await client.append(0, b"hello", header=9)
        async for transaction in client.stream(0):
            req_id = cluster.logs[0].ids()[0]
            assert transaction == Transaction(0, 0, req_id, 9, None)
            assert req_id.client_id == client.client_id
            assert await client.read(transaction.partition, transaction.id) == b"hello"
            break


async def test_stream_waits_for_later_transactions() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        got: list[int] = []

        async def follow() -> None:
            async for transaction in client.stream(0, until=3 * FETCH):
                got.append(transaction.id)

        following = asyncio.ensure_future(follow())
        for i in range(3 * FETCH + 1):
            await client.append(0, b"")
            await eventually(lambda i=i: got == list(range(i + 1)))  # type: ignore[misc]
        await following


async def test_merged_partitions_are_each_in_order() -> None:
    async with fake_cluster(4) as cluster:
        await cluster.start_server(0, 1)
        await cluster.start_server(2, 3)
        for number, log in enumerate(cluster.logs):
            log.fill(100 + number)
        client = await cluster.client()
        after = {0: -1, 1: 9, 2: 50, 3: -1}
        until = {p: log.mark for p, log in enumerate(cluster.logs)}
        got = defaultdict(list)
        async for transaction in client.stream(after, until=until):
            got[transaction.partition].append(transaction.id)
        assert got == {p: list(range(after[p] + 1, until[p] + 1)) for p in after}


async def test_stream_has_data_in_order() -> None:
    async with fake_cluster(2) as cluster:
        await cluster.start_server(0, 1)
        for log in cluster.logs:
            log.fill(1500, size=20)
        client = await cluster.client()
        count = 0
        async for transaction in client.stream({0: -1, 1: -1}, until=1499, data=True):
            assert transaction.data == b"%020d" % transaction.id
            count += 1
        assert count == 3000


async def test_batches_have_all_transactions() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(2500)
        client = await cluster.client()
        batches = [batch async for batch in client.stream(0, until=2499).batches()]
        assert all(0 < len(batch) <= 1000 for batch in batches)
        assert [t.id for batch in batches for t in batch] == list(range(2500))


@pytest.mark.parametrize("data", [False, True])
async def test_lost_connections_lose_and_repeat_no_transaction(data: bool) -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        cluster.logs[0].fill(10)
        client = await cluster.client()
        got: list[int] = []
        async for transaction in client.stream(0, until=99, data=data):
            got.append(transaction.id)
            if transaction.id % 20 == 5:
                server.cut()
            if transaction.id == cluster.logs[0].mark:
                cluster.logs[0].fill(7 if transaction.id < 90 else 9)
                cluster.partition(0).pump()
        assert got == list(range(100))
        assert server.accepted > 4


async def test_stream_follows_a_partition_to_another_server() -> None:
    async with fake_cluster(2) as cluster:
        first = await cluster.start_server(0, 1)
        second = await cluster.start_server()
        client = await cluster.client()
        got: list[int] = []

        async def follow() -> None:
            async for transaction in client.stream(0, until=29):
                got.append(transaction.id)

        following = asyncio.ensure_future(follow())
        for turn in range(3):
            cluster.logs[0].fill(10)
            cluster.partition(0).pump()
            await eventually(lambda turn=turn: len(got) == 10 * (turn + 1))  # type: ignore[misc]
            await cluster.place({0: (second, first)[turn % 2]})
        await following
        assert got == list(range(30))


async def test_stream_continues_after_a_server_restart() -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        cluster.logs[0].fill(3)
        client = await cluster.client()
        got: list[int] = []
        async for transaction in client.stream(0, until=5):
            got.append(transaction.id)
            if transaction.id == 2:
                await server.stop()
                cluster.logs[0].fill(3)
                server.start()
        assert got == list(range(6))


async def test_stream_has_its_own_client_id() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        await client.append(0, b"")
        await ids(client.stream(0, until=0))
        await client.append(0, b"")
        mounts = [m for m in cluster.partition(0).handled if isinstance(m, MountRequest)]
        assert [m.req_id.client_id for m in mounts] == [client.client_id, client.client_id + 1]


@pytest.mark.parametrize("version", [2, 4])
async def test_stream_position_beyond_the_log_raises_client_ahead(version: int) -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0, versions=(version,))
        cluster.logs[0].fill(3)
        client = await cluster.client()
        with pytest.raises(ClientAhead, match="ends at transaction 2") as caught:
            await ids(client.stream(0, after=7))
        assert (caught.value.client_mark, caught.value.log_mark) == (7, 2)


async def test_stream_without_reader_stays_within_its_buffer() -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        count = 60_000
        cluster.logs[0].fill(count)
        client = await cluster.client(stream_buffer=100)
        sent = 0

        def counting(connection: Any, message: Any) -> None:
            nonlocal sent
            sent += isinstance(message, FeedData)
            original(connection, message)

        original = cluster.partition(0)._send
        cluster.partition(0)._send = counting
        stream = client.stream(0, until=count - 1)
        assert isinstance(stream, ServerStream)
        batches = stream.batches()
        first = await anext(batches)
        await eventually(lambda: sent == count and stream._paused)
        for _ in range(50):
            await asyncio.sleep(0)
        assert stream._buffered < 20_000, "the rest waits in the network"
        got = len(first)
        async for batch in batches:
            got += len(batch)
        assert got == count
        assert server.accepted == 1


async def test_leaving_the_loop_ends_the_stream() -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        cluster.logs[0].fill(3)
        client = await cluster.client()
        async for _ in client.stream(0):
            break
        await eventually(lambda: not server.connections)
        async with client.stream(0) as stream:
            async for _ in stream:
                break
        assert await ids(client.stream(0, until=2)) == [0, 1, 2]


async def test_stream_cannot_be_iterated_twice() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(3)
        client = await cluster.client()
        stream = client.stream(0, until=2)
        await ids(stream)
        with pytest.raises(ClientClosed):
            await ids(stream)


async def test_close_ends_the_streams_of_a_client() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        plain = asyncio.ensure_future(ids(client.stream(0)))
        with_data = asyncio.ensure_future(ids(client.stream(0, data=True)))
        await eventually(lambda: len(cluster.partition(0).handled) >= 3)
        await client.close()
        for following in (plain, with_data):
            with pytest.raises(ClientClosed):
                await following
        with pytest.raises(ClientClosed):
            client.stream(0)


async def test_unknown_partition_is_refused_by_stream() -> None:
    async with fake_cluster(2) as cluster:
        client = await cluster.client()
        with pytest.raises(PartitionUnknown):
            client.stream({0: -1, 2: -1})


async def test_read_verifies_the_checksum() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(3)
        client = await cluster.client()
        cluster.partition(0).spoil_data = CHECKSUM_ATTEMPTS - 1
        assert await client.read(0, 1) == b"00000001"
        cluster.partition(0).spoil_data = CHECKSUM_ATTEMPTS
        with pytest.raises(DataCorrupt, match="check the disks of the storages"):
            await client.read(0, 1)
        cluster.partition(0).spoil_data = 3 * CHECKSUM_ATTEMPTS
        with pytest.raises(DataCorrupt):
            await ids(client.stream(0, until=2, data=True))


async def test_read_beyond_the_log_sends_no_request() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(3)
        client = await cluster.client()
        for wanted in (3, 99, -1):
            with pytest.raises(TransactionNotFound, match="its log ends at 2"):
                await client.read(0, wanted)
        assert not any(isinstance(m, TransactionDataRequest) for m in cluster.partition(0).handled)


async def test_read_survives_lost_connections_and_errors() -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        cluster.logs[0].fill(20)
        client = await cluster.client()
        await client.high_water_mark(0)
        cluster.partition(0).data_errors = 3
        seen = 0

        def on_message(message: Any) -> bool:
            nonlocal seen
            seen += isinstance(message, TransactionDataRequest)
            return seen != 5

        server.on_message = on_message
        assert await asyncio.gather(*(client.read(0, i) for i in range(20))) == [
            b"%08d" % i for i in range(20)
        ]


async def test_high_water_mark_is_returned_for_each_partition() -> None:
    async with fake_cluster(2) as cluster:
        await cluster.start_server(0, 1)
        client = await cluster.client()
        assert await client.high_water_mark(0) == -1
        cluster.logs[1].fill(8)
        cluster.partition(1).silent_marks = 1
        assert await client.high_water_mark(1) == 7


class Text:
    """A serializer."""

    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


async def test_serializer_is_used_for_appends_and_reads() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client(serializer=Text())
        await client.append(0, "grüß")
        assert await client.read(0, 0) == "grüß"
        async for transaction in client.stream(0, data=True):
            assert transaction.data == "grüß"
            break


async def test_read_and_high_water_mark_time_out() -> None:
    async with fake_cluster() as cluster:
        client = await cluster.client(answer_timeout=10)
        with pytest.raises(AnswerLate, match="no server answered with the high-water mark"):
            await client.high_water_mark(0, timeout=0.05)
        with pytest.raises(AnswerLate, match="the data of transaction 7 of partition 0"):
            await client.read(0, 7, timeout=0.05)
        await cluster.start_server(0)
        assert await client.high_water_mark(0) == -1
        with pytest.raises(TransactionNotFound):
            await client.read(0, 7)
