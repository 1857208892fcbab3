"""Compare the storage engines: the same load on a cluster of each engine, in turns.

Starts processes, touches the network and the disk.
"""

from __future__ import annotations

import statistics
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rich.table import Table

from bench.cluster import MeasuredCluster, MeasuredEngine, measured_cluster

PARTITIONS = (1, 16, 256, 1000)
"""The numbers of partitions that are measured."""
_CLIENTS, _WINDOW = 32, 5
"""The number of clients, and how many appends each keeps open."""
_RECORDS = 40_000
"""The number of records of a run."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: committed appends per second, latencies, and the cost of a transaction.

    ``flushes`` and ``storage_us`` are those of one storage for one transaction: the number of
    flushes, and the microseconds of CPU time.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    flushes: float
    storage_us: float


async def measure_engines(partitions: int, rounds: int, size: int, scale: float) -> Table:
    """Return a table with the medians of ``rounds`` runs of each engine, in turns.

    The records have ``size`` bytes. The appends are spread over all ``partitions``: if there are
    more partitions than clients, each client appends to several, in turn. The column "of files" is
    the rate divided by that of the engine ``files``.
    """
    table = Table(
        title=f"{partitions} partitions, {_CLIENTS} x {_WINDOW}, {size} bytes, medians of "
        f"{rounds} runs in turns"
    )
    table.add_column("engine")
    for name in ("tx/s", "of files", "p50 ms", "p99 ms", "flushes/tx", "storage us/tx"):
        table.add_column(name, justify="right")
    runs: dict[MeasuredEngine, list[_Run]] = {engine: [] for engine in MeasuredEngine}
    async with AsyncExitStack() as stack:
        clusters = {
            engine: await stack.enter_async_context(
                measured_cluster(partitions=partitions, engine=engine)
            )
            for engine in MeasuredEngine
        }
        for cluster in clusters.values():
            # The first appends to a partition allocate its files, so each partition gets about 8
            # appends before the first run.
            await cluster.put_load(_CLIENTS, _WINDOW, size, 8 * partitions + 1000, locks=False)
        for _ in range(rounds):
            for engine, cluster in clusters.items():
                runs[engine].append(await _run(cluster, size, int(_RECORDS * scale)))
    files_rate = statistics.median(run.rate for run in runs[MeasuredEngine.FILES])
    for engine, engine_runs in runs.items():
        rate = statistics.median(run.rate for run in engine_runs)
        table.add_row(
            engine.value,
            f"{rate:,.0f}",
            f"{rate / files_rate:.2f}",
            f"{statistics.median(run.p50_ms for run in engine_runs):.2f}",
            f"{statistics.median(run.p99_ms for run in engine_runs):.2f}",
            f"{statistics.median(run.flushes for run in engine_runs):.3f}",
            f"{statistics.median(run.storage_us for run in engine_runs):.0f}",
        )
    return table


async def _run(cluster: MeasuredCluster, size: int, records: int) -> _Run:
    """Put load on a cluster once, and return the figures of this run."""
    before = cluster.usage()
    result = await cluster.put_load(_CLIENTS, _WINDOW, size, records, locks=False)
    used, committed = cluster.usage().since(before), result.committed
    return _Run(
        committed / result.seconds,
        result.p50_ms,
        result.p99_ms,
        used.flushes / committed / cluster.num_storages,
        used.storage_seconds / committed / cluster.num_storages * 1e6,
    )
