"""Appends of a client of a real cluster whose network has faults, on virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.support.client_cluster import ClientCluster, connected, drop_first
from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.client import (
    AnswerLate,
    Appended,
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
from waltz.client.core.mount import AHEAD_CONFIRMATIONS, NOT_READY_BACKOFF_SECONDS
from waltz.client.core.values import MAX_DATA_BYTES
from waltz.client.submitting import submit
from waltz.protocol import Lock, ReqId
from waltz.protocol.client_server import (
    AppendAnswers,
    AppendBatchRequest,
    AppendRequest,
    FeedData,
    FlushRequest,
    HighWaterMarkResponse,
    MountRequest,
    MountResponse,
    MountState,
)
from waltz.testing import FrameFault, FrameReplacement, InProcessCluster

LOCK = Lock("seat", 1)


@on_virtual_time
async def test_append_returns_its_transaction_id() -> None:
    async with connected(count=5) as (cluster, client):
        assert await client.append(0, b"one", header=7) == 5
        assert await client.append(0, b"two") == 6
        entry = cluster.transactions(0)[5]
        assert (entry.data, entry.header) == (b"one", 7)
        assert entry.req_id.client_id == client.client_id


@on_virtual_time
async def test_overlapping_appends_get_all_ids() -> None:
    async with connected(partitions=2) as (cluster, client):
        ids = await asyncio.gather(*(client.append(i % 2, b"%d" % i) for i in range(400)))
        assert sorted(ids) == sorted(list(range(200)) * 2)
        for i, transaction_id in enumerate(ids):
            assert cluster.data_of(i % 2)[transaction_id] == b"%d" % i


@pytest.mark.parametrize("mark", [None, -1])
@on_virtual_time
async def test_appends_called_while_the_partition_is_mounted_keep_their_order(
    mark: int | None,
) -> None:
    async with connected() as (cluster, client):
        appends: list[asyncio.Task[int]] = []
        while not any(each.done() for each in appends):
            data = b"%d" % len(appends)
            appends.append(asyncio.create_task(client.append(0, data, mark=mark)))
            await asyncio.sleep(0)
        await asyncio.gather(*appends)
        stored = [int(each.data) for each in cluster.transactions(0)]
        assert stored == list(range(len(appends)))


@on_virtual_time
async def test_first_append_mounts_at_the_end_of_the_log() -> None:
    """An append does not need the earlier transactions."""
    async with connected(count=1000) as (cluster, client):
        await client.append(0, b"x")
        [mount] = cluster.requests_of(MountRequest)
        assert mount.client_high_water_mark == 999


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
@on_virtual_time
async def test_append_works_with_every_protocol_version(version: int) -> None:
    async with ClientCluster(versions=tuple(range(version + 1))) as cluster:
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


@on_virtual_time
async def test_lock_failure_names_the_conflicting_transaction() -> None:
    async with ClientCluster() as cluster:
        one, other = await cluster.client(), await cluster.client()
        await one.mount(0)
        taken = await other.append(0, b"mine", write_locks=[Lock("row", 1)])
        with pytest.raises(LockFailed, match="transaction 0") as caught:
            await one.append(0, b"too late", write_locks=[Lock("row", 1)], mark=taken - 1)
        assert caught.value.transaction_id == taken
        assert caught.value.partition == 0
        await one.append(0, b"in time", write_locks=[Lock("row", 1)], mark=taken)
        assert cluster.data_of(0) == [b"mine", b"in time"]


@on_virtual_time
async def test_append_locks_are_taken_and_not_checked() -> None:
    async with connected() as (_, client):
        row = Lock("row", 1)
        await client.append(0, b"a", append_locks=[row])
        await client.append(0, b"b", append_locks=[row], mark=-1)
        with pytest.raises(LockFailed):
            await client.append(0, b"c", read_locks=[row], mark=0)


@on_virtual_time
async def test_submit_builds_the_transaction_again_after_a_conflict() -> None:
    async with ClientCluster() as cluster:
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
        assert cluster.data_of(0)[-1] == b"attempt 3"


@on_virtual_time
async def test_submit_without_draft_returns_none() -> None:
    async with connected() as (cluster, client):
        assert await client.submit(0, lambda attempt: None) is None
        assert await client.submit(0, lambda attempt: Draft(b"x")) == 0
        assert len(cluster.data_of(0)) == 1


@on_virtual_time
async def test_submit_timeout_includes_waiting_for_a_server() -> None:
    async with ClientCluster() as cluster:
        await cluster.kill_server()
        client = await cluster.client(append_timeout=0.05)
        for timeout in (None, 0.05):
            with pytest.raises(ClusterUnreachable, match="partition 0 was not mounted"):
                await client.submit(0, lambda attempt: Draft(b"a"), timeout=timeout)


@on_virtual_time
async def test_submit_timeout_includes_build() -> None:
    async with connected() as (cluster, client):
        never: asyncio.Future[Draft] = asyncio.get_running_loop().create_future()
        with pytest.raises(ClusterUnreachable, match="build did not return") as caught:
            await client.submit(0, lambda attempt: never, timeout=0.05)
        assert str(caught.value) == (
            "build did not return within the timeout of submit; nothing was sent: make build "
            "faster, or raise the timeout"
        )
        assert cluster.data_of(0) == []


@on_virtual_time
async def test_submit_timeout_includes_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends by a state that never catches up are refused repeatedly, after a delay."""
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + ahead)
    async with connected() as (cluster, client):
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
        assert cluster.data_of(0) == [b"a"]


