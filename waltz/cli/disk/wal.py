"""``waltz disk wal``: show the write-ahead log of a stopped storage. Reads files, writes none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from waltz.cli.disk.access import inspecting
from waltz.cli.fields import prints
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, show
from waltz.cli.rows import Rendering, column, nested, record
from waltz_storage.core.wal.catalogue import CATALOGUE_REGION, ROW_BYTES, decode_row
from waltz_storage.core.wal.operations import Check, Move, Operation, WriteData, Zero
from waltz_storage.core.wal.ring import BLOCK_BYTES, TransactionId
from waltz_storage.core.wal.wal_scan import LogEnd
from waltz_storage.inspect.wal_reading import WalContent, read_wal

app = typer.Typer()

LogWhere = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="The directory of a storage. If storage.wal.directory is set: that directory.",
    ),
]


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    """One operation of a transaction in the log.

    The id of the transaction is ``transaction``, which consists of ``sequence`` and ``block``. The
    operation writes or checks ``length`` bytes from ``offset`` on in ``region``, which is the
    number of a file. Region 0 is the catalogue, whose rows name the files of all regions. ``row``
    is the content of the row that the operation writes there; None if it writes none.
    """

    transaction: int
    sequence: int
    block: int
    type: str
    region: int
    offset: int
    length: int
    row: Annotated[str | None, column(show=lambda value: value or "")]


@dataclass(frozen=True, slots=True)
class LogSummary:
    """The header of the log, its operations, and its end.

    ``bytes`` is the size of the file, ``checksum`` the name of its checksum, ``checkpoint`` the id
    of the first transaction to replay. ``transactions`` is how many transactions are shown,
    ``total_transactions`` how many the log has before its end, or before the damage.
    ``damaged`` is whether a durable transaction is damaged, or the file is too short.
    """

    key: UUID
    bytes: int
    checksum: str
    checkpoint: int
    transactions: int
    total_transactions: int
    end: str
    damaged: bool
    operations: Annotated[
        tuple[LoggedOperation, ...], nested(LoggedOperation, "Operations since the checkpoint")
    ]


@app.command(
    "wal",
    epilog=examples("waltz disk wal /var/lib/waltz", "waltz disk wal /var/lib/waltz -o json"),
)
@prints(LogSummary)
def wal_command(
    path: LogWhere,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of transactions to show.")
    ] = 1000,
    output: Output = Format.TABLE,
) -> None:
    """Show the write-ahead log of a storage: its header, and the operations to replay.

    The exit status is 1 if a durable transaction is damaged, or the file is too short.
    """
    with inspecting(path) as place:
        content = read_wal(place.root, limit)
    show(output, render_log(content))
    if isinstance(content.end, str):  # A text means that the log is damaged.
        raise typer.Exit(1)


def render_log(content: WalContent) -> Rendering:
    """Return the rendering of a write-ahead log."""
    header = content.header
    operations = [
        _operation(transaction.id, operation)
        for transaction in content.transactions
        for operation in transaction.operations
    ]
    log = LogSummary(
        header.key,
        header.blocks * BLOCK_BYTES,
        header.checksum.name,
        header.checkpoint.value,
        len(content.transactions),
        content.num_transactions,
        _end_text(content.end),
        isinstance(content.end, str),
        tuple(operations),
    )
    return record("Write-ahead log", log)


def _end_text(end: LogEnd | str) -> str:
    """Return the text for `WalContent.end`."""
    if isinstance(end, str):
        return end
    torn = ", after an interrupted transaction" if end.torn else ""
    return f"at block {end.following.block} (sequence {end.following.sequence}){torn}"


def _operation(transaction: TransactionId, operation: Operation) -> LoggedOperation:
    operation_type, length = _type_and_length(operation)
    address = operation.address
    return LoggedOperation(
        transaction.value,
        transaction.sequence,
        transaction.block,
        operation_type,
        address.region,
        address.offset,
        length,
        _catalogue_row(operation),
    )


def _catalogue_row(operation: Operation) -> str | None:
    """Return the text for the catalogue row that ``operation`` writes, None if it writes none."""
    address = operation.address
    if address.region != CATALOGUE_REGION or not isinstance(operation, WriteData):
        return None
    region = address.offset // ROW_BYTES  # A row describes the region with the row's number.
    row = decode_row(operation.data, region)
    if row is None:
        return None
    file = row.file
    return (
        f"region {region}: {file.kind.name.lower()} of partition {file.partition} from "
        f"{file.first_id}, {row.state.name.lower()}, {row.length} bytes"
    )


def _type_and_length(operation: Operation) -> tuple[str, int]:
    """Return the type of an operation, and how many bytes it concerns."""
    match operation:
        case WriteData(_, data):
            return "write", len(data)
        case Move(_, _, length):
            return "move", length
        case Zero(_, length):
            return "zero", length
        case Check(_, length, _):
            return "check", length
