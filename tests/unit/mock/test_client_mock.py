"""The faults of the mock cluster, on demand and from a seed."""

from __future__ import annotations

import asyncio

import pytest

import waltz
from tests.support.eventually import eventually
from waltz import Lock, LogClient, mock

ROW = [Lock("row", 1)]


@pytest.mark.parametrize("committed", [True, False])
async def test_fail_next_append_makes_the_next_append_uncertain(committed: bool) -> None:
    cluster = mock.MockCluster()
    cluster.fail_next_append(0, committed=committed)
    async with cluster.connect() as client:
        with pytest.raises(waltz.AppendUncertain) as caught:
            await client.append(0, b"x")
        in_log = [t.req_id for t in cluster.transactions(0)]
        assert in_log == ([caught.value.req_id] if committed else [])
        assert await client.append(0, b"y") == committed


async def test_fail_next_lock_makes_the_next_lock_fail() -> None:
    cluster = mock.MockCluster()
    cluster.fail_next_lock(0)
    async with cluster.connect() as client:
        assert await client.append(0, b"without locks") == 0
        with pytest.raises(waltz.LockFailed):
            await client.append(0, b"x", write_locks=ROW)
        assert await client.append(0, b"x", write_locks=ROW) == 1


async def test_suspended_feed_delays_streams_and_outcomes() -> None:
    cluster = mock.MockCluster(2)
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


async def test_close_makes_unseen_appends_uncertain() -> None:
    cluster = mock.MockCluster()
    cluster.suspend_feed(0)
    client = await cluster.connect()
    append = asyncio.ensure_future(client.append(0, b"x"))
    await eventually(lambda: cluster.transactions(0))
    await client.close()
    with pytest.raises(waltz.AppendUncertain):
        await append


async def outcomes_of(seed: int) -> list[str]:
    """Return the outcomes of the appends of two clients."""
    faults = mock.Faults(lost=0.2, uncertain=0.2, conflict=0.2)
    cluster = mock.MockCluster(2, seed=seed, faults=faults)
    outcomes: list[str] = []

    async def append(client: LogClient[bytes], number: int) -> None:
        try:
            locks = [Lock("row", number)]
            tx = await client.append(number % 2, b"%d" % number, write_locks=locks)
            outcomes.append(f"{client.client_id}/{number} is {tx}")
        except waltz.WaltzError as error:
            outcomes.append(f"{client.client_id}/{number} {type(error).__name__}")

    async with cluster.connect() as one, cluster.connect() as two:
        for number in range(40):
            await append(one if number % 3 else two, number)
    return outcomes


async def test_same_seed_gives_the_same_faults() -> None:
    outcomes = await outcomes_of(3)
    assert outcomes == await outcomes_of(3)
    assert outcomes != await outcomes_of(4)
    text = "\n".join(outcomes)
    for word in ("is", "AppendUncertain", "LockFailed"):
        assert word in text


async def test_clients_on_other_event_loops_share_the_logs() -> None:
    cluster = mock.MockCluster()

    async def follow() -> bytes:
        async with cluster.connect() as client:
            async for transaction in client.stream(0, data=True):
                return transaction.data
        raise AssertionError("the stream has ended")

    elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, follow()))
    async with cluster.connect() as client:
        await client.append(0, b"to all")
    assert await elsewhere == b"to all"


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
        mock.Faults(**faults)  # type: ignore[arg-type]


def test_fault_in_unknown_partition_is_refused() -> None:
    cluster = mock.MockCluster(2)
    with pytest.raises(waltz.PartitionUnknown):
        cluster.suspend_feed(2)
    with pytest.raises(ValueError, match="at least one"):
        mock.MockCluster(0)


@pytest.mark.parametrize("committed", [True, False])
async def test_fail_next_append_makes_the_next_batch_uncertain(committed: bool) -> None:
    cluster = mock.MockCluster()
    cluster.fail_next_append(0, committed=committed)
    async with cluster.connect() as client:
        with pytest.raises(waltz.AppendUncertain) as caught:
            await client.bulk.append(0, [waltz.Draft(b"x"), waltz.Draft(b"y")])
        assert caught.value.outcomes == (None, None)
        headers = (await client.bulk.headers(0, 0)).headers
        assert len(headers) == (2 if committed else 0)
        assert [h.req_id for h in headers][:1] == [caught.value.req_id] * committed
        assert client.pending == 0


async def test_fail_next_lock_refuses_one_append_of_a_batch() -> None:
    cluster = mock.MockCluster()
    cluster.fail_next_lock(0)
    async with cluster.connect() as client:
        await client.append(0, b"first")
        drafts = [waltz.Draft(b"x"), waltz.Draft(b"y", write_locks=ROW)]
        assert await client.bulk.append(0, drafts) == [waltz.Appended(1), waltz.Refused(0)]


async def test_lost_batch_is_sent_again() -> None:
    cluster = mock.MockCluster(seed=3, faults=mock.Faults(lost=0.5))
    async with cluster.connect() as client:
        for _ in range(20):
            outcomes = await client.bulk.append(0, [waltz.Draft(b"x"), waltz.Draft(b"y")])
            assert all(isinstance(each, waltz.Appended) for each in outcomes)
        seqs = [t.req_id.seq for t in cluster.transactions(0)]
        assert len(seqs) == 40 < seqs[-1]
