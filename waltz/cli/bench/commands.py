"""``waltz bench``: measure the speed of a cluster. Touches ZooKeeper and the network.

The verbs that check a cluster are in `checking`. Appended transactions stay in the log, so a verb
that appends shows what it will write and asks for confirmation.
"""

from __future__ import annotations

import math
import random
import time
from typing import Annotated

import typer

from waltz.cli.bench import checking
from waltz.cli.bench import rows as load_rows
from waltz.cli.bench.load import (
    LoadPlan,
    Write,
    locked_write,
    produce,
    read_all,
    unlocked_write,
)
from waltz.cli.bench.options import Clients, Interval, LoadPartitions, Transactions, confirm_writing
from waltz.cli.bench.producing import produce_and_show
from waltz.cli.client_access import ANSWER_SECONDS, high_water_marks, open_client
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.fields import prints
from waltz.cli.log.input import MAX_RECORD_BYTES
from waltz.cli.options import (
    AnswerTimeout,
    Yes,
    examples,
    parse_argument,
)
from waltz.cli.output import Format, Output, show
from waltz.cli.progress import progress
from waltz.cli.rows import Rendering
from waltz.cli.running import Failed, run
from waltz.client import Attempt, Client, Draft
from waltz.protocol import NO_TRANSACTION, Lock
from waltz.protocol.notation import parse_partitions

app = typer.Typer(
    no_args_is_help=True,
    help="Measure how fast a cluster is, and check its order and locks.",
)
app.add_typer(checking.app)

_FILLING_IN_FLIGHT = 100
"""How many appends ``waltz bench consumers`` has in flight while it appends what it will read.

Many, because this phase is not measured.
"""
_LOCK_NAME = "perf-lock"
"""The name of the locks of ``waltz bench producers``."""

Size = Annotated[
    int,
    typer.Option(
        "--size", "-s", min=0, max=MAX_RECORD_BYTES, help="Bytes of data of each transaction."
    ),
]


@app.command(
    "producers",
    cls=ClusterCommand,
    epilog=examples(
        "waltz bench producers --partitions 0 --yes",
        "waltz bench producers --clients 8 --in-flight 5 -n 5000 --size 512 --partitions 0-3 --yes",
        "waltz bench producers --partitions 0 --locks 100 --yes -o json",
    ),
)
@prints(load_rows.AppendThroughput)
def producers_command(
    context: typer.Context,
    partitions: LoadPartitions,
    transactions: Transactions = 1000,
    clients: Clients = 1,
    in_flight: Annotated[
        int, typer.Option(min=1, help="Number of appends that each client has in flight.")
    ] = 1,
    size: Size = 512,
    interval: Interval = 0.0,
    locks: Annotated[
        int,
        typer.Option(
            "--locks",
            "-l",
            min=0,
            help="Number of locks, of which each transaction takes one. 0: take no lock.",
        ),
    ] = 0,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Append transactions, and show their rate and latencies."""
    where, chosen = target(context), parse_argument(parse_partitions, partitions)
    plan = LoadPlan(
        chosen,
        clients=clients,
        transactions=transactions,
        in_flight=in_flight,
        interval_ms=interval,
    )
    confirm_writing(where, chosen, plan.total, f"{size} random bytes", yes=yes)
    produce_and_show(where, plan, _random_write(size, locks), size, output)


@app.command(
    "consumers",
    cls=ClusterCommand,
    epilog=examples(
        "waltz bench consumers --partitions 0 --yes",
        "waltz bench consumers -n 100000 --size 512 --partitions 0-3 --yes",
        "waltz bench consumers --partitions 0-3 -n 100000 --existing",
    ),
)
@prints(load_rows.Throughput)
def consumers_command(
    context: typer.Context,
    partitions: LoadPartitions,
    transactions: Annotated[
        int,
        typer.Option(
            "--transactions",
            "-n",
            min=1,
            help="Number of transactions to read, rounded up to the same number per partition.",
        ),
    ] = 10_000,
    size: Size = 512,
    existing: Annotated[
        bool,
        typer.Option("--existing", help="Read the last transactions of the log; append nothing."),
    ] = False,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Append transactions, read them with their data, and show the rate of reading."""
    where, chosen = target(context), parse_argument(parse_partitions, partitions)
    per_partition = math.ceil(transactions / len(chosen))
    if not existing:
        confirm_writing(where, chosen, per_partition * len(chosen), f"{size} random bytes", yes=yes)

    async def work() -> Rendering:
        # Each partition is read after its id in ``after``, up to its id in ``until``.
        async with open_client(where) as client:
            if existing:
                until = await high_water_marks(client, chosen, timeout)
                # A partition with fewer transactions is read from its start.
                after = {
                    partition: max(NO_TRANSACTION, mark - per_partition)
                    for partition, mark in until.items()
                }
            else:
                after = await high_water_marks(client, chosen, timeout)
                await _append_to_each(where, chosen, per_partition, size)
                # If other clients append meanwhile, some of these transactions are theirs.
                until = {partition: mark + per_partition for partition, mark in after.items()}
            return await _read(client, after, until, timeout)

    show(output, run(work(), seconds=None))


async def _append_to_each(
    where: Target, partitions: tuple[int, ...], per_partition: int, size: int
) -> None:
    """Append ``per_partition`` transactions with ``size`` bytes of data to each partition."""
    plan = LoadPlan(
        partitions,
        clients=1,
        transactions=per_partition * len(partitions),
        in_flight=_FILLING_IN_FLIGHT,
    )
    with progress("appended", plan.total) as advance:
        await produce(where, plan, _random_write(size, locks=0), advance)


async def _read(
    client: Client, after: dict[int, int], until: dict[int, int], timeout_seconds: float
) -> Rendering:
    """Read each partition's transactions after the id in ``after`` up to the id in ``until``.

    Return the rendering of the rate. Raises Failed if there are no such transactions, or if a batch
    takes longer than ``timeout_seconds``.
    """
    total = sum(until[partition] - after[partition] for partition in after)
    if total == 0:  # Only with --existing: without it, the command has appended transactions.
        raise Failed("these partitions are empty; omit --existing to append first")
    count = num_bytes = 0
    begun = time.perf_counter()
    with progress("read", total) as advance:
        async for batch in read_all(client, after, until, timeout_seconds):
            count += len(batch)
            num_bytes += sum(len(transaction.data) for transaction in batch)
            advance(len(batch))
    return load_rows.render_reads(count, num_bytes, time.perf_counter() - begun)


def _random_write(size: int, locks: int) -> Write:
    """Return a function that appends ``size`` random bytes, the same bytes in each call.

    Each append takes a random one of ``locks`` locks. If ``locks`` is 0, it takes no lock.
    """
    data = random.randbytes(size)
    if locks == 0:
        return unlocked_write(data)

    def build(attempt: Attempt) -> Draft:
        return Draft(data, write_locks=[Lock(_LOCK_NAME, random.randrange(locks))])

    return locked_write(build)