@on_virtual_time
async def test_submit_gives_each_append_only_the_time_that_is_left() -> None:
    given: list[float | None] = []

    async def mount() -> int:
        return len(given)

    async def append(draft: Draft, mark: int, seconds: float | None) -> int:
        given.append(seconds)
        await asyncio.sleep(4)
        if len(given) == 1:
            raise LockFailed(0, 0)
        return 1

    assert await submit(0, lambda attempt: Draft(b"x"), mount, append, 10) == 1
    assert given == [pytest.approx(10), pytest.approx(6)]


@on_virtual_time
async def test_submit_refuses_a_build_result_that_is_no_draft() -> None:
    async with connected() as (_, client):
        build: Any = lambda attempt: b"data"  # noqa: E731 - what the types would refuse
        with pytest.raises(TypeError, match=r"build returned bytes: it must return a waltz\.Draft"):
            await client.submit(0, build)


@on_virtual_time
async def test_append_and_flush_after_a_mount_at_a_mark_name_the_unconnected_server() -> None:
    async with ClientCluster() as cluster:
        client = await cluster.client(append_timeout=2, answer_timeout=1)
        await cluster.kill_server(expire=False)
        assert await client.mount(0, 5) == 5
        append = asyncio.ensure_future(client.append(0, b"a"))
        await asyncio.sleep(0)
        unconnected = f"; not connected: server {cluster.servers[0].host}:"
        with pytest.raises(AnswerLate, match=unconnected):
            await client.flush()
        with pytest.raises(ClusterUnreachable, match=unconnected):
            await append


@on_virtual_time
async def test_mount_and_flush_time_out() -> None:
    async with ClientCluster() as cluster:
        await cluster.kill_server()
        client = await cluster.client(answer_timeout=0.05)
        with pytest.raises(ClusterUnreachable, match="partition 0 was not mounted"):
            await client.mount(0)
        append = asyncio.ensure_future(client.append(0, b"a"))
        await asyncio.sleep(0)
        with pytest.raises(AnswerLate, match=r"not every append .* had its outcome"):
            await client.flush()
        await cluster.start_server()
        await client.flush(timeout=10)
        assert await append == 0


@on_virtual_time
async def test_submit_raises_the_error_of_build() -> None:
    async with connected() as (_, client):

        def build(attempt: Attempt) -> Draft:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await client.submit(0, build)


def cut_at_append(cluster: ClientCluster, number: int, *, after: bool) -> None:
    """Lose the connection at the ``number``-th append, before or after it is committed."""
    appends: list[AppendRequest] = []

    def on_request(message: Any) -> FrameFault | None:
        if isinstance(message, AppendRequest):
            appends.append(message)
            if len(appends) == number and not after:
                return FrameFault.CUT
        return None

    def on_answer(message: Any) -> FrameFault | None:
        """Lose the connection before the outcome arrives, and no later connection."""
        lost = {append.req_id for append in appends[number - 1 : number]}
        match message:
            case FeedData(req_id):
                shown = {req_id}
            case AppendAnswers(answers=answers):
                shown = {ReqId(*answer[:4]) for answer in answers}
            case _:
                return None
        if lost.isdisjoint(shown):
            return None
        cluster.set_answer_rule(None)
        return FrameFault.CUT

    cluster.on_request = on_request
    if after:
        cluster.set_answer_rule(on_answer)


