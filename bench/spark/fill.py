"""Append records to partitions in batches. Touches the network and ZooKeeper."""

from __future__ import annotations

import asyncio
import os

import waltz
from waltz.local import LocalCluster

_BATCH_ROWS = 2000
_MAX_IN_FLIGHT = 4 * _BATCH_ROWS
"""The most open appends of a client: several batches are on their way at the same time."""
_PAYLOADS = 64
"""The number of different records. Random bytes are made once and not for each record."""


def connect_to(cluster: LocalCluster) -> waltz.client.opening.Opening[waltz.Client[bytes]]:
    """Return a client of a local cluster, for use in ``async with``."""
    return waltz.connect(
        cluster.zookeeper, root=cluster.root, tls=cluster.tls, max_in_flight=_MAX_IN_FLIGHT
    )


async def fill(cluster: LocalCluster, rows: dict[int, int], size: int) -> None:
    """Append records of ``size`` random bytes; ``rows`` is the number of records by partition."""
    payloads = [os.urandom(size) for _ in range(_PAYLOADS)]

    async def fill_one(client: waltz.Client[bytes], partition: int, count: int) -> None:
        for first in range(0, count, _BATCH_ROWS):
            numbers = range(first, min(first + _BATCH_ROWS, count))
            drafts = [waltz.Draft(payloads[number % _PAYLOADS]) for number in numbers]
            await client.bulk.append(partition, drafts)

    async with connect_to(cluster) as client:
        await asyncio.gather(*(fill_one(client, p, count) for p, count in rows.items()))
