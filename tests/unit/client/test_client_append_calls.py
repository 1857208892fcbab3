"""Test appends of a client over real connections to fake servers with faults."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.fake_partition import FakePartition
from tests.support.fake_server import FakeServer, fake_cluster
from waltz.client import (
    AnswerLate,
    AppendUncertain,
    Attempt,
    ClientAhead,
    ClientClosed,
    ClusterUnreachable,
    DataTooLarge,
    Draft,
    LockFailed,
    PartitionUnknown,
    ServerTooOld,
)
from waltz.client.core.values import MAX_DATA_BYTES
from waltz.protocol import Lock
from waltz.protocol.client_server import AppendRequest, FlushRequest, MountRequest


def sent_appends(partition: FakePartition) -> list[AppendRequest]:
    return [m for m in partition.handled if isinstance(m, AppendRequest)]


async def test_append_returns_its_transaction_id() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(5)
        client = await cluster.client()
        assert await client.append(0, b"one", header=7) == 5
        assert await client.append(0, b"two") == 6
        entry = cluster.logs[0].entries[5]
        assert (entry.data, entry.header) == (b"one", 7)
        assert entry.req_id.client_id == client.client_id


async def test_overlapping_appends_get_all_ids() -> None:
    async with fake_cluster(2) as cluster:
        await cluster.start_server(0, 1)
        client = await cluster.client()
        ids = await asyncio.gather(*(client.append(i % 2, b"%d" % i) for i in range(400)))
        assert sorted(ids) == sorted(list(range(200)) * 2)
        for i, transaction_id in enumerate(ids):
            assert cluster.logs[i % 2].entries[transaction_id].data == b"%d" % i


async def test_first_append_mounts_at_the_end_of_the_log() -> None:
    """An append does not need the earlier transactions."""
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(1000)
        client = await cluster.client()
        await client.append(0, b"x")
        [mount] = [m for m in cluster.partition(0).handled if isinstance(m, MountRequest)]
        assert mount.client_high_water_mark == 999


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_append_works_with_every_protocol_version(version: int) -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0, versions=tuple(range(version + 1)))
        client = await cluster.client()
        await client.append(0, b"x", write_locks=[Lock("row", 1)])
        with pytest.raises(LockFailed):
            await client.append(0, b"y", write_locks=[Lock("row", 1)], mark=-1)
        if version >= 1:
            await client.append(0, b"z", read_locks=[Lock("row", 1)])
        else:
            with pytest.raises(ServerTooOld, match="upgrade the server"):
                await client.append(0, b"z", read_locks=[Lock("row", 1)])
        if version >= 2:
            await client.append(0, b"z", append_locks=[Lock("row", 2)])
        else:
            with pytest.raises(ServerTooOld):
                await client.append(0, b"z", append_locks=[Lock("row", 2)])
        assert await client.append(0, b"after") >= 0


async def test_lock_failure_names_the_conflicting_transaction() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        one, other = await cluster.client(), await cluster.client()
        await one.mount(0)
        taken = await other.append(0, b"mine", write_locks=[Lock("row", 1)])
        with pytest.raises(LockFailed, match="transaction 0") as caught:
            await one.append(0, b"too late", write_locks=[Lock("row", 1)], mark=taken - 1)
        assert caught.value.transaction_id == taken
        assert caught.value.partition == 0
        await one.append(0, b"in time", write_locks=[Lock("row", 1)], mark=taken)
        assert [e.data for e in cluster.logs[0].entries] == [b"mine", b"in time"]


async def test_append_locks_are_taken_and_not_checked() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        row = Lock("row", 1)
        await client.append(0, b"a", append_locks=[row])
        await client.append(0, b"b", append_locks=[row], mark=-1)
        with pytest.raises(LockFailed):
            await client.append(0, b"c", read_locks=[row], mark=0)


async def test_submit_builds_again_after_a_conflict() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        one, other = await cluster.client(), await cluster.client()
        row = [Lock("row", 1)]
        await one.mount(0)
        attempts: list[Attempt] = []

        async def build(attempt: Attempt) -> Draft:
            attempts.append(attempt)
            if attempt.number <= 2:
                await other.append(0, b"in between", write_locks=row)
            return Draft(b"attempt %d" % attempt.number, write_locks=row, mark=attempt.mark)

        assert await one.submit(0, build) == 2
        assert [a.number for a in attempts] == [1, 2, 3]
        assert [a.conflict for a in attempts] == [None, 0, 1]
        assert all(a.mark >= a.conflict for a in attempts if a.conflict is not None)
        assert [e.data for e in cluster.logs[0].entries][-1] == b"attempt 3"


async def test_submit_without_draft_returns_none() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        assert await client.submit(0, lambda attempt: None) is None
        assert await client.submit(0, lambda attempt: Draft(b"x")) == 0
        assert len(cluster.logs[0].entries) == 1


async def test_submit_timeout_includes_waiting_for_a_server() -> None:
    async with fake_cluster() as cluster:
        client = await cluster.client(append_timeout=0.05)
        for timeout in (None, 0.05):
            with pytest.raises(ClusterUnreachable, match="partition 0 was not mounted"):
                await client.submit(0, lambda attempt: Draft(b"a"), timeout=timeout)


async def test_submit_timeout_includes_build() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        never: asyncio.Future[Draft] = asyncio.get_running_loop().create_future()
        with pytest.raises(ClusterUnreachable, match="build did not return") as caught:
            await client.submit(0, lambda attempt: never, timeout=0.05)
        assert str(caught.value) == (
            "build did not return within the timeout of submit; nothing was sent: make build "
            "faster, or raise the timeout"
        )
        assert cluster.logs[0].entries == []


async def test_submit_timeout_includes_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends by a state that never catches up are refused repeatedly, after a delay."""
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + ahead)
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        row = [Lock("row", 1)]
        await client.append(0, b"a", write_locks=row)
        begun: list[float] = []

        def build(attempt: Attempt) -> Draft:
            nonlocal ahead
            begun.append(real())
            if attempt.number == 4:
                ahead += 100.0
            return Draft(b"b", write_locks=row, mark=-1)

        with pytest.raises(LockFailed) as caught:
            await client.submit(0, build, timeout=90)
        assert caught.value.transaction_id == 0
        assert len(begun) == 4
        assert all(later - earlier > 0.01 for earlier, later in pairwise(begun))
        assert [e.data for e in cluster.logs[0].entries] == [b"a"]