@pytest.mark.parametrize("num_ahead", [1, AHEAD_CONFIRMATIONS - 1])
@pytest.mark.parametrize("batched", [False, True])
@on_virtual_time
async def test_client_sends_again_after_a_stale_server_answers_ahead(
    num_ahead: int, batched: bool
) -> None:
    """A server that has lost the partition, and does not know it yet, has an older log."""
    async with connected(count=3) as (cluster, client):
        await client.mount(0)
        seen = 0

        def on_request(message: Any) -> FrameReplacement | None:
            """Let the log seem to end before the mark."""
            nonlocal seen
            if isinstance(message, AppendRequest | AppendBatchRequest):
                seen += 1
                if seen <= num_ahead:
                    return FrameReplacement(replace(message, client_high_water_mark=99))
            return None

        cluster.on_request = on_request
        if batched:
            assert await client.bulk.append(0, [Draft(b"x")], mark=2) == [Appended(3)]
        else:
            assert await client.append(0, b"x", mark=2) == 3
        assert seen == num_ahead + 1
        assert cluster.data_of(0)[3:] == [b"x"]


@on_virtual_time
async def test_append_that_a_server_has_not_accepted_in_time_is_not_in_the_log() -> None:
    async with connected(count=3) as (cluster, client):
        await client.append(0, b"x")
        with pytest.raises(ClusterUnreachable, match="is not in the log"):
            await client.append(0, b"x", mark=99, timeout=NOT_READY_BACKOFF_SECONDS / 2)
        assert len(cluster.data_of(0)) == 4


@pytest.mark.parametrize("versions", [None, (5,)])
@pytest.mark.parametrize("after", [False, True])
@on_virtual_time
async def test_appends_survive_a_lost_connection(
    after: bool, versions: tuple[int, ...] | None
) -> None:
    async with connected(versions=versions) as (cluster, client):
        await client.mount(0)
        cut_at_append(cluster, 20, after=after)
        ids = await asyncio.gather(*(client.append(0, b"%d" % i) for i in range(50)))
        assert sorted(ids) == list(range(50))
        log = cluster.transactions(0)
        for i, transaction_id in enumerate(ids):
            assert log[transaction_id].data == b"%d" % i
        assert len({t.req_id for t in log}) == len(log) == 50
        assert len(cluster.requests_of(MountRequest)) == 2


@on_virtual_time
async def test_appends_survive_repeated_connection_losses() -> None:
    async with connected() as (cluster, client):
        await client.mount(0)
        seen = 0

        def on_request(message: Any) -> FrameFault | None:
            nonlocal seen
            seen += isinstance(message, AppendRequest)
            is_lost = seen % 37 == 0 and isinstance(message, AppendRequest)
            return FrameFault.CUT if is_lost else None

        cluster.on_request = on_request
        await asyncio.gather(*(client.append(0, b"%d" % i) for i in range(200)))
        assert sorted(cluster.data_of(0)) == sorted(b"%d" % i for i in range(200))


@on_virtual_time
async def test_append_continues_after_a_server_restart() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"a")
        await cluster.kill_server()
        append = asyncio.ensure_future(client.append(0, b"b"))
        await asyncio.sleep(0)
        await cluster.start_server()
        assert await append == 1
        mounts = cluster.requests_of(MountRequest)
        assert mounts[-1].seq_num > mounts[0].seq_num


@on_virtual_time
async def test_append_follows_a_partition_to_another_server() -> None:
    async with ClientCluster(2, servers=2) as cluster:
        first = cluster.owner(0)
        assert first is not None
        client = await cluster.client()
        await client.append(0, b"a")
        appends = [asyncio.ensure_future(client.append(0, b"%d" % i)) for i in range(20)]
        await asyncio.sleep(0)
        await cluster.place(0, 1 - first)
        await asyncio.gather(*appends)
        await cluster.kill_server(first)
        await client.append(0, b"z")
        log = cluster.transactions(0)
        assert len(log) == len({t.data for t in log}) == 22
        assert log[-1].req_id.generation == log[0].req_id.generation + 1


