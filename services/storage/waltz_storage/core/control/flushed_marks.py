"""Pure. The flushed marks: up to which record each log was flushed, kept beside the control file.

The rule: **a mark is never ahead of its log on the disk.** A round of appends flushes the log, then
writes the mark, then answers. A truncation lowers the mark durably, then cuts the log. So a log
that ends before its mark has lost records, and an invalid record at or before the mark is damage,
not an interrupted write (`log_opening`). The planted bugs "flushed mark written before the flush"
and "flushed mark not lowered before a truncation" break the rule.

A raised mark is not flushed at once. After a loss of power the mark may lag behind the log, by the
time between two calls of `FlushedMarks.flush`. Then a start notices no loss of the records after
the mark. After the death of the process the mark is exact.

The control file has two *structs* for each partition, and writes them in turn: after a crash, the
newer undamaged one is current. The file of the marks has three *slots* for each partition. A slot
has a mark and the checksum of one of these structs, and counts only while that struct is current:
Waltz 0.13.2 writes new structs but no marks, so marks from before its use must not count.

There are three slots, because two of them must not be overwritten:

* The newest durable slot of the current struct. If a crash tore a write to it, no mark would be
  left.
* The newest slot, if a flush may be writing it. It becomes durable when this flush ends, unless it
  is written again meanwhile. If that were allowed, and an append came during each flush, no newer
  mark would ever become durable.

The next mark goes to the third slot (`test_storage_flushed_marks`). Files are used only through the
`Disk` that the caller passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from waltz_storage.core.control.flushed_marks_format import (
    FLUSHED_FILE,
    PARTITION_BYTES,
    SLOTS,
    MarkSlot,
    current_slot,
    decode_slots,
    slot_offset,
)
from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.errors import NoSpace
from waltz_storage.core.log.flushed_end import NEVER_REACHED, FlushedEnd

_AT_OPENING = 0
"""Stands for the flush at the opening of the file, which precedes flush number 1."""


@dataclass(slots=True)
class _PartitionState:
    """The slots of one partition, and its mark."""

    slots: list[MarkSlot | None]
    """The slots in the file: None for each that is empty or damaged, or that `load` ignores.

    After a change of the control struct, slots of the struct before it remain here until they
    are overwritten."""
    durable_after: list[int]
    """For each slot, the number of the flush that makes it durable: the first one that begins after
    the slot was written. `FlushedMarks` numbers its flushes."""
    last_sequence: int
    """The highest sequence number so far."""
    newest: int = 0
    """The place in ``slots``, from 0, of the newest slot; any place if all of them are None."""
    struct_checksum: int = 0
    """The checksum of the partition's current struct in the control file."""
    end: FlushedEnd | None = None
    """The partition's mark, None if it is not known."""

    def newest_of(self, numbers: Iterable[int]) -> int:
        """Return the number of the newest slot among the slots with these numbers."""
        return max(numbers, key=self.sequence)

    def is_of_current_struct(self, number: int) -> bool:
        """Return whether a slot belongs to the partition's current struct in the control file."""
        slot = self.slots[number]
        return slot is not None and slot.struct_checksum == self.struct_checksum

    def sequence(self, number: int) -> int:
        """Return the sequence number of a slot, -1 if there is none."""
        slot = self.slots[number]
        return -1 if slot is None else slot.sequence


