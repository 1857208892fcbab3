"""How fast a partition is read back, and how long a fault interrupts its writing."""

from __future__ import annotations

import asyncio
import time

import waltz
from bench.cluster import MeasuredCluster

_PAUSE_SECONDS = 6.0
_PARTITION = 0


async def measure_stream(cluster: MeasuredCluster, most: int = 200_000) -> float:
    """Return the transactions per second of a stream with data, from the partition's start."""
    local = cluster.local
    async with waltz.connect(local.zookeeper, root=local.root, tls=local.tls) as client:
        last = min(await client.high_water_mark(_PARTITION), most)
        begun = time.perf_counter()
        count = 0
        async for _ in client.stream(_PARTITION, until=last, data=True):
            count += 1
        return count / (time.perf_counter() - begun)


async def measure_pause(cluster: MeasuredCluster) -> float:
    """Kill a storage while appends go on; return the longest time without a commit, in seconds."""
    local = cluster.local
    longest = 0.0
    async with waltz.connect(local.zookeeper, root=local.root, tls=local.tls) as client:
        begun = last = time.perf_counter()
        killed = False
        while last - begun < _PAUSE_SECONDS:
            if not killed and last - begun > _PAUSE_SECONDS / 3:
                local.kill("storage/1")
                killed = True
            await client.append(_PARTITION, b"tick")
            now = time.perf_counter()
            longest = max(longest, now - last)
            last = now
    await local.start_one("storage/1")
    await asyncio.wait_for(local.healthy(), 60)
    return longest
