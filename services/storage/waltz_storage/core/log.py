"""`PartitionLog`: the segments of one partition as one log. Touches disk.

An append has four steps, so that the steps of many partitions can be grouped: `stage` validates and
encodes, `write` writes, `flush` makes durable, `complete` makes readable. One thread at a time may
use a log; which one may change between calls.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from zlib import crc32

from waltz.protocol.records import (
    EMPTY_BATCH,
    NO_TRANSACTION,
    WIRE_OVERHEAD_BYTES,
    RecordBatch,
    RecordHeader,
)
from waltz.protocol.stored import NOTHING_STORED, StoredBatch
from waltz_storage.core.disk import Disk, DiskFile, changing
from waltz_storage.core.errors import NoSpace, PartitionDamaged, RequestRefused
from waltz_storage.core.segment import (
    LogIdentity,
    SealedSegment,
    SegmentFiles,
    TailSegment,
    create_files,
    open_files,
    read_entries,
    remove_files,
)
from waltz_storage.core.segment_format import (
    DATA_SUFFIX,
    HEADER_BYTES,
    INDEX_SUFFIX,
    RECORD_OVERHEAD_BYTES,
    Damage,
    SegmentEncoder,
    entry_position,
)
from waltz_storage.core.segment_reads import (
    Extent,
    HeaderBudget,
    Stretch,
    read_headers,
    read_records,
    read_stored,
)

OUT_OF_ORDER = "transaction out of order"
STORED_LIST_RECORDS = 1 << 14
"""A list of records as they are on disk ends with so many: it is read at once."""

_READ_STEP_RECORDS = 4096
_CHECKSUM_STEP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Sizes in bytes, but ``open_segments`` counts. ``now_ms`` tells the time for file headers."""

    now_ms: Callable[[], int]
    segment_threshold: int = 1_000_000_000
    open_segments: int = 5
    allocate_bytes: int = 2 << 20


@dataclass(slots=True)
class StagedAppend:
    """A group of batches on their way to the disk.

    ``outcomes`` has an entry per batch: None, or why it is refused. Records of a refused batch that
    come before the cause of the refusal stay in the log (spec/disk.md section 5).
    """

    chunks: list[SegmentEncoder]
    ends: list[int]
    outcomes: list[RequestRefused | None]
    written: SegmentEncoder | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """So many records that were read, their size on disk, and the CRC-32 up to them, unsigned."""

    count: int
    size: int
    value: int


