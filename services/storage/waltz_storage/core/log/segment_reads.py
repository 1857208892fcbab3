"""Pure. Read consecutive records of one segment, or only their headers.

`segment_format` explains the two forms of a record. A read in disk form verifies nothing: the
client verifies the records. A read in wire form verifies the record checksums. A read of headers
verifies them, too, although it must read the data for that. The reason: a client finds its own
append in the log by the request id in a header. If that id were wrong, the client would not find
its append, and would append a second time (`test_header_of_a_damaged_record_is_damage`).

`log_reads` divides long reads into steps and calls these functions for each step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from waltz.protocol.records import RecordHeader
from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    RECORD_PREFIX_BYTES,
    ByteSource,
    Damage,
    check_record,
    decode_record_header,
    decode_records,
    long_record_is_valid,
)

HEADER_READS = 256
HEADER_READ_BYTES = 4 << 20
"""A list of headers ends after this many reads of the data file, or this many bytes.

So it occupies the disk only briefly. The server then requests the rest of the list. But
`log_reads.header_steps` does not end a list here before it has `LEAST_HEADERS`.
"""

LEAST_HEADERS = 64
"""The size of the blocks that servers of Waltz 0.13.2 request (spec/behaviour.md section 7).

It is unknown whether they request the rest of a block if the answer has fewer headers.
"""

_WINDOW_BYTES = 256 << 10
"""How many bytes a read of headers reads at once; a larger record is read in pieces."""


@dataclass(frozen=True, slots=True)
class VerifiedRecords:
    """Verified records of one segment, in disk form (``raw``) and in wire form (``wire``)."""

    count: int
    raw: bytes
    wire: bytes


@dataclass(slots=True)
class HeaderBudget:
    """How many reads of the data file, and how many bytes, a list of headers may still take."""

    reads_left: int = HEADER_READS
    bytes_left: int = HEADER_READ_BYTES

    @property
    def spent(self) -> bool:
        """Whether no further read is allowed."""
        return self.reads_left <= 0 or self.bytes_left <= 0

    def take(self, size: int) -> None:
        """Count one read of ``size`` bytes."""
        self.reads_left -= 1
        self.bytes_left -= size


@dataclass(frozen=True, slots=True)
class Extent:
    """The positions of consecutive records, from ``first_id`` on, in a data file.

    ``offsets`` has the position where each record begins, and then the position where the last
    record ends. These positions come from the index and may be wrong. ``segment_end`` is the
    position where the last record of the whole segment ends, so no record can end after it.
    """

    first_id: int
    offsets: array[int]
    segment_end: int


def read_records(
    data: ByteSource, extent: Extent, max_bytes: int, at_least: int
) -> VerifiedRecords:
    """Read and verify records up to ``max_bytes``, but at least ``at_least`` records.

    Raises Damage.
    """
    start = extent.offsets[0]
    count, end = bounded_range(extent, max_bytes, at_least)
    raw = data.read(start, end - start)
    wire = decode_records(raw, start, extent.first_id, count)
    return VerifiedRecords(count, raw, wire)


def bounded_range(extent: Extent, max_bytes: int, at_least: int) -> tuple[int, int]:
    """Return how many records of ``extent`` to read, and the position where the last one ends.

    These are the records that end within ``max_bytes`` of the first position, but never fewer than
    ``at_least``. Raises Damage if a position from the index is outside the segment.
    """
    offsets = extent.offsets
    start = offsets[0]
    count = max(bisect_right(offsets, start + max(max_bytes, 0)) - 1, at_least)
    end = offsets[count]
    if not HEADER_BYTES <= start <= end <= extent.segment_end:
        raise Damage(start, f"index corrupted: record {extent.first_id} at {start} … {end}")
    return count, end


def read_headers(data: ByteSource, extent: Extent, budget: HeaderBudget) -> list[RecordHeader]:
    """Read the headers of the records in ``extent`` until ``budget`` is spent; raises Damage."""
    headers: list[RecordHeader] = []
    offsets = extent.offsets
    _check_positions(extent)
    for first, stop in _windows(offsets):
        if budget.spent:
            break
        start, window_size = offsets[first], offsets[stop] - offsets[first]
        budget.take(window_size)
        if window_size > _WINDOW_BYTES:
            # The window is a single record.
            record_id = extent.first_id + first
            headers.append(_header_of_long_record(data, start, record_id, window_size))
            continue
        raw = data.read(start, window_size)
        for number in range(first, stop):
            position, size = offsets[number] - start, offsets[number + 1] - offsets[number]
            transaction_id = extent.first_id + number
            headers.append(decode_record_header(raw, start, position, transaction_id, size))
            check_record(raw, start, position, transaction_id, size)
    return headers


def _header_of_long_record(
    data: ByteSource, start: int, transaction_id: int, size: int
) -> RecordHeader:
    """Verify the record of ``size`` bytes at ``start``; return its header. Raises Damage."""
    raw = data.read(start, RECORD_PREFIX_BYTES)
    header = decode_record_header(raw, start, position=0, transaction_id=transaction_id, size=size)
    if not long_record_is_valid(data, start, size):
        raise Damage(start, f"record {transaction_id} is cut off or fails its checksum")
    return header


def _check_positions(extent: Extent) -> None:
    """Check that the positions increase and are within the segment; raises Damage."""
    offsets = extent.offsets
    are_within_segment = offsets[0] >= HEADER_BYTES and offsets[-1] <= extent.segment_end
    sizes = (end - start for start, end in pairwise(offsets))
    if are_within_segment and all(size >= RECORD_OVERHEAD_BYTES for size in sizes):
        return
    where = f"records {extent.first_id} … at {offsets[0]} … {offsets[-1]}"
    raise Damage(offsets[0], f"index corrupted: {where}")


def _windows(offsets: array[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of records to read at once, each with at least one record.

    A range is the number of its first record and the number after its last one; the first record
    of ``offsets`` has number 0. A range has at most `_WINDOW_BYTES`, or a single record.
    """
    count, first = len(offsets) - 1, 0
    while first < count:
        stop = first + 1
        while stop < count and offsets[stop + 1] - offsets[first] <= _WINDOW_BYTES:
            stop += 1
        yield first, stop
        first = stop
