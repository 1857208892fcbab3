"""``waltz disk export``: print the transactions of a stopped storage for an import. Reads files.

Only one record at a time is in memory. So the size of a segment does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, BinaryIO

import typer

from waltz.cli.disk.access import MetaDirectory, Where, inspecting
from waltz.cli.fields import ResultForm, prints
from waltz.cli.log.archive import ExportedTransaction, as_json
from waltz.cli.options import examples, partitions_of
from waltz.cli.output import Format, Output, OutputFormat, say, show_line
from waltz.cli.running import Failed
from waltz.cli.transactions import as_line
from waltz.client import Transaction
from waltz.protocol.notation import format_partitions
from waltz_storage.inspect.control_reading import check_complete
from waltz_storage.inspect.places import Place
from waltz_storage.inspect.segment_reading import Gap, read_partition

app = typer.Typer()


@app.command(
    "export",
    epilog=examples(
        "waltz disk export /copy > log.jsonl",
        "waltz disk export /copy --partition 0-3 | gzip > log.jsonl.gz",
        "waltz disk export /copy/3/0000000000000000000.seg > segment.jsonl",
    ),
)
@prints(ExportedTransaction, ResultForm.LINES)
def export_command(
    path: Where,
    partition: Annotated[
        str | None,
        typer.Option("--partition", "-p", metavar="RANGES", help="Such as 0-6,7. Default: all."),
    ] = None,
    skip_damaged: Annotated[
        bool,
        typer.Option(
            "--skip-damaged",
            help="Skip damaged transactions. Later transactions get other ids when imported.",
        ),
    ] = False,
    meta: MetaDirectory = None,
    output: Output = Format.JSON,
) -> None:
    """Print all transactions in files as JSON lines, in order, for waltz log import.

    Without --skip-damaged, the command ends with status 1 at the first transaction that is damaged
    or missing. The last printed transactions may never have been committed.
    """
    wanted = partitions_of(partition)
    with inspecting(path) as place:
        # Raises an error if the last records are only in a write-ahead log. Otherwise they would be
        # missing from the export without a message.
        check_complete(place.root, meta)
        chosen = [p for p in place.partitions if wanted is None or p in wanted]
        if wanted is not None and (absent := sorted(set(wanted) - set(chosen))):
            raise Failed(f"{path} has no files of partitions {format_partitions(absent)}")
        with _printing(output) as print_transaction:
            for chosen_partition in chosen:
                _export(place, chosen_partition, print_transaction, skip_damaged=skip_damaged)


@contextmanager
def _printing(output: OutputFormat) -> Iterator[Callable[[Transaction], None]]:
    """Yield a function that prints a transaction. The output is complete when the context ends."""
    if output is not Format.JSON:

        def print_line(transaction: Transaction) -> None:
            show_line(output, json.loads(as_json(transaction)), as_line(transaction))

        yield print_line
        return
    # JSON is the usual format of an export. Its lines are not printed by `show_line`, which flushes
    # each line: that would make a large export slow. They are flushed once, at the end.
    out = typer.get_binary_stream("stdout")
    try:
        yield lambda transaction: _write_json_line(out, transaction)
    finally:
        out.flush()


def _write_json_line(out: BinaryIO, transaction: Transaction) -> None:
    """Write one line of JSON, without flushing it."""
    out.write(as_json(transaction).encode() + b"\n")


def _export(
    place: Place,
    partition: int,
    print_transaction: Callable[[Transaction], None],
    *,
    skip_damaged: bool,
) -> None:
    """Print the records of a partition, then a summary to standard error.

    A gap is where records are damaged or missing. Raises Failed at the first gap; with
    ``skip_damaged``, prints a message instead and continues after the gap.
    """
    first_id: int | None = None
    last_id: int | None = None
    for record_or_gap in read_partition(place, partition):
        if isinstance(record_or_gap, Gap):
            gap = record_or_gap.text
            if not skip_damaged:
                raise Failed(
                    f"partition {partition}: {gap}. Use another copy, or --skip-damaged: the "
                    "transactions that follow then get other ids when they are imported"
                )
            say(f"partition {partition}: {gap}; skipped")
            continue
        record = record_or_gap.record
        last_id = record.transaction_id
        if first_id is None:
            first_id = record.transaction_id
        print_transaction(
            Transaction(partition, record.transaction_id, record.req_id, record.header, record.data)
        )
    exported = "nothing" if first_id is None else f"transactions {first_id} to {last_id}"
    say(f"partition {partition}: {exported}")
