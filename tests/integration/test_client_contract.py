"""Test the contract of `LogClient` by one suite for all its implementations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

import waltz
from waltz import Draft, Lock, LogClient
from waltz.local import LocalCluster
from waltz.testing import Faults, InProcessCluster

Connect = Callable[..., Awaitable[LogClient[Any]]]
"""Opens one more client of the same cluster, which is closed at the end of the test."""


@pytest.fixture(params=["in process", "cluster"])
def running(request: pytest.FixtureRequest) -> LocalCluster | None:
    """The cluster of processes, which is started outside of any event loop; None: in process."""
    if request.param == "in process":
        return None
    cluster: LocalCluster = request.getfixturevalue("cluster")
    return cluster


@pytest.fixture
async def opening(running: LocalCluster | None) -> AsyncIterator[Callable[..., Any]]:
    """Opens clients, as waltz.connect does."""
    if running is not None:
        yield partial(waltz.connect, running.zookeeper, root=running.root, tls=running.tls)
        return
    faults = Faults(delay_seconds=(0, 0.001), lost=0.05)
    async with InProcessCluster(3, faults=faults) as cluster:
        yield cluster.connect


@pytest.fixture
async def connect(opening: Callable[..., Any]) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def one_more(**options: Any) -> LogClient[Any]:
            client: LogClient[Any] = await stack.enter_async_context(opening(**options))
            return client

        yield one_more


@pytest.fixture
async def client(connect: Connect) -> LogClient[Any]:
    return await connect()


def row(name: str) -> list[Lock]:
    return [Lock(name, 1)]


async def test_client_has_the_cluster_parameters(connect: Connect) -> None:
    one, other = await connect(), await connect()
    assert one.num_partitions == 3
    assert one.cluster_name == other.cluster_name != ""
    assert 0 < one.client_id != other.client_id


async def test_stream_has_appends_in_order(client: LogClient[bytes]) -> None:
    before = await client.high_water_mark(0)
    ids = [await client.append(0, b"%d" % number, header=number) for number in range(5)]
    assert ids == list(range(before + 1, before + 6))
    assert await client.high_water_mark(0) == ids[-1]
    got = [t async for t in client.stream(0, after=before, until=ids[-1], data=True)]
    assert [(t.partition, t.id, t.header, t.data) for t in got] == [
        (0, ids[number], number, b"%d" % number) for number in range(5)
    ]
    assert {t.req_id.client_id for t in got} == {client.client_id}
    assert len({t.req_id for t in got}) == 5


async def test_concurrent_appends_are_committed(client: LogClient[bytes]) -> None:
    before = [await client.high_water_mark(p) for p in range(2)]
    ids = await asyncio.gather(*(client.append(i % 2, b"%d" % i) for i in range(200)))
    for partition in range(2):
        first = before[partition] + 1
        assert sorted(ids[partition::2]) == list(range(first, first + 100))
    for i in (0, 1, 77, 198):
        assert await client.read(i % 2, ids[i]) == b"%d" % i


async def test_stream_waits_for_later_transactions(connect: Connect) -> None:
    writer, reader = await connect(), await connect()
    before = {p: await reader.high_water_mark(p) for p in range(2)}
    stream = reader.stream(before)
    taking = aiter(stream)
    for number in range(4):
        appended = await writer.append(number % 2, b"x")
        transaction = await asyncio.wait_for(anext(taking), 20)
        assert (transaction.partition, transaction.id) == (number % 2, appended)
        assert transaction.data is None
    await stream.aclose()


async def test_stream_ends_at_until(client: LogClient[bytes]) -> None:
    before = await client.high_water_mark(1)
    for _ in range(5):
        await client.append(1, b"x")
    marks = {0: await client.high_water_mark(0), 1: before}
    until = {0: marks[0], 1: before + 3}
    batches = [batch async for batch in client.stream(marks, until=until).batches()]
    assert [t.id for batch in batches for t in batch] == [before + 1, before + 2, before + 3]
    assert [t async for t in client.stream(1, after=before, until=before - 1)] == []


async def test_stream_cannot_be_iterated_twice(client: LogClient[bytes]) -> None:
    tx = await client.append(0, b"x")
    stream = client.stream(0, after=tx - 1, until=tx)
    assert [t.id async for t in stream] == [tx]
    with pytest.raises(waltz.ClientClosed):
        [t async for t in stream]


async def test_taken_lock_raises_lock_failed(connect: Connect) -> None:
    one, other = await connect(), await connect()
    before = await one.mount(0)
    taken = await other.append(0, b"mine", write_locks=row("a"))
    for writes, reads in ((row("a"), []), ([], row("a"))):
        with pytest.raises(waltz.LockFailed) as caught:
            await one.append(0, b"late", mark=before, write_locks=writes, read_locks=reads)
        assert caught.value.partition == 0
        assert caught.value.transaction_id >= taken
    tx = await one.append(0, b"in time", write_locks=row("a"), mark=taken)
    assert tx == taken + 1


async def test_read_locks_share_and_append_locks_are_not_checked(client: LogClient[bytes]) -> None:
    first = await client.append(0, b"a", append_locks=row("b"))
    await client.append(0, b"b", append_locks=row("b"), mark=first - 1)
    with pytest.raises(waltz.LockFailed):
        await client.append(0, b"c", read_locks=row("b"), mark=first)
    now = await client.high_water_mark(0)
    await client.append(0, b"d", read_locks=row("c"), mark=now)
    await client.append(0, b"e", read_locks=row("c"), mark=now)
    await client.append(0, b"f", write_locks=row("c"), mark=now)


async def test_locks_of_partitions_are_independent(client: LogClient[bytes]) -> None:
    marks = [await client.high_water_mark(p) for p in range(2)]
    await client.append(0, b"x", write_locks=row("d"), mark=marks[0])
    await client.append(1, b"x", write_locks=row("d"), mark=marks[1])


async def test_submit_builds_the_transaction_again_after_a_conflict(connect: Connect) -> None:
    one, other = await connect(), await connect()
    attempts: list[waltz.Attempt] = []

    async def build(attempt: waltz.Attempt) -> Draft[bytes]:
        attempts.append(attempt)
        if attempt.number == 1:
            await other.append(2, b"x", write_locks=row("e"))
        return Draft(b"mine", write_locks=row("e"))

    tx = await one.submit(2, build)
    assert len(attempts) >= 2
    assert attempts[1].conflict is not None
    assert attempts[1].mark >= attempts[1].conflict > attempts[0].mark
    assert tx is not None
    assert await one.read(2, tx) == b"mine"


async def test_submit_without_draft_returns_none(client: LogClient[bytes]) -> None:
    before = await client.high_water_mark(2)
    assert await client.submit(2, lambda _: None) is None
    assert await client.high_water_mark(2) == before


async def test_submit_raises_the_error_of_build(client: LogClient[bytes]) -> None:
    def build(attempt: waltz.Attempt) -> Draft[bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await client.submit(2, build)
    with pytest.raises(TypeError, match=r"must return a waltz\.Draft"):
        await client.submit(2, lambda _: b"bytes")  # type: ignore[arg-type]


async def test_read_beyond_the_log_raises_transaction_not_found(client: LogClient[bytes]) -> None:
    mark = await client.high_water_mark(0)
    for number in (mark + 1, -1):
        with pytest.raises(waltz.TransactionNotFound):
            await client.read(0, number)


async def test_mark_of_another_log_raises_client_ahead(connect: Connect) -> None:
    client = await connect()
    mark = await client.high_water_mark(1)
    with pytest.raises(waltz.ClientAhead) as caught:
        [t async for t in client.stream(1, after=mark + 100)]
    assert (caught.value.client_mark, caught.value.log_mark) == (mark + 100, mark)
    assert await client.mount(1, mark + 100) == mark + 100
    with pytest.raises(waltz.ClientAhead):
        await client.append(1, b"x")


async def test_invalid_data_raises_named_errors(client: LogClient[Any]) -> None:
    with pytest.raises(waltz.PartitionUnknown):
        await client.append(3, b"x")
    with pytest.raises(waltz.PartitionUnknown):
        client.stream(-1)
    for call in (client.mount, client.high_water_mark):
        with pytest.raises(waltz.PartitionUnknown):
            await call(3)
    with pytest.raises(TypeError, match="data is str, not bytes"):
        await client.append(0, "text")


async def test_serializer_is_used_for_appends_and_reads(connect: Connect) -> None:
    client = await connect(serializer=waltz.JsonSerializer())
    tx = await client.append(0, {"to": "Jürgen"})
    assert await client.read(0, tx) == {"to": "Jürgen"}
    [transaction] = [t async for t in client.stream(0, after=tx - 1, until=tx, data=True)]
    assert transaction.data == {"to": "Jürgen"}


async def test_transactions_before_unreadable_data_are_yielded(connect: Connect) -> None:
    raw, client = await connect(), await connect(serializer=waltz.JsonSerializer())
    before = await raw.high_water_mark(2)
    for data in (b"1", b"2", b"{", b"4"):
        await raw.append(2, data)
    log = aiter(client.stream(2, after=before, data=True))
    assert [(await anext(log)).data, (await anext(log)).data] == [1, 2]
    with pytest.raises(ValueError, match="Expecting"):
        await anext(log)
    with pytest.raises(ValueError, match="Expecting"):
        await client.read(2, before + 3)


async def test_flush_waits_for_appends_called_before(client: LogClient[bytes]) -> None:
    before = await client.high_water_mark(0)
    appends = [asyncio.ensure_future(client.append(0, b"x")) for _ in range(20)]
    await asyncio.sleep(0)
    assert client.pending == 20
    await client.flush()
    assert client.pending == 0
    await asyncio.sleep(0)
    assert sorted(append.result() for append in appends) == list(range(before + 1, before + 21))


async def test_appends_beyond_the_limit_in_flight_wait_and_succeed(connect: Connect) -> None:
    client = await connect(max_in_flight=2)
    before = await client.high_water_mark(0)
    ids = await asyncio.gather(*(client.append(0, b"x") for _ in range(20)))
    assert sorted(ids) == list(range(before + 1, before + 21))


async def test_mount_returns_the_last_transaction_fed(connect: Connect) -> None:
    client = await connect()
    mark = await client.high_water_mark(0)
    assert await client.mount(0) == mark
    tx = await client.append(0, b"x")
    assert await client.mount(0) == tx


async def test_closed_client_refuses_every_call(connect: Connect) -> None:
    client = await connect()
    await client.append(0, b"x")
    stream = client.stream(0, after=await client.high_water_mark(0))
    waiting = asyncio.ensure_future(anext(aiter(stream)))
    await asyncio.sleep(0)
    await client.close()
    await client.close()
    with pytest.raises(waltz.ClientClosed):
        await waiting
    for call in (client.append(0, b"x"), client.mount(0), client.read(0, 0), client.flush()):
        with pytest.raises(waltz.ClientClosed):
            await call
    with pytest.raises(waltz.ClientClosed):
        client.stream(0)


async def test_cancelled_append_does_not_affect_other_appends(client: LogClient[bytes]) -> None:
    appends = [asyncio.ensure_future(client.append(0, b"x")) for _ in range(10)]
    await asyncio.sleep(0)
    appends[3].cancel()
    results = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(results[3], asyncio.CancelledError)
    ids = [result for result in results if isinstance(result, int)]
    assert len(set(ids)) == 9


async def test_metrics_have_the_same_names(client: LogClient[bytes]) -> None:
    await client.append(0, b"x", write_locks=row("f"))
    form = client.metrics.http_form()
    assert form["gauges"]["waltz-client.cluster-name"]["value"] == client.cluster_name
    group = "waltz-client-stream.partition-0"
    assert form["gauges"][f"{group}.is-mounted"]["value"] is True
    assert form["gauges"][f"{group}.high-water-mark"]["value"] >= 0
    assert form["meters"][f"{group}.send-throughput"]["count"] == 1
    assert form["timers"][f"{group}.append-latency"]["count"] == 1


async def test_batch_is_in_the_log_in_its_order(client: LogClient[bytes]) -> None:
    drafts = [Draft(b"batch %d" % number, header=number) for number in range(7)]
    outcomes = await client.bulk.append(2, drafts)
    ids = [each.transaction_id for each in outcomes if isinstance(each, waltz.Appended)]
    assert ids == list(range(ids[0], ids[0] + 7))
    read = await client.bulk.records(2, ids[0])
    assert [(r.transaction_id, r.header, r.data) for r in read.records] == [
        (i, draft.header, draft.data) for i, draft in zip(ids, drafts, strict=True)
    ]
    assert read.high_water_mark == ids[-1] == await client.high_water_mark(2)
    headers = (await client.bulk.headers(2, ids[0])).headers
    assert [h.req_id for h in headers] == [r.req_id for r in read.records]
    assert {h.req_id.client_id for h in headers} == {client.client_id}


async def test_each_append_of_a_batch_is_checked_by_its_own_locks(connect: Connect) -> None:
    one, other = await connect(), await connect()
    mark = await one.high_water_mark(2)
    taken = await other.append(2, b"quicker", write_locks=row("batch"))
    drafts = [
        Draft(b"free", write_locks=row("unused")),
        Draft(b"late", write_locks=row("batch")),
        Draft(b"free, too", write_locks=row("unused")),
    ]
    outcomes = await one.bulk.append(2, drafts, mark=mark)
    assert outcomes == [
        waltz.Appended(taken + 1),
        waltz.Refused(taken),
        waltz.Appended(taken + 2),
    ]


async def test_range_ends_at_its_bounds_and_at_the_end_of_the_log(client: LogClient[bytes]) -> None:
    await client.bulk.append(2, [Draft(b"x" * 100) for _ in range(5)])
    end = await client.high_water_mark(2)
    first = end - 4
    assert len((await client.bulk.records(2, first, max_records=3)).records) == 3
    assert len((await client.bulk.records(2, first, max_bytes=1)).records) == 1
    assert len((await client.bulk.headers(2, first, max_headers=2)).headers) == 2
    assert not (await client.bulk.records(2, end + 1)).records
    with pytest.raises(waltz.ClientAhead):
        await client.bulk.records(2, end + 2)
    waiting = asyncio.ensure_future(client.bulk.records(2, end + 1, wait_seconds=30))
    await asyncio.sleep(0)
    await client.append(2, b"awaited")
    assert [record.data for record in (await waiting).records] == [b"awaited"]


async def test_invalid_batch_or_range_is_refused(client: LogClient[bytes]) -> None:
    assert await client.bulk.append(2, []) == []
    with pytest.raises(ValueError, match="one mark"):
        await client.bulk.append(2, [Draft(b"x", mark=1)])
    with pytest.raises(ValueError, match="begin at 0"):
        await client.bulk.records(2, -1)
    with pytest.raises(ValueError, match="max_headers is 0: it must be a whole number from 1"):
        await client.bulk.headers(2, 0, max_headers=0)
    with pytest.raises(waltz.PartitionUnknown):
        await client.bulk.append(99, [Draft(b"x")])
