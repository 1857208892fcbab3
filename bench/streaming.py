"""Measure how fast a partition is streamed, and how long a fault interrupts its appends.

Touches the network, kills a storage.
"""

from __future__ import annotations

import asyncio
import time

import waltz
from bench.cluster import MeasuredCluster
from waltz.cli.bench.continuous import ContinuousAppends

_APPENDING_SECONDS = 6.0
"""How long appends run; the storage is killed after a third of this time."""
_RECOVERY_SECONDS = 60.0
"""How long appends, and later the killed storage, may need to recover."""
_PARTITION = 0


async def measure_stream(cluster: MeasuredCluster, most: int = 200_000) -> float:
    """Return the transactions per second of a stream of ``most`` transactions with their data."""
    local = cluster.local
    async with waltz.connect(local.zookeeper, root=local.root, tls=local.tls) as client:
        last = min(await client.high_water_mark(_PARTITION), most)
        begun = time.perf_counter()
        count = 0
        async for _ in client.stream(_PARTITION, until=last, data=True):
            count += 1
        return count / (time.perf_counter() - begun)


async def measure_pause(cluster: MeasuredCluster) -> float:
    """Kill a storage during appends; return the longest time without a commit, in seconds."""
    local = cluster.local
    async with waltz.connect(local.zookeeper, root=local.root, tls=local.tls) as client:
        appends = ContinuousAppends([client], (_PARTITION,), lambda *_: b"tick")
        begun = time.monotonic()
        async with appends:
            await asyncio.sleep(_APPENDING_SECONDS / 3)
            local.kill("storage/1")
            await asyncio.sleep(_APPENDING_SECONDS * 2 / 3)
            await appends.finish(_RECOVERY_SECONDS)
        longest = appends.longest_pause(_PARTITION, begun)
    await local.start_one("storage/1")
    await asyncio.wait_for(local.wait_until_healthy(), _RECOVERY_SECONDS)
    return longest
