"""Measure how much a storm of cold reads delays the appends beside it.

A *cold read* is a read that no cache answers: the server gets the transaction from a storage. A
*storm* is many reads of random old transactions, most of them cold, which another process requests
all at once.
Each round appends first with nothing beside it, and then beside a storm. Runs as
`python -m bench.cold_reads`. Starts processes, touches the network and the disk.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

import waltz
from bench.cluster import MeasuredCluster, measured_cluster
from bench.followers import percentile_ms
from bench.reader_process import next_line, reader_process
from waltz.runtime.process import run_loop

READS = 20_000
"""How many reads a storm has."""
APPENDERS = 10
"""How many tasks append; each has one append open."""
ALONE_SECONDS = 10.0
"""How long a round appends without reads."""
_OLD_RECORDS = 250_000
"""How many records the log has before the first round."""
_STORM_SECONDS = 600.0
"""The time that the reads of a storm have. Appends overtake them, so they may take long."""
_RECORD_BYTES = 512
_PARTITION = 0


@dataclass(frozen=True, slots=True)
class Storm:
    """The reads of one process: ``reads`` random transactions among the first ``records``.

    ``seed`` decides which transactions these are.
    """

    zookeeper: str
    root: str
    reads: int
    records: int
    seed: int


@dataclass(frozen=True, slots=True)
class Round:
    """The 99th percentiles of the appends' latencies, and how long the storm lasted."""

    alone_p99_ms: float
    beside_p99_ms: float
    storm_seconds: float

    @property
    def ratio(self) -> float:
        """How many times as long an append takes beside the storm."""
        return self.beside_p99_ms / self.alone_p99_ms


async def _run_storm(storm: Storm) -> None:
    """Perform a storm when a line comes on standard input; print a line before and after it."""
    randomness = random.Random(storm.seed)
    async with waltz.connect(storm.zookeeper, root=storm.root) as client:
        await client.high_water_mark(_PARTITION)  # Opens the connection to the server.
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        ids = [randomness.randrange(storm.records) for _ in range(storm.reads)]
        await asyncio.gather(
            *(client.read(_PARTITION, each, timeout=_STORM_SECONDS) for each in ids)
        )
        print("done", flush=True)


async def measure_cold_reads(cluster: MeasuredCluster, seed: int) -> Round:
    """Run one round on a cluster whose log has `_OLD_RECORDS` records or more."""
    local = cluster.local
    storm = Storm(local.zookeeper, local.root, READS, _OLD_RECORDS, seed)
    async with waltz.connect(local.zookeeper, root=local.root) as client:
        appends = _Appends(client)
        tasks = [asyncio.create_task(appends.run()) for _ in range(APPENDERS)]
        argument = json.dumps(asdict(storm))
        async with reader_process("bench.cold_reads", "--storm", argument) as process:
            begun = time.perf_counter()
            await asyncio.sleep(ALONE_SECONDS)
            storm_begun = time.perf_counter()
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            await next_line(process)
            ended = time.perf_counter()
        appends.stopping = True
        await asyncio.gather(*tasks)
    return Round(
        percentile_ms(appends.between(begun, storm_begun), 99),
        percentile_ms(appends.between(storm_begun, ended), 99),
        ended - storm_begun,
    )


class _Appends:
    """Appends one record after the other, in as many tasks as call `run`."""

    def __init__(self, client: waltz.Client) -> None:
        self.stopping = False
        self._client = client
        self._times: list[tuple[float, float]] = []
        """When each append began and ended."""

    async def run(self) -> None:
        """Append until `stopping` is set."""
        while not self.stopping:
            begun = time.perf_counter()
            await self._client.append(_PARTITION, b"." * _RECORD_BYTES)
            self._times.append((begun, time.perf_counter()))

    def between(self, first: float, last: float) -> list[float]:
        """Return how long the appends took that began between ``first`` and ``last``."""
        return [ended - begun for begun, ended in self._times if first <= begun < last]


async def _measure(rounds: int) -> None:
    """Fill a cluster, run the rounds, and print the result of each and the median ratio."""
    async with measured_cluster() as cluster:
        await cluster.put_load(
            clients=4, window=100, size=_RECORD_BYTES, records=_OLD_RECORDS, locks=False
        )
        results = []
        for number in range(rounds):
            result = await measure_cold_reads(cluster, number)
            results.append(result)
            print(
                f"round {number + 1} of {rounds}: "
                f"p99 of appends {result.alone_p99_ms:.1f} ms alone, "
                f"{result.beside_p99_ms:.1f} ms beside {READS:,} reads "
                f"in {result.storm_seconds:.1f} s: {result.ratio:.2f} times",
                flush=True,
            )
        print(f"median: {statistics.median(result.ratio for result in results):.2f} times")


def _command(
    rounds: Annotated[int, typer.Option(min=1, help="The number of rounds.")] = 7,
    storm: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure the appends of a local cluster alone, and beside a storm of cold reads."""
    if storm is None:
        asyncio.run(_measure(rounds))
    else:
        run_loop(_run_storm(Storm(**json.loads(storm))))


if __name__ == "__main__":
    typer.run(_command)
