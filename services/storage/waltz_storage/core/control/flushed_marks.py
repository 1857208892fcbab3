"""Pure. The flushed marks: up to which record each log was flushed, kept beside the control file.

The rule: **a mark is never ahead of its log on the disk.** A round of appends flushes the log, then
writes the mark, then answers. A truncation lowers the mark durably, then cuts the log. So a log
that ends before its mark has lost records, and an invalid record at or before the mark is damage,
not an interrupted write (`log_opening`). The planted bugs "flushed mark written before the flush"
and "flushed mark not lowered before a truncation" break the rule.

A raised mark is not flushed at once. After a loss of power the mark may lag behind the log, by the
time between two calls of `FlushedMarks.flush`. After the death of the process it is exact.

An update must not destroy the last durable mark: a torn write would leave no mark. Nor may it
change a slot while a flush writes that slot to the disk. So there are three slots: the newest one
that is durable, the one that a flush may be writing, and the one to write next
(`test_storage_flushed_marks`). Files are used only through the `Disk` that the caller passes.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz_storage.core.control.flushed_marks_format import (
    FLUSHED_FILE,
    PARTITION_BYTES,
    SLOTS,
    MarkSlot,
    decode_slots,
    slot_offset,
)
from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.errors import NoSpace
from waltz_storage.core.log.flushed_end import FlushedEnd

_EMPTY = -1
"""The sequence number of a slot that does not count."""
_AT_OPENING = -1


@dataclass(slots=True)
class _Row:
    """The slots of one partition."""

    sequence: int
    """The highest sequence number so far."""
    sequences: list[int]
    """The sequence number of each slot."""
    written: list[int]
    """For each slot, how many flushes had begun when it was written."""
    end: FlushedEnd | None = None
    """The partition's mark, None if it is not known."""
    entry: int = 0
    """The checksum of the partition's control entry."""


