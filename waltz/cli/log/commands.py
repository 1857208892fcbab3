"""``waltz log``: append to the log and read it.

Touches the standard streams, ZooKeeper and the network. The verbs for files are in `export` and
`import_files`.

A verb that may append or read a long log has no limit for its whole time (``seconds=None`` in the
call of `run`). Its option ``--timeout`` limits the wait for each answer instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.client_access import (
    ANSWER_SECONDS,
    batches_within,
    high_water_marks,
    open_client,
)
from waltz.cli.cluster import rows as cluster_rows
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.log import export as log_export
from waltz.cli.log import import_files as log_import
from waltz.cli.log import rows
from waltz.cli.log.appending import append_all, appended_value
from waltz.cli.log.input import Framing, opened, records
from waltz.cli.options import (
    AnswerTimeout,
    AnyPartitions,
    Partition,
    examples,
    parse_argument,
    partitions_of,
)
from waltz.cli.output import Format, Output, OutputFormat, check_template, say, show, show_line
from waltz.cli.running import Failed, run
from waltz.cli.transactions import TransactionValue, as_line, as_value
from waltz.client import Absent, Appended, LogStream
from waltz.protocol import NO_TRANSACTION, ReqId
from waltz.protocol.locks import Lock
from waltz.protocol.notation import LAST_ID, parse_ids, parse_lock

app = typer.Typer(no_args_is_help=True, help="Append to the log and read it.")
app.add_typer(log_export.app)
app.add_typer(log_import.app)

WriteLocks = Annotated[
    list[str] | None,
    typer.Option(
        "--lock", "-l", metavar="NAME:ID", help="Write lock: checked against --mark, and taken."
    ),
]
ReadLocks = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME:ID", help="Read lock: checked against --mark, not taken."),
]
AppendLocks = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME:ID", help="Append lock: taken without being checked."),
]


Source = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="Append the bytes of this file; - is standard input."
    ),
]
FramingOption = Annotated[
    Framing | None,
    typer.Option(
        help="How the input is divided: each line is a transaction, or all of it is one, or "
        "each transaction follows its length (four bytes, the most significant first). "
        "Default: one with --from, otherwise lines.",
    ),
]
_TYPED_INPUT = {
    Framing.LINES: "lines",
    Framing.ONE: "one transaction",
    Framing.LENGTH: "records with their lengths",
}
"""What a user types at a terminal, by framing."""
Header = Annotated[
    int,
    typer.Option(
        min=-(1 << 31),
        max=(1 << 31) - 1,
        help="A number that is stored with the transaction.",
    ),
]


@app.command(
    "append",
    cls=ClusterCommand,
    epilog=examples(
        "waltz log append 0 hello",
        "waltz log append 0 'withdraw 5' --lock account:17 --mark 0",
        "seq 1000 | waltz log append 0 --in-flight 100",
        "waltz log append 0 --from picture.png",
        "waltz log append 0 --from records.bin --framing length",
    ),
)
@prints(rows.AppendedTransaction, ResultForm.LINES)
def append_command(
    context: typer.Context,
    partition: Partition,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]", help="Default: the input that --from names, or standard input."
        ),
    ] = None,
    source: Source = None,
    framing: FramingOption = None,
    header: Header = 0,
    lock: WriteLocks = None,
    read_lock: ReadLocks = None,
    append_lock: AppendLocks = None,
    mark: Annotated[
        int | None,
        typer.Option(
            min=-1,
            max=LAST_ID,
            help="The id of the last transaction that the append takes into account: the append is "
            "refused if one of its locks was taken after that transaction. Default: the end of "
            "the log, so that locks rarely refuse.",
        ),
    ] = None,
    in_flight: Annotated[
        int,
        typer.Option(min=1, help="How many appends are in flight at once; 1 keeps their order."),
    ] = 1,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Append transactions, and print their ids once they are on the disks of a quorum.

    A lock is a name and a number, such as account:17. Options for locks may be repeated.
    """
    where = target(context)
    if data is not None and (source is not None or framing is not None):
        raise typer.BadParameter("give either DATA, or --from and --framing")
    check_template(output, appended_value(partition, 0))
    default_framing = Framing.LINES if data is None and source is None else Framing.ONE
    input_framing = framing or default_framing
    write_locks, read_locks = _parse_locks(lock), _parse_locks(read_lock)
    append_locks = _parse_locks(append_lock)

    async def work() -> None:
        async with open_client(where) as client:

            async def append(content: bytes) -> int:
                return await client.append(
                    partition,
                    content,
                    header=header,
                    write_locks=write_locks,
                    read_locks=read_locks,
                    append_locks=append_locks,
                    mark=mark,
                    timeout=timeout,
                )

            with opened(source) if data is None else BytesIO(_bytes_of(data)) as stream:
                if stream.isatty():
                    say(f"reading {_TYPED_INPUT[input_framing]} from standard input until Ctrl-D")
                contents = records(stream, input_framing)
                end = client.close
                if not await append_all(partition, append, contents, in_flight, output, end):
                    say("nothing was appended: the input is empty")

    run(work(), seconds=None)


