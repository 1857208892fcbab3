"""Streams and reads of a client of a real cluster whose connections are lost, on virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from tests.support.client_cluster import (
    ClientCluster,
    connected,
    cut_at,
    drop_first,
    refuse_data,
    spoil_data,
)
from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.client import (
    AnswerLate,
    ClientAhead,
    ClientClosed,
    ClientFailed,
    DataCorrupt,
    LogStream,
    PartitionUnknown,
    Transaction,
    TransactionNotFound,
)
from waltz.client.core.mount import MOUNT_TIMEOUT_SECONDS
from waltz.client.core.requests import CHECKSUM_ATTEMPTS
from waltz.client.stream import ServerStream
from waltz.protocol.client_server import (
    HighWaterMarkRequest,
    MountRequest,
    RecordsRequest,
    TransactionDataRequest,
)
from waltz_server.core.partition import PartitionSettings

FETCH = PartitionSettings().min_fetch
"""How many transactions a server feeds for one request at the end of the log."""


async def ids(stream: LogStream) -> list[int]:
    return [transaction.id async for transaction in stream]


@on_virtual_time
async def test_stream_ends_at_until() -> None:
    async with connected(count=50) as (_, client):
        assert await ids(client.stream(0, after=17, until=40)) == list(range(18, 41))
        assert await ids(client.stream({0: 48}, until={0: 49})) == [49]
        assert await ids(client.stream(0, after=10, until=10)) == []
        assert await ids(client.stream({})) == []


@on_virtual_time
async def test_transaction_has_id_request_id_and_header() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"hello", header=9)
        async for transaction in client.stream(0):
            req_id = cluster.transactions(0)[0].req_id
            assert transaction == Transaction(0, 0, req_id, 9, None)
            assert req_id.client_id == client.client_id
            assert await client.read(transaction.partition, transaction.id) == b"hello"
            break


@on_virtual_time
async def test_stream_waits_for_later_transactions() -> None:
    async with connected() as (_, client):
        got: list[int] = []

        async def follow() -> None:
            async for transaction in client.stream(0, until=3 * FETCH):
                got.append(transaction.id)

        following = asyncio.ensure_future(follow())
        for i in range(3 * FETCH + 1):
            await client.append(0, b"")
            await eventually(lambda i=i: got == list(range(i + 1)))  # type: ignore[misc]
        await following


@on_virtual_time
async def test_merged_partitions_are_each_in_order() -> None:
    async with ClientCluster(4, servers=2) as cluster:
        for number in range(4):
            await cluster.fill(number, 100 + number)
        client = await cluster.client()
        after = {0: -1, 1: 9, 2: 50, 3: -1}
        until = {p: 99 + p for p in range(4)}
        got = defaultdict(list)
        async for transaction in client.stream(after, until=until):
            got[transaction.partition].append(transaction.id)
        assert got == {p: list(range(after[p] + 1, until[p] + 1)) for p in after}


@on_virtual_time
async def test_stream_has_data_in_order() -> None:
    async with ClientCluster(2) as cluster:
        for number in range(2):
            await cluster.fill(number, 1500, size=20)
        client = await cluster.client()
        count = 0
        async for transaction in client.stream({0: -1, 1: -1}, until=1499, data=True):
            assert transaction.data == b"%020d" % transaction.id
            count += 1
        assert count == 3000


@on_virtual_time
async def test_batches_have_all_transactions() -> None:
    async with connected(count=2500) as (_, client):
        batches = [batch async for batch in client.stream(0, until=2499).batches()]
        assert all(0 < len(batch) <= 1000 for batch in batches)
        assert [t.id for batch in batches for t in batch] == list(range(2500))


@pytest.mark.parametrize("data", [False, True])
@on_virtual_time
async def test_lost_connections_lose_and_repeat_no_transaction(data: bool) -> None:
    async with connected(count=10) as (cluster, client):
        got: list[int] = []
        mark, cuts = 9, 0
        async for transaction in client.stream(0, until=99, data=data):
            got.append(transaction.id)
            if transaction.id % 20 == 5:
                cuts += cluster.cut_clients()
            if transaction.id == mark:
                more = 7 if mark < 90 else 9
                await cluster.fill(0, more)
                mark += more
        assert got == list(range(100))
        assert cuts > 4


@on_virtual_time
async def test_stream_follows_a_partition_to_another_server() -> None:
    async with ClientCluster(2, servers=2) as cluster:
        client = await cluster.client()
        got: list[int] = []

        async def follow() -> None:
            async for transaction in client.stream(0, until=29):
                got.append(transaction.id)

        following = asyncio.ensure_future(follow())
        for turn in range(3):
            await cluster.fill(0, 10)
            await eventually(lambda turn=turn: len(got) >= 10 * (turn + 1))  # type: ignore[misc]
            owner = cluster.owner(0)
            assert owner is not None
            await cluster.place(0, 1 - owner)
        await following
        assert got == list(range(30))
        assert {m.req_id.generation for m in cluster.requests_of(MountRequest)} >= {2, 3}


@on_virtual_time
async def test_stream_continues_after_a_server_restart() -> None:
    async with connected(count=3) as (cluster, client):
        got: list[int] = []
        async for transaction in client.stream(0, until=5):
            got.append(transaction.id)
            if transaction.id == 2:
                await cluster.kill_server()
                await cluster.start_server()
                await cluster.fill(0, 3)
        assert got == list(range(6))


@on_virtual_time
async def test_stream_has_its_own_client_id() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"")
        await ids(client.stream(0, until=0))
        await client.append(0, b"")
        mounts = cluster.requests_of(MountRequest)
        assert [m.req_id.client_id for m in mounts] == [client.client_id, client.client_id + 1]


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("version", [2, 4, 5])
@on_virtual_time
async def test_stream_position_beyond_the_log_soon_raises_client_ahead(
    version: int, data: bool
) -> None:
    async with connected(count=3, versions=(version,)) as (_, client):
        begun = asyncio.get_running_loop().time()
        with pytest.raises(ClientAhead, match="ends at transaction 2") as caught:
            await ids(client.stream(0, after=7, data=data))
        assert (caught.value.client_mark, caught.value.log_mark) == (7, 2)
        assert asyncio.get_running_loop().time() - begun < MOUNT_TIMEOUT_SECONDS


@on_virtual_time
async def test_stream_without_reader_stays_within_its_buffer() -> None:
    async with ClientCluster() as cluster:
        count = 30_000
        await cluster.fill(0, count)
        client = await cluster.client(stream_buffer=100)
        stream = client.stream(0, until=count - 1)
        assert isinstance(stream, ServerStream)
        batches = stream.batches()
        got = [transaction.id for transaction in await anext(batches)]
        await eventually(lambda: stream._paused)
        await asyncio.sleep(10)
        assert stream._buffered < 20_000, "the rest waits in the network"
        async for batch in batches:
            got += (transaction.id for transaction in batch)
        assert got == list(range(count))
        assert len({mount.seq_num for mount in cluster.requests_of(MountRequest)}) == 1


@on_virtual_time
async def test_batches_of_transactions_that_arrived_in_turns_are_in_order() -> None:
    """A batch may end within what has arrived at once: the rest precedes what came later."""
    async with connected() as (cluster, client):
        stream = client.stream(0, until=2100)
        assert isinstance(stream, ServerStream)
        batches = stream.batches()
        await cluster.fill(0, 1)
        got = [transaction.id for transaction in await anext(batches)]
        for turn in range(1, 4):
            await cluster.fill(0, 700)
            await eventually(lambda turn=turn: stream._buffered == turn * 700)  # type: ignore[misc]
        async for batch in batches:
            got += (transaction.id for transaction in batch)
        assert got == list(range(2101))


@on_virtual_time
async def test_leaving_the_loop_ends_the_stream() -> None:
    async with connected(count=3) as (cluster, client):
        async for _ in client.stream(0):
            break
        await eventually(lambda: not cluster.network.connections("client"))
        async with client.stream(0) as stream:
            async for _ in stream:
                break
        assert await ids(client.stream(0, until=2)) == [0, 1, 2]


@on_virtual_time
async def test_closed_stream_with_data_sends_no_request_while_its_iterator_is_kept() -> None:
    async with connected(count=3) as (cluster, client):
        stream = client.stream(0, data=True)
        batches = aiter(stream.batches())
        assert len(await anext(batches)) == 3
        await stream.aclose()
        sent = len(cluster.requests_of(RecordsRequest))
        await cluster.fill(0, 1)
        await asyncio.sleep(30)
        assert len(cluster.requests_of(RecordsRequest)) == sent
        with pytest.raises(ClientClosed):
            await anext(batches)


@on_virtual_time
async def test_second_loop_over_a_stream_does_not_end_the_first() -> None:
    async with connected(count=3) as (cluster, client):
        stream = client.stream(0, until=5)
        first = aiter(stream.batches())
        assert [transaction.id for transaction in await anext(first)] == [0, 1, 2]
        with pytest.raises(ClientClosed):
            await ids(stream)
        await cluster.fill(0, 3)
        assert [transaction.id async for batch in first for transaction in batch] == [3, 4, 5]


@on_virtual_time
async def test_stream_cannot_be_iterated_twice() -> None:
    async with connected(count=3) as (_, client):
        stream = client.stream(0, until=2)
        await ids(stream)
        with pytest.raises(ClientClosed, match=r"^a stream can be iterated over only once: open"):
            await ids(stream)


@on_virtual_time
async def test_close_ends_the_streams_of_a_client() -> None:
    async with connected() as (cluster, client):
        plain = asyncio.ensure_future(ids(client.stream(0)))
        with_data = asyncio.ensure_future(ids(client.stream(0, data=True)))
        await eventually(lambda: len(cluster.requests) >= 3)
        await client.close()
        for following in (plain, with_data):
            with pytest.raises(ClientClosed):
                await following
        with pytest.raises(ClientClosed):
            client.stream(0)


@pytest.mark.parametrize("data", [False, True])
@on_virtual_time
async def test_stream_that_waits_raises_the_error_of_its_client(data: bool) -> None:
    async with connected(count=3) as (_, client):
        got: list[int] = []

        async def follow() -> None:
            async for transaction in client.stream(0, data=data):
                got.append(transaction.id)

        following = asyncio.ensure_future(follow())
        await eventually(lambda: got == [0, 1, 2])
        client._fail(lambda: ClientFailed("the metadata are lost"))
        done, _ = await asyncio.wait([following], timeout=60)
        assert done, "nothing else would wake the stream"
        with pytest.raises(ClientFailed, match="the metadata are lost"):
            await following


@on_virtual_time
async def test_unknown_partition_is_refused_by_stream() -> None:
    async with connected(partitions=2) as (_, client):
        with pytest.raises(PartitionUnknown):
            client.stream({0: -1, 2: -1})


@on_virtual_time
async def test_read_verifies_the_checksum() -> None:
    async with connected(count=3) as (cluster, client):
        cluster.set_answer_rule(spoil_data(CHECKSUM_ATTEMPTS - 1))
        assert await client.read(0, 1) == b"00000001"
        cluster.set_answer_rule(spoil_data(CHECKSUM_ATTEMPTS))
        with pytest.raises(DataCorrupt, match="check the disks of the storages"):
            await client.read(0, 1)
        cluster.set_answer_rule(spoil_data(3 * CHECKSUM_ATTEMPTS))
        with pytest.raises(DataCorrupt):
            await ids(client.stream(0, until=2, data=True))


@on_virtual_time
async def test_read_beyond_the_log_sends_no_request() -> None:
    async with connected(count=3) as (cluster, client):
        for wanted in (3, 99, -1):
            with pytest.raises(TransactionNotFound, match="its log ends at 2"):
                await client.read(0, wanted)
        assert cluster.requests_of(TransactionDataRequest) == []


@on_virtual_time
async def test_read_survives_lost_connections_and_errors() -> None:
    async with connected(count=20) as (cluster, client):
        await client.high_water_mark(0)
        cluster.set_answer_rule(refuse_data(3))
        cluster.on_request = cut_at(TransactionDataRequest, 5)
        assert await asyncio.gather(*(client.read(0, i) for i in range(20))) == [
            b"%08d" % i for i in range(20)
        ]


@on_virtual_time
async def test_high_water_mark_is_returned_for_each_partition() -> None:
    async with connected(partitions=2) as (cluster, client):
        assert await client.high_water_mark(0) == -1
        await cluster.fill(1, 8)
        cluster.on_request = drop_first(1, HighWaterMarkRequest)
        assert await client.high_water_mark(1) == 7


class Text:
    """A serializer."""

    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


@on_virtual_time
async def test_serializer_is_used_for_appends_and_reads() -> None:
    async with connected(serializer=Text()) as (_, client):
        await client.append(0, "grüß")
        assert await client.read(0, 0) == "grüß"
        async for transaction in client.stream(0, data=True):
            assert transaction.data == "grüß"
            break


@on_virtual_time
async def test_read_and_high_water_mark_time_out() -> None:
    async with ClientCluster() as cluster:
        await cluster.kill_server()
        client = await cluster.client(answer_timeout=10)
        with pytest.raises(AnswerLate, match="no server answered with the high-water mark"):
            await client.high_water_mark(0, timeout=0.05)
        with pytest.raises(AnswerLate, match="the data of transaction 7 of partition 0"):
            await client.read(0, 7, timeout=0.05)
        await cluster.start_server()
        await asyncio.sleep(60)
        assert cluster.requests == [], "a call that timed out is forgotten"
        assert await client.high_water_mark(0) == -1
        with pytest.raises(TransactionNotFound):
            await client.read(0, 7)
