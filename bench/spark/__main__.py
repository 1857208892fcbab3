"""`python -m bench.spark`: rows per second that Spark reads, and the latency of following."""

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

from bench.spark import yardstick as other
from bench.spark.fill import fill
from bench.spark.following import follow
from bench.spark.reading import Pass, read, session
from waltz.local import LocalCluster, Shape

LAYOUTS = {"1 partition": {0: 1.0}, "2 partitions": {1: 0.5, 2: 0.5}}
"""The partitions that are read, and the share of the records that each one has."""

SOURCES = ("servers", "replicas")

Rates = dict[str, list[float]]
"""Rows per second of each pass, by source and number of partitions."""

console = Console(width=120)


def main(
    records: Annotated[int, typer.Option(help="How many to read.")] = 2_000_000,
    size: Annotated[int, typer.Option(help="Bytes of each.")] = 512,
    passes: Annotated[int, typer.Option(help="How often in a turn, beside a first pass.")] = 3,
    turns: Annotated[int, typer.Option(help="How often this and the yardstick take turns.")] = 1,
    rate: Annotated[int, typer.Option(help="Transactions per second to follow.")] = 5000,
    seconds: Annotated[float, typer.Option(help="How long to follow; 0: not at all.")] = 30.0,
    yardstick: Annotated[
        str | None,
        typer.Option(help="A command that reads as much; see bench/spark/yardstick.py."),
    ] = None,
    follow_yardstick: Annotated[
        str | None,
        typer.Option(help="A command that follows at the same rate; see there."),
    ] = None,
) -> None:
    """Fill a local cluster, read it with Spark on two cores, and print a table."""
    with tempfile.TemporaryDirectory(prefix="waltz-bench-") as name, ExitStack() as running:
        scratch = Path(name)
        cluster = LocalCluster(scratch / "cluster", Shape(partitions=3, storages=3, servers=1))
        running.callback(lambda: asyncio.run(cluster.stop()))
        asyncio.run(cluster.start())
        for parts in LAYOUTS.values():
            rows = {partition: int(records * part) for partition, part in parts.items()}
            asyncio.run(fill(cluster, rows, size))
        ours: Rates = {}
        theirs: Rates = {}
        for turn in range(turns):
            with ExitStack() as reading:
                spark = session(scratch / f"spark-{turn}")
                reading.callback(spark.stop)
                spark.sparkContext.setLogLevel("ERROR")
                _add(ours, _read_all(spark, cluster, records, passes))
                if seconds and turn == turns - 1:
                    checkpoint = scratch / "checkpoint"
                    found = follow(spark, cluster, checkpoint, rate=rate, seconds=seconds)
                    _tell_latency(found, rate)
            if yardstick is not None:
                _add(theirs, other.rates(yardstick))
        console.print(_table(ours, theirs, f"{records:,} records of {size} B"))
        if follow_yardstick is not None:
            p50, p99 = other.latency(follow_yardstick)
            console.print(f"yardstick: p50 {p50:,.0f} ms, p99 {p99:,.0f} ms")


def _read_all(spark: SparkSession, cluster: LocalCluster, records: int, passes: int) -> Rates:
    """Read every layout in every way; a first pass warms up."""
    rates = {}
    for layout, parts in LAYOUTS.items():
        for source in SOURCES:
            options = {"partitions": ",".join(map(str, parts)), "readFrom": source}
            found = [read(spark, cluster.layout.description, **options) for _ in range(passes + 1)]
            rates[f"{layout}, from {source}"] = _rates_of(found, records)
    return rates


def _rates_of(found: list[Pass], records: int) -> list[float]:
    assert all(each.rows == records for each in found), found
    return [each.rate for each in found[1:]]


def _add(rates: Rates, more: Rates) -> None:
    for name, numbers in more.items():
        rates.setdefault(name, []).extend(numbers)


def _table(ours: Rates, theirs: Rates, what: str) -> Table:
    table = Table(title=f"count and sum of lengths, {what}, local[2]")
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


def _tell_latency(latencies: list[float], rate: int) -> None:
    cuts = statistics.quantiles(latencies, n=100)
    console.print(
        f"followed at {rate:,} tx/s: p50 {cuts[49] * 1000:,.0f} ms, p99 {cuts[98] * 1000:,.0f} ms "
        f"from append to the end of its micro-batch ({len(latencies):,} transactions)"
    )


if __name__ == "__main__":
    typer.run(main)
