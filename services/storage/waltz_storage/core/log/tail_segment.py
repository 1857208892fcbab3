"""Pure. The last segment of a log, the only one that is written.

The data file may be *allocated ahead*: after the records it has zeros, which later records
overwrite. So the log ends at ``end`` and not at the end of the file. The newest index entries stay
in memory until a *checkpoint* writes them, so that the index file never claims a record that may
not be durable. Files are used only through the `DiskFile` objects that the caller passes.
"""

from __future__ import annotations

from array import array

from waltz_storage.core.disk import DiskFile
from waltz_storage.core.errors import NoSpace
from waltz_storage.core.log.segment_files import SegmentBounds, SegmentFiles, read_entries
from waltz_storage.core.log.segment_format import (
    CHECKPOINT_INTERVAL,
    ENTRY_BYTES,
    HEADER_BYTES,
    SegmentEncoder,
    encode_entries,
    entry_position,
)
from waltz_storage.core.log.segment_scan import SegmentPlan

_SMALLEST_STEP_BYTES = 1 << 20
"""The file is allocated ahead by at least this, unless ``allocate_bytes`` is less or the segment
ends before."""
_COPY_BYTES = 1 << 20
"""How many bytes `_rewrite` reads and writes at once."""
_LARGEST_ALLOCATING_WRITE_BYTES = 32 << 10
"""Larger writes do not allocate ahead: to write the zeros would cost more time than it saves."""


