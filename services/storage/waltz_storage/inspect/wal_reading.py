"""Read the write-ahead log of a stopped storage. Reads files, writes none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.transaction_blocks import Transaction
from waltz_storage.core.wal.wal_file import WAL_FILE, BlockReader
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

    ``end`` is a text if the log is damaged: it says what is damaged. It is None if the log has more
    transactions than ``transactions``.
    """

    header: WalHeader
    transactions: Sequence[Transaction]
    end: LogEnd | str | None


def read_wal(root: Path, limit: int) -> WalContent:
    """Read at most ``limit`` transactions of the log in ``root``. Raises CannotInspect."""
    path = root / WAL_FILE
    found: list[Transaction] = []
    try:
        with ReadOnlyFile(path) as file:
            raw = file.read(0, HEADER_BLOCKS * BLOCK_BYTES)
            header = decode_wal_header(raw[:BLOCK_BYTES], raw[BLOCK_BYTES:])
            reader = BlockReader(file)
            for each in islice(scan_transactions(header, reader.read_block), limit + 1):
                if isinstance(each, LogEnd):
                    return WalContent(header, found, each)
                found.append(each)
            return WalContent(header, found[:limit], None)
    except WalDamaged as damaged:
        return WalContent(header, found, str(damaged))
    except HeaderDamaged as damaged:
        raise CannotInspect(f"cannot read {path}: {damaged}") from damaged
    except OSError as problem:
        raise CannotInspect(f"cannot read {path}: {problem.strerror}") from problem
