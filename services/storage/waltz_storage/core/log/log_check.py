"""Pure. Check every record of a part of a log, and name those that are damaged.

A read ends at the first damaged record. A check continues after it: the check takes the position of
each record from the index, so that one wrong length does not hide the records after it.

Consecutive records are read at once, as a *window*. A window has at most the bytes that the caller
allows for the whole check, so usually a check is one window. Two kinds of records are windows of
their own:

* A record whose place is not certain. It counts as damaged and is not read, so the check goes on.
* A record with more than the allowed bytes. It is read in pieces.

Files are used only through `LogSegments`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from waltz.protocol.checksums import crc32
from waltz_storage.core.errors import RecordsDamaged
from waltz_storage.core.log.log_segments import LogSegments
from waltz_storage.core.log.opening_errors import NOT_DAMAGE
from waltz_storage.core.log.segment_files import SegmentBounds
from waltz_storage.core.log.segment_format import (
    CHECKSUM,
    HEADER_BYTES,
    ID_AND_LENGTH,
    RECORD_OVERHEAD_BYTES,
    ByteSource,
    long_record_is_valid,
)

MAX_CHECKED_RECORDS = 4096
"""The most records that one check reads: the partition's other jobs wait until it has ended."""


@dataclass(frozen=True, slots=True)
class CheckedRecords:
    """The records from ``first_id`` to ``next_id`` - 1 were checked; ``size`` bytes were read.

    ``damaged`` are the ids of the records that are damaged or cannot be read. ``end_id`` is the id
    after the last record of the log.
    """

    first_id: int
    next_id: int
    end_id: int
    size: int
    damaged: tuple[int, ...]


def check_records(segments: LogSegments, first_id: int, max_bytes: int) -> CheckedRecords:
    """Check consecutive records of one segment, from ``first_id`` on, up to ``max_bytes``.

    At least one record is checked, whatever its size. No record is checked if ``first_id`` is not
    in the log. Raises OSError if the files cannot be opened for a reason that is not damage
    (`opening_errors`).
    """
    end_id = segments.tail.next_id
    if not 0 <= first_id < end_id:
        return CheckedRecords(first_id, next_id=first_id, end_id=end_id, size=0, damaged=())
    segment = segments.segment_of(first_id)
    count = min(end_id, segment.next_id, first_id + MAX_CHECKED_RECORDS) - first_id
    try:
        data: ByteSource = segments.files(segment.first_id).data
    except OSError as error:
        if error.errno in NOT_DAMAGE:
            raise
        return _unreadable(first_id, count, end_id)
    try:
        offsets = segments.extent(segment, first_id, count).offsets
    except (RecordsDamaged, OSError):
        # The files are open, so an OSError comes from a read, which is damage.
        return _unreadable(first_id, count, end_id)
    return _check_windows(data, segment, first_id, offsets, max_bytes, end_id)


def _unreadable(first_id: int, count: int, end_id: int) -> CheckedRecords:
    """Return the result for ``count`` records that cannot be read: all of them are damaged."""
    return CheckedRecords(
        first_id, first_id + count, end_id, size=0, damaged=tuple(range(first_id, first_id + count))
    )


def _check_windows(
    data: ByteSource,
    segment: SegmentBounds,
    first_id: int,
    offsets: array[int],
    max_bytes: int,
    end_id: int,
) -> CheckedRecords:
    """Check the records at ``offsets``, window by window, until ``max_bytes`` would be exceeded.

    ``offsets`` has the position where each record begins, and then where the last one ends.
    """
    damaged: list[int] = []
    checked_bytes, next_id = 0, first_id
    for number, stop in _windows(offsets, segment.end, max_bytes):
        window_id, window_bytes = first_id + number, offsets[stop] - offsets[number]
        if not _is_possible(offsets, number, segment.end):
            # The window is one record (see `_windows`), whose place is not known: read nothing.
            damaged.append(window_id)
            window_bytes = 0
        elif checked_bytes and checked_bytes + window_bytes > max_bytes:
            break
        elif window_bytes <= max_bytes:
            damaged += _damaged_in(data, window_id, offsets[number : stop + 1])
        elif not _agrees_with_index(data, window_id, offsets[number], window_bytes):
            # The index entry or the head of the long record is wrong. Its data are not read.
            damaged.append(window_id)
            window_bytes = 0
        elif not _long_record_is_sound(data, offsets[number], window_bytes):
            damaged.append(window_id)
        checked_bytes += window_bytes
        next_id = first_id + stop
    return CheckedRecords(first_id, next_id, end_id, checked_bytes, tuple(damaged))


def _is_possible(offsets: array[int], number: int, segment_end: int) -> bool:
    """Return whether the index gives a record a possible position and length.

    ``number`` is the place of the record in ``offsets``, from 0.
    """
    start, end = offsets[number], offsets[number + 1]
    return start >= HEADER_BYTES and start + RECORD_OVERHEAD_BYTES <= end <= segment_end


def _windows(offsets: array[int], segment_end: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield for each window the number of its first record and the number after its last one.

    Records are numbered from 0 by their place in ``offsets``. The positions in a window increase,
    because each of its records has a possible length (`_is_possible`). A record whose position or
    length is impossible is a window of its own.
    """
    count, first = len(offsets) - 1, 0
    while first < count:
        stop = first + 1
        if _is_possible(offsets, first, segment_end):
            while (
                stop < count
                and _is_possible(offsets, stop, segment_end)
                and offsets[stop + 1] - offsets[first] <= max_bytes
            ):
                stop += 1
        yield first, stop
        first = stop


def _damaged_in(data: ByteSource, first_id: int, offsets: array[int]) -> list[int]:
    """Return the ids of the damaged records of a window, which is read at once.

    If the disk cannot read the window, each record is read alone: one bad sector must not make the
    neighbours of its record count as damaged.
    """
    base, count = offsets[0], len(offsets) - 1
    damaged: list[int] = []
    try:
        raw = data.read(base, offsets[-1] - base)
    except OSError:
        if count == 1:
            return [first_id]
        for number in range(count):
            damaged += _damaged_in(data, first_id + number, offsets[number : number + 2])
        return damaged
    view, total = memoryview(raw), len(raw)
    id_and_length, checksum = ID_AND_LENGTH.unpack_from, CHECKSUM.unpack_from
    for number in range(count):
        start, end = offsets[number] - base, offsets[number + 1] - base
        if (
            end > total
            or id_and_length(raw, start) != (first_id + number, end - start - RECORD_OVERHEAD_BYTES)
            or crc32(view[start : end - CHECKSUM.size]) != checksum(raw, end - CHECKSUM.size)[0]
        ):
            damaged.append(first_id + number)
    return damaged


def _agrees_with_index(data: ByteSource, transaction_id: int, start: int, size: int) -> bool:
    """Return whether the record at ``start`` has the id and the size that the index gives it.

    A long record is read only if this is true. Otherwise one wrong index entry could make a check
    read a whole segment.
    """
    try:
        raw = data.read(start, ID_AND_LENGTH.size)
    except OSError:
        return False
    expected = (transaction_id, size - RECORD_OVERHEAD_BYTES)
    return len(raw) == ID_AND_LENGTH.size and ID_AND_LENGTH.unpack(raw) == expected


def _long_record_is_sound(data: ByteSource, start: int, size: int) -> bool:
    """Return whether a record that is longer than a window can be read and is undamaged."""
    try:
        return long_record_is_valid(data, start, size)
    except OSError:
        return False
