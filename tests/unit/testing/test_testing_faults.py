"""The faults of appends in a cluster in one process, on demand and from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

import waltz
from tests.support.eventually import eventually
from waltz import Lock, LogClient
from waltz.testing import Faults, InProcessCluster, run

ROW = [Lock("row", 1)]

Start = Callable[..., Awaitable[InProcessCluster]]
"""Starts a cluster, which is closed at the end of the test."""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def one_more(*arguments: Any, **options: Any) -> InProcessCluster:
            return await stack.enter_async_context(InProcessCluster(*arguments, **options))

        yield one_more


@pytest.mark.parametrize("committed", [True, False])
async def test_fail_next_append_makes_the_next_append_uncertain(
    start: Start, committed: bool
) -> None:
    cluster = await start()
    cluster.fail_next_append(0, committed=committed)
    async with cluster.connect() as client:
        with pytest.raises(waltz.AppendUncertain) as caught:
            await client.append(0, b"x")
        in_log = [t.req_id for t in cluster.transactions(0)]
        assert in_log == ([caught.value.req_id] if committed else [])
        assert await client.append(0, b"y") == committed


async def test_fail_next_lock_makes_the_next_lock_fail(start: Start) -> None:
    cluster = await start()
    cluster.fail_next_lock(0)
    async with cluster.connect() as client:
        assert await client.append(0, b"without locks") == 0
        with pytest.raises(waltz.LockFailed):
            await client.append(0, b"x", write_locks=ROW)
        assert await client.append(0, b"x", write_locks=ROW) == 1


async def test_suspended_feed_delays_streams_and_outcomes(start: Start) -> None:
    cluster = await start(2)
    async with cluster.connect() as client:
        await client.append(0, b"seen")
        cluster.suspend_feed(0)
        stream = aiter(client.stream({0: -1, 1: -1}))
        append = asyncio.ensure_future(client.append(0, b"hidden"))
        await eventually(lambda: len(cluster.transactions(0)) == 2)
        assert (await anext(stream)).id == 0
        await client.append(1, b"elsewhere")
        assert (await anext(stream)).partition == 1
        assert not append.done()
        assert await client.mount(0) == 0
        assert await client.high_water_mark(0) == 1
        with pytest.raises(waltz.AppendUncertain, match="no outcome within"):
            await client.append(0, b"late", timeout=0.01)
        with pytest.raises(waltz.AnswerLate, match="not every append"):
            await client.flush(timeout=0.01)
        cluster.resume_feed(0)
        assert await append == 1
        assert [(await anext(stream)).id for _ in range(2)] == [1, 2]


async def test_suspended_feed_delays_ranges_that_come_from_disks(start: Start) -> None:
    cluster = await start()
    async with cluster.connect() as client:
        for number in range(3):
            await client.append(0, b"seen %d" % number)
        cluster.suspend_feed(0)
        append = asyncio.ensure_future(client.append(0, b"hidden"))
        await eventually(lambda: len(cluster.transactions(0)) == 4)
        await cluster.kill_server()
        await cluster.start_server()
        await cluster.ready()
        stream = aiter(client.stream(0, after=0, data=True))
        assert [(await anext(stream)).id for _ in range(2)] == [1, 2]
        following = asyncio.ensure_future(anext(stream))
        await client.high_water_mark(0)
        assert not following.done()
        cluster.resume_feed(0)
        assert (await following).data == b"hidden"
        assert await append == 3


async def test_close_makes_unseen_appends_uncertain(start: Start) -> None:
    cluster = await start()
    cluster.suspend_feed(0)
    client = await cluster.connect()
    append = asyncio.ensure_future(client.append(0, b"x"))
    await eventually(lambda: cluster.transactions(0))
    await client.close()
    with pytest.raises(waltz.AppendUncertain):
        await append


async def outcomes_of(seed: int) -> list[str]:
    """Return the outcomes of the appends of two clients."""
    faults = Faults(lost=0.2, uncertain=0.2, conflict=0.2)
    outcomes: list[str] = []

    async def append(client: LogClient[bytes], number: int) -> None:
        try:
            locks = [Lock("row", number)]
            tx = await client.append(number % 2, b"%d" % number, write_locks=locks)
            outcomes.append(f"{client.client_id}/{number} is {tx}")
        except waltz.WaltzError as error:
            outcomes.append(f"{client.client_id}/{number} {type(error).__name__}")

    async with (
        InProcessCluster(2, seed=seed, faults=faults) as cluster,
        cluster.connect() as one,
        cluster.connect() as two,
    ):
        for number in range(40):
            await append(one if number % 3 else two, number)
    return outcomes


def test_same_seed_gives_the_same_faults() -> None:
    outcomes = run(outcomes_of(3))
    assert outcomes == run(outcomes_of(3))
    assert outcomes != run(outcomes_of(4))
    text = "\n".join(outcomes)
    for word in ("is", "AppendUncertain", "LockFailed"):
        assert word in text


@pytest.mark.parametrize(
    "faults",
    [
        {"lost": 1.0},
        {"lost": -0.1},
        {"lost": 0.5, "uncertain": 0.4, "conflict": 0.2},
        {"delay_seconds": (2.0, 1.0)},
    ],
)
def test_invalid_fault_rates_are_refused(faults: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be|give shortest"):
        Faults(**faults)  # type: ignore[arg-type]


async def test_fault_in_unknown_partition_is_refused(start: Start) -> None:
    cluster = await start(2)
    with pytest.raises(waltz.PartitionUnknown):
        cluster.suspend_feed(2)


@pytest.mark.parametrize("committed", [True, False])
async def test_fail_next_append_makes_the_next_batch_uncertain(
    start: Start, committed: bool
) -> None:
    cluster = await start()
    cluster.fail_next_append(0, committed=committed)
    async with cluster.connect() as client:
        with pytest.raises(waltz.AppendUncertain) as caught:
            await client.bulk.append(0, [waltz.Draft(b"x"), waltz.Draft(b"y")])
        assert caught.value.outcomes == (None, None)
        headers = (await client.bulk.headers(0, 0)).headers
        assert len(headers) == (2 if committed else 0)
        assert [h.req_id for h in headers][:1] == [caught.value.req_id] * committed
        assert client.pending == 0


async def test_fail_next_lock_refuses_one_append_of_a_batch(start: Start) -> None:
    cluster = await start()
    cluster.fail_next_lock(0)
    async with cluster.connect() as client:
        await client.append(0, b"first")
        drafts = [waltz.Draft(b"x"), waltz.Draft(b"y", write_locks=ROW)]
        assert await client.bulk.append(0, drafts) == [waltz.Appended(1), waltz.Refused(0)]


async def test_lost_batch_is_absent_from_the_log(start: Start) -> None:
    cluster = await start(seed=3, faults=Faults(lost=0.5))
    async with cluster.connect() as client:
        drafts = [waltz.Draft(b"x"), waltz.Draft(b"y")]
        outcomes = [await client.bulk.append(0, drafts) for _ in range(10)]
    lost = [batch for batch in outcomes if batch == [waltz.Absent(), waltz.Absent()]]
    appended = [each for batch in outcomes for each in batch if isinstance(each, waltz.Appended)]
    assert 0 < len(lost) < 10
    assert [each.transaction_id for each in appended] == list(range(20 - 2 * len(lost)))
    assert len(cluster.transactions(0)) == len(appended)


async def test_lost_append_is_sent_again(start: Start) -> None:
    cluster = await start(seed=3, faults=Faults(lost=0.5))
    async with cluster.connect() as client:
        assert [await client.append(0, b"x") for _ in range(10)] == list(range(10))
        assert cluster.transactions(0)[-1].req_id.seq > 10