class TailSegment:
    """The last segment of a log, which is the one that is written.

    The readable part ends before the id ``next_id`` and the byte ``end``. `write` writes records
    after ``end``, and `complete` makes them readable. The segment gets no further record once it is
    larger than ``threshold`` bytes. Its data file is allocated ahead by up to ``allocate_bytes``.
    """

    def __init__(
        self, files: SegmentFiles, bounds: SegmentBounds, threshold: int, allocate_bytes: int
    ) -> None:
        assert bounds.first_id <= bounds.next_id, "a segment ends before it begins"
        assert bounds.end >= HEADER_BYTES, "a segment ends inside its header"
        self.files = files
        self.first_id = bounds.first_id
        self.next_id = bounds.next_id
        self.end = bounds.end
        self._allocated = files.data.size()
        self._allocate_bytes = allocate_bytes
        # A segment gets no further record once it is larger than its threshold. Zeros that were
        # allocated beyond that might never be used.
        self._allocate_limit = threshold + 1
        self._indexed = bounds.next_id - bounds.first_id
        """How many entries the index file has."""
        self._pending: array[int] = array("q")
        """The index entries that are not in the file yet."""
        self._index_dirty = False

    @property
    def allocated(self) -> int:
        """The byte up to which the data file has space, with the space allocated ahead."""
        return self._allocated

    @property
    def indexed(self) -> int:
        """How many entries the index file has; the newer entries are in memory."""
        return self._indexed

    def bounds(self) -> SegmentBounds:
        """Return which records the segment has now."""
        return SegmentBounds(self.first_id, self.next_id, self.end)

    def write(self, encoder: SegmentEncoder) -> None:
        """Write the encoder's records at the end.

        Raises DiskFailed, or NoSpace after it has durably removed the bytes that it has written.
        """
        # A gap or an overlap would corrupt the log: recovery would take it for a torn tail.
        assert encoder.start == self.end, "records must be written where the last one ends"
        assert encoder.first_id == self.next_id, "transaction ids must have no gap"
        size = encoder.offset - encoder.start
        if encoder.offset > self._allocated and size <= _LARGEST_ALLOCATING_WRITE_BYTES:
            self._allocate_beyond(encoder.offset)
        try:
            self.files.data.write(encoder.start, b"".join(encoder.parts))
        except NoSpace:
            # Some of the records may have been written. They must not come back after a loss of
            # power: by then, a server may have read that this log ends before them.
            self._trim()
            self.flush_data()
            raise
        self._allocated = max(self._allocated, encoder.offset)

    def complete(self, encoder: SegmentEncoder) -> None:
        """Make the encoder's written records part of the log.

        The records must be durable, or be made durable before their append is answered.
        """
        assert encoder.first_id == self.next_id, "records must be completed in order"
        assert encoder.offset <= self._allocated, "records must be written before they are complete"
        self.next_id, self.end = encoder.next_id, encoder.offset
        self._pending.extend(encoder.offsets)

    def write_checkpoint(self) -> None:
        """Write the index entries up to the last checkpoint that is due, if it is not written yet.

        Example: if the next id is 2345, the entries of all records before 2000 are written, and the
        entries from 2000 on stay in memory. `flush_index` makes the written entries durable.

        The entries between two checkpoints are an *interval*. Each interval is flushed before the
        next one is written, so a crash tears at most the newest interval. Recovery scans the
        records of the newest interval and trusts the entries before it. If a crash could tear two
        intervals, recovery would trust wrong entries. A full disk delays the checkpoint.
        """
        checkpoint = (self.next_id // CHECKPOINT_INTERVAL) * CHECKPOINT_INTERVAL
        due_entries = checkpoint - self.first_id
        if due_entries > self._indexed:
            try:
                self._write_entries(due_entries)
            except NoSpace:
                # Remove the part of an interval that may have been written.
                self.files.index.truncate(entry_position(self._indexed))

    def flush_data(self) -> None:
        """Make written records durable."""
        self.files.data.flush()

    def flush_index(self) -> None:
        """Make written index entries durable."""
        self.files.index.flush()
        self._index_dirty = False

    @property
    def index_dirty(self) -> bool:
        """Whether index entries were written since the last flush."""
        return self._index_dirty

    def flush_all(self) -> None:
        """Make all records durable, then all index entries.

        Raises NoSpace; then the records are durable, but not all index entries are written.
        """
        self.flush_data()
        try:
            self._write_entries(self.next_id - self.first_id)
        except NoSpace:
            self.files.index.truncate(entry_position(self._indexed))
            raise
        self.flush_index()

    def seal(self) -> SegmentBounds:
        """Remove the allocated zeros and make everything durable: the segment is complete.

        Raises NoSpace as `flush_all` does.
        """
        self._trim()
        self.flush_all()
        return self.bounds()

    def cut(self, next_id: int, end: int) -> None:
        """Remove the records from ``next_id`` on, which begin at ``end``, durably.

        The index is cut and flushed before the data: after a crash in between, recovery finds
        records without index entries, and adds the entries. In the other order, a crash would leave
        entries of records that do not exist. The data file is cut and flushed before this method
        returns. If removed records came back after a restart, they would have the same ids as the
        records that the server appends next (planted bugs "truncation leaves the bytes there" and
        "truncation is not flushed").
        """
        assert self.first_id <= next_id < self.next_id, "a cut must be inside its segment"
        assert HEADER_BYTES <= end <= self.end, "a cut must not go beyond the segment's end"
        kept = next_id - self.first_id
        if kept < self._indexed:
            # All entries in memory are of removed records.
            self._indexed = kept
            self._pending = array("q")
        del self._pending[kept - self._indexed :]
        self.files.index.truncate(entry_position(self._indexed))
        self.flush_index()
        self.next_id, self.end = next_id, end
        self._trim()
        self.flush_data()

    def offsets(self, transaction_id: int, count: int) -> array[int]:
        """Return where ``count`` records begin, and where the last of them ends; raises Damage."""
        number = transaction_id - self.first_id
        # The last record ends where the record after it begins, so one more entry is needed.
        stop = number + count + 1
        # The older entries are in the file, the newer ones in memory.
        entries = array("q")
        if number < self._indexed:
            entries = read_entries(self.files.index, number, min(stop, self._indexed) - number)
        start = max(number - self._indexed, 0)
        entries.extend(self._pending[start : max(stop - self._indexed, 0)])
        if transaction_id + count == self.next_id:
            # The last record of the log has no entry after it.
            entries.append(self.end)
        return entries

    def _write_entries(self, until: int) -> None:
        """Write pending index entries until the file has ``until`` entries, interval by interval.

        An interval is flushed before the next one is written (see `write_checkpoint`).
        """
        while self._indexed < until:
            if self._index_dirty:
                self.flush_index()
            stop = min(until, _interval_end(self.first_id, self._indexed))
            count = stop - self._indexed
            raw = encode_entries(self._pending[:count])
            self.files.index.write(entry_position(self._indexed), raw)
            del self._pending[:count]
            self._indexed = stop
            self._index_dirty = True

    def _allocate_beyond(self, end: int) -> None:
        """Allocate space after ``end``: a flush is cheaper if the file keeps its size.

        The new space is as large as the file so far, so that a small log stays small. It has at
        least `_SMALLEST_STEP_BYTES`, but at most ``allocate_bytes``, and never goes beyond the size
        at which the segment ends. After an allocation has failed on a full disk, this segment is
        not allocated ahead any more.
        """
        step = min(self._allocate_bytes, max(_SMALLEST_STEP_BYTES, end))
        target = min(end + step, self._allocate_limit)
        if target <= end:
            return
        try:
            self.files.data.allocate(end, target)
            self._allocated = target
        except NoSpace:
            self._trim()
            self._allocate_bytes = 0

    def _trim(self) -> None:
        """Cut the data file where the log ends."""
        if self.files.data.size() > self.end:
            self.files.data.truncate(self.end)
        self._allocated = self.end


def apply_plan(files: SegmentFiles, plan: SegmentPlan, *, is_last: bool) -> SegmentBounds:
    """Change a segment's files as ``plan`` says, durably; return which records the segment has.

    ``is_last`` says whether this is the last segment of the log. The scanned records of the last
    segment are written again. After a failed flush, the operating system may keep pages in memory
    that never reached the disk, but are marked as flushed. A flush without a new write would report
    success for these pages (planted bug "pages of a failed flush are trusted").
    """
    assert plan.next_id - plan.scanned_from == len(plan.offsets), "an entry per scanned record"
    assert HEADER_BYTES <= plan.scan_offset <= plan.end, "a plan must end after its scan begins"
    if is_last:
        _rewrite(files.data, plan.scan_offset, plan.end)
    if is_last or files.data.size() != plan.end:
        files.data.truncate(plan.end)
        files.data.flush()
    position = entry_position(plan.scanned_from - plan.first_id)
    raw = encode_entries(plan.offsets)
    # One entry more than the segment has records is read, so that an index file that is too long
    # differs.
    if is_last or files.index.read(position, len(raw) + ENTRY_BYTES) != raw:
        _rewrite_entries(files.index, plan)
    return SegmentBounds(plan.first_id, plan.next_id, plan.end)


def _rewrite(file: DiskFile, start: int, end: int) -> None:
    """Write the bytes from ``start`` to ``end`` again, unchanged and without a flush."""
    for position in range(start, end, _COPY_BYTES):
        file.write(position, file.read(position, min(_COPY_BYTES, end - position)))


def _rewrite_entries(index: DiskFile, plan: SegmentPlan) -> None:
    """Replace the entries of scanned records, one interval at a time (see `write_checkpoint`).

    The entries may be all that shows where damaged records begin and end. So if there are damaged
    records, no entry is removed before it is written again. A crash then leaves each entry as it
    was, or right (`test_start_with_damage_that_is_interrupted_can_be_repeated`).
    """
    # The number of the first entry to write; the entries of the file are numbered from 0.
    first = plan.scanned_from - plan.first_id
    stop = first + len(plan.offsets)
    if not plan.damaged:
        index.truncate(entry_position(first))
        index.flush()
    begin = first
    while begin < stop:
        end = min(stop, _interval_end(plan.first_id, begin))
        raw = encode_entries(plan.offsets[begin - first : end - first])
        index.write(entry_position(begin), raw)
        index.flush()
        begin = end
    if index.size() > entry_position(stop):
        index.truncate(entry_position(stop))
        index.flush()


def _interval_end(first_id: int, number: int) -> int:
    """Return the number of the first entry beyond the checkpoint interval of entry ``number``."""
    interval = (first_id + number) // CHECKPOINT_INTERVAL
    return (interval + 1) * CHECKPOINT_INTERVAL - first_id