async def test_submit_refuses_a_build_result_that_is_no_draft() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        build: Any = lambda attempt: b"data"  # noqa: E731 - what the types would refuse
        with pytest.raises(TypeError, match=r"build returned bytes: it must return a waltz\.Draft"):
            await client.submit(0, build)


async def test_mount_and_flush_time_out() -> None:
    async with fake_cluster() as cluster:
        client = await cluster.client(answer_timeout=0.05)
        with pytest.raises(ClusterUnreachable, match="partition 0 was not mounted"):
            await client.mount(0)
        append = asyncio.ensure_future(client.append(0, b"a"))
        await asyncio.sleep(0)
        with pytest.raises(AnswerLate, match=r"not every append .* had its outcome"):
            await client.flush()
        await cluster.start_server(0)
        await client.flush(timeout=10)
        assert await append == 0


async def test_submit_raises_the_error_of_build() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()

        def build(attempt: Attempt) -> Draft:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await client.submit(0, build)


def cut_at_append(server: FakeServer, number: int, *, after: bool) -> None:
    """Lose the connection at the ``number``-th append, before or after it is committed."""
    seen = 0

    def on_message(message: Any) -> bool:
        nonlocal seen
        if isinstance(message, AppendRequest):
            seen += 1
            if seen == number:
                if after:
                    partition = server.partitions[message.req_id.partition]
                    partition.log.commit(message)
                return False
        return True

    server.on_message = on_message


@pytest.mark.parametrize("after", [False, True])
async def test_appends_survive_a_lost_connection(after: bool) -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        client = await cluster.client()
        await client.mount(0)
        cut_at_append(server, 20, after=after)
        ids = await asyncio.gather(*(client.append(0, b"%d" % i) for i in range(50)))
        assert sorted(ids) == list(range(50))
        for i, transaction_id in enumerate(ids):
            assert cluster.logs[0].entries[transaction_id].data == b"%d" % i
        req_ids = cluster.logs[0].ids()
        assert len(set(req_ids)) == len(req_ids) == 50


async def test_appends_survive_repeated_connection_losses() -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        client = await cluster.client()
        await client.mount(0)
        seen = 0

        def on_message(message: Any) -> bool:
            nonlocal seen
            seen += isinstance(message, AppendRequest)
            return seen % 37 != 0 or not isinstance(message, AppendRequest)

        server.on_message = on_message
        await asyncio.gather(*(client.append(0, b"%d" % i) for i in range(200)))
        data = [e.data for e in cluster.logs[0].entries]
        assert sorted(data) == sorted(b"%d" % i for i in range(200))


