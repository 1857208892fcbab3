"""Read the write-ahead log of a stopped storage. Reads files, writes none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.transaction_blocks import Transaction
from waltz_storage.core.wal.wal_file import WAL_FILE, BlockReader, check_size
from waltz_storage.core.wal.wal_header import (
    HEADER_BLOCKS,
    HeaderDamaged,
    WalHeader,
    decode_wal_header,
)
from waltz_storage.core.wal.wal_scan import LogEnd, WalDamaged, scan_transactions
from waltz_storage.inspect.dry_disk import ReadOnlyFile
from waltz_storage.inspect.places import CannotInspect


@dataclass(frozen=True, slots=True)
class WalContent:
    """The header of a log, its first transactions since the checkpoint, and how it ends.

    ``transactions`` has the first ones, and ``num_transactions`` is how many there are in all. If a
    transaction is damaged, or the file is too short, both cover only the transactions before, and
    ``end`` is a text that says what is wrong.
    """

    header: WalHeader
    transactions: Sequence[Transaction]
    num_transactions: int
    end: LogEnd | str


def read_wal(root: Path, limit: int) -> WalContent:
    """Read the log in ``root`` up to its end, and return at most ``limit`` of its transactions.

    All transactions are read, because a later one may be damaged. Raises CannotInspect.
    """
    transactions: list[Transaction] = []
    count = 0
    with _scanning(root) as (header, scan):
        try:
            for scanned in scan:
                if isinstance(scanned, LogEnd):
                    return WalContent(header, transactions, count, scanned)
                count += 1
                if count <= limit:
                    transactions.append(scanned)
        except (WalDamaged, HeaderDamaged) as damaged:
            return WalContent(header, transactions, count, str(damaged))
    raise AssertionError("a scan yields the end of the log, or says that the log is damaged")


def read_wal_key(root: Path) -> uuid.UUID:
    """Return the cluster key in the header of the log in ``root``. Raises CannotInspect."""
    with _scanning(root) as (header, _):
        return header.key


def is_wal_empty(root: Path) -> bool:
    """Return whether the log in ``root`` is undamaged and has no transaction.

    If the log begins with a transaction, no more is read. Otherwise all free blocks are read: a
    valid transaction in them would show damage. Raises CannotInspect.
    """
    with _scanning(root) as (_, scan):
        try:
            return isinstance(next(scan), LogEnd)
        except (WalDamaged, HeaderDamaged):
            return False


@contextmanager
def _scanning(root: Path) -> Iterator[tuple[WalHeader, Iterator[Transaction | LogEnd]]]:
    """Open the log in ``root``; yield its header, and the iterator of `_scan`.

    Raises CannotInspect if the header is damaged or the file cannot be read, also during the scan.
    """
    path = root / WAL_FILE
    try:
        with ReadOnlyFile(path) as file:
            raw = file.read(0, HEADER_BLOCKS * BLOCK_BYTES)
            header = decode_wal_header(raw[:BLOCK_BYTES], raw[BLOCK_BYTES:])
            yield header, _scan(header, file)
    except HeaderDamaged as damaged:
        raise CannotInspect(f"cannot read {path}: {damaged}") from damaged
    except FileNotFoundError as problem:
        raise CannotInspect(
            f"cannot read {path}: {problem.strerror}; only a storage with storage.engine: wal has "
            "this file, in storage.wal.directory if that is set"
        ) from problem
    except OSError as problem:
        raise CannotInspect(f"cannot read {path}: {problem.strerror}") from problem


def _scan(header: WalHeader, file: ReadOnlyFile) -> Iterator[Transaction | LogEnd]:
    """Yield the transactions since the checkpoint, then the end of the log.

    Raises WalDamaged, HeaderDamaged if the file is shorter than its header says, OSError.
    """
    for scanned in scan_transactions(header, BlockReader(file).read_block):
        if isinstance(scanned, LogEnd):
            # Missing blocks are read as zeros, which look like the end of the log.
            check_size(header, file.size())
        yield scanned
