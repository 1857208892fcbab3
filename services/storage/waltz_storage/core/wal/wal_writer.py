"""Pure. Append transactions to a write-ahead log, and give up the space of old ones.

A transaction is written only when the transaction before it is durable, with its direct data (the
data of large records, which are in their files and not in the log). `wal_scan` relies on this order
to distinguish damage from an interrupted write. The space of transactions before the checkpoint is
used again only when the header with that checkpoint is durable: a crash must not leave an older
header whose transactions are overwritten.

For each transaction, call `WalWriter.write`, `WalWriter.flush` and `WalWriter.complete`.

One thread at a time calls the methods. Only `WalWriter.flush` may run on another thread meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from waltz_storage.core.disk import DiskFile
from waltz_storage.core.wal.operations import Operation
from waltz_storage.core.wal.ring import BLOCK_BYTES, TransactionId
from waltz_storage.core.wal.transaction_blocks import (
    ROOM_BYTES,
    blocks_of_bytes,
    encode_transaction,
)
from waltz_storage.core.wal.wal_file import flush_wal, write_wal_header
from waltz_storage.core.wal.wal_header import WalHeader

_TAIL_ROOM_BYTES = 64
"""The tail of a transaction, which has its checksum, has at most this size with every algorithm."""


@dataclass(frozen=True, slots=True)
class WrittenTransaction:
    """A transaction that is written and not complete: its id, and the id of the next one."""

    id: TransactionId
    following: TransactionId


class WalWriter:
    """The end of an open log, where transactions are appended.

    ``header`` and all transactions before ``following`` must be durable.
    """

    def __init__(self, file: DiskFile, header: WalHeader, following: TransactionId) -> None:
        assert header.checkpoint <= following, "a log ends after its checkpoint"
        self._file = file
        self._ring = header.ring
        self._header = header
        """The header that was written last."""
        self._durable_header = header
        """The header that a flush made durable last."""
        self._following = following
        self._written: WrittenTransaction | None = None
        """The transaction that is written and not complete, if there is one."""
        self._flushed: WrittenTransaction | None = None
        """The written transaction, as soon as its blocks are durable."""

    @property
    def following(self) -> TransactionId:
        """The id that the next transaction gets."""
        return self._following

    @property
    def checkpoint(self) -> TransactionId:
        """The checkpoint in the header that was written last, which may not be durable yet."""
        return self._header.checkpoint

    @property
    def reclaimed(self) -> TransactionId:
        """The durable checkpoint: the space before it may be used."""
        return self._durable_header.checkpoint

    @property
    def writing(self) -> bool:
        """Whether a transaction is written and not complete."""
        return self._written is not None

    @property
    def free_blocks(self) -> int:
        """How many blocks the next transaction may have."""
        return self._ring.free(self._durable_header.checkpoint, self._following)

    @property
    def used_blocks(self) -> int:
        """How many blocks the transactions since the durable checkpoint take."""
        return self._ring.distance(self._durable_header.checkpoint, self._following)

    @property
    def ring_blocks(self) -> int:
        """How many blocks all transactions in the log may have: one stays unused (`Ring.free`)."""
        return self._ring.count - 1

    @property
    def most_blocks(self) -> int:
        """How many blocks a transaction may have: half of the ring.

        While a checkpoint gives up one half, transactions are written to the other half.
        """
        return max(1, (self._ring.count - 1) // 2)

    @property
    def most_bytes(self) -> int:
        """How many bytes the encoded operations of a transaction may have."""
        return self.most_blocks * ROOM_BYTES - _TAIL_ROOM_BYTES

    def fits(self, size: int) -> bool:
        """Return whether there is space now for a transaction whose operations have ``size`` bytes.

        ``size`` is that of the encoded operations. Without space, the caller waits until a
        checkpoint has ended. ``size`` must not be above `most_bytes`, or the caller would wait for
        ever.
        """
        count = blocks_of_bytes(size, self._header.checksum)
        assert count <= self.most_blocks, "a transaction must be divided before it is written"
        return count <= self.free_blocks

    def write(self, operations: Sequence[Operation]) -> WrittenTransaction:
        """Write a transaction, not durably; raises NoSpace, DiskFailed."""
        assert self._written is None, "a transaction is written when the last one is durable"
        transaction_id = self._following
        raw = encode_transaction(transaction_id, operations, self._header.checksum)
        count = len(raw) // BLOCK_BYTES
        assert count <= self.free_blocks, "a transaction must not overwrite one that is needed"
        position = 0
        for block, blocks in self._ring.pieces(transaction_id.block, count):
            size = blocks * BLOCK_BYTES
            self._file.write(block * BLOCK_BYTES, raw[position : position + size])
            position += size
        following = self._ring.after(transaction_id, count)
        self._written = WrittenTransaction(transaction_id, following)
        self._flushed = None
        return self._written

    def flush(self) -> None:
        """Make the written transaction and the written header durable; raises DiskFailed.

        Another thread may call `advance` meanwhile: its header is durable after the next flush.
        After an error the process must end: the content of the disk is unknown.
        """
        header, written = self._header, self._written
        flush_wal(self._file)
        self._durable_header = header
        self._flushed = written

    def complete(self, written: WrittenTransaction) -> None:
        """Note that ``written`` is durable, with its direct data, and may be applied."""
        assert self._written == written, "transactions are completed in order"
        assert self._flushed == written, "a transaction is complete when its blocks are durable"
        self._following = written.following
        self._written = None

    def release(self) -> None:
        """Close the file of the log without changing it."""
        self._file.close()

    def advance(self, checkpoint: TransactionId) -> None:
        """Write a header with a new checkpoint; the next `flush` makes it durable.

        All files that transactions before ``checkpoint`` changed must be flushed. The position in
        the catalogue must be flushed, too, and be at least ``checkpoint``: a start compares both
        (see `catalogue`). Raises DiskFailed.

        The last header must be durable, because the new one overwrites the header before the last.
        Otherwise a crash could leave no valid header.
        """
        assert self._header == self._durable_header, "one header is written at a time"
        assert checkpoint <= self._following, "a checkpoint passes only complete transactions"
        if checkpoint == self._header.checkpoint:
            return
        header = self._header.advanced(checkpoint)
        write_wal_header(self._file, header)
        self._header = header
