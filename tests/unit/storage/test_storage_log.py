"""A partition's log: roll-over, reads, allocation, a full disk, a failed flush, damage."""

from __future__ import annotations

import struct
import uuid
from random import Random
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.protocol.stored import NO_STORED_RECORDS, StoredBatch
from waltz.testing.disk import UNLIMITED, MemoryDisk
from waltz_storage.core.errors import (
    DiskFailed,
    NoSpace,
    PartitionDamaged,
    RecordsDamaged,
    RequestRefused,
)
from waltz_storage.core.log import log_recovery
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import OUT_OF_ORDER, PartitionLog
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import HEADER_BYTES, entry_position

IDENTITY = LogIdentity(uuid.UUID(int=5), 3, "3")
EVERYTHING = 1 << 40
SEGMENT, INDEX = "3/0000000000000000000.seg", "3/0000000000000000000.idx"


RECORD_BYTES = 100
"""The size of a record of `batch` on disk."""


def open_on(disk: MemoryDisk, *, threshold: int = 1000, allocate: int = 0) -> PartitionLog:
    options = LogOptions(lambda: 9, threshold, open_segments=2, allocate_bytes=allocate)
    return open_log(disk, IDENTITY, options, KnownLog())


def batch(first_id: int, count: int, data: int = 60) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, 3, n), n, bytes([n % 251]) * data, 7)
        for n in range(first_id, first_id + count)
    )


def record_at(number: int) -> int:
    """Return where a record of `batch` begins; ``number`` counts the records of its segment."""
    return HEADER_BYTES + RECORD_BYTES * number


def segments(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in disk.names("3") if name.endswith(".seg"))


def test_segment_rolls_over_when_threshold_is_exceeded() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=record_at(2))
    log.append(batch(0, 2))
    assert segments(disk) == ["0000000000000000000.seg"]
    log.append(batch(2, 1))
    assert segments(disk) == ["0000000000000000000.seg"], "no record follows yet"
    log.append(batch(3, 7))
    assert segments(disk) == [f"{first:019d}.seg" for first in (0, 3, 6, 9)]
    assert log.read_batch(0, 100, EVERYTHING).wire == batch(0, 10).wire


def test_segment_with_lowest_threshold_takes_one_record() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=1)
    log.append(batch(0, 3))
    assert segments(disk) == [f"{first:019d}.seg" for first in range(3)]


def test_record_out_of_order_refuses_only_its_batch() -> None:
    log = open_on(MemoryDisk())
    wrong = RecordBatch.of([*batch(1, 2), *batch(9, 1)])
    staged = log.stage([batch(0, 1), wrong, batch(3, 1), batch(9, 1)])
    log.write(staged)
    log.flush(staged)
    outcomes = [str(outcome) if outcome else None for outcome in log.complete(staged)]
    assert outcomes == [None, OUT_OF_ORDER, None, OUT_OF_ORDER]
    assert log.read_batch(0, 100, EVERYTHING).wire == batch(0, 4).wire


def test_written_records_are_readable_after_complete_is_called() -> None:
    log = open_on(MemoryDisk())
    staged = log.stage([batch(0, 2)])
    log.write(staged)
    assert log.max_id == -1
    assert log.read_batch(0, 1, EVERYTHING).count == 0
    log.flush(staged)
    log.complete(staged)
    assert log.max_id == 1


@settings(max_examples=60)
@given(st.integers(-2, 45), st.integers(-1, 60), st.integers(0, 2500))
def test_read_batch_ends_at_its_bounds(first: int, most: int, size: int) -> None:
    log = open_on(MemoryDisk(), threshold=700)
    log.append(batch(0, 40))
    found = log.read_batch(first, most, size)
    if not 0 <= first < 40 or most <= 0:
        assert found.count == 0
        return
    fits = max(1, size // RECORD_BYTES)
    assert found.wire == batch(first, min(most, fits, 40 - first)).wire


def test_read_stored_batch_returns_unverified_bytes() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=record_at(2))
    log.append(batch(0, 5))
    first, second = (bytearray(disk.open(f"3/{name}").read(0, 1 << 20)) for name in segments(disk))
    two = StoredBatch(2, bytes(first[record_at(1) : record_at(3)]))
    assert log.read_stored_batch(1, 9, EVERYTHING) == two
    one = StoredBatch(1, bytes(second[record_at(0) : record_at(1)]))
    assert log.read_stored_batch(3, 1, EVERYTHING) == one
    assert log.read_stored_batch(3, 9, 1) == one, "one at least"
    for absent in (-1, 5):
        assert log.read_stored_batch(absent, 9, EVERYTHING) == NO_STORED_RECORDS
    changed = record_at(1) + 72
    first[changed] ^= 1
    disk.open(f"3/{segments(disk)[0]}").write(changed, bytes(first[changed : changed + 1]))
    damaged = StoredBatch(1, bytes(first[record_at(1) : record_at(2)]))
    assert log.read_stored_batch(1, 1, EVERYTHING) == damaged


