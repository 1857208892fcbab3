"""Measure memory under full load for a long time, with a replica down and a slow consumer.

    python -m bench.soak --minutes 10

The program prints the resident memory of the server and the storages periodically. It exits with
status 1 if a process uses more memory than `_BOUND_MIB`, or if the consumer misses a transaction.
Starts processes, reads /proc.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import waltz
from bench.cluster import MeasuredCluster, measured_cluster

_BOUND_MIB = 700
"""The bound for one process: a server's caches of 192 MiB, Python, and the work in progress."""
_SLOW_PAUSE_SECONDS = 0.5
"""How long the consumer pauses after each batch."""
_ROUND_RECORDS = 300_000
"""How many records are appended between two prints."""
_SIZE = 256
"""The size of a record in bytes."""

console = Console()


@dataclass(slots=True)
class _Consumed:
    """How far the slow consumer has come: the id of the last transaction that has arrived."""

    last_id: int = -1


async def _consume_slowly(cluster: MeasuredCluster, consumed: _Consumed) -> None:
    """Stream a partition from its start, with pauses; fail if a transaction id is missing."""
    local = cluster.local
    async with waltz.connect(local.zookeeper, root=local.root, tls=local.tls) as client:
        async for batch in client.stream(0, after=-1, data=True).batches():
            for transaction in batch:
                expected = consumed.last_id + 1
                assert transaction.id == expected, f"{transaction.id} instead of {expected}"
                consumed.last_id = transaction.id
            await asyncio.sleep(_SLOW_PAUSE_SECONDS)


def _resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB.

    Return 0 for a process that has just ended: then the file has no line about it.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024  # The line is in KiB.
    return 0.0


async def _soak(minutes: float) -> float:
    """Put load on a cluster; return the largest resident memory of a process, in MiB."""
    peak = 0.0
    async with measured_cluster() as cluster:
        cluster.local.kill("storage/2")
        consumed = _Consumed()
        consumer = asyncio.create_task(_consume_slowly(cluster, consumed))
        deadline = time.monotonic() + minutes * 60
        written = 0
        while time.monotonic() < deadline:
            result = await cluster.put_load(
                clients=4, window=100, size=_SIZE, records=_ROUND_RECORDS, locks=True
            )
            written += result.committed
            if consumer.done():  # Only an error ends the consumer.
                consumer.result()  # This raises the error.
            sizes = {
                name: _resident_mib(pid)
                for name, pid in cluster.local.pids().items()
                if pid is not None and name.startswith(("server", "storage"))
            }
            peak = max(peak, *sizes.values())
            shown = "  ".join(f"{name} {size:.0f} MiB" for name, size in sizes.items())
            console.print(f"{written:,} written, {consumed.last_id + 1:,} consumed: {shown}")
        consumer.cancel()
        await asyncio.wait([consumer])
    return peak


def _command(
    minutes: Annotated[float, typer.Option(help="The duration of the load in minutes.")] = 10.0,
) -> None:
    """Put full load on a cluster and watch the memory of its server and storages."""
    peak = asyncio.run(_soak(minutes))
    console.print(f"largest: {peak:.0f} MiB, the bound is {_BOUND_MIB} MiB")
    if peak > _BOUND_MIB:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(_command)
