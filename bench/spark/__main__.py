"""`python -m bench.spark`: rows per second that Spark reads, and the latency of following."""

from __future__ import annotations

import asyncio
import json
import shlex
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.spark.fill import fill
from bench.spark.following import follow
from bench.spark.reading import Pass, read, session
from waltz.local import LocalCluster, Shape

LAYOUTS = {"1 partition": {0: 1.0}, "2 partitions": {1: 0.5, 2: 0.5}}
"""Which partitions are read, and which part of the records each has."""

console = Console(width=120)


def main(
    records: Annotated[int, typer.Option(help="How many to read.")] = 2_000_000,
    size: Annotated[int, typer.Option(help="Bytes of each.")] = 512,
    passes: Annotated[int, typer.Option(help="How often, beside a first pass.")] = 3,
    rate: Annotated[int, typer.Option(help="Transactions per second to follow.")] = 5000,
    seconds: Annotated[float, typer.Option(help="How long to follow.")] = 30.0,
    yardstick: Annotated[
        str | None,
        typer.Option(help="A command that prints JSON lines with reader and records_per_s."),
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
        spark = session(scratch / "spark")
        running.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        table = Table(title=f"count and sum of lengths, {records:,} records of {size} B, local[2]")
        for column in ("read", "first pass s"):
            table.add_column(column)
        table.add_column("rows/s, median (all)", justify="right")
        for layout, parts in LAYOUTS.items():
            for source in ("servers", "replicas"):
                found = [
                    read(
                        spark,
                        cluster.layout.description,
                        partitions=",".join(map(str, parts)),
                        readFrom=source,
                    )
                    for _ in range(passes + 1)
                ]
                _row(table, f"{layout}, from {source}", found, records)
        for line in _yardstick(yardstick):
            table.add_row(*line)
        console.print(table)
        latencies = follow(spark, cluster, scratch / "checkpoint", rate=rate, seconds=seconds)
        _tell_latency(latencies, rate)


def _row(table: Table, name: str, found: list[Pass], records: int) -> None:
    assert all(each.rows == records for each in found), found
    first, *others = found
    rates = [each.rate for each in others]
    all_ = ", ".join(f"{rate:,.0f}" for rate in rates)
    table.add_row(name, f"{first.seconds:.1f}", f"{statistics.median(rates):,.0f} ({all_})")


def _yardstick(command: str | None) -> list[tuple[str, str, str]]:
    if command is None:
        return []
    out = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    lines = []
    for each in found:
        if each.get("kind") == "summary":
            low, median, high = each["records_per_s"]
            rates = f"{median:,.0f} ({low:,.0f}, {high:,.0f})"
            lines.append((f"yardstick {each.get('reader', '')}", "", rates))
    return lines


def _tell_latency(latencies: list[float], rate: int) -> None:
    cuts = statistics.quantiles(latencies, n=100)
    console.print(
        f"followed at {rate:,} tx/s: p50 {cuts[49] * 1000:,.0f} ms, p99 {cuts[98] * 1000:,.0f} ms "
        f"from append to the end of its micro-batch ({len(latencies):,} transactions)"
    )


if __name__ == "__main__":
    typer.run(main)