@app.command(
    "tail",
    cls=ClusterCommand,
    epilog=examples(
        "waltz log tail 0",
        "waltz log tail 0-3 -n 0 --follow -o json | jq .data",
    ),
)
@prints(TransactionValue, ResultForm.LINES)
def tail_command(
    context: typer.Context,
    partitions: AnyPartitions = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="Number of transactions of each partition.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new transactions, until Ctrl-C.")
    ] = False,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Print the last transactions, one per line; with --output json, a line is a JSON object."""
    where = target(context)
    wanted = partitions_of(partitions)

    async def work() -> None:
        async with open_client(where) as client:
            marks = await high_water_marks(client, wanted, timeout)
            # A log with fewer than ``count`` transactions is printed from its start.
            after = {
                partition: max(NO_TRANSACTION, mark - count) for partition, mark in marks.items()
            }
            stream = client.stream(after, until=None if follow else marks, data=True)
            # With --follow there is no time limit: the next transaction may come at any time.
            await _print_all(stream, output, None if follow else timeout)

    run(work(), seconds=None)


@app.command(
    "read",
    cls=ClusterCommand,
    epilog=examples(
        "waltz log read 0 17",
        "waltz log read 0 17-42 -o json",
        "waltz log read 0 0-",
        "waltz log read 0 17 --raw > picture.png",
    ),
)
@prints(TransactionValue, ResultForm.LINES)
def read_command(
    context: typer.Context,
    partition: Partition,
    ids: Annotated[
        str,
        typer.Argument(metavar="FIRST[-[LAST]]", help="Transaction ids; 5- means all from 5 on."),
    ],
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the bytes of the data and nothing else.")
    ] = False,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Print transactions, one per line; with --output json, a line is a JSON object."""
    where = target(context)
    first, last = parse_argument(parse_ids, ids)

    async def work() -> None:
        async with open_client(where) as client:
            mark = (await high_water_marks(client, (partition,), timeout))[partition]
            until = mark if last is None else last
            if until > mark:
                raise Failed(
                    f"partition {partition} has no transaction {until}: its log ends at {mark}"
                )
            stream = client.stream(partition, after=first - 1, until=until, data=True)
            await _print_all(stream, None if raw else output, timeout)

    run(work(), seconds=None)


@app.command(
    "high-water-mark",
    cls=ClusterCommand,
    epilog=examples("waltz log high-water-mark", "waltz log high-water-mark 0 -o json"),
)
@prints(cluster_rows.HighWaterMark, ResultForm.LIST)
def high_water_mark_command(
    context: typer.Context,
    partitions: AnyPartitions = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the id of each partition's last transaction, -1 for an empty log."""
    where = target(context)
    wanted = partitions_of(partitions)

    async def work() -> dict[int, int]:
        async with open_client(where) as client:
            return await high_water_marks(client, wanted)

    show(output, cluster_rows.render_high_water_marks(run(work())))


@app.command(
    "find",
    cls=ClusterCommand,
    epilog=examples("waltz log find 17:3:0:42", "waltz log find 17:3:0:42 --after 1000 -o json"),
)
@prints(rows.FoundAppend)
def find_command(
    context: typer.Context,
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST_ID",
            help="The id in the text of AppendUncertain: client, generation, partition, number.",
        ),
    ],
    after: Annotated[
        int,
        typer.Option(
            min=-1, max=LAST_ID, help="Begin after this transaction. Default: at the first."
        ),
    ] = -1,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Find the outcome of an append: appended, absent for ever, or unknown so far.

    An unknown append is not in the log, but may still get there. It no longer can when the log has
    a later append of the same client, or has grown after the partition moved to another server.
    """
    where = target(context)
    req_id = parse_argument(ReqId.parse, request_id)

    async def work() -> Appended | Absent | None:
        async with open_client(where) as client:
            return await client.outcome(req_id, after=after, timeout=timeout)

    show(output, rows.render_find(req_id, run(work(), seconds=None)))


async def _print_all(
    stream: LogStream, output: OutputFormat | None, timeout_seconds: float | None
) -> None:
    """Print a stream of transactions; with ``output`` None, print only the bytes of their data.

    Raises Failed if a batch takes longer than ``timeout_seconds`` (None: no limit).
    """
    async for batch in batches_within(stream, timeout_seconds):
        for transaction in batch:
            if output is None:
                sys.stdout.buffer.write(transaction.data)
            else:
                show_line(output, as_value(transaction), as_line(transaction))
    sys.stdout.flush()


def _bytes_of(argument: str) -> bytes:
    """Return the bytes of an argument as the user typed them.

    Python represents the bytes of an argument that are not UTF-8 as surrogates.
    """
    return argument.encode(errors="surrogateescape")


def _parse_locks(texts: Iterable[str] | None) -> list[Lock]:
    """Return the locks that the values of an option name; none for None."""
    return [parse_argument(parse_lock, text) for text in texts or ()]
