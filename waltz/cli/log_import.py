"""``waltz log import``: files into a log. Touches disk, ZooKeeper and the network."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.archive import BadArchive, Row
from waltz.cli.archive_files import find_pieces, read_piece, read_rows
from waltz.cli.client_access import high_water_marks, open_client
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.import_record import Begun, ImportRecord
from waltz.cli.importing import Importer
from waltz.cli.options import DryRun, examples, partitions_of
from waltz.cli.output import Format, Output, show
from waltz.cli.progress import progress
from waltz.cli.running import Failed, opened, run
from waltz.cli.transfer_rows import imported

app = typer.Typer()


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
        before: dict[int, int] = {}
        importers: dict[int, Importer] = {}
        for partition, mark in marks.items():
            begun = known.partitions[partition]
            importers[partition] = Importer(client, partition, begun.clients, mark)
            before[partition] = await importers[partition].count(begun.base, mark)
        missing = {source.target: source.count - before[source.target] for source in sources}
        if any(count < 0 for count in missing.values()):
            raise Failed(f"more has been imported than {file} is for; was it of other files?")
        if not dry_run:
            with progress("imported", sum(missing.values())) as advance:
                await asyncio.gather(
                    *(
                        importers[source.target].append(
                            islice(source.rows(), before[source.target], None), advance
                        )
                        for source in sources
                    )
                )
    return {partition: (before[partition], missing[partition]) for partition in missing}


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
