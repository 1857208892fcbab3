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
"""Stands for the time before the first flush: slots written then were flushed at the opening."""


@dataclass(slots=True)
class _PartitionSlots:
    """The slots of one partition."""

    last_sequence: int
    """The highest sequence number so far."""
    sequences: list[int]
    """The sequence number of each slot."""
    flushes_before: list[int]
    """For each slot, how many flushes of the file had begun when the slot was written."""
    end: FlushedEnd | None = None
    """The partition's mark, None if it is not known."""
    entry_checksum: int = 0
    """The checksum of the partition's current struct in the control file."""


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
        self._in_file = [decode_slots(raw, partition) for partition in range(num_partitions)]
        """The slots of each partition as they are in the file now."""
        self._partitions = [_partition_slots(slots) for slots in self._in_file]
        # A slot is durable if a flush began after the slot was written, and has ended. These two
        # counters show that without a lock: a race only makes a slot count as not durable yet.
        self._flushes_begun = 0
        self._newest_ended_flush = 0
        """The number of the newest flush that has ended; the first flush has number 1."""
        self._dirty = False
        """Whether a slot was written since the last flush began."""

    def load(self, partition: int, entry_checksum: int) -> FlushedEnd | None:
        """Return the mark that a partition has in the file, None if no slot counts.

        ``entry_checksum`` is that of the current struct of the partition in the control file. Only
        the slots that belong to this struct count. A slot that this process has written counts,
        too: a partition that was refused at the start, switched off and assigned again must be
        refused again.
        """
        slots = self._partitions[partition]
        counting = [
            slot if slot and slot.entry_checksum == entry_checksum else None
            for slot in self._in_file[partition]
        ]
        newest = max(filter(None, counting), key=lambda slot: slot.sequence, default=None)
        slots.entry_checksum = entry_checksum
        slots.end = newest.end if newest else None
        slots.sequences = [slot.sequence if slot else _EMPTY for slot in counting]
        return slots.end

    def mark_of(self, partition: int) -> PartitionMark:
        """Return the mark of one partition, for its log."""
        return PartitionMark(self, partition)

    def store(self, partition: int, end: FlushedEnd) -> None:
        """Write a mark; it is durable after a `flush`.

        If the disk is full, the mark stays behind the log, which is safe. Raises DiskFailed.
        """
        slots = self._partitions[partition]
        if slots.end == end:
            return
        try:
            self._write(partition, end, slots.entry_checksum, self._next_slot(slots))
        except NoSpace:
            return
        slots.end = end

    def lower(self, partition: int, end: FlushedEnd) -> None:
        """Write a mark durably if it is lower; raises NoSpace, DiskFailed."""
        slots = self._partitions[partition]
        if slots.end is not None and end.last_id < slots.end.last_id:
            self._write(partition, end, slots.entry_checksum, self._next_slot(slots))
            slots.end = end
            self._flush()

    def prepare(self, partition: int, entry_checksum: int) -> None:
        """Write the mark durably again, for a control struct that will be written next.

        ``entry_checksum`` is that of the next struct. The slot of the present control struct stays:
        after a crash, the struct that is current on the disk decides which slot counts. Raises
        NoSpace, DiskFailed.
        """
        slots = self._partitions[partition]
        if slots.end is not None:
            newest = slots.sequences.index(max(slots.sequences))
            self._write(partition, slots.end, entry_checksum, self._slot_beside(slots, newest))
            self._flush()

    def adopt(self, partition: int, entry_checksum: int) -> None:
        """Note that the control struct that `prepare` was called for is written."""
        self._partitions[partition].entry_checksum = entry_checksum

    def clear(self, partition: int) -> None:
        """Remove the marks of a partition durably; raises NoSpace, DiskFailed."""
        self._file.write(slot_offset(partition, 0), bytes(PARTITION_BYTES))
        self._dirty = True
        self._in_file[partition] = [None] * SLOTS
        self._partitions[partition] = _partition_slots(self._in_file[partition])
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
        number = self._flushes_begun + 1
        self._flushes_begun = number
        # Write nothing, and flush: `write_durably` is the only method that serializes the flushes
        # of a file, so that no flush hides the error of another one (see `DiskFile`).
        self._file.write_durably(0, b"")
        self._newest_ended_flush = max(self._newest_ended_flush, number)

    def _write(self, partition: int, end: FlushedEnd, entry_checksum: int, slot: int) -> None:
        slots = self._partitions[partition]
        slots.last_sequence += 1
        written = MarkSlot(slots.last_sequence, end, entry_checksum)
        self._file.write(slot_offset(partition, slot), written.encode(partition))
        self._in_file[partition][slot] = written
        slots.sequences[slot] = slots.last_sequence
        # Read the counter after the write: a flush that began meanwhile may not include all of it.
        slots.flushes_before[slot] = self._flushes_begun
        self._dirty = True

    def _next_slot(self, slots: _PartitionSlots) -> int:
        """Return the slot to write: never the newest durable one, nor one that is being flushed."""
        newest = slots.sequences.index(max(slots.sequences))
        durable = slots.flushes_before[newest] < self._newest_ended_flush
        no_flush_since = slots.flushes_before[newest] == self._flushes_begun
        if not durable and no_flush_since:
            return newest
        return self._slot_beside(slots, newest)

    def _slot_beside(self, slots: _PartitionSlots, newest: int) -> int:
        """Return the oldest slot that is neither ``newest`` nor the newest durable one."""
        ended = self._newest_ended_flush
        durable = [slot for slot in range(SLOTS) if slots.flushes_before[slot] < ended]
        kept = max(durable, key=lambda slot: slots.sequences[slot], default=newest)
        free = [slot for slot in range(SLOTS) if slot not in (newest, kept)]
        return min(free, key=lambda slot: slots.sequences[slot])


@dataclass(frozen=True, slots=True)
class PartitionMark:
    """The mark of one partition in the file of all marks; implements `FlushedMark`."""

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


def _partition_slots(found: list[MarkSlot | None]) -> _PartitionSlots:
    sequences = [slot.sequence if slot else _EMPTY for slot in found]
    return _PartitionSlots(max(sequences), sequences, [_AT_OPENING] * SLOTS)