class PartitionLog:
    """An open log. ``next_id`` is the id that the next record must have."""

    def __init__(
        self,
        disk: Disk,
        identity: LogIdentity,
        options: LogOptions,
        sealed: list[SealedSegment],
        tail: TailSegment,
    ) -> None:
        self.identity = identity
        self._disk = disk
        self._options = options
        self._sealed = sealed
        self._tail = tail
        self._open: OrderedDict[int, SegmentFiles] = OrderedDict()

    @property
    def next_id(self) -> int:
        """The id that the next record must have."""
        return self._tail.next_id

    @property
    def max_id(self) -> int:
        """The id of the last record, -1 if there is none."""
        return self._tail.next_id - 1

    @property
    def size_bytes(self) -> int:
        """How long the segments are, with the space allocated ahead; any thread may ask."""
        return sum(segment.end for segment in tuple(self._sealed)) + self._tail.allocated

    def stage(self, batches: Sequence[RecordBatch]) -> StagedAppend:
        """Encode what may be appended, in order. Touches nothing."""
        # A segment takes one record at least, however low the threshold.
        threshold = max(self._options.segment_threshold, HEADER_BYTES)
        encoder = SegmentEncoder(self._tail.next_id, self._tail.end, threshold)
        staged = StagedAppend([encoder], [], [])
        for batch in batches:
            remaining, position = batch.count, 0
            while remaining:
                if encoder.full:
                    encoder = SegmentEncoder(encoder.next_id, HEADER_BYTES, threshold)
                    staged.chunks.append(encoder)
                taken, position = encoder.add(batch.wire, position, remaining)
                remaining -= taken
                if remaining and not encoder.full:
                    break
            staged.ends.append(encoder.next_id)
            staged.outcomes.append(RequestRefused(OUT_OF_ORDER) if remaining else None)
            staged.size += len(batch.wire)
        staged.chunks = [chunk for chunk in staged.chunks if chunk.parts]
        return staged

    def write(self, staged: StagedAppend) -> None:
        """Write what was staged, rolling over to new segments where one is full.

        What lies in segments that are left behind is durable afterwards; `flush` does the rest. On
        a full disk the batches concerned are refused and the files are as before.
        """
        self._tail.write_checkpoint()
        try:
            for chunk in staged.chunks:
                self._settle(staged)
                if chunk.start != self._tail.end:
                    self._roll_over()
                self._tail.write(chunk)
                staged.written = chunk
        except NoSpace as error:
            limit = staged.written.next_id if staged.written else self._tail.next_id
            for number, end in enumerate(staged.ends):
                if end > limit and staged.outcomes[number] is None:
                    staged.outcomes[number] = error

    def flush(self, staged: StagedAppend) -> None:
        """Make the written records durable, and the index entries of a checkpoint; DiskFailed."""
        for file in self.unflushed(staged):
            file()

    def unflushed(self, staged: StagedAppend) -> list[Callable[[], None]]:
        """Return the flushes that `flush` would do; they may be done at the same time."""
        flushes = []
        if staged.written is not None:
            flushes.append(self._tail.flush_data)
        if self._tail.index_dirty:
            flushes.append(self._tail.flush_index)
        return flushes

    def complete(self, staged: StagedAppend) -> list[RequestRefused | None]:
        """Make the flushed records readable; return the outcome of each batch."""
        self._settle(staged)
        return staged.outcomes

    def append(self, batch: RecordBatch) -> None:
        """All steps for one batch; raises RequestRefused, DiskFailed."""
        staged = self.stage([batch])
        self.write(staged)
        self.flush(staged)
        (outcome,) = self.complete(staged)
        if outcome is not None:
            raise outcome

    def read(self, first_id: int, max_records: int, max_bytes: int) -> RecordBatch:
        """Return consecutive records from ``first_id`` on, verified; empty if it is absent.

        Ends at ``max_records``, at the end of the log, or before ``max_bytes`` (disk size) would be
        exceeded, but never before the first record. Raises PartitionDamaged.
        """
        count, wire = 0, []
        for found in self._stretches(first_id, max_records, max_bytes):
            count += found.count
            wire.append(found.wire)
        return RecordBatch(count, b"".join(wire)) if count else EMPTY_BATCH

    def read_stored(self, first_id: int, max_records: int, max_bytes: int) -> StoredBatch:
        """Return consecutive records as they are on disk, unchecked; none if the first is absent.

        Ends where `read` does, after `STORED_LIST_RECORDS`, and with the segment. Raises
        PartitionDamaged if the index is.
        """
        steps = self._steps(first_id, min(max_records, STORED_LIST_RECORDS), STORED_LIST_RECORDS)
        for segment, transaction_id, step in steps:
            extent = self._extent(segment, transaction_id, step)
            with self._damage_in(segment, DATA_SUFFIX):
                return read_stored(self._files(segment.first_id).data, extent, max_bytes, 1)
        return NOTHING_STORED

    def scan(self, first_id: int, max_records: int, max_bytes: int, value: int) -> Scan:
        """Read as `read` does, and go on from the CRC-32 ``value`` over the bytes on disk."""
        count = size = 0
        for found in self._stretches(first_id, max_records, max_bytes):
            count += found.count
            size += len(found.raw)
            value = crc32(found.raw, value)
        return Scan(count, size, value)

    def headers(self, first_id: int, max_records: int) -> tuple[RecordHeader, ...]:
        """Return the headers of consecutive records from ``first_id`` on; none if it is absent.

        Ends early if that takes too much reading (`HeaderBudget`). Raises PartitionDamaged.
        """
        headers: list[RecordHeader] = []
        budget = HeaderBudget()
        for segment, transaction_id, step in self._steps(first_id, max_records):
            extent = self._extent(segment, transaction_id, step)
            with self._damage_in(segment, DATA_SUFFIX):
                found = read_headers(self._files(segment.first_id).data, extent, budget)
            headers += found
            if len(found) < step:
                break
        return tuple(headers)

    def flush_all(self) -> None:
        """Make everything durable, index included; raises NoSpace, DiskFailed."""
        self._tail.flush_all()

    def truncate(self, last_id: int) -> None:
        """Remove everything after ``last_id``, physically and durably before returning.

        Source: spec/disk.md section 7. Raises DiskFailed, or PartitionDamaged with nothing removed.
        """
        if last_id < NO_TRANSACTION:
            raise RequestRefused(f"cannot truncate to {last_id}: the lowest mark is -1")
        if last_id >= self.max_id:
            return
        with changing(f"truncation of the log of partition {self.identity.partition}"):
            end = self._cut_offset(last_id)
        while self._sealed and last_id + 1 < self._tail.first_id:
            self._tail.files.close()
            remove_files(self._disk, self.identity, self._tail.first_id)
            self._reopen_tail()
        if self._tail.next_id > last_id + 1:
            self._tail.cut(last_id + 1, end)

    def checksum(self) -> int:
        """Return the CRC-32 over all records of all segments (spec/disk.md section 10), signed."""
        value = 0
        for segment in (*self._sealed, self._tail.sealed()):
            data = self._files(segment.first_id).data
            for position in range(HEADER_BYTES, segment.end, _CHECKSUM_STEP_BYTES):
                step = min(_CHECKSUM_STEP_BYTES, segment.end - position)
                value = crc32(data.read(position, step), value)
        return value - (1 << 32) if value & 0x8000_0000 else value

    def close(self) -> None:
        """Leave the files as a clean stop does: trimmed, indexed, durable. Raises DiskFailed."""
        try:
            self._tail.seal()
        except NoSpace:
            # The index can be rebuilt; the records are what counts.
            self._tail.flush_data()
        self.release()

    def release(self) -> None:
        """Close the files as they are."""
        self._tail.files.close()
        for files in self._open.values():
            files.close()
        self._open.clear()

    def remove(self) -> None:
        """Close and remove all files, newest first; the directory stays. Raises DiskFailed."""
        self.release()
        for segment in (self._tail.sealed(), *reversed(self._sealed)):
            remove_files(self._disk, self.identity, segment.first_id)

    def _settle(self, staged: StagedAppend) -> None:
        if staged.written is not None:
            self._tail.complete(staged.written)
            staged.written = None

    def _roll_over(self) -> None:
        sealed = self._tail.seal()
        now = self._options.now_ms()
        files = create_files(self._disk, self.identity, sealed.next_id, now)
        self._sealed.append(sealed)
        self._keep_open(sealed.first_id, self._tail.files)
        self._tail = self._new_tail(
            files, SealedSegment(sealed.next_id, sealed.next_id, HEADER_BYTES)
        )

    def _reopen_tail(self) -> None:
        """Make the newest sealed segment the one that is written."""
        segment = self._sealed.pop()
        with changing(f"opening of segment {self.identity.path(segment.first_id, '')}"):
            files = self._files(segment.first_id)
        self._tail = self._new_tail(files, segment)
        del self._open[segment.first_id]

    def _new_tail(self, files: SegmentFiles, segment: SealedSegment) -> TailSegment:
        options = self._options
        return TailSegment(files, segment, options.segment_threshold, options.allocate_bytes)

    def _cut_offset(self, last_id: int) -> int:
        """Return where the segment must end that is cut after ``last_id``; raises PartitionDamaged.

        Index entries of old records were never compared with the data: a cut that trusts a wrong
        one would take what must stay.
        """
        segment = self._segment_of(last_id + 1)
        if segment.first_id == last_id + 1:
            return HEADER_BYTES
        found = self._read(segment, last_id, 1, 0, 1)
        with self._damage_in(segment, INDEX_SUFFIX):
            if len(found.raw) != len(found.wire) - WIRE_OVERHEAD_BYTES + RECORD_OVERHEAD_BYTES:
                position = entry_position(last_id + 1 - segment.first_id)
                raise Damage(position, f"index corrupted: record {last_id} does not end there")
            return self._offsets(segment, self._files(segment.first_id).index, last_id, 1)[1]

    def _segment_of(self, transaction_id: int) -> SealedSegment:
        if transaction_id >= self._tail.first_id:
            return self._tail.sealed()
        number = bisect_right(self._sealed, transaction_id, key=lambda s: s.first_id)
        return self._sealed[number - 1]

    def _files(self, first_id: int) -> SegmentFiles:
        if first_id == self._tail.first_id:
            return self._tail.files
        files = self._open.get(first_id)
        if files is None:
            files = open_files(self._disk, self.identity, first_id)
        self._keep_open(first_id, files)
        return files

    def _keep_open(self, first_id: int, files: SegmentFiles) -> None:
        self._open[first_id] = files
        self._open.move_to_end(first_id)
        while len(self._open) > max(1, self._options.open_segments):
            self._open.popitem(last=False)[1].close()

    def _stretches(self, first_id: int, max_records: int, max_bytes: int) -> Iterator[Stretch]:
        for segment, transaction_id, step in self._steps(first_id, max_records):
            at_least = 1 if transaction_id == first_id else 0
            found = self._read(segment, transaction_id, step, max_bytes, at_least)
            max_bytes -= len(found.raw)
            yield found
            if found.count < step:
                break

    def _steps(
        self, first_id: int, max_records: int, most: int = _READ_STEP_RECORDS
    ) -> Iterator[tuple[SealedSegment, int, int]]:
        """Yield what can be read at once of a range: in which segment, from which id, how many."""
        end = min(first_id + max_records, self.next_id)
        while 0 <= first_id < end:
            segment = self._segment_of(first_id)
            step = min(end, segment.next_id, first_id + most) - first_id
            yield segment, first_id, step
            first_id += step

    def _read(
        self, segment: SealedSegment, first_id: int, step: int, max_bytes: int, at_least: int
    ) -> Stretch:
        extent = self._extent(segment, first_id, step)
        with self._damage_in(segment, DATA_SUFFIX):
            data = self._files(segment.first_id).data
            return read_records(data, extent, max_bytes, at_least)

    def _extent(self, segment: SealedSegment, first_id: int, count: int) -> Extent:
        index = self._files(segment.first_id).index
        with self._damage_in(segment, INDEX_SUFFIX):
            return Extent(first_id, self._offsets(segment, index, first_id, count), segment.end)

    def _offsets(
        self, segment: SealedSegment, index: DiskFile, first_id: int, count: int
    ) -> array[int]:
        if segment.first_id == self._tail.first_id:
            return self._tail.offsets(first_id, count)
        last = first_id + count == segment.next_id
        entries = read_entries(index, first_id - segment.first_id, count + (not last))
        if last:
            entries.append(segment.end)
        return entries

    @contextmanager
    def _damage_in(self, segment: SealedSegment, suffix: str) -> Iterator[None]:
        """Name the file of any Damage: raises PartitionDamaged."""
        try:
            yield
        except Damage as damage:
            partition, file = self.identity.partition, self.identity.path(segment.first_id, suffix)
            raise PartitionDamaged(partition, file, damage.offset, damage.what) from damage
