"""The state follower: order, retries after errors, the mark of decisions, stopping, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import waltz
from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.testing import Faults, InProcessCluster
from waltz.testing.cluster import InProcessClient

FAULTS = Faults(delay_seconds=(0, 0.001), lost=0.1, conflict=0.1)


class State:
    """The ids and the data that were applied, by partition; errors are raised once each."""

    def __init__(self, marks: dict[int, int] | None = None) -> None:
        self.marks = marks or {}
        self.data: dict[int, list[bytes]] = {}
        self.errors_before: dict[int, Exception] = {}
        self.errors_after: dict[int, Exception] = {}
        self.entered = asyncio.Event()
        self.may_return = asyncio.Event()
        self.may_return.set()

    async def mark(self, partition: int) -> int:
        return self.marks.get(partition, -1)

    async def apply(self, transaction: waltz.Transaction[bytes]) -> None:
        self.entered.set()
        await self.may_return.wait()
        if (error := self.errors_before.pop(transaction.id, None)) is not None:
            raise error
        assert transaction.id == self.marks.get(transaction.partition, -1) + 1
        self.data.setdefault(transaction.partition, []).append(transaction.data)
        self.marks[transaction.partition] = transaction.id
        if (error := self.errors_after.pop(transaction.id, None)) is not None:
            raise error


@asynccontextmanager
async def following(
    state: State, count: int = 0, *, partitions: int = 1
) -> AsyncIterator[tuple[InProcessCluster, InProcessClient[bytes], waltz.StateFollower[bytes]]]:
    """Open a cluster whose partition 0 has ``count`` transactions, and follow all partitions."""
    async with InProcessCluster(partitions) as cluster, cluster.connect() as client:
        for number in range(count):
            await client.append(0, b"%d" % number)
        async with waltz.StateFollower(client, state) as follower:
            yield cluster, client, follower


@on_virtual_time
async def test_every_transaction_is_applied_in_order_after_the_mark() -> None:
    state = State({0: 1})
    async with following(state, 4, partitions=2) as (_, client, follower):
        await client.append(1, b"x")
        await follower.caught_up()
        assert state.data == {0: [b"2", b"3"], 1: [b"x"]}
        assert (follower.mark(0), follower.mark(1)) == (3, 0)


@on_virtual_time
async def test_wrong_argument_of_applied_is_named() -> None:
    wrong: Any = "x"
    async with following(State()) as (_, _, follower):
        with pytest.raises(TypeError, match=r"^transaction_id is 'x': it must be the id of"):
            await follower.applied(0, wrong)
        for call in (follower.applied(0, -1, timeout=wrong), follower.caught_up(timeout=wrong)):
            with pytest.raises(TypeError, match=r"^timeout is 'x': it must be a number of sec"):
                await call


@on_virtual_time
async def test_failed_transaction_is_applied_again_and_others_wait() -> None:
    state = State()
    state.errors_before[1] = OSError("database is away")
    async with following(state, 3) as (_, _, follower):
        await follower.applied(0, 2, timeout=10)
        assert state.data == {0: [b"0", b"1", b"2"]}
        assert follower.problem(0) is None


@on_virtual_time
async def test_pause_after_a_failure_begins_small_again_after_an_applied_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = State()
    state.errors_before = {number: OSError("away") for number in range(3)}
    async with following(state, 3) as (_, _, follower):
        await follower.applied(0, 2, timeout=10)
    failed = [text for text in caplog.messages if "applying transaction" in text]
    assert failed == [
        f"partition 0: applying transaction {number} failed, retrying in 0.05 s"
        for number in range(3)
    ]


@on_virtual_time
async def test_pause_grows_while_the_same_transaction_fails(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, errors = State(), [OSError("away")] * 3
    apply = state.apply

    async def fail_first(transaction: waltz.Transaction[bytes]) -> None:
        if errors:
            raise errors.pop()
        await apply(transaction)

    monkeypatch.setattr(state, "apply", fail_first)
    async with following(state, 1) as (_, _, follower):
        await follower.applied(0, 0, timeout=10)
    pauses = [text.rpartition("retrying in ")[2] for text in caplog.messages if "retry" in text]
    assert pauses == ["0.05 s", "0.1 s", "0.2 s"]


@on_virtual_time
async def test_failure_to_read_the_mark_names_no_transaction(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unread(State):
        """Fails to read its mark at first, and again after each error of a transaction."""

        fails = True

        async def mark(self, partition: int) -> int:
            self.fails = not self.fails
            if not self.fails:
                raise OSError("database is away")
            return await super().mark(partition)

    state = Unread()
    state.errors_before[1] = OSError("away")
    async with following(state, 2) as (_, _, follower):
        await follower.applied(0, 1, timeout=10)
    assert [text for text in caplog.messages if "failed, retrying" in text] == [
        "partition 0: reading the mark of the state failed, retrying in 0.05 s",
        "partition 0: applying transaction 1 failed, retrying in 0.05 s",
        "partition 0: reading the mark of the state failed, retrying in 0.1 s",
    ]


@on_virtual_time
async def test_transaction_that_the_state_contains_after_an_error_is_not_applied_again() -> None:
    state = State()
    state.errors_after[1] = OSError("connection lost during the commit")
    async with following(state, 3) as (_, _, follower):
        await follower.applied(0, 2, timeout=10)
    assert state.data == {0: [b"0", b"1", b"2"]}


@on_virtual_time
async def test_applied_timeout_names_the_error_that_blocks_the_partition() -> None:
    state = State()
    state.may_return.clear()
    async with following(state, 1) as (_, _, follower):
        with pytest.raises(waltz.AnswerLate, match=r"0 was not applied within 1 s; .* at -1$"):
            await follower.applied(0, 0, timeout=1)
        state.errors_before[0] = OSError("full")
        state.may_return.set()
        await eventually(lambda: follower.problem(0) is not None)
        with pytest.raises(waltz.AnswerLate, match=r"held up by: OSError\('full'\)"):
            await follower.applied(0, 0, timeout=0.01)
        await follower.applied(0, 0, timeout=10)


@on_virtual_time
async def test_decision_is_checked_against_the_state_it_was_made_by() -> None:
    state = State()
    lock = waltz.Lock("x", 1)
    seen: list[tuple[int, int | None, int]] = []
    async with following(state) as (cluster, _, follower):
        await follower.caught_up()
        state.may_return.clear()
        async with cluster.connect() as other:
            conflicting = await other.append(0, b"other", write_locks=[lock])
        await state.entered.wait()

        def decide(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
            seen.append((attempt.mark, attempt.conflict, len(state.data.get(0, []))))
            return waltz.Draft(b"mine", write_locks=[lock])

        submitting = asyncio.create_task(follower.submit(0, decide))
        await eventually(lambda: seen)
        await asyncio.sleep(1)
        assert len(seen) == 1, "the state does not contain the conflicting transaction yet"
        state.may_return.set()
        assert await submitting == conflicting + 1
        assert state.data[0] == [b"other", b"mine"]
    assert seen == [(-1, None, 0), (conflicting, conflicting, 1)]


@on_virtual_time
async def test_transaction_applied_while_build_runs_refuses_the_decision() -> None:
    state = State()
    lock = waltz.Lock("x", 1)
    seen: list[tuple[int, int | None]] = []
    async with following(state) as (cluster, _, follower), cluster.connect() as other:

        async def decide(attempt: waltz.Attempt) -> waltz.Draft[bytes]:
            seen.append((attempt.mark, attempt.conflict))
            if len(seen) == 1:
                conflicting = await other.append(0, b"other", write_locks=[lock])
                await follower.applied(0, conflicting)
            return waltz.Draft(b"mine", write_locks=[lock])

        assert await follower.submit(0, decide) == 1
    assert seen == [(-1, None), (0, 0)]


@on_virtual_time
async def test_submit_returns_the_id_of_a_transaction_that_is_applied_late() -> None:
    """An error would make the caller submit the committed transaction again."""
    state = State()
    state.may_return.clear()
    async with following(state) as (cluster, _, follower):
        try:
            assert await follower.submit(0, lambda _: waltz.Draft(b"mine"), timeout=1) == 0
            assert [each.data for each in cluster.transactions(0)] == [b"mine"]
            assert state.data == {}
        finally:
            state.may_return.set()


@on_virtual_time
async def test_stopping_waits_for_the_transaction_that_is_being_applied() -> None:
    state = State()
    async with InProcessCluster() as cluster, cluster.connect() as client:
        for number in range(3):
            await client.append(0, b"%d" % number)
        state.may_return.clear()
        follower = waltz.StateFollower(client, state)
        await follower.__aenter__()
        await state.entered.wait()
        leaving = asyncio.create_task(follower.__aexit__())
        await asyncio.sleep(1)
        assert not leaving.done()
        state.may_return.set()
        await leaving
        assert state.data == {0: [b"0"]}
        with pytest.raises(waltz.ClientClosed):
            await follower.applied(0, 2)


@on_virtual_time
@pytest.mark.parametrize("method", ["mark", "apply"])
async def test_cancellation_of_what_the_state_awaits_is_retried(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition stopped without a log line, and all that waited for it waited forever."""
    state, awaited = State(), asyncio.get_running_loop().create_future()
    original = getattr(state, method)

    async def wait_first(argument: Any) -> Any:
        if not awaited.done():
            await awaited
        return await original(argument)

    monkeypatch.setattr(state, method, wait_first)
    async with following(state, 1) as (_, _, follower):
        waiting = asyncio.create_task(follower.applied(0, 0, timeout=10))
        await asyncio.sleep(1)
        awaited.cancel()
        await eventually(lambda: follower.problem(0) is not None)
        assert isinstance(problem := follower.problem(0), RuntimeError)
        assert isinstance(problem.__cause__, asyncio.CancelledError)
        await waiting
    assert state.data == {0: [b"0"]}


