"""Pure. Read a log in steps, between which its partition may take appends.

A step reads at most `STEP_BYTES` of one segment, or one larger record. A read is a generator
(`Steps`). It does one step each time that it is resumed, and returns the result at its end. The
steps of a read may run on different threads, but never at the same time as another use of the log:
a `PartitionLog` is not thread-safe. `segment_format` explains the wire form and the disk form of
records.

Between two steps, records may be appended, and segments may be begun. Nothing else may change. The
first step fixes the end of the range. A read that continued after a truncation could join records
of two different logs. The engine keeps this rule by the order of a partition's jobs. The assertions
here check the rule (`LogSegments.removals`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from waltz.protocol.records import EMPTY_BATCH, RecordBatch, RecordHeader
from waltz.protocol.stored import NO_STORED_RECORDS, StoredBatch
from waltz_storage.core.errors import RecordsDamaged
from waltz_storage.core.log.log_segments import LogSegments
from waltz_storage.core.log.segment_files import SegmentBounds
from waltz_storage.core.log.segment_format import DATA_SUFFIX
from waltz_storage.core.log.segment_reads import (
    LEAST_HEADERS,
    HeaderBudget,
    VerifiedRecords,
    bounded_range,
    read_headers,
)

STEP_BYTES = 1 << 20
"""How many bytes a step reads at most, unless its first record is larger."""
STORED_LIST_RECORDS = 1 << 14
"""The most records that `stored_steps` returns."""

_STEP_RECORDS = 4096
"""How many records, or headers, a step reads at most."""
_STEP_HEADER_READS = 16
"""How many times one step of a read of headers reads the data file at most."""
_REMOVED = "records are not removed between two steps of a read"

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A read in progress: a generator that yields None between two steps, and returns the result."""