@on_virtual_time
async def test_append_continues_after_a_generation_change_on_the_same_server() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"a")
        await cluster.place(0, 0)
        await asyncio.sleep(1)
        await client.append(0, b"b")
        assert [t.req_id.generation for t in cluster.transactions(0)] == [1, 2]
        connections = {mount.seq_num for mount in cluster.requests_of(MountRequest)}
        assert len(connections) == 1, "the connection is kept"


@on_virtual_time
async def test_append_dropped_for_its_generation_is_found_by_flush() -> None:
    """The server gets the append with an older generation than its own, and does not answer it."""
    async with ClientCluster() as cluster:
        await cluster.place(0, 0)
        client = await cluster.client()
        await client.append(0, b"a")

        def on_request(message: Any) -> FrameReplacement | None:
            if not isinstance(message, AppendRequest) or cluster.requests_of(FlushRequest):
                return None
            return FrameReplacement(replace(message, req_id=replace(message.req_id, generation=1)))

        cluster.on_request = on_request
        append = asyncio.ensure_future(client.append(0, b"b"))
        await eventually(lambda: cluster.requests_of(FlushRequest))
        assert await append == 1
        assert len(cluster.requests_of(AppendRequest)) > 2
        assert cluster.data_of(0) == [b"a", b"b"]


@on_virtual_time
async def test_append_dropped_without_answer_is_sent_again() -> None:
    async with connected() as (cluster, client):
        await client.mount(0)
        cluster.on_request = drop_first(3, AppendRequest)
        assert sorted(await asyncio.gather(*(client.append(0, b"%d" % i) for i in range(3)))) == [
            0,
            1,
            2,
        ]
        seqs = [m.req_id.seq for m in cluster.requests_of(AppendRequest)]
        assert len(seqs) == len(set(seqs)) == 6


@on_virtual_time
async def test_append_waits_for_a_server_that_is_not_ready() -> None:
    async with connected() as (cluster, client):

        def on_answer(message: Any) -> FrameReplacement | None:
            is_mount = isinstance(message, MountResponse)
            return (
                FrameReplacement(replace(message, state=MountState.NOT_READY)) if is_mount else None
            )

        cluster.set_answer_rule(on_answer)
        append = asyncio.ensure_future(client.append(0, b"a"))
        await eventually(lambda: cluster.requests_of(MountRequest))
        await asyncio.sleep(1)
        assert not append.done()
        cluster.set_answer_rule(None)
        assert await append == 0


@on_virtual_time
async def test_append_waits_for_the_first_server() -> None:
    async with ClientCluster() as cluster:
        await cluster.kill_server()
        client = await cluster.client()
        append = asyncio.ensure_future(client.append(0, b"a"))
        await cluster.start_server()
        assert await append == 0


@on_virtual_time
async def test_append_without_server_times_out_with_nothing_sent() -> None:
    async with ClientCluster() as cluster:
        await cluster.kill_server()
        client = await cluster.client()
        with pytest.raises(ClusterUnreachable, match="nothing was sent"):
            await client.append(0, b"a", timeout=0.05)
        await cluster.start_server()
        assert await client.append(0, b"b") == 0
        assert cluster.data_of(0) == [b"b"]


@on_virtual_time
async def test_partition_without_server_does_not_delay_other_partitions() -> None:
    async with ClientCluster(2) as cluster:
        await cluster.place(1, None)
        client = await cluster.client()
        waiting = asyncio.ensure_future(client.append(1, b"a"))
        also_waiting = asyncio.ensure_future(client.mount(1))
        await asyncio.sleep(0)
        assert await client.append(0, b"b", timeout=60) == 0
        assert not waiting.done()
        await cluster.place(1, 0)
        assert await waiting == 0
        assert await also_waiting == -1
        [mount] = [m for m in cluster.requests_of(MountRequest) if m.req_id.partition == 1]
        assert mount.client_high_water_mark == -1


@on_virtual_time
async def test_close_ends_appends_that_wait_for_a_server() -> None:
    """After the end, none of the appends that wait for the partition begins."""
    async with ClientCluster() as cluster:
        await cluster.kill_server()
        client = await cluster.client()
        first = asyncio.ensure_future(client.append(0, b"a"))
        second = asyncio.ensure_future(client.mount(0, -1))
        await asyncio.sleep(0)
        await client.close()
        for call in (first, second):
            with pytest.raises(ClientClosed):
                await call


