"""Measure throughput and latency of a local cluster, alone or in turns with a yardstick.

A *yardstick* is another program that does comparable work (`bench.yardstick`). Runs as
`python -m bench`. Starts processes, touches the network and the disk.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from bench.cluster import MeasuredCluster, measured_cluster
from bench.engines import PARTITIONS, measure_engines
from bench.streaming import ReadResult, measure_pause, measure_reads
from bench.yardstick import Reading, ratio_of_medians, read_yardstick


class LoadShape(NamedTuple):
    """The number of clients, and the window: how many appends each client keeps open."""

    clients: int
    window: int

    def __str__(self) -> str:
        return f"{self.clients} x {self.window}"

    @classmethod
    def parse(cls, text: str) -> LoadShape:
        """Return the shape that a text such as ``8x5`` names. Raises typer.BadParameter."""
        by_name = {f"{shape.clients}x{shape.window}": shape for shape in SHAPES}
        if text not in by_name:
            names = ", ".join(by_name)
            raise typer.BadParameter(f"{text!r} is not a shape; the shapes are {names}")
        return by_name[text]


SHAPES = {
    LoadShape(clients=1, window=1): 4_000,
    LoadShape(clients=8, window=5): 60_000,
    LoadShape(clients=32, window=5): 90_000,
    LoadShape(clients=128, window=1): 60_000,
    LoadShape(clients=1000, window=1): 60_000,
    LoadShape(clients=4, window=100): 250_000,
}
"""The shapes that are measured, each with the number of records of a run.

With records of up to 512 bytes a run takes a few seconds.
"""
SIZES = (64, 512, 4096)
"""The sizes of records in bytes."""
DEFAULT_SIZE = 512
"""The size of records in the measurements that have only one size."""
CHECKPOINT_INTERVAL = 20_000
"""The number of transactions in one store session.

