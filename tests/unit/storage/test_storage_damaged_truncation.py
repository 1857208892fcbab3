"""A truncation after a damaged record keeps it if its end stays certain, and is refused if not."""

from __future__ import annotations

import uuid

import pytest

from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.protocol.storage import SetLowWaterMarkRequest, TruncateRequest
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import RequestRefused, TruncationRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import (
    CHECKSUM,
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    entry_position,
)
from waltz_storage.core.partitions.partition import StoragePartition
from waltz_storage.core.partitions.storage_directory import StorageDirectory

KEY = uuid.UUID(int=3)
RECORD_BYTES = RECORD_OVERHEAD_BYTES + 12
ALL = 1 << 40
TWO_RECORDS = HEADER_BYTES + 2 * RECORD_BYTES - 1
"""With this threshold, a segment has two records."""
ID_AND_LENGTH = (*range(8), *range(28, 32))
"""The bytes of a record with its id and the length of its data."""
COUNT = 6


def record(number: int) -> RecordBatch:
    data = b"%012d" % number
    return RecordBatch.of([Record(number, ReqId(1, 2, 3, number), 0, data, checksum(data))])


def right_checksum(number: int) -> int:
    """Return the CRC-32 that a peer computes of a record."""
    disk = MemoryDisk()
    partition = opened(disk, ALL)
    for each in range(number + 1):
        partition.log.append(record(each))
    return partition.scan(number, 1, ALL, 0).checksum


def opened(disk: MemoryDisk, threshold: int) -> StoragePartition:
    directory = StorageDirectory(disk, KEY, 1, LogOptions(lambda: 9, threshold, allocate_bytes=0))
    if not directory.partitions:
        directory.assign(0)
    return directory.partition(0)


def place(number: int, threshold: int) -> tuple[str, int]:
    """Return the data file and the position of a record."""
    first_id = 0 if threshold == ALL else number - number % 2
    return f"0/{first_id:019d}.seg", HEADER_BYTES + RECORD_BYTES * (number - first_id)


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    disk.damage(path, position, bytes([disk.content(path)[position] ^ 0x04]))


def damaged(threshold: int, number: int, byte: int) -> tuple[MemoryDisk, StoragePartition]:
    """Return a partition without a session, one of whose `COUNT` records has a wrong byte."""
    disk = MemoryDisk()
    partition = opened(disk, threshold)
    for each in range(COUNT):
        partition.log.append(record(each))
    path, position = place(number, threshold)
    flip(disk, path, position + byte)
    return disk, partition


def contents(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: disk.content(f"0/{name}") for name in disk.names("0")}


def truncate(partition: StoragePartition, last_id: int) -> None:
    partition.handle(TruncateRequest(1, 0, 0, last_id), 0)


def check_repaired(partition: StoragePartition, number: int) -> None:
    """Begin a session at the end of the log, and check that the record can be repaired then."""
    partition.handle(SetLowWaterMarkRequest(1, 0, 0, number), 0)
    partition.repair(record(number), right_checksum(number))
    assert partition.records(0, ALL).count == number + 1


@pytest.mark.parametrize(
    ("threshold", "number"), [(ALL, 2), (ALL, 0), (TWO_RECORDS, 2), (TWO_RECORDS, 3)]
)
@pytest.mark.parametrize("byte", sorted({*range(RECORD_BYTES)} - {*ID_AND_LENGTH}))
def test_truncation_to_a_damaged_record_keeps_it(threshold: int, number: int, byte: int) -> None:
    """The vote has counted the replica as one that reaches the record."""
    disk, partition = damaged(threshold, number, byte)
    truncate(partition, number)
    assert partition.log.max_id == number
    # After the death of the process, the record is found damaged and not taken for a torn write.
    partition = opened(disk.restarted(), threshold)
    assert (partition.log.max_id, partition.log.damaged_at_opening) == (number, (number,))
    if byte < RECORD_BYTES - CHECKSUM.size:
        check_repaired(partition, number)
        return
    # The right checksum is not known. Once another record is the last one, it is not needed.
    with pytest.raises(RequestRefused, match="is not the record that was flushed as the last one"):
        check_repaired(partition, number)
    partition.log.append(record(number + 1))
    partition.repair(record(number), right_checksum(number))
    assert partition.records(0, ALL).count == number + 2


@pytest.mark.parametrize("threshold", [ALL, TWO_RECORDS])
@pytest.mark.parametrize("byte", ID_AND_LENGTH)
def test_truncation_to_a_record_without_a_certain_end_is_refused(threshold: int, byte: int) -> None:
    disk, partition = damaged(threshold, 2, byte)
    before = contents(disk)
    with pytest.raises(TruncationRefused, match=r"takes part in no store session.*--delete-files"):
        truncate(partition, 2)
    assert (partition.log.max_id, contents(disk)) == (COUNT - 1, before)
    truncate(partition, 1)
    assert partition.records(0, ALL).count == 2


@pytest.mark.parametrize("entry", [2, 3])
def test_truncation_to_a_damaged_record_with_a_wrong_index_entry_is_refused(entry: int) -> None:
    disk, partition = damaged(ALL, 2, 33)
    partition.log.flush_all()
    flip(disk, "0/0000000000000000000.idx", entry_position(entry) + 7)
    before = contents(disk)
    with pytest.raises(TruncationRefused):
        truncate(partition, 2)
    assert (partition.log.max_id, contents(disk)) == (COUNT - 1, before)


@pytest.mark.parametrize("byte", range(RECORD_BYTES - CHECKSUM.size, RECORD_BYTES))
def test_start_keeps_the_mark_of_a_damaged_last_record(byte: int) -> None:
    """The last segment is empty, so the file before it shows the end of the damaged record."""
    disk = MemoryDisk()
    partition = opened(disk, TWO_RECORDS)
    for each in range(COUNT):
        partition.log.append(record(each))
    truncate(partition, 3)
    partition.handle(SetLowWaterMarkRequest(1, 0, 0, 3), 0)
    disk = disk.restarted()
    path, position = place(3, TWO_RECORDS)
    flip(disk, path, position + byte)
    for _ in range(2):
        partition = opened(disk, TWO_RECORDS)
        assert (partition.log.max_id, partition.log.damaged_at_opening) == (3, (3,))
        disk = disk.restarted()
    check_repaired(opened(disk, TWO_RECORDS), 3)
