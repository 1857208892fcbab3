"""``waltz disk wal``: show the write-ahead log of a stopped storage. Reads files, writes none.

A transaction in this module is one of the write-ahead log: a list of operations on files that are
done together. It is not a transaction of a client.
"""

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
from waltz_storage.core.wal.catalogue import (
    CATALOGUE_REGION,
    ROW_BYTES,
    CatalogueDamaged,
    decode_row,
)
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

    ``transaction`` is the id of the transaction: a number that consists of ``sequence`` and
    ``block``, the position of the transaction in the log (`waltz_storage.core.wal.ring`). The log
    is a ring of blocks: ``sequence`` grows each time it begins again at its start.

    The operation writes or checks ``length`` bytes from ``offset`` on in the file with the number
    ``region``. Region 0 is the catalogue: its rows name the files of all regions. ``row`` describes
    the row of the catalogue that the operation writes, None if it writes none.
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

    ``bytes`` is the size of the file. ``checksum`` is the name of the kind of checksum.
    ``checkpoint`` is the id of the first transaction to replay. ``total_transactions`` is how many
    transactions the log has from there to its end, or to the damage; ``transactions`` is how many
    of them are shown. ``end`` says where the log ends, or how it is damaged. ``damaged`` is whether
    a durable transaction is damaged, or the file is too short.
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
    if _is_damaged(content):
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
        bytes=header.blocks * BLOCK_BYTES,
        checksum=header.checksum.name,
        checkpoint=header.checkpoint.value,
        transactions=len(content.transactions),
        total_transactions=content.num_transactions,
        end=_end_text(content.end),
        damaged=_is_damaged(content),
        operations=tuple(operations),
    )
    return record("Write-ahead log", log)


def _is_damaged(content: WalContent) -> bool:
    """Whether the log is damaged: then a text takes the place of its end."""
    return isinstance(content.end, str)


def _end_text(end: LogEnd | str) -> str:
    """Return the text for `WalContent.end`."""
    if isinstance(end, str):
        return end
    torn = ", after an interrupted transaction" if end.torn else ""
    return f"at block {end.following.block} (sequence {end.following.sequence}){torn}"


def _operation(transaction: TransactionId, operation: Operation) -> LoggedOperation:
    """Return the row of an operation."""
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
    """Return the text for the row of the catalogue that ``operation`` writes.

    None if the operation writes to another file, or marks the row as unused. If the operation does
    not write a valid row, the text says why.
    """
    address = operation.address
    if address.region != CATALOGUE_REGION or not isinstance(operation, WriteData):
        return None
    region = address.offset // ROW_BYTES  # A row describes the region with the row's number.
    try:
        row = decode_row(operation.data, region)
    except CatalogueDamaged as damaged:
        return str(damaged)
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
