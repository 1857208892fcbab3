"""Measure the rows per second that Spark reads, and the latency with which it follows the log.

Runs as `python -m bench.spark`. Starts processes and a JVM.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.spark.fill import fill
from bench.spark.following import follow
from bench.spark.reading import Pass, read, start_session
from bench.spark.yardstick import latency as yardstick_latency
from bench.spark.yardstick import rates as yardstick_rates
from waltz.local import LocalCluster, Shape

LAYOUTS = {"1 partition": {0: 1.0}, "2 partitions": {1: 0.5, 2: 0.5}}
"""By name of the layout: the partitions that are read, and the share of the records in each.

The layouts share no partition, because a pass reads all records of its partitions."""

SOURCES = ("servers", "replicas")
"""The values of the option ``readFrom`` that are measured."""

Rates = dict[str, list[float]]
"""The rows per second of each pass, by layout and source, or by reader of the yardstick."""

console = Console(width=120)


def main(
    records: Annotated[int, typer.Option(help="The number of records to read.")] = 2_000_000,
    size: Annotated[int, typer.Option(help="The number of bytes of a record.")] = 512,
    passes: Annotated[
        int, typer.Option(help="The number of measured passes per turn, after one warm-up pass.")
    ] = 3,
    turns: Annotated[
        int, typer.Option(help="The number of turns; in each, Waltz runs, then the yardstick.")
    ] = 1,
    rate: Annotated[
        int, typer.Option(help="The appended transactions per second while Spark follows.")
    ] = 5000,
    seconds: Annotated[
        float, typer.Option(help="The duration of following in seconds; 0 omits it.")
    ] = 30.0,
    yardstick: Annotated[
        str | None,
        typer.Option(
            help="A command of a yardstick that reads the same number of records; "
            "bench/spark/yardstick.py describes its output."
        ),
    ] = None,
    follow_yardstick: Annotated[
        str | None,
        typer.Option(
            help="A command of a yardstick that follows at the same rate; "
            "bench/spark/yardstick.py describes its output."
        ),
    ] = None,
) -> None:
    """Fill a local cluster, read it with Spark on two cores, and print a table."""
    with tempfile.TemporaryDirectory(prefix="waltz-bench-") as name, ExitStack() as running:
        scratch = Path(name)
        cluster = LocalCluster(scratch / "cluster", Shape(partitions=3, storages=3, servers=1))
        running.callback(lambda: asyncio.run(cluster.stop()))
        asyncio.run(cluster.start())
        for shares in LAYOUTS.values():
            rows = {partition: int(records * share) for partition, share in shares.items()}
            asyncio.run(fill(cluster, rows, size))
        ours: Rates = {}
        theirs: Rates = {}
        for turn in range(turns):
            with ExitStack() as reading:
                spark = start_session(scratch / f"spark-{turn}")
                reading.callback(spark.stop)
                spark.sparkContext.setLogLevel("ERROR")
                _add(ours, _read_all(spark, cluster, records, passes))
                # Following is measured only once, after all reading of Waltz.
                if seconds and turn == turns - 1:
                    checkpoint = scratch / "checkpoint"
                    latencies = follow(spark, cluster, checkpoint, rate=rate, seconds=seconds)
                    _print_latencies(latencies, rate)
            if yardstick is not None:
                _add(theirs, yardstick_rates(yardstick))
        console.print(_table(ours, theirs, f"{records:,} records of {size} B"))
        if follow_yardstick is not None:
            p50, p99 = yardstick_latency(follow_yardstick)
            console.print(f"yardstick: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms")


def _read_all(spark: SparkSession, cluster: LocalCluster, records: int, passes: int) -> Rates:
    """Read every layout from every source, by a warm-up pass and ``passes`` measured passes."""
    rates = {}
    for layout, shares in LAYOUTS.items():
        for source in SOURCES:
            options = {"partitions": ",".join(map(str, shares)), "readFrom": source}
            results = [
                read(spark, cluster.layout.description, **options) for _ in range(1 + passes)
            ]
            rates[f"{layout}, from {source}"] = _measured_rates(results, records)
    return rates


def _measured_rates(results: list[Pass], records: int) -> list[float]:
    """Return the rates of all passes except the first; check that each pass read all records."""
    assert all(each.rows == records for each in results), results
    return [each.rate for each in results[1:]]


def _add(rates: Rates, more: Rates) -> None:
    """Append the numbers of ``more`` to those of ``rates``."""
    for name, numbers in more.items():
        rates.setdefault(name, []).extend(numbers)


def _table(ours: Rates, theirs: Rates, workload: str) -> Table:
    table = Table(title=f"count and sum of lengths, {workload}, local[2]")
    table.add_column("read")
    for column in ("rows/s: median", "smallest", "largest", "passes"):
        table.add_column(column, justify="right")
    best = max(map(statistics.median, theirs.values()), default=None)
    if best is not None:
        table.add_column("× best yardstick", justify="right")
    named = [*ours.items(), *((f"yardstick {name}", numbers) for name, numbers in theirs.items())]
    for name, numbers in named:
        median = statistics.median(numbers)
        shown = (median, min(numbers), max(numbers), len(numbers))
        ratio = [] if best is None else [f"{median / best:.2f}"]
        table.add_row(name, *(f"{number:,.0f}" for number in shown), *ratio)
    return table


def _print_latencies(latencies: list[float], rate: int) -> None:
    """Print the median and the 99th percentile of ``latencies``, which are in seconds."""
    percentiles = statistics.quantiles(latencies, n=100)  # The first is the 1st percentile.
    p50_ms, p99_ms = percentiles[49] * 1000, percentiles[98] * 1000
    console.print(
        f"followed at {rate:,} tx/s: p50 {p50_ms:,.0f} ms, p99 {p99_ms:,.0f} ms "
        f"from append to the end of its micro-batch ({len(latencies):,} transactions)"
    )


if __name__ == "__main__":
    typer.run(main)