@on_virtual_time
@pytest.mark.parametrize("seconds", [0, 1])
async def test_cancelled_leaving_ends_the_calls_that_wait(seconds: float) -> None:
    """After 0 s the streams are not closed yet; after 1 s, `apply` is waited for."""
    state = State()
    state.may_return.clear()
    async with InProcessCluster() as cluster, cluster.connect() as client:
        await client.append(0, b"0")
        follower = waltz.StateFollower(client, state)
        await follower.__aenter__()
        waiting = asyncio.create_task(follower.applied(0, 0, timeout=10))
        await state.entered.wait()
        leaving = asyncio.create_task(follower.__aexit__())
        await asyncio.sleep(seconds)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        with pytest.raises(waltz.ClientClosed):
            await waiting


@on_virtual_time
async def test_follower_of_an_unknown_partition_is_refused() -> None:
    async with InProcessCluster() as cluster, cluster.connect() as client:
        with pytest.raises(waltz.PartitionUnknown, match="there is no partition 7"):
            waltz.StateFollower(client, State(), [0, 7])


@on_virtual_time
async def test_mark_of_another_log_ends_the_partition_for_all_that_wait() -> None:
    state = State({0: 10**9})
    async with following(state, 3) as (_, _, follower):
        waits = [asyncio.create_task(follower.applied(0, 10**9 + 1)) for _ in range(2)]
        done = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(each) for each in done] == [waltz.ClientAhead] * 2
        assert done[0] is not done[1]
        with pytest.raises(waltz.ClientAhead):
            await follower.submit(0, lambda _: None)
        with pytest.raises(waltz.ClientAhead):
            await follower.applied(0, 2)


