"""``waltz disk export``: what a stopped storage holds, as lines that an import takes. Reads files.

One record at a time is in memory, so that any segment can be read on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, BinaryIO

import typer

from waltz.cli.disk.access import Where, inspecting
from waltz.cli.log.archive import as_json
from waltz.cli.options import examples, partitions_of
from waltz.cli.output import say
from waltz.cli.running import Failed
from waltz.client import Transaction
from waltz.client.core.ranges import format_partitions
from waltz_storage.core.log.segment_format import INDEX_SUFFIX
from waltz_storage.inspect.dry_disk import ReadOnlyFile
from waltz_storage.inspect.segment_check import Flaw, Stored, Windowed, content
from waltz_storage.inspect.stopped_storage import Place, read_header, segment_path, segments

app = typer.Typer()


@app.command(
    "export",
    epilog=examples(
        "waltz disk export /copy > log.jsonl",
        "waltz disk export /copy --partition 0-3 | gzip > log.jsonl.gz",
        "waltz disk export /copy/3/0000000000000000000.seg > segment.jsonl",
    ),
)
def export_command(
    path: Where,
    partition: Annotated[
        str | None,
        typer.Option("--partition", "-p", metavar="RANGES", help="Such as 0-6,7. Without it: all."),
    ] = None,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Go on behind damage. An import then changes ids."),
    ] = False,
) -> None:
    """Print all transactions in files as JSON lines, in order, for waltz log import.

    It ends with status 1 at the first transaction that is damaged or missing. What is printed may
    include transactions at the end that were never committed.
    """
    wanted = partitions_of(partition)
    with inspecting(path) as place:
        chosen = [p for p in place.partitions if wanted is None or p in wanted]
        if wanted is not None and (absent := sorted(set(wanted) - set(chosen))):
            raise Failed(f"{path} has no files of partitions {format_partitions(absent)}")
        out = typer.get_binary_stream("stdout")
        for each in chosen:
            _export(place, each, out, skip_damaged=skip_damaged)
        out.flush()


def _export(place: Place, partition: int, out: BinaryIO, *, skip_damaged: bool) -> None:
    """Print what is there of a partition. Raises Failed at a gap, unless it is to be skipped."""
    first: int | None = None
    last = -1
    for found in _found(place, partition):
        if isinstance(found, str):
            if not skip_damaged:
                out.flush()
                raise Failed(
                    f"partition {partition}: {found}. Take another copy, or give --skip-damaged: "
                    "what follows then gets other ids when it is imported"
                )
            say(f"partition {partition}: {found}; skipped")
            continue
        record = found.record
        first = record.transaction_id if first is None else first
        last = record.transaction_id
        transaction = Transaction(partition, last, record.req_id, record.header, record.data)
        out.write(as_json(transaction).encode() + b"\n")
    there = "nothing" if first is None else f"transactions {first} to {last}"
    say(f"partition {partition}: {there}")


def _found(place: Place, partition: int) -> Iterator[Stored | str]:
    """Yield the records of a partition, and sentences where one is damaged or missing."""
    one = place.first_id
    expected = 0 if one is None else one
    for first_id in segments(place.root, partition) if one is None else [one]:
        path = segment_path(place.root, partition, first_id)
        if first_id != expected:
            yield f"transactions from {expected} on are missing before {path.name}"
        read_header(place.root, partition, first_id)
        with ExitStack() as stack:
            data = Windowed(stack.enter_context(ReadOnlyFile(path)))
            index_path = path.with_suffix(INDEX_SUFFIX)
            index = stack.enter_context(ReadOnlyFile(index_path)) if index_path.exists() else None
            expected = first_id
            for found in content(data, index, first_id):
                if isinstance(found, Flaw):
                    yield f"{found.what} ({path.name} at byte {found.offset})"
                else:
                    expected = found.record.transaction_id + 1
                    yield found