@on_virtual_time
async def test_close_ends_appends_that_wait_for_room() -> None:
    async with connected(max_in_flight=1, append_timeout=None) as (cluster, client):
        await client.mount(0)
        cluster.holding = (AppendRequest, FlushRequest)
        sent = asyncio.ensure_future(client.append(0, b"a"))
        await eventually(lambda: cluster.held)
        waiting = [asyncio.ensure_future(client.append(0, b"b")) for _ in range(2)]
        batch = asyncio.ensure_future(client.bulk.append(0, [Draft(b"c"), Draft(b"d")]))
        await asyncio.sleep(1)
        await client.close()
        done, _ = await asyncio.wait([sent, *waiting, batch], timeout=60)
        assert len(done) == 4
        with pytest.raises(AppendUncertain):
            await sent
        for call in (*waiting, batch):
            with pytest.raises(ClientClosed):
                await call


@on_virtual_time
async def test_append_without_outcome_in_time_is_uncertain() -> None:
    async with connected(append_timeout=0.05) as (cluster, client):
        await client.mount(0)
        await client.append(0, b"a")
        cluster.holding = (AppendRequest,)
        remedy = r"client.outcome\(error.req_id\), or with: waltz log find \d+:\d+:0:\d+, before"
        with pytest.raises(AppendUncertain, match=remedy) as caught:
            await client.append(0, b"b")
        cluster.holding = ()
        cluster.release()
        assert await client.append(0, b"c") == 2
        assert cluster.transactions(0)[1].req_id == caught.value.req_id


@on_virtual_time
async def test_cancelled_append_does_not_affect_other_appends() -> None:
    async with connected() as (cluster, client):
        await client.append(0, b"a")
        cluster.holding = (AppendRequest,)
        doomed = asyncio.ensure_future(client.append(0, b"doomed"))
        await eventually(lambda: cluster.held)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        later = asyncio.ensure_future(client.append(0, b"later"))
        await eventually(lambda: len(cluster.held) == 2)
        cluster.release()
        assert await later == 2


@on_virtual_time
async def test_close_makes_sent_appends_uncertain() -> None:
    async with ClientCluster(2) as cluster:
        await cluster.place(1, None)
        client = await cluster.client()
        await client.mount(0)
        await client.append(0, b"a")
        cluster.holding = (AppendRequest,)
        sent = asyncio.ensure_future(client.append(0, b"b"))
        unsent = asyncio.ensure_future(client.append(1, b"c"))
        await eventually(lambda: cluster.held)
        await client.close()
        with pytest.raises(AppendUncertain):
            await sent
        with pytest.raises(ClientClosed):
            await unsent
        with pytest.raises(ClientClosed):
            await client.append(0, b"d")
        await client.close()


@on_virtual_time
async def test_appends_in_flight_stay_within_the_limit() -> None:
    async with connected(max_in_flight=10) as (cluster, client):
        await client.append(0, b"first")
        cluster.holding = (AppendRequest,)
        appends = [asyncio.ensure_future(client.append(0, b"%d" % i)) for i in range(35)]
        await eventually(lambda: len(cluster.held) == 10)
        appends[-1].cancel()
        appends[15].cancel()
        while not all(append.done() for append in appends):
            assert len(cluster.held) <= 10
            cluster.release(3)
            await asyncio.sleep(0.001)
        assert len(cluster.data_of(0)) == 34


@on_virtual_time
async def test_flush_waits_for_appends_called_before() -> None:
    async with connected() as (cluster, client):
        await client.flush()
        await client.append(0, b"a")
        cluster.holding = (FlushRequest,)
        cluster.on_request = drop_first(1, AppendRequest)
        append = asyncio.ensure_future(client.append(0, b"b"))
        await eventually(lambda: len(cluster.requests_of(AppendRequest)) == 2)
        flush = asyncio.ensure_future(client.flush())
        await eventually(lambda: cluster.held)
        assert not flush.done()
        cluster.holding = ()
        cluster.release()
        await flush
        assert append.done()
        assert cluster.data_of(0)[-1] == b"b"


@on_virtual_time
async def test_mark_beyond_the_log_raises_client_ahead() -> None:
    async with connected(count=4) as (_, client):
        await client.mount(0, mark=10)
        both_marks = r"ends at transaction 3.*mark is transaction 10"
        with pytest.raises(ClientAhead, match=both_marks) as caught:
            await client.append(0, b"a")
        assert (caught.value.partition, caught.value.client_mark, caught.value.log_mark) == (
            0,
            10,
            3,
        )