@on_virtual_time
@pytest.mark.parametrize("count", [0, 3])
async def test_caught_up_with_the_mark_of_another_log_raises_client_ahead(count: int) -> None:
    """It returned, as if the state of another cluster were up to date with this one."""
    async with following(State({0: 10**9}), count) as (_, _, follower):
        with pytest.raises(waltz.ClientAhead, match="ends at transaction") as raised:
            await follower.caught_up()
        assert (raised.value.client_mark, raised.value.log_mark) == (10**9, count - 1)


@on_virtual_time
async def test_caught_up_returns_if_a_server_answers_twice_with_an_old_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with following(State(), 3) as (_, client, follower):
        await follower.applied(0, 2)
        answers, read_mark = [0, 0, 1], client.high_water_mark

        async def stale_first(partition: int, **options: Any) -> int:
            return answers.pop(0) if answers else await read_mark(partition, **options)

        monkeypatch.setattr(client, "high_water_mark", stale_first)
        await follower.caught_up()
        assert answers == []


@on_virtual_time
async def test_data_that_the_serializer_cannot_read_end_the_partition() -> None:
    async with InProcessCluster() as cluster:
        async with cluster.connect() as client:
            await client.append(0, b"not json")
        async with (
            cluster.connect(serializer=waltz.JsonSerializer()) as reader,
            waltz.StateFollower(reader, State()) as follower,
        ):
            with pytest.raises(waltz.DataUnreadable, match="transaction 0") as first:
                await follower.caught_up()
            with pytest.raises(waltz.DataUnreadable, match="transaction 0") as second:
                await follower.applied(0, 0)
            assert first.value is not second.value
            assert second.value.data == b"not json"
            assert isinstance(second.value.__cause__, ValueError)


@on_virtual_time
async def test_followers_agree_under_faults() -> None:
    async with InProcessCluster(seed=4) as cluster:
        states = [State() for _ in range(3)]
        clients = [await cluster.connect() for _ in states]
        cluster.faults = FAULTS

        async def count(client: InProcessClient[bytes], state: State) -> None:
            async with waltz.StateFollower(client, state) as follower:
                for _ in range(10):
                    await follower.submit(
                        0,
                        lambda _: waltz.Draft(
                            b"%d" % len(state.data.get(0, [])), write_locks=[waltz.Lock("n", 0)]
                        ),
                    )
                await follower.caught_up()

        await asyncio.gather(*(count(c, s) for c, s in zip(clients, states, strict=True)))
        assert [t.data for t in cluster.transactions(0)] == [b"%d" % n for n in range(30)]
        for client in clients:
            await client.close()


def test_partition_that_is_not_followed_is_an_error() -> None:
    async def check() -> None:
        async with InProcessCluster(2) as cluster, cluster.connect() as client:
            follower = waltz.StateFollower(client, State(), [1])
            with pytest.raises(ValueError, match="partition 0 is not followed"):
                follower.mark(0)

    asyncio.run(check())