async def test_append_continues_after_a_server_restart() -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        client = await cluster.client()
        await client.append(0, b"a")
        await server.stop()
        append = asyncio.ensure_future(client.append(0, b"b"))
        await asyncio.sleep(0)
        server.start()
        assert await append == 1
        mounts = [m for m in cluster.partition(0).handled if isinstance(m, MountRequest)]
        assert mounts[-1].seq_num > mounts[0].seq_num


async def test_append_follows_a_partition_to_another_server() -> None:
    async with fake_cluster(2) as cluster:
        first = await cluster.start_server(0, 1)
        client = await cluster.client()
        await client.append(0, b"a")
        second = await cluster.start_server()
        appends = [asyncio.ensure_future(client.append(0, b"%d" % i)) for i in range(20)]
        await asyncio.sleep(0)
        await cluster.place({0: second})
        await asyncio.gather(*appends)
        await cluster.remove_server(first)
        await client.append(0, b"z")
        data = [e.data for e in cluster.logs[0].entries]
        assert len(data) == len(set(data)) == 22
        assert cluster.logs[0].entries[-1].req_id.generation == 2


async def test_append_continues_after_a_generation_change_on_the_same_server() -> None:
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        client = await cluster.client()
        await client.append(0, b"a")
        accepted = server.accepted
        await cluster.place({0: server})
        await client.append(0, b"b")
        assert [e.req_id.generation for e in cluster.logs[0].entries] == [1, 2]
        assert server.accepted == accepted, "the connection is kept"


async def test_append_dropped_for_its_generation_is_found_by_flush() -> None:
    """The server has a newer generation than the client: it answers no append."""
    async with fake_cluster() as cluster:
        server = await cluster.start_server(0)
        client = await cluster.client(long_wait_seconds=0.2)
        await client.append(0, b"a")
        cluster.partition(0).generation += 1
        append = asyncio.ensure_future(client.append(0, b"b"))
        await eventually(lambda: any(isinstance(m, FlushRequest) for m in handled(server)))
        cluster.partition(0).generation -= 1
        assert await append == 1
        assert len(sent_appends(cluster.partition(0))) > 2


def handled(server: FakeServer) -> list[Any]:
    return [m for partition in server.partitions.values() for m in partition.handled]


async def test_append_dropped_without_answer_is_sent_again() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client(long_wait_seconds=0.2)
        await client.mount(0)
        cluster.partition(0).drop_appends = 3
        assert sorted(await asyncio.gather(*(client.append(0, b"%d" % i) for i in range(3)))) == [
            0,
            1,
            2,
        ]
        seqs = [m.req_id.seq for m in sent_appends(cluster.partition(0))]
        assert len(seqs) == len(set(seqs)) == 6


async def test_append_waits_for_a_server_that_is_not_ready() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        partition = cluster.partition(0)
        partition.ready = False
        client = await cluster.client()
        append = asyncio.ensure_future(client.append(0, b"a"))
        await eventually(lambda: any(isinstance(m, MountRequest) for m in partition.handled))
        partition.ready = True
        assert await append == 0


async def test_append_waits_for_the_first_server() -> None:
    async with fake_cluster() as cluster:
        client = await cluster.client()
        append = asyncio.ensure_future(client.append(0, b"a"))
        await cluster.start_server(0)
        assert await append == 0


async def test_append_without_server_times_out_with_nothing_sent() -> None:
    async with fake_cluster() as cluster:
        client = await cluster.client()
        with pytest.raises(ClusterUnreachable, match="nothing was sent"):
            await client.append(0, b"a", timeout=0.05)
        await cluster.start_server(0)
        assert await client.append(0, b"b") == 0
        assert [e.data for e in cluster.logs[0].entries] == [b"b"]


async def test_partition_without_server_does_not_delay_other_partitions() -> None:
    async with fake_cluster(2) as cluster:
        client = await cluster.client()
        waiting = asyncio.ensure_future(client.append(1, b"a"))
        also_waiting = asyncio.ensure_future(client.mount(1))
        await asyncio.sleep(0)
        server = await cluster.start_server(0)
        assert await client.append(0, b"b", timeout=10) == 0
        assert not waiting.done()
        await cluster.place({1: server})
        assert await waiting == 0
        assert await also_waiting == -1
        [mount] = [m for m in cluster.partition(1).handled if isinstance(m, MountRequest)]
        assert mount.client_high_water_mark == -1


