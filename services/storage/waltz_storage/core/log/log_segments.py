"""Pure. The segments of a log as one sequence of records, and their open files.

The last segment is the *tail*, the only one that is written; the others are *sealed*. The files of
the tail are always open. Of the sealed segments, only the most recently used have open files.
Files are used only through the `Disk` that the caller passes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from waltz_storage.core.disk import Disk, changing
from waltz_storage.core.errors import RecordsDamaged
from waltz_storage.core.log.segment_files import (
    LogIdentity,
    SegmentBounds,
    SegmentFiles,
    create_files,
    open_files,
    read_entries,
    remove_files,
)
from waltz_storage.core.log.segment_format import (
    DATA_SUFFIX,
    HEADER_BYTES,
    INDEX_SUFFIX,
    Damage,
)
from waltz_storage.core.log.segment_reads import Extent, VerifiedRecords, read_records
from waltz_storage.core.log.tail_segment import TailSegment


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a log."""

    now_ms: Callable[[], int]
    """Returns the time for file headers, in milliseconds since 1970."""
    segment_threshold: int = 1_000_000_000
    """A segment larger than this number of bytes gets no further record."""
    open_segments: int = 5
    """How many sealed segments keep their files open, at least one."""
    allocate_bytes: int = 2 << 20
    """How many bytes at most a data file is allocated ahead."""
    divided_writes: bool = False
    """Whether one call of `DiskFile.write` may become several writes of the operating system.

    The write-ahead log divides large writes. Then a crash may leave a part of a write, and each
    part may begin or end within a block (see `log_repair`)."""