It is so small that new sessions begin during all longer runs. The rates then include their cost.
"""

READ_RECORDS = 300_000
"""The number of records that are appended and read by ``--reads``."""

console = Console(width=120)
_YARDSTICK_HELP = (
    "A command of a yardstick to run in turns with this cluster. The program replaces {clients}, "
    "{window}, {size} and {records} in the command."
)


def _num_records(shape: LoadShape, size: int, scale: float) -> int:
    """Return the number of records of a run.

    For records larger than `DEFAULT_SIZE` it is a quarter, so that the run does not take much
    longer.
    """
    records = SHAPES[shape] * scale
    return int(records / 4 if size > DEFAULT_SIZE else records)


def _new_table(title: str) -> Table:
    """Return a table for `_measure_row`, without rows."""
    table = Table(title=title)
    for name in ("bytes", "clients x open", "locks"):
        table.add_column(name)
    for name in ("tx/s", "MB/s", "p50 ms", "p99 ms", "refused", "client", "server", "storages"):
        table.add_column(name, justify="right")
    table.add_column("flushes/tx", justify="right")
    return table


async def _measure_row(
    table: Table,
    cluster: MeasuredCluster,
    shape: LoadShape,
    size: int,
    *,
    locks: bool,
    scale: float,
) -> None:
    """Measure one shape and add a row to ``table``.

    The columns "client", "server" and "storages" are microseconds of CPU time per transaction.
    "storages" is the sum over all storages; "flushes/tx" is the average of one storage.
    """
    before = cluster.usage()
    records = _num_records(shape, size, scale)
    result = await cluster.put_load(*shape, size, records, locks=locks)
    used, committed = cluster.usage().since(before), result.committed
    rate = committed / result.seconds
    table.add_row(
        str(size),
        str(shape),
        "one" if locks else "none",
        f"{rate:,.0f}",
        f"{rate * size / 1e6:.1f}",
        f"{result.p50_ms:.2f}",
        f"{result.p99_ms:.2f}",
        str(result.lock_failures),
        f"{result.cpu_seconds / committed * 1e6:.1f}",
        f"{used.server_seconds / committed * 1e6:.1f}",
        f"{used.storage_seconds / committed * 1e6:.1f}",
        f"{used.flushes / committed / cluster.num_storages:.3f}",
    )


async def _measure(only_size: int | None, scale: float, everything: bool) -> None:
    """Measure all shapes and print the tables.

    With ``everything``, measure also TLS, 16 partitions, and the storage engines. ``only_size`` is
    the size of the records in all tables; with None, each table has its own sizes.
    """
    table = _new_table("one partition, TLS off")
    async with measured_cluster(checkpoint_interval=CHECKPOINT_INTERVAL) as cluster:
        for size in SIZES if only_size is None else (only_size,):
            for shape in SHAPES:
                for locks in (False, True):
                    await _measure_row(table, cluster, shape, size, locks=locks, scale=scale)
        console.print(table)
        console.print(_reads_table(await measure_reads(cluster)))
        pause = await measure_pause(cluster)
        console.print(f"longest pause of commits when a storage is killed: {pause * 1000:.0f} ms")
    if not everything:
        return
    size = DEFAULT_SIZE if only_size is None else only_size
    for title, tls, partitions in (("one partition, TLS", True, 1), ("16 partitions", False, 16)):
        table = _new_table(title)
        async with measured_cluster(
            partitions=partitions, tls=tls, checkpoint_interval=CHECKPOINT_INTERVAL
        ) as cluster:
            # Without the first shape: with one append open at a time, mostly the flush is measured,
            # which depends neither on TLS nor on the number of partitions.
            for shape in list(SHAPES)[1:]:
                await _measure_row(table, cluster, shape, size, locks=False, scale=scale)
        console.print(table)
    for partitions in PARTITIONS:
        console.print(await measure_engines(partitions, rounds=3, size=size, scale=scale))


def _reads_table(results: Sequence[ReadResult]) -> Table:
    """Return a table of reads; the CPU columns are microseconds per transaction."""
    table = Table(title="one partition read from its start, one reader")
    for name in ("read by", "tx/s", "client", "server", "storages"):
        table.add_column(name, justify="left" if name == "read by" else "right")
    for name, rate, *cpu_seconds in results:
        table.add_row(name, f"{rate:,.0f}", *(f"{each * 1e6:.2f}" for each in cpu_seconds))
    return table


async def _measure_reads(size: int, scale: float) -> None:
    """Append records, read them, and print how fast."""
    records = int(READ_RECORDS * scale)
    async with measured_cluster() as cluster:
        await cluster.put_load(clients=4, window=100, size=size, records=records, locks=False)
        console.print(_reads_table(await measure_reads(cluster, records)))


async def _interleave(
    command: str, shapes: Sequence[LoadShape], pairs: int, size: int, scale: float
) -> None:
    """Run Waltz and the yardstick ``command`` in turns, ``pairs`` times, and print the medians."""
    table = Table(title=f"medians of {pairs} runs in turns, {size} bytes")
    for name in ("clients x open", "waltz tx/s", "yardstick tx/s", "ratio"):
        table.add_column(name, justify="right")
    for name in ("waltz p50 ms", "yardstick p50 ms", "p50 ratio"):
        table.add_column(name, justify="right")
    # Store sessions have their default length, which is longer than a run. With shorter sessions,
    # some runs would have one session more than others, and the ratio would show that instead.
    # The appends have locks, so that the rates include the work of checking them.
    async with measured_cluster() as cluster:
        for shape in shapes:
            records = _num_records(shape, size, scale)
            ours: list[Reading] = []
            theirs: list[Reading] = []
            for number in range(pairs):
                result = await cluster.put_load(*shape, size, records, locks=True)
                ours.append(Reading(result.committed / result.seconds, result.p50_ms))
                theirs.append(await read_yardstick(command, *shape, size, records))
                console.print(
                    f"{shape}, pair {number + 1} of {pairs}: "
                    f"{ours[-1].rate:,.0f} and {theirs[-1].rate:,.0f} tx/s, "
                    f"p50 {ours[-1].p50_ms:.2f} and {theirs[-1].p50_ms:.2f} ms"
                )
            our_rates, their_rates = [r.rate for r in ours], [r.rate for r in theirs]
            our_p50s, their_p50s = [r.p50_ms for r in ours], [r.p50_ms for r in theirs]
            table.add_row(
                str(shape),
                f"{statistics.median(our_rates):,.0f}",
                f"{statistics.median(their_rates):,.0f}",
                f"{ratio_of_medians(our_rates, their_rates):.2f}",
                f"{statistics.median(our_p50s):.2f}",
                f"{statistics.median(their_p50s):.2f}",
                f"{ratio_of_medians(our_p50s, their_p50s):.2f}",
            )
    console.print(table)


def _command(
    interleave: Annotated[str | None, typer.Option(help=_YARDSTICK_HELP)] = None,
    pairs: Annotated[
        int, typer.Option(help="The number of runs in turns, of a yardstick or of each engine.")
    ] = 7,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="With --interleave, run only this shape, such as 8x5. Repeatable."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Measure only records of this size.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Multiply the number of records by this.")] = 1.0,
    everything: Annotated[
        bool,
        typer.Option(help="Measure with TLS, with 16 partitions and the storage engines, too."),
    ] = True,
    reads: Annotated[
        bool,
        typer.Option("--reads", help=f"Measure only reads, by default of {DEFAULT_SIZE} bytes."),
    ] = False,
    engines: Annotated[
        int | None,
        typer.Option(help="Measure only the storage engines, with this number of partitions."),
    ] = None,
) -> None:
    """Measure a cluster of 3 storages and 1 server on this machine.

    An append counts when the server has answered it. That is after an fdatasync on a quorum of
    storages.
    """
    one_size = DEFAULT_SIZE if size is None else size
    if reads:
        asyncio.run(_measure_reads(one_size, scale))
    elif engines is not None:
        measuring = measure_engines(engines, rounds=pairs, size=one_size, scale=scale)
        console.print(asyncio.run(measuring))
    elif interleave is not None:
        shapes = [LoadShape.parse(text) for text in shape or ()] or list(SHAPES)
        asyncio.run(_interleave(interleave, shapes, pairs, one_size, scale))
    else:
        asyncio.run(_measure(size, scale, everything))


if __name__ == "__main__":
    typer.run(_command)
