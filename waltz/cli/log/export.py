"""``waltz log export``: write a log to files. Touches disk, ZooKeeper and the network."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.client_access import ANSWER_SECONDS, batches_within, high_water_marks, open_client
from waltz.cli.cluster_options import ClusterCommand, target
from waltz.cli.fields import ResultForm, prints
from waltz.cli.log.archive import BadArchive, Form, Piece, exported_up_to
from waltz.cli.log.archive_files import check_form, find_pieces, read_piece, write_piece
from waltz.cli.log.exclusive import exclusive
from waltz.cli.log.rows import ExportedPartition, ExportRange, render_export
from waltz.cli.options import (
    AnswerTimeout,
    AnyPartitions,
    examples,
    partitions_of,
)
from waltz.cli.output import Format, Output, show
from waltz.cli.progress import Advance, progress
from waltz.cli.running import run
from waltz.client import Client, Transaction

app = typer.Typer()

_FILE_BYTES = 64 << 20
"""A file ends when its data reaches this size, or earlier when it has the maximum of rows.

Its transactions are in memory until the file is written.
"""


@dataclass(frozen=True, slots=True)
class _ExportOptions:
    """Where and how an export writes files.

    A file has at most ``rows_per_file`` transactions. Each batch of transactions must arrive within
    ``timeout_seconds``.
    """

    directory: Path
    form: Form
    rows_per_file: int
    timeout_seconds: float


@app.command(
    "export",
    cls=ClusterCommand,
    epilog=examples(
        "waltz log export /backup/orders",
        "waltz log export /backup/parquet 0-3 --format parquet",
    ),
)
@prints(ExportedPartition, ResultForm.LIST)
def export_command(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="The directory for the files.")
    ],
    partitions: AnyPartitions = None,
    form: Annotated[
        Form, typer.Option("--format", help="JSON lines, or Parquet (needs pyarrow).")
    ] = Form.JSONL,
    rows_per_file: Annotated[
        int,
        typer.Option("--rows-per-file", min=1, help="Maximum number of transactions in a file."),
    ] = 50_000,
    timeout: AnswerTimeout = ANSWER_SECONDS,
    output: Output = Format.TABLE,
) -> None:
    """Write the transactions of a log to files, up to its present end.

    The same command continues an export, after an interruption or when the log has grown.
    Transactions in complete files are not exported again; the names of the files show their ids.
    """
    where, wanted = target(context), partitions_of(partitions)
    options = _ExportOptions(directory, form, rows_per_file, timeout)

    async def work() -> dict[int, ExportRange]:
        check_form(form)
        find_pieces(directory)  # Raises BadArchive for wrong files before a cluster is needed.
        async with open_client(where) as client:
            return await _export_all(client, wanted, options)

    show(output, render_export(run(work(), seconds=None)))


async def _export_all(
    client: Client, wanted: tuple[int, ...] | None, options: _ExportOptions
) -> dict[int, ExportRange]:
    """Export the partitions ``wanted`` (None: all); return what was exported, by partition.

    Raises BadArchive, Failed, WaltzError.
    """
    ends = await high_water_marks(client, wanted, options.timeout_seconds)
    if not options.directory.exists():
        options.directory.mkdir(parents=True, exist_ok=True)
    # The lock is needed because two exports would write to the same incomplete files.
    with exclusive(options.directory):
        existing = find_pieces(options.directory)
        ranges = {
            partition: ExportRange(after=exported_up_to(existing, partition), last=last)
            for partition, last in ends.items()
        }
        _check_ends(options.directory, ranges)
        for partition in ranges:
            if partition in existing:
                await _check_last_transaction(client, existing[partition][-1], options)
        total = sum(last - after for after, last in ranges.values())
        with progress("exported", total) as advance:
            for partition, (after, last) in ranges.items():
                if after < last:
                    await _export(client, partition, after, last, options, advance)
    return ranges


def _check_ends(directory: Path, ranges: dict[int, ExportRange]) -> None:
    """Raise BadArchive if the files of a partition continue after the end of its log."""
    for partition, (after, last) in ranges.items():
        if after > last:
            raise BadArchive(
                f"{directory} has transactions of partition {partition} up to {after}, but its log "
                f"ends at {last}: the files are of another cluster; use another directory"
            )


async def _check_last_transaction(client: Client, piece: Piece, options: _ExportOptions) -> None:
    """Raise BadArchive if the last transaction of the file ``piece`` differs from that in the log.

    Without this check, an export of another cluster with a longer log would continue these files.
    They would be a mixture of two logs.
    """
    # A deque of length 1 keeps only the last row.
    (row,) = deque(read_piece(options.directory, piece), maxlen=1)
    stream = client.stream(piece.partition, after=piece.last_id - 1, until=piece.last_id, data=True)
    async with aclosing(batches_within(stream, options.timeout_seconds)) as batches:
        async for batch in batches:
            for transaction in batch:
                if (row.header, row.data) != (transaction.header, transaction.data):
                    raise BadArchive(
                        f"the last transaction of {options.directory / piece.path} differs from "
                        f"transaction {piece.last_id} in the log of partition {piece.partition}: "
                        "the files are of another cluster; use another directory"
                    )


async def _export(
    client: Client,
    partition: int,
    after: int,
    last: int,
    options: _ExportOptions,
    advance: Advance,
) -> None:
    """Write the transactions of ``partition`` after the id ``after``, up to the id ``last``."""
    file_transactions: list[Transaction] = []
    data_bytes = 0
    stream = client.stream(partition, after=after, until=last, data=True)
    async with aclosing(batches_within(stream, options.timeout_seconds)) as batches:
        async for batch in batches:
            for transaction in batch:
                file_transactions.append(transaction)
                data_bytes += len(transaction.data)
                num_rows = len(file_transactions)
                is_full = num_rows == options.rows_per_file or data_bytes >= _FILE_BYTES
                if is_full or transaction.id == last:
                    write_piece(options.directory, options.form, file_transactions)
                    advance(num_rows)
                    file_transactions, data_bytes = [], 0
