"""Pure. `PartitionLog`: append to the log of one partition, read it, truncate it, repair it.

An append has four steps, so that the engine can group the steps of many partitions: `stage` checks
and encodes the records, `write` writes them, `flush` makes them durable, `complete` makes them
readable. A read has steps of another kind (see `log_reads`): between two of them, records may be
appended. A log is not thread-safe, but successive calls, and the steps of a read, may run on
different threads. Files are used only through `LogSegments`. `segment_format` explains the wire
form and the disk form of records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from waltz.protocol.checksums import as_signed, crc32
from waltz.protocol.records import NO_TRANSACTION, RecordBatch, RecordHeader
from waltz.protocol.stored import StoredBatch
from waltz_storage.core.disk import changing
from waltz_storage.core.errors import NoSpace, RequestRefused
from waltz_storage.core.log.flushed_end import EMPTY_LOG, FlushedEnd, FlushedMark
from waltz_storage.core.log.log_check import CheckedRecords, check_records
from waltz_storage.core.log.log_cut import cut_offset
from waltz_storage.core.log.log_reads import (
    Steps,
    batch_steps,
    header_steps,
    record_steps,
    result_of,
    stored_steps,
)
from waltz_storage.core.log.log_repair import repair_records
from waltz_storage.core.log.log_segments import LogSegments
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import (
    CHECKSUM,
    HEADER_BYTES,
    SegmentEncoder,
)
from waltz_storage.core.log.tail_segment import TailSegment

OUT_OF_ORDER = "transaction out of order"
"""Why an append is refused whose ids do not follow the last id."""

_CHECKSUM_STEP_BYTES = 1 << 20
"""How many bytes `PartitionLog.checksum` reads at once."""


@dataclass(slots=True)
class StagedAppend:
    """A group of batches that are being appended, by the four steps of `PartitionLog`.

    If a batch is refused because of one record, the records before that one stay in the log
    (spec/disk.md section 5).
    """

    chunks: list[SegmentEncoder]
    """The encoded records, one chunk for each segment that gets records."""
    ends: list[int]
    """For each batch, the id after its last accepted record."""
    outcomes: list[RequestRefused | None]
    """For each batch, its error if it is refused, None if it is accepted."""
    written: SegmentEncoder | None = None
    """The newest written chunk, until `PartitionLog` makes it part of the log; otherwise None."""
    size: int = 0
    """Size of all batches in wire form, in bytes."""


@dataclass(frozen=True, slots=True)
class ScannedRecords:
    """The result of `PartitionLog.scan`: ``count`` records with ``size`` bytes on disk.

    ``checksum`` is the unsigned CRC-32 over these records and those of earlier scans.
    """

    count: int
    size: int
    checksum: int


class PartitionLog:
    """The open log of one partition."""

    def __init__(
        self, segments: LogSegments, mark: FlushedMark, damaged: Sequence[int] = ()
    ) -> None:
        """Take the segments, whose records are all flushed. Raises OSError.

        ``damaged`` are the ids of records that the opening found damaged.
        """
        self.identity: LogIdentity = segments.identity
        self.damaged_at_opening = tuple(damaged)
        self._segments = segments
        self._mark = mark
        """The persistent *flushed mark*: if the log ends before this mark, it has lost records."""
        self._end = self.end_at(self.max_id)

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
        """The length of all data files, with the space allocated ahead. Thread-safe."""
        segments = self._segments
        return sum(segment.end for segment in tuple(segments.sealed)) + segments.tail.allocated

    @property
    def end(self) -> FlushedEnd:
        """The last record of the log: its id and its record checksum."""
        return self._end

    def note_damaged(self, transaction_ids: Sequence[int], flushed: FlushedEnd) -> None:
        """Note more damaged records that the opening has found; ``flushed`` is the flushed mark.

        If the last record is damaged, its checksum on the disk may be wrong, so the checksum in the
        mark counts. A repair compares the record of a peer with that checksum
        (`test_start_keeps_the_mark_of_a_damaged_last_record`).
        """
        self.damaged_at_opening = tuple(sorted({*self.damaged_at_opening, *transaction_ids}))
        if self.max_id == flushed.last_id and self.max_id in transaction_ids:
            self._end = flushed

    def end_at(self, last_id: int) -> FlushedEnd:
        """Return the end that the log would have if ``last_id`` was its last record.

        The record must be in the log, or ``last_id`` must be -1. The position of the record is
        taken from the index and is not verified. Raises RecordsDamaged, OSError.
        """
        if last_id == NO_TRANSACTION:
            return EMPTY_LOG
        segments = self._segments
        segment = segments.segment_of(last_id)
        record_end = segment.end
        if last_id + 1 < segment.next_id:
            record_end = segments.extent(segment, last_id, 1).offsets[1]
        position = max(0, record_end - CHECKSUM.size)
        raw = segments.files(segment.first_id).data.read(position, CHECKSUM.size)
        # With a position from a damaged index, the read may get fewer bytes at the file's end.
        return FlushedEnd(last_id, CHECKSUM.unpack(raw.rjust(CHECKSUM.size, b"\0"))[0])

    @property
    def _tail(self) -> TailSegment:
        return self._segments.tail

    def stage(self, batches: Sequence[RecordBatch]) -> StagedAppend:
        """Encode the records that may be appended, in order, without touching the disk.

        A record is accepted only if its id follows the last id: after a gap, the same id would name
        different transactions on this replica and on others.
        """
        tail = self._tail
        # With a threshold below the header's size, no segment would take a record, and the loop
        # would not end.
        threshold = max(self._segments.options.segment_threshold, HEADER_BYTES)
        encoder = SegmentEncoder(tail.next_id, tail.end, threshold)
        staged = StagedAppend([encoder], [], [])
        for batch in batches:
            remaining, position = batch.count, 0
            while remaining:
                if encoder.full:
                    encoder = SegmentEncoder(encoder.next_id, HEADER_BYTES, threshold)
                    staged.chunks.append(encoder)
                added, position = encoder.add(batch.wire, position, remaining)
                remaining -= added
                if remaining and not encoder.full:
                    # The next record does not have the next id: it and the rest are refused.
                    break
            staged.ends.append(encoder.next_id)
            staged.outcomes.append(RequestRefused(OUT_OF_ORDER) if remaining else None)
            staged.size += len(batch.wire)
        # A chunk is empty if its first record was refused, or if the tail was full already.
        staged.chunks = [chunk for chunk in staged.chunks if chunk.parts]
        return staged

    def write(self, staged: StagedAppend) -> None:
        """Write the staged records, and begin a new segment where one is full.

        A full segment is sealed, which makes its records durable; `flush` makes the records of the
        last segment durable. If the disk is full, a batch is refused unless all its records were
        written. Raises DiskFailed.
        """
        # Write the index entries of earlier, durable records. `flush` makes the entries durable.
        self._tail.write_checkpoint()
        try:
            for chunk in staged.chunks:
                # Make the previous chunk part of the log. It fills its segment, which `roll_over`
                # then seals.
                self._add_written(staged)
                # A chunk that does not start at the end of the tail belongs to a new segment.
                if chunk.start != self._tail.end:
                    self._segments.roll_over()
                self._tail.write(chunk)
                staged.written = chunk
        except NoSpace as error:
            # The log has all chunks that were written, so it ends after the last of them.
            for number, end in enumerate(staged.ends):
                if end > self._tail.next_id and staged.outcomes[number] is None:
                    # The traceback of ``error`` refers to ``staged``. If ``staged`` kept ``error``
                    # itself, the two would keep each other, and the records, in memory.
                    staged.outcomes[number] = error.new_instance()

    def flush(self, staged: StagedAppend) -> None:
        """Make the records and the index entries durable that `write` has written.

        Raises DiskFailed.
        """
        for flush_file in self.unflushed(staged):
            flush_file()

    def unflushed(self, staged: StagedAppend) -> list[Callable[[], None]]:
        """Return the flushes that `flush` would do: functions that may run in parallel."""
        flushes = []
        tail = self._tail
        if staged.written is not None:
            flushes.append(tail.flush_data)
        if tail.index_dirty:
            flushes.append(tail.flush_index)
        return flushes

    def complete(self, staged: StagedAppend) -> list[RequestRefused | None]:
        """Make the flushed records readable; return the outcome of each batch (see `StagedAppend`).

        The flushed mark is raised before the appends are answered. If this process died between an
        answer and the mark, the next start would not notice a loss of the answered records. Raises
        DiskFailed.
        """
        self._add_written(staged)
        self._mark.raise_to(self._end)
        return staged.outcomes

    def append(self, batch: RecordBatch) -> None:
        """Do all four steps for one batch; raises RequestRefused, DiskFailed."""
        staged = self.stage([batch])
        self.write(staged)
        self.flush(staged)
        (outcome,) = self.complete(staged)
        if outcome is not None:
            raise outcome

    def read_batch(self, first_id: int, max_records: int, max_bytes: int) -> RecordBatch:
        """Return consecutive verified records from ``first_id`` on; none if that is not in the log.

        The first record is returned whatever its size. `log_reads.record_steps` says where the
        batch ends. Raises RecordsDamaged if the first record is damaged, or OSError.
        """
        return result_of(self.batch_steps(first_id, max_records, max_bytes))

    def batch_steps(self, first_id: int, max_records: int, max_bytes: int) -> Steps[RecordBatch]:
        """Do what `read_batch` does, in steps."""
        return batch_steps(self._segments, first_id, max_records, max_bytes)

    def read_stored_batch(self, first_id: int, max_records: int, max_bytes: int) -> StoredBatch:
        """Return consecutive unverified records in disk form; none if ``first_id`` is absent.

        `log_reads.stored_steps` says where the batch ends. Raises RecordsDamaged if the index is
        damaged, or OSError.
        """
        return result_of(self.stored_steps(first_id, max_records, max_bytes))

    def stored_steps(self, first_id: int, max_records: int, max_bytes: int) -> Steps[StoredBatch]:
        """Do what `read_stored_batch` does, in steps."""
        return stored_steps(self._segments, first_id, max_records, max_bytes)

    def scan(
        self, first_id: int, max_records: int, max_bytes: int, checksum: int
    ) -> ScannedRecords:
        """Read as `read_batch` does; continue the CRC-32 ``checksum`` over the bytes on disk.

        Raises RecordsDamaged, OSError.
        """
        count = size = 0
        for records, _ in record_steps(self._segments, first_id, max_records, max_bytes):
            count += records.count
            size += len(records.raw)
            checksum = crc32(records.raw, checksum)
        return ScannedRecords(count, size, checksum)

    def read_headers(
        self, first_id: int, max_records: int, least: int = 1
    ) -> tuple[RecordHeader, ...]:
        """Return the headers of consecutive records from ``first_id`` on; see `header_steps`."""
        return result_of(self.header_steps(first_id, max_records, least))

    def header_steps(
        self, first_id: int, max_records: int, least: int = 1
    ) -> Steps[tuple[RecordHeader, ...]]:
        """Do what `read_headers` does, in steps."""
        return header_steps(self._segments, first_id, max_records, least)

    def check(self, first_id: int, max_bytes: int) -> CheckedRecords:
        """Check each record of a part of the log; see `check_records`."""
        return check_records(self._segments, first_id, max_bytes)

    def repair(self, records: RecordBatch, checksum: int) -> tuple[CheckedRecords, ...]:
        """Replace damaged records by those of a peer, durably; see `repair_records`."""
        return repair_records(self._segments, self._end, records, checksum)

    def flush_all(self) -> None:
        """Make all records and all index entries durable; raises NoSpace, DiskFailed."""
        self._tail.flush_all()

    def truncate(self, last_id: int) -> None:
        """Remove all records after ``last_id`` from the disk, durably (spec/disk.md section 7).

        Segments are removed from the newest to the oldest. After a crash in between, the log has no
        gap and is only longer than it should be (`test_storage_crash`); the server then truncates
        the log again. The planted bug "truncation stops at the beginning of a segment" leaves the
        newer segments. The record ``last_id`` stays even if it is damaged (see `cut_offset`).

        Raises DiskFailed. With any other error nothing is removed: TruncationRefused,
        RecordsDamaged, OSError, NoSpace if the flushed mark cannot be lowered, RequestRefused if
        ``last_id`` is below -1.
        """
        if last_id < NO_TRANSACTION:
            raise RequestRefused(f"cannot truncate to {last_id}: the lowest mark is -1")
        if last_id >= self.max_id:
            return
        segments = self._segments
        # These reads may fail: then nothing is changed, and only the truncation is refused.
        cut_at = cut_offset(segments, last_id)
        new_end = self.end_at(last_id)
        # The mark is lowered before the cut: a crash in between leaves a log that is longer than
        # its mark. In the opposite order, a crash would leave a log that is shorter than its mark,
        # and the next start would refuse that as damage.
        self._mark.lower_to(new_end)
        segments.removals += 1
        with changing(f"truncation of the log of partition {self.identity.partition}"):
            # Remove the segments that begin after ``last_id``, then cut the one that has it.
            while segments.sealed and last_id + 1 < segments.tail.first_id:
                segments.drop_tail()
            if self._tail.next_id > last_id + 1:
                self._tail.cut(last_id + 1, cut_at)
        self._end = new_end
        assert self.max_id == last_id, "after a truncation, last_id is the last record"

    def checksum(self) -> int:
        """Return the CRC-32 over all records of all segments (spec/disk.md section 10), signed.

        Raises OSError.
        """
        value = 0
        for segment in (*self._segments.sealed, self._tail.bounds()):
            data = self._segments.files(segment.first_id).data
            for position in range(HEADER_BYTES, segment.end, _CHECKSUM_STEP_BYTES):
                step = min(_CHECKSUM_STEP_BYTES, segment.end - position)
                value = crc32(data.read(position, step), value)
        return as_signed(value)

    def close(self) -> None:
        """Close the log cleanly: trim the files, complete the index, make everything durable.

        Raises DiskFailed.
        """
        try:
            self._tail.seal()
        except NoSpace:
            # There is no space for the index. Make the records durable: recovery can rebuild the
            # index from them.
            self._tail.flush_data()
        self.release()

    def release(self) -> None:
        """Close the files without changing them."""
        self._segments.release()

    def remove(self) -> None:
        """Close and remove all files, newest first; the directory stays. Raises DiskFailed."""
        self._segments.remove()

    def _add_written(self, staged: StagedAppend) -> None:
        """Make the chunk that was written last part of the log, unless it is already."""
        written = staged.written
        if written is not None:
            self._tail.complete(written)
            self._end = FlushedEnd(written.next_id - 1, CHECKSUM.unpack(written.parts[-1])[0])
            staged.written = None
