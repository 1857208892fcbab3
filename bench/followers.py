"""Measure the time from an append to its delivery to many followers.

A *follower* is a client that streams a partition. The measured followers are quick. In some runs,
*slow* followers read old records beside them, with pauses: they must not delay the others. The
program `bench.following` runs the followers. Starts processes, touches the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import waltz
from bench.cluster import MeasuredCluster
from bench.following import PARTITION, Following, stamped
from bench.reader_process import next_line, reader_process

FOLLOWERS = (1, 10, 100)
"""The numbers of followers that are measured."""
SLOW = 64
"""The number of slow followers beside those that are measured."""
APPEND_INTERVAL_SECONDS = 0.03
"""The time between two appends, which do not wait for each other.

All followers are one process in Python, which can take some ten thousand records per second. 100
followers take 100 records after each append. With a much shorter interval, the latency would be
mostly the time for which records wait in that process.
"""
APPENDS = 150
"""The number of appends whose latencies count."""
OLD_RECORDS = 200_000
"""How many records the log has before the first run.

They are so many that slow followers do not reach the end of the log during a run.
"""
_WARM_UP_APPENDS = 30
"""The number of appends before those that count."""


@dataclass(frozen=True, slots=True)
class FollowerRun:
    """The latencies of one run, in milliseconds.

    ``delivered`` is the time from the call of the append until a follower has the record, over all
    records and followers. ``acknowledged`` is the time until the appending client has its answer.
    """

    followers: int
    slow: int
    delivered_p50_ms: float
    delivered_p99_ms: float
    acknowledged_p50_ms: float
    acknowledged_p99_ms: float


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """Return a percentile of times, in milliseconds."""
    return sorted(seconds)[min(len(seconds) - 1, len(seconds) * percent // 100)] * 1000


async def measure_followers(
    cluster: MeasuredCluster, followers: int, slow: int, size: int, appends: int = APPENDS
) -> FollowerRun:
    """Append ``appends`` records of ``size`` bytes at a steady rate; return the latencies.

    ``followers`` clients stream the records, each over its own connection. ``slow`` other clients
    stream the log from its start, with pauses.
    """
    local = cluster.local
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            waltz.connect(local.zookeeper, root=local.root, tls=local.tls)
        )
        first = await client.high_water_mark(PARTITION) + 1
        last = first + _WARM_UP_APPENDS + appends - 1
        quick = Following(local.zookeeper, local.root, followers, first, last, slow=False)
        if slow:
            # Slow followers use no first and last id.
            slow_ones = Following(local.zookeeper, local.root, slow, 0, 0, slow=True)
            await stack.enter_async_context(_follower_process(slow_ones))
        process = await stack.enter_async_context(_follower_process(quick))
        count = _WARM_UP_APPENDS + appends
        acknowledged = await _append_steadily(client, size, count)
        delivered = json.loads(await next_line(process))
    assert len(delivered) == followers * count, f"{len(delivered)} records were delivered"
    # The list has all latencies of one follower, in the order of the records, then all of the next
    # one. The first latencies of each follower are those of the warm-up, and are left out.
    counted_deliveries: list[float] = []
    for begin in range(0, len(delivered), count):
        counted_deliveries += delivered[begin + _WARM_UP_APPENDS : begin + count]
    counted_answers = acknowledged[_WARM_UP_APPENDS:]
    return FollowerRun(
        followers,
        slow,
        percentile_ms(counted_deliveries, 50),
        percentile_ms(counted_deliveries, 99),
        percentile_ms(counted_answers, 50),
        percentile_ms(counted_answers, 99),
    )


async def _append_steadily(client: waltz.Client, size: int, count: int) -> list[float]:
    """Begin an append in each interval; return after how many seconds each was acknowledged."""

    async def append() -> float:
        begun = time.perf_counter()
        await client.append(PARTITION, stamped(size))
        return time.perf_counter() - begun

    begun, tasks = time.perf_counter(), []
    for number in range(count):
        # The time counts from the first append, so an append that begins late delays no later one.
        await asyncio.sleep(begun + number * APPEND_INTERVAL_SECONDS - time.perf_counter())
        tasks.append(asyncio.create_task(append()))
    return await asyncio.gather(*tasks)


def _follower_process(following: Following) -> contextlib.AbstractAsyncContextManager[Process]:
    """Run a process of followers; the context begins when they follow."""
    return reader_process("bench.following", json.dumps(asdict(following)))
