"""``waltz client``: produce, consume, validate. Touches ZooKeeper and the network."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from waltz.cli.client.validation import CHECKED_BYTES
from waltz.cli.client_access import ANSWER_SECONDS, high_water_marks, open_client
from waltz.cli.cluster import rows as cluster_rows
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.options import (
    AnswerTimeout,
    AnyPartitions,
    examples,
    parse_argument,
    partitions_of,
)
from waltz.cli.output import Format, Output, show
from waltz.cli.perf import rows as load_rows
from waltz.cli.perf.load import LoadPlan, Measurements, produce, validate, write_checked
from waltz.cli.perf.options import Clients, Interval, LoadPartitions, Transactions
from waltz.cli.progress import progress
from waltz.cli.rows import Rendering
from waltz.cli.running import run
from waltz.client.core.ranges import parse_partitions
from waltz.protocol import NO_TRANSACTION

app = typer.Typer(no_args_is_help=True, help="Append and read as a client, and check the log.")


@app.command(
    "validate",
    cls=ClusterCommand,
    epilog=examples(
        "waltz client validate",
        "waltz client validate --clients 5 --transactions 200 --interval 10 --partitions 0-3",
    ),
)
def validate_command(
    context: typer.Context,
    transactions: Transactions = 100,
    clients: Clients = 3,
    interval: Interval = 10.0,
    partitions: LoadPartitions = "0",
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Append from several clients under one lock, then check order and locks by reading.

    Every checked transaction contains the high-water mark that its producer saw. No other checked
    transaction may lie between that mark and the transaction. The exit status is 1 if a check
    fails. Other clients may use the partitions at the same time.
    """
    where, used = target(context), parse_argument(parse_partitions, partitions)
    plan = LoadPlan(used, clients, transactions, interval_ms=interval)

    async def work() -> Rendering:
        async with open_client(where) as reader:
            marks = await high_water_marks(reader, used, timeout)
            begun = time.perf_counter()
            with progress("validated", plan.total) as advance:
                validations, _ = await asyncio.gather(
                    validate(reader, marks, plan.total, timeout, advance),
                    produce(where, plan, write_checked, lambda _: None),
                )
            return load_rows.render_validation(validations, time.perf_counter() - begun)

    _show_validation(run(work(), seconds=None), output)


@app.command(
    "high-water-mark",
    hidden=True,
    cls=ClusterCommand,
    epilog=examples("waltz client high-water-mark", "waltz client high-water-mark 0-3 -o yaml"),
)
def high_water_mark_command(
    context: typer.Context, partitions: AnyPartitions = None, output: Output = Format.TABLE
) -> None:
    """Show the id of each partition's last transaction, -1 for an empty log."""
    where, named = target(context), partitions_of(partitions)

    async def work() -> dict[int, int]:
        async with open_client(where) as client:
            return await high_water_marks(client, named)

    show(output, cluster_rows.render_high_water_marks(run(work())))


@app.command(
    "produce",
    cls=ClusterCommand,
    epilog=examples("waltz client produce -n 1000 --interval 5 --partitions 0-3"),
)
def produce_command(
    context: typer.Context,
    transactions: Transactions = 100,
    interval: Interval = 10.0,
    partitions: LoadPartitions = "0",
    output: Output = Format.TABLE,
) -> None:
    """Append transactions that waltz client consume, also on another machine, can check."""
    where, used = target(context), parse_argument(parse_partitions, partitions)
    plan = LoadPlan(used, 1, transactions, interval_ms=interval)

    async def work() -> Measurements:
        with progress("appended", plan.total) as advance:
            return await produce(where, plan, write_checked, advance)

    done = run(work(), seconds=None)
    num_bytes = CHECKED_BYTES * len(done.durations)
    show(output, load_rows.render_appends(num_bytes, done.seconds, done.durations, done.attempts))


@app.command(
    "consume",
    cls=ClusterCommand,
    epilog=examples(
        "waltz client consume -n 1000 --partitions 0-3",
        "waltz client consume -n 1000 --partitions 0-3 --from-start",
    ),
)
def consume_command(
    context: typer.Context,
    transactions: Annotated[
        int, typer.Option("--transactions", "-n", min=1, help="Number of transactions to check.")
    ] = 100,
    partitions: LoadPartitions = "0",
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin at the start of the log, not at its end.")
    ] = False,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Read the transactions of waltz client produce, and check their order and locks.

    The exit status is 1 if a check fails.
    """
    where, used = target(context), parse_argument(parse_partitions, partitions)

    async def work() -> Rendering:
        async with open_client(where) as client:
            marks = dict.fromkeys(used, NO_TRANSACTION)
            if not from_start:
                marks = await high_water_marks(client, used, timeout)
            begun = time.perf_counter()
            with progress("checked", transactions) as advance:
                validations = await validate(client, marks, transactions, timeout, advance)
            return load_rows.render_validation(validations, time.perf_counter() - begun)

    _show_validation(run(work(), seconds=None), output)


def _show_validation(rendering: Rendering, output: Format) -> None:
    """Show the result; end with status 1 if a check has failed."""
    show(output, rendering)
    if not rendering.value["passed"]:
        raise typer.Exit(1)
