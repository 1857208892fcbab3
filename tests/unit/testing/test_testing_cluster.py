"""A cluster in one process: real servers, storages and clients."""

from __future__ import annotations

import asyncio
import sys
import time
from types import FrameType

import pytest

import waltz
from waltz import Lock
from waltz.testing import InProcessCluster, run


async def test_append_is_committed_and_streamed() -> None:
    async with InProcessCluster(partitions=2) as cluster, cluster.connect() as client:
        assert await client.append(1, b"hello") == 0
        assert await client.read(1, 0) == b"hello"
        [transaction] = [t async for t in client.stream(1, until=0, data=True)]
        assert (transaction.id, transaction.data) == (0, b"hello")
        assert [t.data for t in cluster.transactions(1)] == [b"hello"]
        assert cluster.transactions(0) == []


async def history_of(seed: int) -> list[str]:
    """Return the events of a run with two servers, delays and concurrent appends."""
    events: list[str] = []
    loop = asyncio.get_running_loop()
    async with InProcessCluster(partitions=3, servers=2, seed=seed) as cluster:
        cluster.network.delay_seconds = (0.001, 0.05)

        async def append(client: waltz.LogClient[bytes], number: int) -> None:
            tx = await client.append(number % 3, b"%d" % number, write_locks=[Lock("row", number)])
            events.append(f"{loop.time():.6f} {client.client_id}/{number} is {tx}")

        async with cluster.connect() as one, cluster.connect() as two:
            work = [append(one if number % 2 else two, number) for number in range(60)]
            await asyncio.gather(*work)
        for partition in range(3):
            events += [f"{partition}: {t}" for t in cluster.transactions(partition)]
    return events


def test_same_seed_on_virtual_time_gives_the_same_history() -> None:
    history = run(history_of(3))
    assert history == run(history_of(3))
    assert history != run(history_of(4))
    assert len(history) == 120


def test_client_on_virtual_time_waits_without_real_time() -> None:
    async def wait_for_an_hour() -> float:
        async with InProcessCluster() as cluster, cluster.connect() as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3600):
                    [t async for t in client.stream(0)]
            return asyncio.get_running_loop().time()

    begun = time.monotonic()
    assert run(wait_for_an_hour()) >= 3600
    assert time.monotonic() - begun < 30


async def test_client_on_another_event_loop_shares_the_logs() -> None:
    async with InProcessCluster() as cluster:

        async def follow() -> bytes:
            async with cluster.connect() as client:
                async for transaction in client.stream(0, data=True):
                    return transaction.data
            raise AssertionError("the stream has ended")

        elsewhere = asyncio.create_task(asyncio.to_thread(asyncio.run, follow()))
        async with cluster.connect() as client:
            await client.append(0, b"to all")
        assert await elsewhere == b"to all"


def test_cluster_without_partition_or_node_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        InProcessCluster(0)
    with pytest.raises(ValueError, match="one of each"):
        InProcessCluster(servers=0)


async def test_transactions_of_unknown_partition_are_refused() -> None:
    async with InProcessCluster() as cluster:
        with pytest.raises(waltz.PartitionUnknown):
            cluster.transactions(1)


async def test_cluster_starts_with_few_function_calls() -> None:
    """A start is to take less than 50 ms of CPU time: about 50,000 calls, at a microsecond each.

    Calls are counted, because their number is the same on every machine.
    """
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    cluster = InProcessCluster(partitions=3)
    sys.setprofile(count)
    try:
        await cluster.__aenter__()
    finally:
        sys.setprofile(before)
        await cluster.__aexit__(None, None, None)
    assert 10_000 < calls < 60_000


async def test_cluster_that_fails_to_start_stops_the_nodes_that_have_started() -> None:
    class Unready(InProcessCluster):
        async def ready(self, seconds: float = 30.0) -> None:
            assert all(server.node is not None for server in self.servers)
            assert all(storage.node is not None for storage in self.storages)
            raise TimeoutError

    loop = asyncio.get_running_loop()
    handler, tasks = loop.get_exception_handler(), asyncio.all_tasks()
    cluster = Unready()
    with pytest.raises(TimeoutError):
        await cluster.__aenter__()
    assert all(server.node is None for server in cluster.servers)
    assert all(storage.node is None for storage in cluster.storages)
    assert loop.get_exception_handler() is handler
    assert {task for task in asyncio.all_tasks() if not task.cancelling()} == tasks


async def test_error_that_would_end_a_process_is_raised_when_the_cluster_closes() -> None:
    def fail() -> None:
        raise AssertionError("an invariant is broken")

    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

    async def run_cluster() -> None:
        async with InProcessCluster():
            loop.call_soon(fail)
            await asyncio.sleep(0.001)

    with pytest.raises(AssertionError, match="an invariant is broken"):
        await run_cluster()
    assert len(reported) == 1
    loop.call_soon(fail)
    await asyncio.sleep(0.001)
    assert len(reported) == 2