class LogSegments:
    """The sealed segments of a log, oldest first, and its tail segment.

    No record is missing: each segment begins with the id after the last id of the segment before.
    """

    def __init__(
        self,
        disk: Disk,
        identity: LogIdentity,
        options: LogOptions,
        sealed: list[SegmentBounds],
        tail: TailSegment,
    ) -> None:
        self.identity = identity
        self.options = options
        self.sealed = sealed
        self.tail = tail
        self.removals = 0
        """How often records were removed, or the files closed. A read that is done in steps must
        not continue after that, so it asserts that this number stays the same (see `log_reads`).
        `partition_log` increases the number when it truncates the log."""
        self._disk = disk
        self._open: OrderedDict[int, SegmentFiles] = OrderedDict()
        """The open files of sealed segments, by first id, least recently used first."""

    def segment_of(self, transaction_id: int) -> SegmentBounds:
        """Return the segment that has the record ``transaction_id``.

        For an id after the last record, that is the tail. The id must not be negative.
        """
        if transaction_id >= self.tail.first_id:
            return self.tail.bounds()
        number = bisect_right(self.sealed, transaction_id, key=lambda segment: segment.first_id)
        return self.sealed[number - 1]

    def extent(self, segment: SegmentBounds, first_id: int, count: int) -> Extent:
        """Return the positions of ``count`` records from ``first_id`` on, from the index.

        All of them must be in ``segment``. Raises RecordsDamaged, OSError.
        """
        index = self.files(segment.first_id).index
        with self.damage_in(segment, INDEX_SUFFIX):
            offsets: array[int]
            if segment.first_id == self.tail.first_id:
                offsets = self.tail.offsets(first_id, count)
            else:
                # The entry of the next record is the end of the last one. After the last record of
                # the segment there is no entry.
                number = first_id - segment.first_id
                if first_id + count < segment.next_id:
                    offsets = read_entries(index, number, count + 1)
                else:
                    offsets = read_entries(index, number, count)
                    offsets.append(segment.end)
            return Extent(first_id, offsets, segment_end=segment.end)

    def entries_in_file(self, segment: SegmentBounds) -> int:
        """Return how many entries the index file of a segment has if it is complete.

        The newest entries of the tail are not in its file, but in memory.
        """
        if segment.first_id == self.tail.first_id:
            return self.tail.indexed
        return segment.next_id - segment.first_id

    def read_step(
        self, segment: SegmentBounds, first_id: int, count: int, max_bytes: int, at_least: int
    ) -> VerifiedRecords:
        """Read and verify up to ``count`` records of one segment.

        The read stops before it would exceed ``max_bytes``, but not before it has ``at_least``
        records. Raises RecordsDamaged, OSError.
        """
        extent = self.extent(segment, first_id, count)
        with self.damage_in(segment, DATA_SUFFIX):
            data = self.files(segment.first_id).data
            return read_records(data, extent, max_bytes, at_least)

    def files(self, first_id: int) -> SegmentFiles:
        """Return the open files of a segment, opening them if needed. Raises OSError."""
        if first_id == self.tail.first_id:
            return self.tail.files
        files = self._open.get(first_id)
        if files is None:
            files = open_files(self._disk, self.identity, first_id)
        self._keep_open(first_id, files)
        return files

    @contextmanager
    def damage_in(self, segment: SegmentBounds, suffix: str) -> Iterator[None]:
        """Convert Damage to RecordsDamaged.

        The new error names the partition, and the segment's file with ``suffix``.
        """
        try:
            yield
        except Damage as damage:
            partition, file = self.identity.partition, self.identity.path(segment.first_id, suffix)
            raise RecordsDamaged(partition, file, damage.offset, damage.what) from damage

    def roll_over(self) -> None:
        """Seal the tail, durably, and begin a new segment; raises NoSpace, DiskFailed.

        The full segment is flushed before the new one exists. Otherwise a crash could leave a hole:
        records in the new segment, but not the last records of the full one (planted bug "roll-over
        without flushing the full segment").
        """
        tail = self.tail
        sealed = tail.seal()
        assert sealed.next_id > sealed.first_id, "a sealed segment must hold a record"
        files = create_files(self._disk, self.identity, sealed.next_id, self.options.now_ms())
        self.sealed.append(sealed)
        self._keep_open(sealed.first_id, tail.files)
        self.tail = self._new_tail(
            files, SegmentBounds(sealed.next_id, sealed.next_id, HEADER_BYTES)
        )

    def drop_tail(self) -> None:
        """Remove the tail segment durably; the newest sealed segment becomes the tail.

        Raises DiskFailed.
        """
        assert self.sealed, "the first segment of a log is never dropped"
        self.tail.files.close()
        remove_files(self._disk, self.identity, self.tail.first_id)
        bounds = self.sealed.pop()
        with changing(f"opening of segment {self.identity.path(bounds.first_id, '')}"):
            files = self.files(bounds.first_id)
        # From now on the files are those of the tail, which are always open.
        del self._open[bounds.first_id]
        self.tail = self._new_tail(files, bounds)

    def release(self) -> None:
        """Close the files without changing them."""
        self.removals += 1
        self.tail.files.close()
        for files in self._open.values():
            files.close()
        self._open.clear()

    def remove(self) -> None:
        """Close and remove all files; the directory stays. Raises DiskFailed.

        The newest segments are removed first, so that a crash leaves a log without a hole (see
        `log_opening.remove_log`).
        """
        self.release()
        for segment in (self.tail.bounds(), *reversed(self.sealed)):
            remove_files(self._disk, self.identity, segment.first_id)

    def _new_tail(self, files: SegmentFiles, bounds: SegmentBounds) -> TailSegment:
        """Return the segment with ``bounds`` as a tail with the options of this log."""
        options = self.options
        return TailSegment(files, bounds, options.segment_threshold, options.allocate_bytes)

    def _keep_open(self, first_id: int, files: SegmentFiles) -> None:
        """Keep the files of a sealed segment open; close the least recently used, if too many."""
        self._open[first_id] = files
        self._open.move_to_end(first_id)
        while len(self._open) > max(1, self.options.open_segments):
            _, least_recent = self._open.popitem(last=False)
            least_recent.close()
