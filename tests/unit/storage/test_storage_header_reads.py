"""Reading headers of records: without data of large records, within bounds, and damage."""

from __future__ import annotations

import struct
import uuid
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.protocol.records import Record, RecordBatch, RecordHeader, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import HEADER_BYTES, SegmentEncoder
from waltz_storage.core.log.segment_reads import (
    HEADER_READ_BYTES,
    HEADER_READS,
    LEAST_HEADERS,
    Extent,
    HeaderBudget,
    read_headers,
)

IDENTITY = LogIdentity(uuid.UUID(int=5), 3, "3")
SEGMENT = "3/0000000000000000000.seg"
EVERYTHING = 1 << 40
LARGE = 20_000
HUGE = 300_000


def batch(sizes: Sequence[int]) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(n, 2, 3, -n), 100 + n, bytes([n % 251]) * size, 7)
        for n, size in enumerate(sizes)
    )


def headers_of(records: RecordBatch) -> list[RecordHeader]:
    return [RecordHeader(r.transaction_id, r.req_id, r.header) for r in records]


def log_with(disk: MemoryDisk, sizes: Sequence[int], threshold: int = EVERYTHING) -> PartitionLog:
    options = LogOptions(lambda: 9, threshold, open_segments=2, allocate_bytes=0)
    log = open_log(disk, IDENTITY, options, KnownLog())
    log.append(batch(sizes))
    return log


class Source:
    """The bytes of a segment; records which parts are read."""

    def __init__(self, sizes: Sequence[int]) -> None:
        encoder = SegmentEncoder(0, HEADER_BYTES, EVERYTHING)
        records = batch(sizes)
        encoder.add(records.wire, 0, records.count)
        self.raw = bytes(HEADER_BYTES) + b"".join(encoder.parts)
        self.extent = Extent(0, array("q", [*encoder.offsets, encoder.offset]), encoder.offset)
        self.reads: list[int] = []

    def size(self) -> int:
        return len(self.raw)

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append(length)
        return self.raw[offset : offset + length]


SIZES = st.lists(st.sampled_from([0, 1, 60, 3000, 8152, 8153, LARGE]), max_size=60)


@settings(max_examples=80)
@given(SIZES, st.integers(-1, 70), st.integers(-1, 70), st.sampled_from([500, 30_000, EVERYTHING]))
def test_headers_equal_those_of_records(
    sizes: list[int], first: int, most: int, threshold: int
) -> None:
    log = log_with(MemoryDisk(), sizes, threshold)
    expected = headers_of(batch(sizes))[first : first + max(most, 0)] if first >= 0 else []
    assert list(log.read_headers(first, most)) == expected


@settings(max_examples=80)
@given(SIZES)
def test_reads_for_headers_cover_each_byte_once(sizes: list[int]) -> None:
    source = Source(sizes)
    if not sizes:
        return
    assert len(read_headers(source, source.extent, HeaderBudget())) == len(sizes)
    assert sum(source.reads) == sum(size + 40 for size in sizes)
    assert max(source.reads) <= 256 << 10


def test_headers_of_small_records_share_reads() -> None:
    source = Source([100] * 4000)
    assert len(read_headers(source, source.extent, HeaderBudget())) == 4000
    assert len(source.reads) == 3