def test_number_of_open_sealed_segments_is_bounded() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=200)
    log.append(batch(0, 20))
    most = 2 * 2 + 2  # data and index of two sealed segments and of the tail
    for first in range(20):
        assert log.read_batch(first, 1, EVERYTHING).wire == batch(first, 1).wire
        assert disk.open_files <= most
    log.close()
    assert disk.open_files == 0


def test_checksum_covers_all_segments_and_is_a_signed_number() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=200)
    signs = set()
    for first in range(8):
        log.append(batch(first, 1))
        records = b"".join(disk.content(f"3/{name}")[HEADER_BYTES:] for name in segments(disk))
        assert len(records) == RECORD_BYTES * (first + 1)
        (expected,) = struct.unpack(">i", struct.pack(">I", crc32(records)))
        assert log.checksum() == expected
        signs.add(expected < 0)
    assert signs == {False, True}


def test_allocation_is_ahead_of_end_and_trimmed_on_close() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=2000, allocate=700)
    log.append(batch(0, 1))
    assert len(disk.content(SEGMENT)) == record_at(1) + 700
    log.append(batch(1, 25))
    assert len(disk.content(SEGMENT)) == record_at(19), "trimmed at the roll-over"
    log.truncate(22)
    assert len(disk.content("3/0000000000000000019.seg")) == record_at(4), "cut at once"
    log.append(batch(23, 1))
    log.close()
    assert len(disk.content("3/0000000000000000019.seg")) == record_at(5), "trimmed at the stop"
    assert open_on(disk).max_id == 23


def test_large_write_allocates_nothing() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=1 << 20, allocate=700)
    log.append(batch(0, 400))
    assert len(disk.content(SEGMENT)) == record_at(400)
    log.append(batch(400, 1))
    assert len(disk.content(SEGMENT)) == record_at(401) + 700
    assert open_on(disk).max_id == 400


def test_index_entries_are_written_only_at_checkpoint() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=EVERYTHING)
    log.append(batch(0, 1001, 0))
    assert len(disk.content(INDEX)) == HEADER_BYTES
    log.append(batch(1001, 1, 0))
    assert len(disk.content(INDEX)) == entry_position(1000)
    log.flush_all()
    assert len(disk.content(INDEX)) == entry_position(1002)


@pytest.mark.parametrize("allocate", [0, 300])
def test_full_disk_refuses_append_and_loses_no_record(allocate: int) -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=5000, allocate=allocate)
    log.append(batch(0, 3))
    disk.space = disk.space - disk.free_bytes() + 150
    with pytest.raises(NoSpace, match="no space"):
        log.append(batch(3, 20))
    assert len(disk.content(SEGMENT)) == record_at(3)
    assert log.read_batch(0, 9, EVERYTHING).wire == batch(0, 3).wire
    log.append(batch(3, 1))
    assert open_on(disk.crashed(Random(1))).max_id == 3
    disk.space = UNLIMITED
    log.append(batch(4, 20))
    assert log.read_batch(0, 99, EVERYTHING).wire == batch(0, 24).wire


def test_records_refused_by_a_full_disk_are_not_back_after_a_loss_of_power() -> None:
    """The storage may have answered meanwhile, to a truncation, that the log ends before them."""
    disk = MemoryDisk()
    log = open_on(disk, threshold=5000, allocate=1000)
    log.append(batch(0, 3))
    disk.space = disk.space - disk.free_bytes()
    with pytest.raises(NoSpace):
        log.append(batch(3, 20))
    ends = {open_on(disk.crashed(Random(seed)), threshold=5000).max_id for seed in range(50)}
    assert ends == {2}


def test_disk_full_at_roll_over_keeps_records_that_fit() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=300)
    disk.space = disk.space - disk.free_bytes() + 200 + 16
    staged = log.stage([batch(0, 1), batch(1, 1), batch(2, 1)])
    log.write(staged)
    log.flush(staged)
    outcomes = log.complete(staged)
    assert outcomes[:2] == [None, None]
    assert isinstance(outcomes[2], NoSpace)
    assert outcomes[2].__traceback__ is None, "its frames would keep the records in memory"
    assert open_on(disk.crashed(Random(2)), threshold=300).max_id == 1
    disk.space = UNLIMITED
    log.append(batch(2, 5))
    assert log.read_batch(0, 99, EVERYTHING).wire == batch(0, 7).wire


@pytest.mark.parametrize("seed", range(20))
def test_log_reopened_after_failed_flush_has_only_durable_records(seed: int) -> None:
    disk = MemoryDisk()
    log = open_on(disk)
    log.append(batch(0, 2))
    staged = log.stage([batch(2, 3)])
    log.write(staged)
    disk.failing_flush = 1
    with pytest.raises(DiskFailed):
        log.flush(staged)
    # The kernel now keeps pages marked clean that never reached the disk; a new process reads them.
    after = disk.restarted()
    durable = open_on(after).max_id
    assert durable >= 1
    assert open_on(after.crashed(Random(seed))).max_id == durable


