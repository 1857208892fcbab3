"""``waltz log import``: files into a log. Touches disk, ZooKeeper and the network.

Every append takes a lock that all imports take, by the mark up to which this one knows the log. So
an append that an earlier, broken off run left under way is refused, or is seen before going on.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.archive import BadArchive, Row
from waltz.cli.archive_files import find_pieces, read_piece, read_rows
from waltz.cli.client_access import ANSWER_SECONDS, high_water_marks, open_client, without_silence
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.import_record import Begun, ImportRecord
from waltz.cli.options import DryRun, examples, partitions_of
from waltz.cli.output import Format, Output, show
from waltz.cli.progress import Advance, progress
from waltz.cli.running import Failed, opened, run
from waltz.cli.transfer_rows import imported
from waltz.client import Client, LockFailed
from waltz.protocol import Lock

app = typer.Typer()

_LOCK_NAME = "waltz-import"


@dataclass(frozen=True, slots=True)
class _Source:
    """``count`` transactions for the partition ``target``."""

    target: int
    count: int
    rows: Callable[[], Iterator[Row]]


@app.command(
    "import",
    cls=ClusterCommand,
    epilog=examples(
        "waltz log import /backup/orders",
        "waltz log import /backup/orders --partitions 3 --to 0",
        "waltz log import events.jsonl --to 0 --dry-run",
    ),
)
def import_command(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(help="The directory of an export, or a .jsonl or .parquet file.")
    ],
    partitions: Annotated[
        str | None,
        typer.Option("--partitions", "-p", metavar="RANGES", help="Only what is of these."),
    ] = None,
    to: Annotated[
        int | None, typer.Option(min=0, help="Into this partition, not into that it is of.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Where the import remembers what is needed to go on. Without it: beside PATH."
        ),
    ] = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> None:
    """Append the transactions in files to a log, each partition's in their order.

    Done again after it was broken off, it goes on with what is not in the log yet. Data and headers
    are kept; ids go on where the log ends, and are the same only if it is empty.
    """
    where, named = target(context), partitions_of(partitions)

    async def work() -> dict[int, tuple[int, int]]:
        sources = _sources(path, named, to)
        async with opened(where) as found:
            key = (await found.store_params()).key
        file = record or path.absolute().with_name(f"{path.absolute().name}.import-{key}.json")
        with _alone(path):
            known = ImportRecord.read(file, key)
            return await _import(where, sources, known, file, dry_run=dry_run)

    show(output, imported(run(work(), seconds=None), dry_run=dry_run))


async def _import(
    where: Target, sources: list[_Source], known: ImportRecord, file: Path, *, dry_run: bool
) -> dict[int, tuple[int, int]]:
    """Append what is missing; return how many were there, and how many came, by partition."""
    async with open_client(where) as client:
        marks = await high_water_marks(client, [source.target for source in sources])
        for partition, mark in marks.items():
            known.partitions.setdefault(partition, Begun(mark)).clients.append(client.client_id)
        if not dry_run:
            known.write(file)
        before = {
            partition: await _count(
                client, partition, known, known.partitions[partition].base, mark
            )
            for partition, mark in marks.items()
        }
        missing = {source.target: source.count - before[source.target] for source in sources}
        if any(count < 0 for count in missing.values()):
            raise Failed(f"more has been imported than {file} is for; was it of other files?")
        if not dry_run:
            with progress("imported", sum(missing.values())) as advance:
                await asyncio.gather(
                    *(
                        _append(client, source, known, before[source.target], marks, advance)
                        for source in sources
                    )
                )
    return {partition: (before[partition], missing[partition]) for partition in missing}


async def _append(
    client: Client,
    source: _Source,
    known: ImportRecord,
    skipped: int,
    marks: dict[int, int],
    advance: Advance,
) -> None:
    partition, mark = source.target, marks[source.target]
    lock = Lock(_LOCK_NAME, partition)
    for row in islice(source.rows(), skipped, None):
        while True:
            try:
                mark = await client.append(
                    partition, row.data, header=row.header, write_locks=[lock], mark=mark
                )
                break
            except LockFailed:
                # Another lock may share its place in the server's table: that is no import.
                now = await client.high_water_mark(partition)
                if await _count(client, partition, known, mark, now):
                    raise Failed(
                        f"an earlier import has appended to partition {partition} just now; do it "
                        "again: it goes on where that ended"
                    ) from None
                mark = now
        advance(1)


async def _count(client: Client, partition: int, known: ImportRecord, after: int, last: int) -> int:
    """Return how many transactions after ``after`` up to ``last`` are of this import."""
    if last <= after:
        return 0
    ours, count = set(known.partitions[partition].clients), 0
    stream = client.stream(partition, after=after, until=last)
    async with aclosing(without_silence(stream, ANSWER_SECONDS)) as batches:
        async for batch in batches:
            count += sum(transaction.req_id.client_id in ours for transaction in batch)
    return count


def _sources(path: Path, named: tuple[int, ...] | None, to: int | None) -> list[_Source]:
    """Return what is to be imported. Raises BadArchive."""
    if path.is_dir():
        found = _of_directory(path, named)
    elif path.is_file():
        found = _of_file(path, named, to)
    else:
        raise BadArchive(f"there is no file or directory {path}")
    if not found:
        raise BadArchive(f"{path} has no transactions" + (" of these partitions" if named else ""))
    if to is None:
        return found
    if len(found) > 1:
        raise BadArchive("--to is for the transactions of one partition: say which by --partitions")
    return [_Source(to, found[0].count, found[0].rows)]


def _of_directory(path: Path, named: tuple[int, ...] | None) -> list[_Source]:
    def source(partition: int) -> _Source:
        pieces = found[partition]

        def rows() -> Iterator[Row]:
            for piece in pieces:
                yield from read_piece(path, piece)

        return _Source(partition, sum(piece.count for piece in pieces), rows)

    found = find_pieces(path)
    return [source(p) for p in sorted(found) if named is None or p in named]


def _of_file(path: Path, named: tuple[int, ...] | None, to: int | None) -> list[_Source]:
    counts = Counter(row.partition for row in read_rows(path))
    if to is not None and named is None:
        return [_Source(to, counts.total(), lambda: read_rows(path))] if counts else []
    if None in counts:
        raise BadArchive(f"{path} has rows that are of no partition: say one with --to")

    def source(partition: int, count: int) -> _Source:
        return _Source(
            partition,
            count,
            lambda: (row for row in read_rows(path) if row.partition == partition),
        )

    return [
        source(partition, count)
        for partition, count in sorted((p, n) for p, n in counts.items() if p is not None)
        if named is None or partition in named
    ]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other imports of the same files away. Raises Failed if there is one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Failed(f"another import of {path} is going on; wait for its end") from None
    finally:
        os.close(descriptor)
