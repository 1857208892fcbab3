"""Pure. Read consecutive records of one segment, or only their headers.

A read in wire form verifies the record checksums. A read in disk form does not: the reader does.
Headers of small records are read together with their data, and the checksums are verified. Of a
large record only the first bytes are read; its id and length must agree with the index, and its
checksum is not verified, because that would take reading its data.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from waltz.protocol.records import RecordHeader
from waltz.protocol.stored import StoredBatch
from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    RECORD_PREFIX_BYTES,
    ByteSource,
    Damage,
    check_record,
    decode_header,
    decode_records,
)

HEADER_READS = 256
HEADER_READ_BYTES = 4 << 20
"""A list of headers ends after this many reads or bytes, so that it occupies the disk only briefly.

Both bounds allow at least `HEADER_READS` headers: servers request blocks of 64.
"""

_SMALL_RECORD_BYTES = 8 << 10
"""Up to this size, reading a record's data costs a disk no more than reading its beginning."""

_WINDOW_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class VerifiedRecords:
    """Records of one segment: verified, as they are on disk and in wire form."""

    count: int
    raw: bytes
    wire: bytes


@dataclass(slots=True)
class HeaderBudget:
    """How many reads and bytes a list of headers may still use."""

    reads: int = HEADER_READS
    size: int = HEADER_READ_BYTES

    @property
    def spent(self) -> bool:
        """Whether the list ends here."""
        return self.reads <= 0 or self.size <= 0

    def take(self, size: int) -> None:
        """Count one read."""
        self.reads -= 1
        self.size -= size


@dataclass(frozen=True, slots=True)
class Extent:
    """Where consecutive records are, from ``first_id`` on.

    ``offsets`` says where each begins, and after them where the last one ends; it comes from the
    index, and so may be wrong. ``end`` is that of the segment.
    """

    first_id: int
    offsets: array[int]
    end: int


def read_records(
    data: ByteSource, extent: Extent, max_bytes: int, at_least: int
) -> VerifiedRecords:
    """Read as many of the records as ``max_bytes`` allow, and ``at_least``; raises Damage."""
    stored = read_stored(data, extent, max_bytes, at_least)
    raw = bytes(stored.raw)
    wire = decode_records(raw, extent.offsets[0], extent.first_id, stored.count)
    return VerifiedRecords(stored.count, raw, wire)


def read_stored(data: ByteSource, extent: Extent, max_bytes: int, at_least: int) -> StoredBatch:
    """Read the same records, unverified; raises Damage if the index contradicts the segment's
    bounds.
    """
    offsets = extent.offsets
    start = offsets[0]
    count = max(bisect_right(offsets, start + max(max_bytes, 0)) - 1, at_least)
    end = offsets[count]
    if not HEADER_BYTES <= start <= end <= extent.end:
        raise Damage(start, f"index corrupted: record {extent.first_id} at {start} … {end}")
    return StoredBatch(count, data.read(start, end - start))


def read_headers(data: ByteSource, extent: Extent, budget: HeaderBudget) -> list[RecordHeader]:
    """Read the headers of the records, as far as the budget allows; raises Damage."""
    headers: list[RecordHeader] = []
    offsets = extent.offsets
    _check(extent)
    for first, stop in _windows(offsets):
        if budget.spent:
            break
        start, end = offsets[first], offsets[stop]
        whole = end - start <= _SMALL_RECORD_BYTES or stop > first + 1
        raw = data.read(start, end - start if whole else RECORD_PREFIX_BYTES)
        budget.take(len(raw))
        for number in range(first, stop):
            position, size = offsets[number] - start, offsets[number + 1] - offsets[number]
            transaction_id = extent.first_id + number
            headers.append(decode_header(raw, start, position, transaction_id, size))
            if whole:
                check_record(raw, start, position, transaction_id, size)
    return headers


def _check(extent: Extent) -> None:
    offsets = extent.offsets
    sane = offsets[0] >= HEADER_BYTES and offsets[-1] <= extent.end
    if sane and all(end - start >= RECORD_OVERHEAD_BYTES for start, end in pairwise(offsets)):
        return
    where = f"records {extent.first_id} … at {offsets[0]} … {offsets[-1]}"
    raise Damage(offsets[0], f"index corrupted: {where}")


def _windows(offsets: array[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of records to read at once: small ones together, large ones alone."""
    count, first = len(offsets) - 1, 0
    while first < count:
        stop = first + 1
        while (
            stop < count
            and offsets[stop] - offsets[stop - 1] <= _SMALL_RECORD_BYTES
            and offsets[stop + 1] - offsets[stop] <= _SMALL_RECORD_BYTES
            and offsets[stop + 1] - offsets[first] <= _WINDOW_BYTES
        ):
            stop += 1
        yield first, stop
        first = stop
