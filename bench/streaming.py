"""Measure how fast a partition is read, and how long a fault interrupts its appends.

Touches the network, kills a storage.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import waltz
from bench.cluster import MeasuredCluster
from waltz.cli.bench.continuous import ContinuousAppends

_APPENDING_SECONDS = 6.0
"""How long appends run; the storage is killed after a third of this time."""
_RECOVERY_SECONDS = 60.0
"""How long the appends, and later the killed storage, may take to recover."""
_PARTITION = 0


class ReadResult(NamedTuple):
    """The result of reading by the call ``name``.

    ``rate`` is in transactions per second; the CPU seconds are those of one transaction.
    """

    name: str
    rate: float
    client_seconds: float
    server_seconds: float
    storage_seconds: float


async def measure_reads(cluster: MeasuredCluster, limit: int = 300_000) -> list[ReadResult]:
    """Read the log with ``client.batches`` and with ``client.stream``; return a result for each.

    Both calls read the first ``limit`` transactions with their data, or all if there are fewer.
    This process is the client. Each call reads everything once before it is measured, so that
    neither the start of connections nor the import of numpy counts.
    """
    local = cluster.local
    results = []
    async with waltz.connect(local.zookeeper, root=local.root, tls=local.tls) as client:
        last = min(await client.high_water_mark(_PARTITION), limit - 1)
        for name, read in (("client.batches", _read_batches), ("client.stream", _read_stream)):
            await read(client, last)
            usage_before = cluster.usage()
            cpu_begun, begun = time.process_time(), time.perf_counter()
            await read(client, last)
            seconds, client_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
            used, count = cluster.usage().since(usage_before), last + 1
            results.append(
                ReadResult(
                    name,
                    count / seconds,
                    client_seconds / count,
                    used.server_seconds / count,
                    used.storage_seconds / count,
                )
            )
    return results


async def _read_batches(client: waltz.Client, last: int) -> None:
    async for _ in client.batches(_PARTITION, until=last):
        pass


async def _read_stream(client: waltz.Client, last: int) -> None:
    async for _ in client.stream(_PARTITION, until=last, data=True):
        pass


async def measure_pause(cluster: MeasuredCluster) -> float:
    """Kill a storage during appends; return the longest time without a commit, in seconds."""
    local = cluster.local
    async with waltz.connect(local.zookeeper, root=local.root, tls=local.tls) as client:
        appends = ContinuousAppends([client], (_PARTITION,), content=lambda *_: b"tick")
        begun = time.monotonic()
        async with appends:  # The appends run while this context is open.
            await asyncio.sleep(_APPENDING_SECONDS / 3)
            local.kill("storage/1")
            await asyncio.sleep(_APPENDING_SECONDS * 2 / 3)
            await appends.finish(_RECOVERY_SECONDS)
        longest = appends.longest_pause(_PARTITION, begun)
    await local.start_one("storage/1")
    await asyncio.wait_for(local.wait_until_healthy(), _RECOVERY_SECONDS)
    return longest
