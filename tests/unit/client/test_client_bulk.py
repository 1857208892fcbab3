"""Ranges, batches and streams with data, on servers of version 5 and of older versions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.support.client_cluster import ClientCluster, connected, cut_at, refuse_data, spoil_data
from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.client import (
    AppendUncertain,
    Client,
    ClientAhead,
    DataCorrupt,
    DataTooLarge,
    Draft,
    PartitionUnknown,
    ServerTooOld,
)
from waltz.client.core.batches import Absent, Appended, Refused
from waltz.client.core.requests import CHECKSUM_ATTEMPTS
from waltz.client.core.values import MAX_DATA_BYTES
from waltz.protocol import CLIENT_SERVER, STORAGE, Lock
from waltz.protocol.batches import MAX_BATCH_APPENDS, BatchedOutcome, OutcomeKind
from waltz.protocol.client_server import (
    AppendBatchRequest,
    AppendBatchResponse,
    RecordsRequest,
    TransactionDataRequest,
)
from waltz.testing import FrameFault, FrameReplacement

OLD = (0, 1, 2, 3, 4)
LOCK = Lock("account", 1)


async def read(client: Client, until: int, after: int = -1) -> list[tuple[int, bytes]]:
    stream = client.stream(0, after=after, until=until, data=True)
    return [(t.id, t.data) async for t in stream]


def filled(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(i, b"%08d" % i) for i in range(first, last + 1)]


# ---- ranges


@on_virtual_time
async def test_range_is_bounded_in_records_and_bytes_and_has_at_least_one() -> None:
    async with connected(count=10) as (cluster, client):
        found = await client.bulk.records(0, 3, max_records=4)
        assert [(r.transaction_id, r.data) for r in found.records] == filled(3, 6)
        assert found.high_water_mark == 9
        assert (await client.bulk.records(0, 3, max_bytes=1)).records.count == 1
        assert (await client.bulk.records(0, 10)).records.count == 0
        headers = await client.bulk.headers(0, 8)
        assert [h.req_id for h in headers.headers] == [t.req_id for t in cluster.transactions(0)][
            8:
        ]


@on_virtual_time
async def test_range_waits_for_the_first_record() -> None:
    async with connected() as (cluster, client):
        waiting = asyncio.ensure_future(client.bulk.records(0, 0, wait_seconds=60))
        await eventually(lambda: cluster.requests_of(RecordsRequest))
        await asyncio.sleep(30)
        assert not waiting.done()
        await client.append(0, b"first")
        assert [r.data for r in (await waiting).records] == [b"first"]


@on_virtual_time
async def test_range_beyond_the_log_raises_client_ahead() -> None:
    async with connected(count=3) as (_, client):
        with pytest.raises(ClientAhead, match="ends at transaction 2"):
            await client.bulk.records(0, 5)
        with pytest.raises(ClientAhead):
            await read(client, until=9, after=7)


@on_virtual_time
async def test_corrupt_range_is_requested_again_and_then_raises() -> None:
    async with connected(count=3) as (cluster, client):
        cluster.set_answer_rule(spoil_data(CHECKSUM_ATTEMPTS - 1))
        assert (await client.bulk.records(0, 0, max_records=1)).records.count == 1
        cluster.set_answer_rule(spoil_data(CHECKSUM_ATTEMPTS))
        with pytest.raises(DataCorrupt, match="transaction 1 "):
            await client.bulk.records(0, 1, max_records=1)


@on_virtual_time
async def test_old_server_raises_server_too_old() -> None:
    async with connected(versions=OLD) as (cluster, client):
        with pytest.raises(ServerTooOld, match="version 4"):
            await client.bulk.records(0, 0)
        with pytest.raises(ServerTooOld, match="version 4"):
            await client.bulk.append(0, [Draft(b"1")])
        assert cluster.data_of(0) == []


@on_virtual_time
async def test_invalid_bulk_arguments_are_refused() -> None:
    async with connected() as (_, client):
        with pytest.raises(PartitionUnknown):
            await client.bulk.records(1, 0)
        with pytest.raises(ValueError, match="begin at 0"):
            await client.bulk.headers(0, -1)
        with pytest.raises(ValueError, match="max_bytes is 0: it must be a whole number from 1"):
            await client.bulk.records(0, 0, max_bytes=0)
        with pytest.raises(ValueError, match="at most"):
            await client.bulk.append(0, [Draft(b"")] * (MAX_BATCH_APPENDS + 1))
        with pytest.raises(ValueError, match="one mark"):
            await client.bulk.append(0, [Draft(b"", mark=3)])
        with pytest.raises(DataTooLarge):
            await client.bulk.append(0, [Draft(bytes(MAX_DATA_BYTES)), Draft(b"1")])
        assert await client.bulk.append(0, []) == []


@on_virtual_time
async def test_too_large_data_error_names_the_batch_or_the_transaction() -> None:
    async with connected() as (_, client):
        with pytest.raises(DataTooLarge, match=r"of a batch: append it as several batches$"):
            await client.bulk.append(0, [Draft(bytes(MAX_DATA_BYTES)), Draft(b"1")])
        with pytest.raises(DataTooLarge, match="of a transaction: store them elsewhere"):
            await client.bulk.append(0, [Draft(bytes(MAX_DATA_BYTES + 1))])


# ---- batches


@on_virtual_time
async def test_each_append_of_a_batch_has_its_outcome() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"other", write_locks=[LOCK])
        drafts = [Draft(b"free"), Draft(b"late", write_locks=[LOCK]), Draft(b"free too")]
        assert await client.bulk.append(0, drafts, mark=-1) == [
            Appended(1),
            Refused(0),
            Appended(2),
        ]
        mine = [Draft(b"%d" % i, write_locks=[LOCK]) for i in range(3)]
        assert await client.bulk.append(0, mine) == [Appended(3), Appended(4), Appended(5)]
        assert len(cluster.requests_of(AppendBatchRequest)) == 2


@on_virtual_time
async def test_fault_leaves_a_prefix_of_a_batch_and_resends_nothing() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"first")

        def without_the_last_append(message: Any) -> FrameReplacement | None:
            if not isinstance(message, AppendBatchRequest):
                return None
            return FrameReplacement(replace(message, appends=message.appends[:-1]))

        def with_its_outcome(message: Any) -> FrameReplacement | None:
            if not isinstance(message, AppendBatchResponse):
                return None
            absent = BatchedOutcome(OutcomeKind.ABSENT)
            return FrameReplacement(replace(message, outcomes=(*message.outcomes, absent)))

        cluster.on_request = without_the_last_append
        cluster.set_answer_rule(with_its_outcome)
        assert await client.bulk.append(0, [Draft(b"a"), Draft(b"b")]) == [Appended(1), Absent()]
        assert cluster.data_of(0) == [b"first", b"a"]
        assert len(cluster.requests_of(AppendBatchRequest)) == 1


@on_virtual_time
async def test_batch_lost_with_its_connection_is_looked_up_and_not_sent_again() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"first")
        cluster.on_request = cut_at(AppendBatchRequest, 1)
        assert await client.bulk.append(0, [Draft(b"a"), Draft(b"b")]) == [Absent(), Absent()]
        cluster.set_answer_rule(lambda message: FrameFault.DROP)
        batch = asyncio.ensure_future(client.bulk.append(0, [Draft(b"c"), Draft(b"d")]))
        await eventually(lambda: len(cluster.data_of(0)) == 3)
        cluster.set_answer_rule(None)
        assert cluster.cut_clients() > 0
        assert await batch == [Appended(1), Appended(2)]
        assert cluster.data_of(0) == [b"first", b"c", b"d"]


@on_virtual_time
async def test_batch_without_outcome_in_time_is_uncertain() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"first")
        cluster.holding = (AppendBatchRequest,)
        with pytest.raises(AppendUncertain) as caught:
            await client.bulk.append(0, [Draft(b"a"), Draft(b"b")], timeout=0.2)
        assert caught.value.req_id == cluster.requests_of(AppendBatchRequest)[0].req_id


@on_virtual_time
async def test_batches_and_single_appends_share_the_in_flight_limit() -> None:
    async with connected(max_in_flight=3) as (cluster, client):
        outcomes = await asyncio.gather(
            *(client.bulk.append(0, [Draft(b"x")] * size) for size in (2, 2, 7, 1)),
            *(client.append(0, b"y") for _ in range(10)),
        )
        assert len(cluster.data_of(0)) == 12 + 10
        assert sum(len(out) for out in outcomes if isinstance(out, list)) == 12


# ---- streams


@pytest.mark.parametrize("versions", [OLD, CLIENT_SERVER.versions])
@on_virtual_time
async def test_stream_has_data_with_every_protocol_version(versions: tuple[int, ...]) -> None:
    async with connected(count=2500, versions=versions) as (cluster, client):
        assert await read(client, until=2444, after=4) == filled(5, 2444)
        ranges, singles = (
            cluster.requests_of(RecordsRequest),
            cluster.requests_of(TransactionDataRequest),
        )
        assert bool(ranges) is (versions is not OLD)
        assert bool(singles) is (versions is OLD)


@on_virtual_time
async def test_stream_continues_when_a_partition_moves_to_an_older_server() -> None:
    cluster = ClientCluster(servers=2)
    cluster.servers[1].versions = (CLIENT_SERVER.limited_to(*OLD), STORAGE)
    async with cluster:
        await cluster.place(0, 0)
        await eventually(lambda: cluster.owner(0) == 0)
        await cluster.fill(0, 500)
        client = await cluster.client()
        got: list[tuple[int, bytes]] = []
        async for transaction in client.stream(0, until=999, data=True):
            got.append((transaction.id, transaction.data))
            if transaction.id == 250:
                await cluster.place(0, 1)
                await eventually(lambda: cluster.owner(0) == 1)
                later = [client.append(0, b"%08d" % number) for number in range(500, 1000)]
                await asyncio.gather(*later)
        assert got == filled(0, 999)
        assert cluster.requests_of(TransactionDataRequest)


@on_virtual_time
async def test_stream_with_data_survives_lost_connections_and_errors() -> None:
    async with connected(count=5000) as (cluster, client):
        await client.high_water_mark(0)
        cluster.set_answer_rule(refuse_data(2))
        cluster.on_request = cut_at(RecordsRequest, 2, 5)
        assert await read(client, until=4999) == filled(0, 4999)


@on_virtual_time
async def test_stream_without_reader_holds_two_ranges() -> None:
    async with connected(count=20_000) as (cluster, client):
        stream = client.stream(0, data=True)
        batches = stream.batches()  # Without a reference, the end of the generator ends the stream.
        assert len(await anext(batches)) == 1000
        await eventually(lambda: len(cluster.requests_of(RecordsRequest)) >= 3)
        await asyncio.sleep(1)
        assert len(cluster.requests_of(RecordsRequest)) <= 4
        await stream.aclose()
