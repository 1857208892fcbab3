"""``waltz log``: append to the log and read it. Touches the standard streams and the network."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from waltz.cli import rows, transactions
from waltz.cli.options import ClusterFile, Root, Target, Tls, ZooKeeper, examples, parsed, target
from waltz.cli.output import Format, Output, show
from waltz.cli.running import Failed, run
from waltz.client import Client, Transaction, connect
from waltz.client.opening import Opening
from waltz.ranges import parse_ids, parse_lock, parse_partitions

app = typer.Typer(no_args_is_help=True, help="Append to the log and read it.")

_ANSWER_SECONDS = 30.0

Append = Callable[[bytes], Coroutine[Any, Any, int]]
Partition = Annotated[int, typer.Argument(min=0, help="Partitions are numbered from 0.")]


@app.command(
    "append",
    epilog=examples(
        "waltz log append 0 hello",
        "waltz log append 0 'withdraw 5' --lock account:17 --mark 41",
        "seq 1000 | waltz log append 0 --in-flight 100",
    ),
)
def append_command(
    partition: Partition,
    data: Annotated[
        str | None, typer.Argument(help="Without it, every line of standard input is one.")
    ] = None,
    header: Annotated[int, typer.Option(help="A number of the application's.")] = 0,
    lock: Annotated[
        list[str] | None,
        typer.Option(
            "--lock", "-l", metavar="NAME:ID", help="Write lock; say by --mark what you know."
        ),
    ] = None,
    read_lock: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:ID", help="Read lock; say by --mark what you know."),
    ] = None,
    append_lock: Annotated[
        list[str] | None, typer.Option(metavar="NAME:ID", help="Append lock.")
    ] = None,
    mark: Annotated[
        int | None,
        typer.Option(
            help="The last transaction taken into account: locks taken after it are refused. "
            "Without it: the end of the log, so that locks refuse next to nothing.",
        ),
    ] = None,
    in_flight: Annotated[
        int, typer.Option(min=1, help="Lines under way at once; only with 1 they keep their order.")
    ] = 1,
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Append transactions, and print their ids once they are on the disks of a quorum.

    A lock is named like account:17. Options for locks may be repeated.
    """
    where = target(zookeeper, root, cluster, tls)
    write, read, unchecked = (
        [parsed(parse_lock, text) for text in given or ()]
        for given in (lock, read_lock, append_lock)
    )

    async def work() -> None:
        async with _connect(where) as client:

            async def append(content: bytes) -> int:
                return await client.append(
                    partition,
                    content,
                    header=header,
                    write_locks=write,
                    read_locks=read,
                    append_locks=unchecked,
                    mark=mark,
                )

            if data is not None:
                _print_id(partition, await append(data.encode()), output)
            else:
                await _append_lines(partition, append, in_flight, output)

    run(work(), seconds=None)


@app.command(
    "tail",
    epilog=examples(
        "waltz log tail 0",
        "waltz log tail 0-3 -n 0 --follow -o json | jq .data",
    ),
)
def tail_command(
    partitions: Annotated[
        str | None, typer.Argument(metavar="[RANGES]", help="Such as 0-6,7. Without it: all.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="How many of each partition.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the last transactions, one a line; as JSON, each line is an object."""
    where = target(zookeeper, root, cluster, tls)
    named = None if partitions is None else parsed(parse_partitions, partitions)

    async def work() -> None:
        async with _connect(where) as client:
            wanted = range(client.num_partitions) if named is None else named
            marks = await _marks(client, wanted)
            after = {partition: max(-1, mark - count) for partition, mark in marks.items()}
            until = None if follow else marks
            await _print_all(client.stream(after, until=until, data=True), output)

    run(work(), seconds=None)


@app.command(
    "read",
    epilog=examples(
        "waltz log read 0 17",
        "waltz log read 0 17-42 -o json",
        "waltz log read 0 0-",
        "waltz log read 0 17 --raw > picture.png",
    ),
)
def read_command(
    partition: Partition,
    ids: Annotated[
        str, typer.Argument(metavar="FIRST[-[LAST]]", help="Transaction ids; 5- is all from 5.")
    ],
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the bytes of the data and nothing else.")
    ] = False,
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Print transactions, one a line; as JSON, each line is an object."""
    where = target(zookeeper, root, cluster, tls)
    first, last = parsed(parse_ids, ids)

    async def work() -> None:
        async with _connect(where) as client:
            mark = (await _marks(client, (partition,)))[partition]
            until = mark if last is None else last
            if until > mark:
                raise Failed(
                    f"partition {partition} has no transaction {until}: its log ends at {mark}"
                )
            stream = client.stream(partition, after=first - 1, until=until, data=True)
            await _print_all(stream, None if raw else output)

    run(work(), seconds=None)


@app.command(
    "high-water-mark",
    epilog=examples("waltz log high-water-mark", "waltz log high-water-mark 0 -o json"),
)
def high_water_mark_command(
    partitions: Annotated[
        str | None, typer.Argument(metavar="[RANGES]", help="Such as 0-6,7. Without it: all.")
    ] = None,
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the id of each partition's last transaction, -1 where there is none."""
    where = target(zookeeper, root, cluster, tls)
    named = None if partitions is None else parsed(parse_partitions, partitions)

    async def work() -> dict[int, int]:
        async with _connect(where) as client:
            wanted = range(client.num_partitions) if named is None else named
            return await _marks(client, wanted)

    show(output, rows.marks(run(work())))


def _connect(where: Target) -> Opening[Client]:
    return connect(where.zookeeper, root=where.root, tls=where.tls, append_timeout=_ANSWER_SECONDS)


async def _marks(client: Client, partitions: Iterable[int]) -> dict[int, int]:
    wanted = list(partitions)
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            marks = await asyncio.gather(*(client.high_water_mark(p) for p in wanted))
    except TimeoutError:
        raise Failed(
            f"no server answered for all of the partitions within {_ANSWER_SECONDS:g} s; "
            "find out why with: waltz cluster verify"
        ) from None
    return dict(zip(wanted, marks, strict=True))


async def _append_lines(partition: int, append: Append, in_flight: int, output: Format) -> None:
    """Append every line of standard input; print the ids in the order of the lines."""
    under_way: list[asyncio.Task[int]] = []
    columns = SpinnerColumn(), TextColumn("{task.completed} lines appended"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("appended", total=None)

        async def settle(most: int) -> None:
            while len(under_way) > most:
                _print_id(partition, await under_way.pop(0), output)
                progress.advance(bar)

        try:
            async for line in _lines():
                under_way.append(asyncio.create_task(append(line)))
                await settle(in_flight - 1)
            await settle(0)
        finally:
            for task in under_way:
                task.cancel()


async def _lines() -> AsyncIterator[bytes]:
    while line := await asyncio.to_thread(sys.stdin.buffer.readline):
        yield line.removesuffix(b"\n")


async def _print_all(stream: AsyncIterable[Transaction], output: Format | None) -> None:
    """Print a stream, in one of the formats or, without one, the bytes alone."""
    async for transaction in stream:
        match output:
            case Format.JSON:
                print(transactions.as_json(transaction), flush=True)  # noqa: T201
            case Format.TABLE:
                print(transactions.as_line(transaction), flush=True)  # noqa: T201
            case None:
                sys.stdout.buffer.write(transaction.data)
    sys.stdout.flush()


def _print_id(partition: int, transaction_id: int, output: Format) -> None:
    if output is Format.JSON:
        print(json.dumps({"partition": partition, "id": transaction_id}))  # noqa: T201
    else:
        print(transaction_id)  # noqa: T201
