"""Batches of columns have the same transactions as the stream of objects, and its errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.client_cluster import ClientCluster, connected, spoil_data
from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.client import (
    ClientAhead,
    ClientClosed,
    ClientFailed,
    ColumnBatch,
    DataCorrupt,
    PartitionUnknown,
    ServerTooOld,
)
from waltz.client.core.requests import CHECKSUM_ATTEMPTS
from waltz.client.stream_ranges import COLUMN_LIMITS
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.sync import opened
from waltz.testing import SyncCluster

INTS = st.integers(-(2**31), 2**31 - 1)
FIELDS = st.tuples(st.builds(ReqId, INTS, INTS, INTS, INTS), INTS)
SIZES = st.one_of(st.binary(max_size=20), st.binary(min_size=9, max_size=9))


@given(
    first=st.integers(0, 2**62),
    fields=st.lists(st.tuples(FIELDS, SIZES), min_size=1, max_size=12)
    | st.lists(st.tuples(FIELDS, st.just(b"same size")), min_size=1, max_size=12),
)
def test_columns_have_the_fields_of_all_records(
    first: int, fields: list[tuple[tuple[ReqId, int], bytes]]
) -> None:
    records = [
        Record(first + number, req_id, header, data, checksum(data))
        for number, ((req_id, header), data) in enumerate(fields)
    ]
    batch = ColumnBatch(3, RecordBatch.of(records))
    assert len(batch) == len(records)
    assert list(batch.ids) == [each.transaction_id for each in records]
    assert list(batch.headers) == [each.header for each in records]
    assert batch.req_ids == [each.req_id for each in records]
    assert list(batch.client_ids) == [each.req_id.client_id for each in records]
    assert list(batch.generations) == [each.req_id.generation for each in records]
    assert list(batch.seqs) == [each.req_id.seq for each in records]
    assert batch.data == [each.data for each in records]
    assert [batch.buffer[start:end] for start, end in batch.spans] == batch.data
    table = batch.to_arrow().to_pydict()
    assert table["transaction_id"] == list(batch.ids)
    assert table["data"] == batch.data


def test_records_of_different_sizes_with_a_round_mean_keep_their_data() -> None:
    data = [b"1234", b"", b"12"]
    records = [Record(i, ReqId(1, 0, 0, i), i, each, 0) for i, each in enumerate(data)]
    batch = ColumnBatch(0, RecordBatch.of(records))
    assert batch.data == data
    assert list(batch.headers) == [0, 1, 2]


def test_to_pandas_has_one_row_for_each_transaction() -> None:
    records = [Record(i, ReqId(1, 0, 0, i), i, b"x", 0) for i in range(3)]
    frame = ColumnBatch(0, RecordBatch.of(records)).to_pandas()
    assert list(frame.transaction_id) == [0, 1, 2]


def test_import_of_the_client_imports_no_arrow() -> None:
    program = "import sys, waltz.client; sys.exit(bool({'numpy', 'pyarrow'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@on_virtual_time
async def test_batches_have_all_transactions_between_their_bounds() -> None:
    async with connected(count=50) as (cluster, client):
        got = [batch async for batch in client.batches(0, after=17, until=40)]
        assert [number for batch in got for number in batch.ids] == list(range(18, 41))
        stored = cluster.transactions(0)[18:41]
        assert [data for batch in got for data in batch.data] == [each.data for each in stored]
        assert [r for batch in got for r in batch.req_ids] == [each.req_id for each in stored]
        assert [batch async for batch in client.batches(0, after=10, until=10)] == []


@on_virtual_time
async def test_batches_are_larger_than_those_of_a_stream() -> None:
    async with connected(count=3000) as (_, client):
        sizes = [len(batch) async for batch in client.batches(0, until=2999)]
        assert sizes == [3000]
        assert COLUMN_LIMITS.records > 3000


@on_virtual_time
async def test_batches_of_several_partitions_are_each_in_order() -> None:
    async with ClientCluster(2, servers=2) as cluster:
        for number in range(2):
            await cluster.fill(number, 100)
        client = await cluster.client()
        got: dict[int, list[int]] = {0: [], 1: []}
        async for batch in client.batches({0: -1, 1: 49}, until=99):
            got[batch.partition] += batch.ids
        assert got == {0: list(range(100)), 1: list(range(50, 100))}


@on_virtual_time
async def test_batches_wait_for_later_transactions() -> None:
    async with connected() as (_, client):
        got: list[int] = []

        async def follow() -> None:
            async for batch in client.batches(0, until=2):
                got.extend(batch.ids)

        following = asyncio.ensure_future(follow())
        for number in range(3):
            await client.append(0, b"")
            await eventually(lambda number=number: got == list(range(number + 1)))  # type: ignore[misc]
        await following


@on_virtual_time
async def test_batches_continue_after_a_lost_connection() -> None:
    async with connected(count=20_000) as (cluster, client):
        got: list[int] = []
        async for batch in client.batches(0, until=19_999):
            if not got:
                cluster.network.cut("client", cluster.servers[0].host)
            got += batch.ids
        assert got == list(range(20_000))


@on_virtual_time
async def test_transactions_of_batches_count_as_received() -> None:
    async with connected(count=30) as (_, client):
        async for _ in client.batches(0, until=29):
            pass
        assert client._metrics.of(0).received == 30


@on_virtual_time
async def test_batches_with_wrong_checksums_raise_data_corrupt() -> None:
    async with connected(count=5) as (cluster, client):
        cluster.set_answer_rule(spoil_data(CHECKSUM_ATTEMPTS - 1))
        assert [len(batch) async for batch in client.batches(0, until=4)] == [5]
        cluster.set_answer_rule(spoil_data(CHECKSUM_ATTEMPTS))
        with pytest.raises(DataCorrupt):
            await anext(aiter(client.batches(0)))


@on_virtual_time
async def test_failed_batches_return_what_has_arrived_before_their_error() -> None:
    async with connected(count=20_000) as (_, client):
        stream = client.batches(0)
        batches = aiter(stream)
        got = list((await anext(batches)).ids)
        await asyncio.sleep(1)
        stream.fail(ClientFailed("for the test"))

        async def take_the_rest() -> None:
            async for batch in batches:
                got.extend(batch.ids)

        with pytest.raises(ClientFailed):
            await take_the_rest()
        assert got == list(range(20_000))


@on_virtual_time
async def test_closed_batches_raise_client_closed() -> None:
    async with connected(count=5) as (_, client):
        stream = client.batches(0)
        await stream.aclose()
        with pytest.raises(ClientClosed, match="this client is closed"):
            await anext(aiter(stream))


@on_virtual_time
async def test_batches_cannot_be_iterated_twice() -> None:
    async with connected(count=5) as (_, client):
        stream = client.batches(0, until=4)
        assert [len(batch) async for batch in stream] == [5]
        with pytest.raises(ClientClosed, match=r"^a stream can be iterated over only once: open"):
            await anext(aiter(stream))


@on_virtual_time
async def test_batches_that_wait_end_when_their_client_is_closed() -> None:
    async with connected(count=1) as (_, client):
        batches = aiter(client.batches(0))
        assert list((await anext(batches)).ids) == [0]
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(1)
        await client.close()
        with pytest.raises(ClientClosed):
            await waiting


@on_virtual_time
async def test_batches_beyond_the_log_raise_client_ahead() -> None:
    async with connected(count=5) as (_, client):
        with pytest.raises(ClientAhead):
            await anext(aiter(client.batches(0, after=7)))


@on_virtual_time
async def test_batches_of_an_unknown_partition_are_refused() -> None:
    async with connected() as (_, client):
        with pytest.raises(PartitionUnknown):
            client.batches(9)


@on_virtual_time
async def test_batches_of_an_old_server_raise_server_too_old() -> None:
    async with ClientCluster(versions=(0, 1, 2, 3, 4)) as cluster:
        client = await cluster.client()
        with pytest.raises(ServerTooOld):
            await anext(aiter(client.batches(0)))


def test_sync_batches_are_those_of_the_asyncio_client() -> None:
    with SyncCluster() as cluster, opened(cluster.connect()) as client:
        for number in range(10):
            client.append(0, b"%d" % number)
        with client.batches(0, after=3, until=9) as batches:
            assert [data for batch in batches for data in batch.data] == [
                b"%d" % number for number in range(4, 10)
            ]
        with pytest.raises(ClientClosed):
            next(batches)
