"""Pure. Files behind a write-ahead log: commit transactions, apply them, and make checkpoints.

`LoggedFiles` keeps the six invariants of docs/decisions/write-ahead-log.md. A commit has four
steps, so that the caller can do the flushes on other threads: `write_large_directly`, `write`, the
flushes of `flushes`, and `complete`. A checkpoint has five: `begin_checkpoint`, its flushes,
`write_position`, the flush of the position, and `end_checkpoint`. Commits and checkpoints may
overlap. Only one thread at a time may call the methods. `shell.wal_commits` is the caller.

*Direct data* are written to their file before the transaction is written. In the log, the
transaction has only a `Check` with their place and checksum. A *region* is the number of a file
(see `operations`).
"""

from __future__ import annotations

from collections.abc import Sequence

from waltz_storage.core.wal.catalogue import CATALOGUE_REGION, FileKind, RowState
from waltz_storage.core.wal.checksums import Checksum
from waltz_storage.core.wal.logged_changes import (
    LoggedChanges,
    RegionRange,
    changed_range,
    range_at,
    resolve_moves,
)
from waltz_storage.core.wal.operations import (
    Address,
    Check,
    Move,
    Operation,
    WriteData,
    encoded_bytes,
)
from waltz_storage.core.wal.region_files import Flush, RegionFiles
from waltz_storage.core.wal.ring import TransactionId
from waltz_storage.core.wal.wal_writer import WalWriter, WrittenTransaction

_NO_LIMIT = 1 << 30
"""More files than a process can open."""