class FlushedMarks:
    """The open file of the flushed marks.

    Any thread may call its methods, but only one thread at a time for the same partition.
    ``created`` says whether the file was missing.
    """

    def __init__(self, file: DiskFile, num_partitions: int, *, created: bool) -> None:
        """Read the file; make its content durable, because the last process may not have done so.

        Raises OSError, NoSpace, DiskFailed.
        """
        self.created = created
        self._file = file
        size = PARTITION_BYTES * num_partitions
        raw = file.read(0, size)
        if len(raw) < size:
            file.write(len(raw), bytes(size - len(raw)))
        file.flush()
        self._slots = [decode_slots(raw, partition) for partition in range(num_partitions)]
        self._rows = [_row(slots) for slots in self._slots]
        # A slot is durable if a flush began after the slot was written, and has ended. These two
        # counters show that without a lock: a race only makes a slot count as not durable yet.
        self._begun = 0
        self._done = 0
        self._dirty = False

    def load(self, partition: int, entry: int) -> FlushedEnd | None:
        """Return the mark of a partition, None if no slot counts.

        ``entry`` is the checksum of the current struct of the partition in the control file.
        """
        row = self._rows[partition]
        counting = [slot for slot in self._slots[partition] if slot and slot.entry == entry]
        row.entry = entry
        row.end = max(counting, key=lambda slot: slot.sequence).end if counting else None
        row.sequences = [
            slot.sequence if slot and slot.entry == entry else _EMPTY
            for slot in self._slots[partition]
        ]
        return row.end

    def of(self, partition: int) -> PartitionMark:
        """Return the mark of one partition, for its log."""
        return PartitionMark(self, partition)

    def store(self, partition: int, end: FlushedEnd) -> None:
        """Write a mark; it is durable after a `flush`.

        If the disk is full, the mark stays behind the log, which is safe. Raises DiskFailed.
        """
        row = self._rows[partition]
        if row.end == end:
            return
        try:
            self._write(partition, end, row.entry, self._next_slot(row))
        except NoSpace:
            return
        row.end = end

    def lower(self, partition: int, end: FlushedEnd) -> None:
        """Write a mark durably if it is lower; raises NoSpace, DiskFailed."""
        row = self._rows[partition]
        if row.end is not None and end.last_id < row.end.last_id:
            self._write(partition, end, row.entry, self._next_slot(row))
            row.end = end
            self._flush()

    def prepare(self, partition: int, entry: int) -> None:
        """Write the mark durably again for a control entry that will be written next.

        The slot of the present control entry stays: after a crash, the control entry that is on the
        disk decides which slot counts. Raises NoSpace, DiskFailed.
        """
        row = self._rows[partition]
        if row.end is not None:
            newest = row.sequences.index(max(row.sequences))
            self._write(partition, row.end, entry, self._slot_beside(row, newest))
            self._flush()

    def adopt(self, partition: int, entry: int) -> None:
        """Note that the control entry with the checksum ``entry`` is written."""
        self._rows[partition].entry = entry

    def clear(self, partition: int) -> None:
        """Remove the marks of a partition durably; raises NoSpace, DiskFailed."""
        self._file.write(slot_offset(partition, 0), bytes(PARTITION_BYTES))
        self._dirty = True
        self._slots[partition] = [None] * SLOTS
        self._rows[partition] = _row(self._slots[partition])
        self._flush()

    def flush(self) -> None:
        """Make all written marks durable; do nothing if a flush of them has begun.

        Raises DiskFailed.
        """
        if self._dirty:
            self._flush()

    def close(self) -> None:
        """Make the marks durable and close the file; raises DiskFailed."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        """Make all written marks durable before the call returns."""
        self._dirty = False
        begun = self._begun + 1
        self._begun = begun
        # Writing nothing and flushing: only this method serializes the flushes of a file, so that
        # none hides the error of another (see `DiskFile`).
        self._file.write_durably(0, b"")
        self._done = max(self._done, begun)

    def _write(self, partition: int, end: FlushedEnd, entry: int, slot: int) -> None:
        row = self._rows[partition]
        row.sequence += 1
        raw = MarkSlot(row.sequence, end, entry).encode(partition)
        self._file.write(slot_offset(partition, slot), raw)
        row.sequences[slot] = row.sequence
        # Read after the write: a flush that began meanwhile may not include all of it.
        row.written[slot] = self._begun
        self._dirty = True

    def _next_slot(self, row: _Row) -> int:
        """Return the slot to write: never the newest durable one, nor one that is being flushed."""
        newest = row.sequences.index(max(row.sequences))
        durable = row.written[newest] < self._done
        if not durable and row.written[newest] == self._begun:
            return newest
        return self._slot_beside(row, newest)

    def _slot_beside(self, row: _Row, newest: int) -> int:
        """Return the oldest slot that is neither ``newest`` nor the newest durable one."""
        done = self._done
        durable = [slot for slot in range(SLOTS) if row.written[slot] < done]
        kept = max(durable, key=lambda slot: row.sequences[slot], default=newest)
        free = [slot for slot in range(SLOTS) if slot not in (newest, kept)]
        return min(free, key=lambda slot: row.sequences[slot])


@dataclass(frozen=True, slots=True)
class PartitionMark:
    """Implements `FlushedMark`."""

    marks: FlushedMarks
    partition: int

    def raise_to(self, end: FlushedEnd) -> None:
        """See `FlushedMark`."""
        self.marks.store(self.partition, end)

    def lower_to(self, end: FlushedEnd) -> None:
        """See `FlushedMark`."""
        self.marks.lower(self.partition, end)


def open_marks(home: Disk, num_partitions: int) -> FlushedMarks:
    """Open the file in the directory of the control file; create it if it is missing.

    Raises OSError, NoSpace, DiskFailed.
    """
    created = not home.exists(FLUSHED_FILE)
    file = home.create(FLUSHED_FILE)
    try:
        marks = FlushedMarks(file, num_partitions, created=created)
        home.flush_directory("")
    except BaseException:
        file.close()
        raise
    return marks


def _row(slots: list[MarkSlot | None]) -> _Row:
    sequences = [slot.sequence if slot else _EMPTY for slot in slots]
    return _Row(max(sequences), sequences, [_AT_OPENING] * SLOTS)
