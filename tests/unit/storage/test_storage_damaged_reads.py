"""Reads of a log with damaged records: what is read before the damage is returned."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.protocol import Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_reads import STEP_BYTES
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import HEADER_BYTES, RECORD_OVERHEAD_BYTES
from waltz_storage.core.log.segment_reads import LEAST_HEADERS

IDENTITY = LogIdentity(uuid.UUID(int=5), 0, "0")
ALL = 1 << 40
ONE_SEGMENT = 1 << 40
LARGE = STEP_BYTES * 3 // 4
"""The size of records of which one step of a read takes only one."""


def record(number: int, size: int) -> RecordBatch:
    data = bytes([number % 251]) * size
    return RecordBatch.of([Record(number, ReqId(1, 2, 0, number), 0, data, checksum(data))])


def log_with(sizes: list[int], damaged: set[int], threshold: int = ONE_SEGMENT) -> PartitionLog:
    """Return an open log of records of these sizes; a byte of each damaged one is flipped."""
    disk = MemoryDisk()
    log = open_log(disk, IDENTITY, LogOptions(lambda: 1, threshold, allocate_bytes=0), KnownLog())
    file, position = "", HEADER_BYTES
    for number, size in enumerate(sizes):
        log.append(record(number, size))
        begun = f"0/{number:019d}.seg"
        if disk.exists(begun):
            file, position = begun, HEADER_BYTES
        if number in damaged:
            disk.damage(file, position, bytes([disk.content(file)[position] ^ 1]))
        position += RECORD_OVERHEAD_BYTES + size
    return log


given_damaged_logs = given(
    sizes=st.lists(st.sampled_from((1, 500, LARGE)), min_size=1, max_size=12),
    damaged=st.sets(st.integers(0, 11)),
    threshold=st.sampled_from((ONE_SEGMENT, 1000)),
)
"""Gives the arguments of `log_with`."""


@given_damaged_logs
def test_read_ends_before_a_damaged_record(
    sizes: list[int], damaged: set[int], threshold: int
) -> None:
    log = log_with(sizes, damaged, threshold)
    for first_id in range(len(sizes)):
        if first_id in damaged:
            with pytest.raises(PartitionDamaged):
                log.read_batch(first_id, len(sizes), ALL)
        else:
            end = min({n for n in damaged if n > first_id} | {len(sizes)})
            expected = b"".join(record(n, sizes[n]).wire for n in range(first_id, end))
            assert log.read_batch(first_id, len(sizes), ALL).wire == expected


@given_damaged_logs
def test_header_list_ends_before_a_damaged_record(
    sizes: list[int], damaged: set[int], threshold: int
) -> None:
    """Otherwise two replicas that are damaged in different records could not feed a client."""
    log = log_with(sizes, damaged, threshold)
    for first_id in range(len(sizes)):
        if first_id in damaged:
            with pytest.raises(PartitionDamaged):
                log.read_headers(first_id, len(sizes))
        else:
            end = min({n for n in damaged if n > first_id} | {len(sizes)})
            found = [header.transaction_id for header in log.read_headers(first_id, len(sizes))]
            assert found == list(range(first_id, end))


def test_header_list_before_a_damaged_record_has_at_least_the_requested_headers() -> None:
    """Servers of Waltz 0.13.2 may not request the rest of a list with less than 64 headers."""
    log = log_with([1] * 100, {80})
    with pytest.raises(PartitionDamaged):
        log.read_headers(17, 100, least=LEAST_HEADERS)
    assert len(log.read_headers(16, 100, least=LEAST_HEADERS)) == LEAST_HEADERS


def test_bounded_read_ends_before_a_damaged_record() -> None:
    log = log_with([100] * 10, {6})
    bound = 5 * (RECORD_OVERHEAD_BYTES + 100)
    assert [each.transaction_id for each in log.read_batch(3, 10, bound)] == [3, 4, 5]