def result_of(steps: Steps[T]) -> T:
    """Do all steps without a pause; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def record_steps(
    segments: LogSegments, first_id: int, max_records: int, max_bytes: int
) -> Iterator[tuple[VerifiedRecords, bool]]:
    """Read and verify consecutive records; yield those of each step, and whether they are the last.

    The read ends at ``max_records``, at the present end of the log, before the record that would
    exceed ``max_bytes`` on disk, or before a damaged record. Near a damaged record, it may end
    earlier than it must (see `_read_step`). The first record is read whatever its size. The last
    records may be yielded as if more followed: sometimes only the next step can show that the read
    ends here. Raises OSError, and RecordsDamaged if the first record is damaged.
    """
    removals, next_id = segments.removals, first_id
    end = min(first_id + max_records, segments.tail.next_id)
    while 0 <= next_id < end:
        assert segments.removals == removals, _REMOVED
        segment = segments.segment_of(next_id)
        count = min(end, segment.next_id, next_id + _STEP_RECORDS) - next_id
        at_least = 1 if next_id == first_id else 0
        step_bytes = min(max_bytes, STEP_BYTES)
        try:
            records = _read_step(segments, segment, next_id, count, step_bytes, at_least)
            if not records.count and max_bytes > STEP_BYTES:
                # The next record is larger than a step, but may be within the bound of the read.
                records = segments.read_step(
                    segment, next_id, count=1, max_bytes=max_bytes, at_least=0
                )
        except RecordsDamaged:
            if next_id == first_id:
                raise
            return
        if not records.count:
            # The next record would exceed ``max_bytes``.
            return
        next_id += records.count
        # A step with fewer records than requested has reached its bound in bytes, or a damaged
        # record has shortened it. If the bound was ``max_bytes``, and not `STEP_BYTES`, the whole
        # read ends here.
        reached_max_bytes = records.count < count and max_bytes <= STEP_BYTES
        is_last = next_id >= end or reached_max_bytes
        max_bytes -= len(records.raw)
        yield records, is_last
        if is_last:
            return


def _read_step(
    segments: LogSegments,
    segment: SegmentBounds,
    first_id: int,
    count: int,
    max_bytes: int,
    at_least: int,
) -> VerifiedRecords:
    """Do what `LogSegments.read_step` does; return fewer records if one of them is damaged.

    The read is repeated with half as many records until all of these are valid. So the records
    before a damaged one are served. Otherwise two replicas that are damaged in different records
    could not fill a third one together. Raises RecordsDamaged if the first record is damaged.
    """
    while True:
        try:
            return segments.read_step(segment, first_id, count, max_bytes, at_least)
        except RecordsDamaged:
            if count == 1:
                raise
            count //= 2


def batch_steps(
    segments: LogSegments, first_id: int, max_records: int, max_bytes: int
) -> Steps[RecordBatch]:
    """Read the records of `record_steps` as one batch, which may be empty."""
    count, wire = 0, []
    for records, is_last in record_steps(segments, first_id, max_records, max_bytes):
        count += records.count
        wire.append(records.wire)
        if not is_last:
            yield
    return RecordBatch(count, b"".join(wire)) if count else EMPTY_BATCH


def header_steps(
    segments: LogSegments, first_id: int, max_records: int, least: int
) -> Steps[tuple[RecordHeader, ...]]:
    """Read the headers of consecutive records.

    The list has up to ``max_records`` headers. It ends earlier in these cases:

    * At the present end of the log.
    * When a `HeaderBudget` is spent, but not before the list has `LEAST_HEADERS`.
    * Before a damaged record, if the list has at least ``least`` headers, or at least one if
      ``least`` is 0. If the list is shorter, the read raises RecordsDamaged. ``least`` is above one
      for servers of Waltz 0.13.2, which might never request the rest of a short list
      (`LEAST_HEADERS`).

    Raises OSError, too.
    """
    removals, next_id, list_budget = segments.removals, first_id, HeaderBudget()
    end = min(first_id + max_records, segments.tail.next_id)
    headers: list[RecordHeader] = []
    while 0 <= next_id < end and not (list_budget.spent and len(headers) >= LEAST_HEADERS):
        if headers:
            yield
            assert segments.removals == removals, _REMOVED
        segment = segments.segment_of(next_id)
        count = min(end, segment.next_id, next_id + _STEP_RECORDS) - next_id
        step_budget = HeaderBudget(_STEP_HEADER_READS, STEP_BYTES)
        try:
            step_headers = _read_header_step(segments, segment, next_id, count, step_budget)
        except RecordsDamaged:
            if len(headers) < max(least, 1):
                raise
            break
        assert step_headers, "a step whose budget is not spent reads at least one header"
        headers += step_headers
        next_id += len(step_headers)
        # What this step has spent counts against the whole list, too.
        list_budget.reads_left -= _STEP_HEADER_READS - step_budget.reads_left
        list_budget.bytes_left -= STEP_BYTES - step_budget.bytes_left
    return tuple(headers)


def _read_header_step(
    segments: LogSegments, segment: SegmentBounds, first_id: int, count: int, budget: HeaderBudget
) -> list[RecordHeader]:
    """Read headers until ``budget`` is spent; return fewer headers if a record is damaged.

    The read is repeated with half as many records until all of these are valid, each time with the
    whole budget. So a step reads more than its budget only beside damage, and at most about
    log2(count) times as much. Raises RecordsDamaged if the first record is damaged, or OSError.
    """
    reads, size = budget.reads_left, budget.bytes_left
    while True:
        budget.reads_left, budget.bytes_left = reads, size
        try:
            extent = segments.extent(segment, first_id, count)
            with segments.damage_in(segment, DATA_SUFFIX):
                return read_headers(segments.files(segment.first_id).data, extent, budget)
        except RecordsDamaged:
            if count == 1:
                raise
            count //= 2


def stored_steps(
    segments: LogSegments, first_id: int, max_records: int, max_bytes: int
) -> Steps[StoredBatch]:
    """Read consecutive records of one segment in disk form, without verifying them.

    The read ends where `record_steps` ends, at the end of the segment, or after
    `STORED_LIST_RECORDS`. A damaged record does not end it. Raises RecordsDamaged if the index is
    damaged, or OSError.
    """
    removals = segments.removals
    end = min(first_id + min(max_records, STORED_LIST_RECORDS), segments.tail.next_id)
    if not 0 <= first_id < end:
        return NO_STORED_RECORDS
    segment = segments.segment_of(first_id)
    extent = segments.extent(segment, first_id, min(end, segment.next_id) - first_id)
    with segments.damage_in(segment, DATA_SUFFIX):
        count, stop = bounded_range(extent, max_bytes, at_least=1)
    parts: list[bytes] = []
    for position in range(extent.offsets[0], stop, STEP_BYTES):
        if parts:
            yield
            assert segments.removals == removals, _REMOVED
        # An append may have begun a segment since the last step. Then the log has closed the least
        # recently used files, perhaps those of this segment. So each step gets the files again.
        data = segments.files(segment.first_id).data
        parts.append(data.read(position, min(STEP_BYTES, stop - position)))
    return StoredBatch(count, parts[0] if len(parts) == 1 else b"".join(parts))