class FlushedMarks:
    """The open file of the flushed marks.

    Any thread may call its methods, but only one thread at a time for the same partition.

    * The opening of a partition calls `load`. Then its log raises and lowers the mark, through the
      object that `mark_of` returns.
    * The control file calls `before_update` and `after_update` around each change of an entry, and
      `clear` when it resets an entry.
    * The shell calls `flush` from time to time, on a thread of its own.
    """

    def __init__(self, file: DiskFile, num_partitions: int) -> None:
        """Read the file; make its content durable, because the last process may not have done so.

        The same bytes are written again: after a failed flush, Linux counts the cached pages as
        flushed (see `control_file`). Raises OSError, NoSpace, DiskFailed.
        """
        self._file = file
        raw = file.read(0, PARTITION_BYTES * num_partitions)
        file.write(0, raw.ljust(PARTITION_BYTES * num_partitions, b"\0"))
        file.flush()
        self._partitions = [
            _durable_state(decode_slots(raw, partition)) for partition in range(num_partitions)
        ]
        # Flushes have numbers, from 1 on. A slot is durable if a flush has ended that began after
        # the slot was written. Only the thread that holds `DiskFile.one_flush` changes these two
        # counters. Otherwise a slow thread could set a counter back. Then a slot that was written
        # during a flush would count as durable when that flush ends, and the last durable slot
        # could be overwritten.
        self._newest_begun_flush = _AT_OPENING
        self._newest_ended_flush = _AT_OPENING
        self._dirty = False
        """Whether a slot was written since the last flush began."""

    def load(self, partition: int, struct_checksum: int) -> FlushedEnd | None:
        """Take the mark that a partition has in the file; return it, None if no slot counts.

        ``struct_checksum`` is that of the current struct of the partition in the control file. Only
        the slots that belong to this struct count. The other slots are ignored from now on.

        A slot that this process has written counts, too. Example: the start has refused a
        partition, because its log ends before its mark. An administrator switches the partition
        off. That changes its struct, so `before_update` writes the mark again. If the partition is
        then assigned again, its log is opened again, and must be refused again.
        """
        state = self._partitions[partition]
        slot = current_slot(state.slots, struct_checksum)
        state.slots = [
            written if written and written.struct_checksum == struct_checksum else None
            for written in state.slots
        ]
        state.newest = state.newest_of(range(SLOTS))
        state.struct_checksum = struct_checksum
        state.end = slot.end if slot else None
        return state.end

    def mark_of(self, partition: int) -> PartitionMark:
        """Return the mark of one partition, for its log."""
        return PartitionMark(self, partition)

    def raise_to(self, partition: int, end: FlushedEnd) -> None:
        """Write a mark; it is durable after a `flush`.

        If the disk is full, the mark stays behind the log, which is safe. Raises DiskFailed.
        """
        state = self._partitions[partition]
        if state.end == end:
            return
        try:
            self._write(partition, end, state.struct_checksum, self._slot_to_write(state))
        except NoSpace:
            return
        state.end = end

    def lower_to(self, partition: int, end: FlushedEnd) -> None:
        """Write a mark durably if it is below the mark so far; raises NoSpace, DiskFailed."""
        state = self._partitions[partition]
        if state.end is not None and end.last_id < state.end.last_id:
            self._write(partition, end, state.struct_checksum, self._slot_to_write(state))
            state.end = end
            self.flush_all()

    def write_never_reached(self, partition: int) -> None:
        """Write the mark `NEVER_REACHED` durably: no later start serves the partition.

        The caller has found flushed records damaged. If the disk is full, this raises NoSpace,
        unlike `raise_to`: without this mark, the next start would take the damage for an
        interrupted write, and serve the partition without these records. Raises NoSpace,
        DiskFailed.
        """
        state = self._partitions[partition]
        self._write(partition, NEVER_REACHED, state.struct_checksum, self._slot_to_write(state))
        state.end = NEVER_REACHED
        self.flush_all()

    def before_update(self, partition: int, struct_checksum: int) -> None:
        """Write the mark durably again, for a control struct that will be written next.

        ``struct_checksum`` is that of the next struct. The slot of the current struct stays: after
        a crash, the struct that is current on the disk decides which slot counts. Raises NoSpace,
        DiskFailed.
        """
        state = self._partitions[partition]
        if state.end is not None:
            self._write(partition, state.end, struct_checksum, self._unneeded_slot(state))
            self.flush_all()

    def after_update(self, partition: int, struct_checksum: int) -> None:
        """Note that the control struct of the last `before_update` is durable, and current now."""
        self._partitions[partition].struct_checksum = struct_checksum

    def clear(self, partition: int) -> None:
        """Remove the marks of a partition durably; raises NoSpace, DiskFailed."""
        self._file.write(slot_offset(partition, 0), bytes(PARTITION_BYTES))
        self._dirty = True
        self._partitions[partition] = _durable_state([None] * SLOTS)
        self.flush_all()

    def flush(self) -> None:
        """Make all written marks durable; do nothing if a flush has begun since the last of them.

        Raises DiskFailed.
        """
        if self._dirty:
            self.flush_all()

    def release(self) -> None:
        """Close the file without a change."""
        self._file.close()

    def flush_all(self) -> None:
        """Make all written marks durable before the call returns; raises DiskFailed."""
        with self._file.one_flush():
            self._dirty = False
            number = self._newest_begun_flush + 1
            self._newest_begun_flush = number
            self._file.flush()
            # A disk in memory has no lock, and a test may flush again during the flush above.
            self._newest_ended_flush = max(self._newest_ended_flush, number)

    def _write(self, partition: int, end: FlushedEnd, struct_checksum: int, slot: int) -> None:
        """Write the mark ``end`` to a slot, without a flush; raises NoSpace, DiskFailed."""
        state = self._partitions[partition]
        state.last_sequence += 1
        written = MarkSlot(state.last_sequence, end, struct_checksum)
        self._file.write(slot_offset(partition, slot), written.encode(partition))
        state.slots[slot] = written
        state.newest = slot
        # Read the counter after the write: a flush that began meanwhile may not include all of it.
        state.durable_after[slot] = self._newest_begun_flush + 1
        self._dirty = True

    def _slot_to_write(self, state: _PartitionState) -> int:
        """Return the number of the slot for the next mark of the current control struct.

        Example: slot 0 has the newest durable mark, and a flush is writing slot 1. The next mark
        goes to slot 2. So does each mark after it, until a flush begins that writes slot 2.
        """
        newest = state.newest
        no_flush_since_write = state.durable_after[newest] > self._newest_begun_flush
        return newest if no_flush_since_write else self._unneeded_slot(state)

    def _unneeded_slot(self, state: _PartitionState) -> int:
        """Return the number of a slot that is neither the newest nor the newest durable one.

        If there are two such slots, return the older one. Only slots of the current control struct
        count as durable here. Example: a full disk has refused a change of the struct. The newest
        slot is then the one that `before_update` has written for a struct that does not exist. If
        it counted as the newest durable slot, the next mark could overwrite the only slot that
        counts after a crash.
        """
        newest = state.newest
        durable = [
            n
            for n in range(SLOTS)
            if state.durable_after[n] <= self._newest_ended_flush and state.is_of_current_struct(n)
        ]
        newest_durable = state.newest_of(durable) if durable else newest
        unneeded = (n for n in range(SLOTS) if n not in (newest, newest_durable))
        return min(unneeded, key=state.sequence)


@dataclass(frozen=True, slots=True)
class PartitionMark:
    """The mark of one partition in the file of all marks; implements `flushed_end.FlushedMark`."""

    marks: FlushedMarks
    partition: int

    def raise_to(self, end: FlushedEnd) -> None:
        """See `FlushedMark`."""
        self.marks.raise_to(self.partition, end)

    def lower_to(self, end: FlushedEnd) -> None:
        """See `FlushedMark`."""
        self.marks.lower_to(self.partition, end)


def open_marks(home: Disk, num_partitions: int) -> FlushedMarks:
    """Open the file in the directory of the control file; create it if it is missing.

    Raises OSError, NoSpace, DiskFailed.
    """
    file = home.create(FLUSHED_FILE)
    try:
        marks = FlushedMarks(file, num_partitions)
        home.flush_directory("")
    except BaseException:
        file.close()
        raise
    return marks


def _durable_state(slots: list[MarkSlot | None]) -> _PartitionState:
    """Return the state of a partition whose ``slots`` are durable."""
    last_sequence = max((slot.sequence for slot in slots if slot), default=-1)
    state = _PartitionState(slots, [_AT_OPENING] * SLOTS, last_sequence)
    state.newest = state.newest_of(range(SLOTS))
    return state