class LoggedFiles:
    """The files of a storage, and the log that has their last changes."""

    def __init__(
        self, writer: WalWriter, files: RegionFiles, checksum: Checksum, most_open: int = _NO_LIMIT
    ) -> None:
        """Take an open log.

        All its transactions must be applied to their files, and these files must be flushed.
        ``most_open`` limits how many unchanged files stay open after a checkpoint.
        """
        assert writer.reclaimed <= writer.following, "a log ends after its checkpoint"
        self.writer = writer
        self.files = files
        self._checksum = checksum
        self._most_open = most_open
        self._changes = LoggedChanges()
        """The changes in the log, with which each new change is compared."""
        self._reclaimed = writer.reclaimed
        """The durable checkpoint at the last `_reclaim`: transactions before it are forgotten."""
        self._direct: list[tuple[Check, Flush]] = []
        """The direct data of the next transaction, or of the one that is written and not complete.

        For each piece of data, its Check and the flush of its file."""
        self._pending: tuple[WrittenTransaction, Sequence[Operation]] | None = None
        """The transaction that is written and not complete."""
        self._checkpoint: TransactionId | None = None
        """The position of the checkpoint that has begun, None if none is under way."""
        self._removed: list[tuple[TransactionId, tuple[int, ...]]] = []
        """For each position in the log, the regions whose files were removed before it.

        These regions may be used again when the log before the position is reclaimed.
        """
        # Now all removals are durable, and no operation in the log names a removed file.
        files.catalogue.allow_reuse(files.catalogue.take_removed())

    def can_write(self, operations: Sequence[Operation]) -> bool:
        """Return whether the log has space for a transaction, and no replay would apply it wrongly.

        Otherwise the caller waits until a checkpoint has ended and its header is durable, and asks
        again. The caller does not wait for ever: after enough checkpoints the log is empty. An
        empty log has space for every transaction of at most `WalWriter.most_bytes`, and a replay of
        it applies nothing wrongly. Each Move counts as the WriteData that may replace it.
        """
        size = sum(map(_largest_bytes, operations))
        return self.writer.fits(size) and self._changes.may_write(operations)

    def write_directly(self, address: Address, data: bytes) -> Check | None:
        """Write data of the next transaction to their file; return the Check to write with it.

        Write nothing and return None if the log has a change of these bytes or a Move from them:
        then the caller logs a WriteData. After NoSpace, a part of the data may be in the file, and
        the next transaction must not have a Check of them. Raises NoSpace, DiskFailed.
        """
        assert self._pending is None, "direct data belong to the next transaction"
        if not self._changes.may_write_directly(range_at(address, len(data))):
            return None
        flush = self.files.write_directly(address, data)
        check = Check(address, len(data), self._checksum.encode(data))
        self._direct.append((check, flush))
        return check

    def write_large_directly(
        self, operations: Sequence[Operation], least_bytes: int
    ) -> list[Operation]:
        """Write the large records of the next transaction to their files.

        Return the operations to write: a Check instead of each WriteData that is in its file now. A
        WriteData stays in four cases:

        * It is shorter than ``least_bytes``.
        * It is not for a data file. An index is changed in its middle, so its bytes are never
          written directly.
        * The log has a change of its bytes (invariant 3).
        * Another operation of this transaction changes its bytes. A replay would apply that
          operation again, and could write it over the direct data.

        A crash may leave direct data whose transaction is not in the log. They harm nothing,
        because a large WriteData for a data file has one of three origins:

        * An append: the direct data are bytes after the last record. The opening of the partition
          takes or drops them, as after a crash without a write-ahead log.
        * The opening of a partition, which writes its newest records again: the bytes are the same.
        * A repair of damaged records: after the crash each record is damaged or repaired, and the
          repair is repeated.

        After NoSpace or DiskFailed the process must end: the Checks of the data that are written
        already are lost, and `write` demands them.
        """
        if not any(_is_large(operation, least_bytes) for operation in operations):
            return list(operations)
        changes: dict[int, list[RegionRange]] = {}
        for operation in operations:
            changed = changed_range(operation)
            changes.setdefault(changed.region, []).append(changed)
        to_write: list[Operation] = []
        for operation in operations:
            check = None
            if _is_large(operation, least_bytes):
                target = changed_range(operation)
                overlapping = [each for each in changes[target.region] if each.overlaps(target)]
                is_only_change = len(overlapping) == 1  # The operation overlaps itself.
                assert isinstance(operation, WriteData), "only data are large"
                if is_only_change and self._is_data(operation.address.region):
                    check = self.write_directly(operation.address, operation.data)
            to_write.append(operation if check is None else check)
        return to_write

    def write(self, operations: Sequence[Operation]) -> None:
        """Write a transaction to the log, not durably; raises NoSpace, DiskFailed."""
        assert self._pending is None, "a transaction is written when the last one is complete"
        assert self._changes.may_write(operations), "the source of a logged move must not change"
        operations = resolve_moves(operations, self.files.read)
        self._check_direct(operations)
        self._check_regions(operations)
        written = self.writer.write(operations)
        self._changes.add(written.id, operations)
        self._pending = written, operations

    def flushes(self) -> list[Flush]:
        """Return the flushes that make the written transaction durable, in any order."""
        assert self._pending is not None, "a transaction is written"
        # One flush per file is enough: all direct data of the transaction are written already.
        files = {check.address.region: flush for check, flush in self._direct}
        return [self.writer.flush, *files.values()]

    def complete(self) -> None:
        """Apply the written transaction. Afterwards it may be acknowledged.

        All functions that `flushes` returned must have returned without an error. After NoSpace or
        DiskFailed the process must end; the next start applies the transaction.
        """
        assert self._pending is not None, "a transaction is written"
        written, operations = self._pending
        self.writer.complete(written)
        self._pending = None
        self._direct.clear()
        self.files.apply(operations)
        self._reclaim()

    def commit(self, operations: Sequence[Operation]) -> None:
        """Commit a transaction on this thread, without direct data; raises NoSpace, DiskFailed."""
        self.write(operations)
        for flush in self.flushes():
            flush()
        self.complete()

    def begin_checkpoint(self) -> list[Flush]:
        """Begin a checkpoint after the last complete transaction; return its flushes.

        Raises NoSpace, DiskFailed.
        """
        assert self._checkpoint is None, "one checkpoint at a time"
        assert self.writer.checkpoint == self.writer.reclaimed, (
            "a checkpoint begins when the header of the last one is durable"
        )
        self._checkpoint = self.writer.following
        self._removed.append((self._checkpoint, self.files.catalogue.take_removed()))
        return self.files.begin_flush()

    def write_position(self) -> Flush:
        """Write the position of the checkpoint, whose flushes must have returned without an error.

        Return the flush of the position. Raises NoSpace, DiskFailed.
        """
        assert self._checkpoint is not None, "a checkpoint has begun"
        return self.files.write_position(self._checkpoint)

    def end_checkpoint(self) -> None:
        """Write the header of the checkpoint; the flush of its position must have returned.

        The header becomes durable with the next transaction, or by `flush_header` if none comes.
        Raises DiskFailed.
        """
        assert self._checkpoint is not None, "a checkpoint has begun"
        assert self.files.catalogue.position == self._checkpoint, "the position is durable first"
        self.writer.advance(self._checkpoint)
        self._checkpoint = None
        # Close no file while a transaction is written: a flush of its direct data may be using it.
        if self._pending is None and not self._direct:
            self.files.end_flush(self._most_open)

    @property
    def header_pending(self) -> bool:
        """Whether the header of the last checkpoint is not durable yet."""
        return self.writer.checkpoint != self.writer.reclaimed

    def flush_header(self) -> None:
        """Make the header of the last checkpoint durable by a flush of its own.

        Call this only while no transaction is written. Raises DiskFailed.
        """
        assert self._pending is None, "the flush of the transaction includes the header"
        self.writer.flush()
        self._reclaim()

    def checkpoint(self) -> None:
        """Do a whole checkpoint on this thread; raises NoSpace, DiskFailed."""
        for flush in self.begin_checkpoint():
            flush()
        flush_position = self.write_position()
        flush_position()
        self.end_checkpoint()
        self.flush_header()

    def release(self) -> None:
        """Close the log and all files without changing them."""
        self.writer.release()
        self.files.release()

    def _reclaim(self) -> None:
        """Forget the transactions before the durable checkpoint, and let regions be used again."""
        reclaimed = self.writer.reclaimed
        if reclaimed == self._reclaimed:
            # This is the usual case. Without this return, the cost of a transaction would grow with
            # the number of changed files.
            return
        self._reclaimed = reclaimed
        self._changes.forget(reclaimed)
        while self._removed and self._removed[0][0] <= reclaimed:
            _, regions = self._removed.pop(0)
            self.files.catalogue.allow_reuse(regions)

    def _is_data(self, region: int) -> bool:
        """Return whether the file of a region exists and is the data file of a segment."""
        row = self.files.catalogue.rows.get(region)
        return row is not None and row.state is RowState.PRESENT and row.file.kind is FileKind.DATA

    def _check_direct(self, operations: Sequence[Operation]) -> None:
        """Check that the transaction has the Checks of its direct data, and no change of them."""
        checks = [operation for operation in operations if isinstance(operation, Check)]
        assert checks == [check for check, _ in self._direct], "all direct data need their check"
        direct: dict[int, list[RegionRange]] = {}
        for check in checks:
            direct.setdefault(check.address.region, []).append(changed_range(check))
        if not direct:
            return
        for operation in operations:
            changed = changed_range(operation)
            overlapping = [
                each for each in direct.get(changed.region, ()) if each.overlaps(changed)
            ]
            # A Check overlaps its own direct data.
            allowed = 1 if isinstance(operation, Check) else 0
            assert len(overlapping) <= allowed, "a transaction changes no direct data of its own"

    def _check_regions(self, operations: Sequence[Operation]) -> None:
        """Check that each operation names a file that exists, or that the transaction creates."""
        rows = self.files.catalogue.rows
        regions = {operation.address.region for operation in operations}
        if CATALOGUE_REGION in regions:
            rows_written = {
                changed_range(operation).region
                for operation in operations
                if operation.address.region == CATALOGUE_REGION
            }
            regions -= {CATALOGUE_REGION, *rows_written}
        for region in regions:
            assert rows[region].state is RowState.PRESENT, "an operation names a file that exists"


def _is_large(operation: Operation, least_bytes: int) -> bool:
    """Return whether an operation writes data of at least ``least_bytes``."""
    return isinstance(operation, WriteData) and len(operation.data) >= least_bytes


def _largest_bytes(operation: Operation) -> int:
    """Return the largest encoded size of what may be written for ``operation``, in bytes.

    `resolve_moves` may replace a Move by a WriteData, which is larger.
    """
    if isinstance(operation, Move):
        return encoded_bytes(WriteData(operation.address, bytes(operation.length)))
    return encoded_bytes(operation)