@pytest.mark.parametrize("sizes", [[60_000], [LARGE, 50_000], [8152, 8152, 60_000]])
def test_header_list_ends_at_budget_after_a_whole_block(sizes: list[int]) -> None:
    """A server requests blocks of 64 headers: a shorter list would make it repeat the request."""
    source = Source(sizes * (1200 // len(sizes)))
    found = read_headers(source, source.extent, HeaderBudget())
    assert 64 <= len(found) < 1200
    assert len(source.reads) <= HEADER_READS
    assert sum(source.reads) <= HEADER_READ_BYTES + (256 << 10)


def test_header_lists_that_end_early_continue_without_gap() -> None:
    log = log_with(MemoryDisk(), [LARGE] * 300, threshold=2_000_000)
    found: list[RecordHeader] = []
    while more := log.read_headers(len(found), 300):
        found += more
    assert found == headers_of(batch([LARGE] * 300))
    assert 64 <= len(log.read_headers(0, 300)) < 300


def test_header_list_of_one_block_is_complete_whatever_the_size_of_the_records() -> None:
    """Servers of Waltz 0.13.2 request blocks of 64, and may not continue a list that is shorter."""
    log = log_with(MemoryDisk(), [60] * 40 + [HUGE] * 60, threshold=5_000_000)
    assert len(log.read_headers(0, 64)) == 64
    assert len(log.read_headers(36, 64)) == 64


# ---- damage


@pytest.mark.parametrize("size", [60, LARGE])
@pytest.mark.parametrize(
    ("position", "what", "text"),
    [(0, 9, "transaction id mismatch"), (28, 1, "has the length"), (28, 0x7FFF_FFF0, "the length")],
)
def test_header_with_wrong_id_is_damage(size: int, position: int, what: int, text: str) -> None:
    disk = MemoryDisk()
    log = log_with(disk, [size] * 5)
    offset = HEADER_BYTES + 2 * (size + 40)
    raw = struct.pack(">q", what) if position == 0 else struct.pack(">i", what)
    disk.damage(SEGMENT, offset + position, raw)
    assert len(log.read_headers(0, 2)) == 2
    with pytest.raises(PartitionDamaged, match=text) as caught:
        log.read_headers(0, 5, LEAST_HEADERS)
    assert (caught.value.file, caught.value.offset) == (SEGMENT, offset)


@pytest.mark.parametrize("size", [60, LARGE, HUGE])
@pytest.mark.parametrize("position", [8, 24, 36, -1])
def test_header_of_a_damaged_record_is_damage(size: int, position: int) -> None:
    """A header with a wrong request id would hide from its client that its append is committed."""
    disk = MemoryDisk()
    log = log_with(disk, [size] * 3)
    begin = HEADER_BYTES + 1 * (size + 40)
    at = begin + position if position >= 0 else begin + size + 39
    (byte,) = disk.open(SEGMENT).read(at, 1)
    disk.damage(SEGMENT, at, bytes((byte ^ 1,)))
    assert len(log.read_headers(0, 1)) == 1
    with pytest.raises(PartitionDamaged, match=r"record 1 .*fails its checksum"):
        log.read_headers(0, 3, LEAST_HEADERS)


def test_header_of_a_record_larger_than_a_window_is_read() -> None:
    log = log_with(MemoryDisk(), [60, HUGE, 60])
    assert list(log.read_headers(0, 3)) == headers_of(batch([60, HUGE, 60]))


@pytest.mark.parametrize("size", [60, LARGE])
@pytest.mark.parametrize("wrong", [-8, 40, 10**9, HEADER_BYTES + 7])
def test_header_read_at_wrong_index_entry_is_damage(size: int, wrong: int) -> None:
    disk = MemoryDisk()
    log = log_with(disk, [size] * 5)
    log.flush_all()
    disk.damage("3/0000000000000000000.idx", HEADER_BYTES + 3 * 8, struct.pack(">q", wrong))
    with pytest.raises(PartitionDamaged, match=r"index|id mismatch"):
        log.read_headers(0, 5, LEAST_HEADERS)
    with pytest.raises(PartitionDamaged):
        log.read_headers(3, 1, LEAST_HEADERS)


@pytest.mark.parametrize("size", [60, LARGE])
def test_header_read_beyond_truncated_segment_is_damage(size: int) -> None:
    disk = MemoryDisk()
    log = log_with(disk, [size] * 5)
    disk.open(SEGMENT).truncate(HEADER_BYTES + 4 * (size + 40) + 10)
    with pytest.raises(PartitionDamaged, match="cut off"):
        log.read_headers(0, 5, LEAST_HEADERS)