def test_read_of_damaged_record_names_file_and_offset() -> None:
    disk = MemoryDisk()
    log = open_on(disk)
    log.append(batch(0, 5))
    disk.damage(SEGMENT, record_at(2) + 50, b"rot")
    with pytest.raises(RecordsDamaged, match=r"checksum.*its other records are served") as caught:
        log.read_batch(2, 3, EVERYTHING)
    assert (caught.value.file, caught.value.offset) == (SEGMENT, record_at(2))


def test_missing_first_segment_is_damage() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=300)
    log.append(batch(0, 9))
    log.close()
    for suffix in (".seg", ".idx"):
        disk.remove(f"3/0000000000000000000{suffix}")
    with pytest.raises(PartitionDamaged, match="first segment is missing"):
        open_on(disk, threshold=300)


def test_index_with_entries_but_no_data_file_is_damage() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=300)
    log.append(batch(0, 4))
    log.close()
    disk.remove("3/0000000000000000002.seg")
    with pytest.raises(PartitionDamaged, match="there is no data file"):
        open_on(disk, threshold=300)


def test_record_with_huge_length_ends_log() -> None:
    disk = MemoryDisk()
    log = open_on(disk)
    log.append(batch(0, 3))
    log.close()
    disk.damage(SEGMENT, record_at(2) + 28, (0x7FFFFFF0).to_bytes(4, "big"))
    assert open_on(disk).max_id == 1


def test_record_larger_than_scan_window_is_recovered() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=EVERYTHING)
    log.append(batch(0, 2, 3 << 20))
    log.append(batch(2, 2))
    log.release()
    assert open_on(disk, threshold=EVERYTHING).max_id == 3


def test_truncation_below_minus_one_is_refused() -> None:
    log = open_on(MemoryDisk())
    log.append(batch(0, 3))
    with pytest.raises(RequestRefused, match="-1"):
        log.truncate(-2)
    log.truncate(-1)
    assert log.max_id == -1


def test_torn_sealed_segment_is_damage() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=300)
    log.append(batch(0, 9))
    log.close()
    name = "3/0000000000000000002.seg"
    disk.open(name).truncate(len(disk.content(name)) - 1)
    with pytest.raises(PartitionDamaged, match="ends before record 3") as caught:
        open_on(disk, threshold=300)
    assert (caught.value.file, caught.value.offset) == (name, record_at(1))


@pytest.mark.parametrize("torn", [slice(0, 16), slice(0, 19), slice(5, 6), slice(18, 19)])
@pytest.mark.parametrize("entry", [bytes(8), b"\xff" * 8, HEADER_BYTES.to_bytes(8, "big")])
def test_index_torn_by_truncation_below_local_mark_is_rebuilt(torn: slice, entry: bytes) -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=EVERYTHING)
    log.append(batch(0, 20))
    log.close()
    _check_index_is_rebuilt(disk, torn, entry, local_mark=19, records=20)


@pytest.mark.parametrize("torn", [slice(1, 2), slice(40, 900), slice(999, 2000)])
def test_index_torn_by_truncation_below_checkpoint_is_rebuilt(torn: slice) -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=EVERYTHING)
    log.append(batch(0, 2500))
    log.close()
    _check_index_is_rebuilt(disk, torn, bytes(8), local_mark=-1, records=2500)


def test_index_torn_at_window_boundary_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_recovery, "_WINDOW_ENTRIES", 10)
    disk = MemoryDisk()
    log = open_on(disk, threshold=EVERYTHING)
    log.append(batch(0, 50))
    log.close()
    for number in (9, 10, 11):
        torn = slice(number, number + 1)
        _check_index_is_rebuilt(disk, torn, bytes(8), local_mark=49, records=50)


def test_torn_index_and_damaged_record_below_local_mark_are_both_found() -> None:
    disk = MemoryDisk()
    log = open_on(disk, threshold=EVERYTHING)
    log.append(batch(0, 20))
    log.close()
    disk.damage(INDEX, entry_position(3), bytes(8))
    disk.damage(SEGMENT, record_at(7) + 40, b"?")
    log = _open_with_mark(disk, 19)
    assert (log.max_id, log.damaged_at_opening) == (19, (7,))
    assert log.read_batch(3, 1, EVERYTHING).wire == batch(3, 1).wire


def _open_with_mark(disk: MemoryDisk, local_mark: int) -> PartitionLog:
    return open_log(disk, IDENTITY, LogOptions(lambda: 9, EVERYTHING), KnownLog(local_mark))


def _check_index_is_rebuilt(
    disk: MemoryDisk, torn: slice, entry: bytes, *, local_mark: int, records: int
) -> None:
    """Overwrite index entries; a start must restore them, and change no record."""
    files = [INDEX, SEGMENT]
    before = [disk.content(file) for file in files]
    count = torn.stop - torn.start
    disk.damage(files[0], entry_position(torn.start), entry * count)
    log = _open_with_mark(disk, local_mark)
    assert [disk.content(file) for file in files] == before
    for n in (torn.start, torn.stop - 1, torn.stop):
        assert log.read_batch(n, 1, EVERYTHING).wire == batch(n, 1).wire
    log.truncate(torn.start)
    assert log.max_id == torn.start
    log.append(batch(torn.start + 1, records - torn.start - 1))
    log.close()
    assert [disk.content(file) for file in files] == before