async def test_close_ends_appends_that_wait_for_a_server() -> None:
    """After the end, none of the appends that wait for the partition begins."""
    async with fake_cluster() as cluster:
        client = await cluster.client()
        first = asyncio.ensure_future(client.append(0, b"a"))
        second = asyncio.ensure_future(client.mount(0, -1))
        await asyncio.sleep(0)
        await client.close()
        for call in (first, second):
            with pytest.raises(ClientClosed):
                await call


async def test_append_without_outcome_in_time_is_uncertain() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client(append_timeout=0.05)
        await client.mount(0)
        await client.append(0, b"a")
        cluster.partition(0).auto = False
        with pytest.raises(AppendUncertain, match="look for that request id") as caught:
            await client.append(0, b"b")
        cluster.partition(0).resolve()
        assert cluster.logs[0].ids()[-1] == caught.value.req_id
        cluster.partition(0).pump()
        cluster.partition(0).auto = True
        assert await client.append(0, b"c") == 2


async def test_cancelled_append_does_not_affect_other_appends() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        await client.append(0, b"a")
        cluster.partition(0).auto = False
        doomed = asyncio.ensure_future(client.append(0, b"doomed"))
        await eventually(lambda: cluster.partition(0).pending)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        later = asyncio.ensure_future(client.append(0, b"later"))
        await eventually(lambda: len(cluster.partition(0).pending) == 2)
        cluster.partition(0).auto = True
        cluster.partition(0).resolve()
        cluster.partition(0).pump()
        assert await later == 2


async def test_close_makes_sent_appends_uncertain() -> None:
    async with fake_cluster(2) as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        await client.mount(0)
        await client.append(0, b"a")
        cluster.partition(0).auto = False
        sent = asyncio.ensure_future(client.append(0, b"b"))
        unsent = asyncio.ensure_future(client.append(1, b"c"))
        await eventually(lambda: cluster.partition(0).pending)
        await client.close()
        with pytest.raises(AppendUncertain):
            await sent
        with pytest.raises(ClientClosed):
            await unsent
        with pytest.raises(ClientClosed):
            await client.append(0, b"d")
        await client.close()


async def test_appends_in_flight_stay_within_the_limit() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client(max_in_flight=10)
        await client.append(0, b"first")
        partition = cluster.partition(0)
        partition.auto = False
        appends = [asyncio.ensure_future(client.append(0, b"%d" % i)) for i in range(35)]
        await eventually(lambda: len(partition.pending) == 10)
        appends[-1].cancel()
        appends[15].cancel()
        while not all(append.done() for append in appends):
            assert len(partition.pending) <= 10
            partition.resolve(3)
            partition.pump()
            await asyncio.sleep(0.001)
        assert len(cluster.logs[0].entries) == 34


async def test_flush_waits_for_appends_called_before() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        client = await cluster.client()
        await client.flush()
        await client.append(0, b"a")
        partition = cluster.partition(0)
        partition.auto = False
        partition.drop_appends = 1
        append = asyncio.ensure_future(client.append(0, b"b"))
        await eventually(lambda: len(sent_appends(partition)) == 2)
        flush = asyncio.ensure_future(client.flush())
        await eventually(lambda: partition.pending)
        assert not flush.done()
        partition.auto = True
        partition.resolve()
        await flush
        assert append.done()
        assert cluster.logs[0].entries[-1].data == b"b"


async def test_mark_beyond_the_log_raises_client_ahead() -> None:
    async with fake_cluster() as cluster:
        await cluster.start_server(0)
        cluster.logs[0].fill(4)
        client = await cluster.client()
        await client.mount(0, mark=10)
        both_marks = r"ends at transaction 3.*has seen transaction 10"
        with pytest.raises(ClientAhead, match=both_marks) as caught:
            await client.append(0, b"a")
        assert (caught.value.partition, caught.value.client_mark, caught.value.log_mark) == (
            0,
            10,
            3,
        )


async def test_invalid_arguments_raise_named_errors() -> None:
    async with fake_cluster(3) as cluster:
        client = await cluster.client()
        with pytest.raises(PartitionUnknown, match="partitions 0 to 2"):
            await client.append(3, b"")
        with pytest.raises(PartitionUnknown):
            await client.append(-1, b"")
        with pytest.raises(TypeError, match="data is str, not bytes"):
            await client.append(0, "text")
        with pytest.raises(DataTooLarge, match="append a reference"):
            await client.append(0, bytes(MAX_DATA_BYTES + 1))
