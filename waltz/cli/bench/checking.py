"""Verbs of ``waltz bench`` that check the order of a log and its locks.

Touches ZooKeeper and the network. `waltz.cli.bench.validation` has the check.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer

from waltz.cli.bench import rows as load_rows
from waltz.cli.bench.load import LoadPlan, produce, validate, write_checked
from waltz.cli.bench.options import Clients, Interval, LoadPartitions, Transactions, confirm_writing
from waltz.cli.bench.producing import produce_and_show
from waltz.cli.bench.validation import CHECKED_BYTES
from waltz.cli.client_access import ANSWER_SECONDS, high_water_marks, open_client
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import prints
from waltz.cli.options import (
    AnswerTimeout,
    Yes,
    examples,
    parse_argument,
)
from waltz.cli.output import Format, Output, OutputFormat, show
from waltz.cli.progress import progress
from waltz.cli.rows import Rendering
from waltz.cli.running import run
from waltz.protocol import NO_TRANSACTION
from waltz.protocol.notation import parse_partitions

app = typer.Typer()


@app.command(
    "validate",
    cls=ClusterCommand,
    epilog=examples(
        "waltz bench validate --partitions 0 --yes",
        "waltz bench validate --clients 5 --transactions 200 --interval 10 --partitions 0-3 --yes",
    ),
)
@prints(load_rows.ValidationResult)
def validate_command(
    context: typer.Context,
    partitions: LoadPartitions,
    transactions: Transactions = 100,
    clients: Clients = 3,
    interval: Interval = 10.0,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Append from several clients under one lock, and meanwhile check order and locks by reading.

    Every checked transaction contains the high-water mark that its producer saw. No other checked
    transaction may lie between that mark and the transaction. The exit status is 1 if a check
    fails. Other clients may use the partitions at the same time, but not append 8 bytes of data:
    such a transaction would count as a checked one.
    """
    where, chosen = target(context), parse_argument(parse_partitions, partitions)
    plan = LoadPlan(chosen, clients=clients, transactions=transactions, interval_ms=interval)
    confirm_writing(where, chosen, plan.total, f"{CHECKED_BYTES} bytes under one lock", yes=yes)

    def ignore_append(_count: int) -> None:
        """Show no progress: only a checked transaction counts, not an appended one."""

    async def work() -> Rendering:
        async with open_client(where) as reader:
            marks = await high_water_marks(reader, chosen, timeout)
            begun = time.perf_counter()
            with progress("validated", plan.total) as advance:
                validations, _ = await asyncio.gather(
                    validate(reader, marks, plan.total, timeout, advance),
                    produce(where, plan, write_checked, ignore_append),
                )
            return load_rows.render_validation(validations, time.perf_counter() - begun)

    _show_validation(run(work(), seconds=None), output)


@app.command(
    "produce",
    cls=ClusterCommand,
    epilog=examples("waltz bench produce -n 1000 --interval 5 --partitions 0-3 --yes"),
)
@prints(load_rows.AppendThroughput)
def produce_command(
    context: typer.Context,
    partitions: LoadPartitions,
    transactions: Transactions = 100,
    interval: Interval = 10.0,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Append transactions that waltz bench consume, also on another machine, can check."""
    where, chosen = target(context), parse_argument(parse_partitions, partitions)
    plan = LoadPlan(chosen, clients=1, transactions=transactions, interval_ms=interval)
    confirm_writing(where, chosen, plan.total, f"{CHECKED_BYTES} bytes under one lock", yes=yes)
    produce_and_show(where, plan, write_checked, CHECKED_BYTES, output)


@app.command(
    "consume",
    cls=ClusterCommand,
    epilog=examples(
        "waltz bench consume -n 1000 --partitions 0-3",
        "waltz bench consume -n 1000 --partitions 0-3 --from-start",
    ),
)
@prints(load_rows.ValidationResult)
def consume_command(
    context: typer.Context,
    partitions: LoadPartitions,
    transactions: Annotated[
        int, typer.Option("--transactions", "-n", min=1, help="Number of transactions to check.")
    ] = 100,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin at the start of the log, not at its end.")
    ] = False,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Read the transactions of waltz bench produce, and check their order and locks.

    The exit status is 1 if a check fails.
    """
    where, chosen = target(context), parse_argument(parse_partitions, partitions)

    async def work() -> Rendering:
        async with open_client(where) as client:
            if from_start:
                after = dict.fromkeys(chosen, NO_TRANSACTION)
            else:
                after = await high_water_marks(client, chosen, timeout)
            begun = time.perf_counter()
            with progress("checked", transactions) as advance:
                validations = await validate(client, after, transactions, timeout, advance)
            return load_rows.render_validation(validations, time.perf_counter() - begun)

    _show_validation(run(work(), seconds=None), output)


def _show_validation(rendering: Rendering, output: OutputFormat) -> None:
    """Show the result; end with status 1 if a check has failed."""
    show(output, rendering)
    if not rendering.value["passed"]:
        raise typer.Exit(1)