async def test_mark_of_another_partition_is_detected_only_beyond_the_end_of_the_log() -> None:
    """A mark is a plain number: docs/client.md names this limit."""
    async with InProcessCluster(partitions=2) as cluster, cluster.connect() as client:
        for number in range(3):
            await client.append(0, b"lock taken", write_locks=[LOCK])
            foreign = await client.append(1, b"other partition")
            assert foreign == number
        with pytest.raises(LockFailed):
            await client.append(0, b"decided before", write_locks=[LOCK], mark=0)
        assert await client.append(0, b"not detected", write_locks=[LOCK], mark=foreign) == 3
        beyond = [await client.append(1, b"further") for _ in range(2)][-1]
        with pytest.raises(ClientAhead):
            await client.append(0, b"detected", write_locks=[LOCK], mark=beyond)


@on_virtual_time
async def test_append_with_a_mark_beyond_the_log_is_ahead_although_the_lock_was_taken() -> None:
    async with connected(count=4) as (cluster, client):
        await client.append(0, b"first", write_locks=[LOCK])
        with pytest.raises(ClientAhead, match=r"ends at transaction 4.*mark is transaction 99"):
            await client.append(0, b"second", write_locks=[LOCK], mark=99)
        with pytest.raises(ClientAhead):
            await client.append(0, b"without a lock", mark=5)
        with pytest.raises(ClientAhead):
            await client.bulk.append(0, [Draft(b"batch", write_locks=[LOCK])], mark=5)
        with pytest.raises(ClientAhead):
            await client.submit(0, lambda _: Draft(b"draft", write_locks=[LOCK], mark=5))
        assert len(cluster.transactions(0)) == 5
        with pytest.raises(LockFailed):
            await client.append(0, b"third", write_locks=[LOCK], mark=3)


@on_virtual_time
async def test_append_with_a_mark_that_only_another_client_knows_is_accepted() -> None:
    async with connected() as (cluster, client):
        await client.mount(0)
        async with cluster.connect() as other:
            cluster.holding = (FeedData,)
            mark = await other.append(0, b"by another", write_locks=[LOCK])
            assert await client.append(0, b"after it", write_locks=[LOCK], mark=mark) == mark + 1


@on_virtual_time
async def test_append_at_a_server_with_an_old_end_of_the_log_asks_again() -> None:
    # The first answer is the mark of the mount. The version of the server is not known yet.
    ends = iter([1, 2, 9])

    def old_end(message: Any) -> FrameFault | FrameReplacement | None:
        if isinstance(message, HighWaterMarkResponse):
            return FrameReplacement(replace(message, transaction_id=next(ends)))
        return None

    async with connected(count=10) as (cluster, client):
        cluster.set_answer_rule(old_end)
        assert await client.append(0, b"a", mark=9) == 10
        assert next(ends, None) is None


@on_virtual_time
async def test_invalid_arguments_raise_named_errors() -> None:
    async with connected(partitions=3) as (_, client):
        with pytest.raises(PartitionUnknown, match="partitions 0 to 2"):
            await client.append(3, b"")
        with pytest.raises(PartitionUnknown):
            await client.append(-1, b"")
        with pytest.raises(TypeError, match="partition is '1': it must be a whole number"):
            await client.append("1", b"")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="data is str, not bytes"):
            await client.append(0, "text")
        with pytest.raises(DataTooLarge, match="append a reference"):
            await client.append(0, bytes(MAX_DATA_BYTES + 1))


@on_virtual_time
async def test_flush_waits_although_a_later_append_has_its_outcome() -> None:
    async with connected(partitions=2) as (cluster, client):
        await client.append(1, b"mounted")
        await client.mount(0)
        cluster.holding = (FlushRequest,)
        cluster.on_request = drop_first(1, AppendRequest)
        append = asyncio.ensure_future(client.append(0, b"first"))
        await eventually(lambda: len(cluster.requests_of(AppendRequest)) == 2)
        flush = asyncio.ensure_future(client.flush())
        await asyncio.sleep(0)
        await client.append(1, b"later")
        await asyncio.sleep(1)
        assert not flush.done()
        cluster.holding = ()
        cluster.release()
        await flush
        assert append.done()
