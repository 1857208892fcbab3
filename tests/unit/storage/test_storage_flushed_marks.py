"""The flushed marks: lost and damaged records are distinguished from interrupted writes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.support.inline_engine import InlineEngine
from waltz.protocol import admin, storage
from waltz.protocol.admin import Switch
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_file import open_control
from waltz_storage.core.control.directory_pair import DATA_PAIR_FILE
from waltz_storage.core.control.flushed_marks import FlushedMarks, open_marks
from waltz_storage.core.control.flushed_marks_format import (
    FLUSHED_FILE,
    PARTITION_BYTES,
    current_end,
)
from waltz_storage.core.errors import DiskFailed, PartitionDamaged
from waltz_storage.core.log.flushed_end import FlushedEnd
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import HEADER_BYTES
from waltz_storage.core.partitions.storage_directory import StorageDirectory

KEY = uuid.UUID(int=31)
PARTITION = 1
DATA, INDEX = f"{PARTITION}/0000000000000000000.seg", f"{PARTITION}/0000000000000000000.idx"
ENTRY_CHECKSUM = 77
"""The checksum of the control struct of the partition, in tests without a control file."""
RECORD_BYTES = 44
"""The size of a record of `batch` on disk."""


def open_on(disk: MemoryDisk, threshold: int = 1 << 20) -> StorageDirectory:
    return StorageDirectory(disk, KEY, 2, LogOptions(lambda: 7, threshold, allocate_bytes=0))


def batch(first_id: int, count: int, data: bytes = b"data") -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, PARTITION, n), 0, data, checksum(data))
        for n in range(first_id, first_id + count)
    )


def append(directory: StorageDirectory, count: int, data: bytes = b"data") -> None:
    log = directory.partition(PARTITION).log
    log.append(batch(log.next_id, count, data))


def begin_session(directory: StorageDirectory, session: int, mark: int) -> None:
    directory.partition(PARTITION).handle(
        storage.SetLowWaterMarkRequest(session, 0, PARTITION, mark), 1
    )


def used(threshold: int = 1 << 20) -> MemoryDisk:
    """Return the disk after the death of a process: session 5 at mark 2, records up to 5."""
    disk = MemoryDisk()
    directory = open_on(disk, threshold)
    directory.assign(PARTITION)
    append(directory, 3)
    begin_session(directory, 5, 2)
    append(directory, 3)
    return disk.restarted()


def record_at(number: int) -> int:
    """Return where a record begins in a segment that begins with record 0."""
    return HEADER_BYTES + RECORD_BYTES * number


def damage_of(directory: StorageDirectory) -> str:
    refused = directory.refused[PARTITION]
    assert isinstance(refused, PartitionDamaged)
    with pytest.raises(PartitionDamaged):
        directory.partition(PARTITION)
    return str(refused)


def remove_directory(disk: MemoryDisk) -> None:
    disk.lose_directory(str(PARTITION))


def remove_files(disk: MemoryDisk) -> None:
    for name in disk.names(str(PARTITION)):
        disk.remove(f"{PARTITION}/{name}")


@pytest.mark.parametrize(
    ("lose", "what"),
    [
        (remove_directory, "its directory is missing, although the partition has records up to 5"),
        (remove_files, "its directory has no segments, although the partition has records up to"),
        (lambda disk: disk.remove(DATA), "its directory has no segments"),
        (lambda disk: disk.remove(INDEX), "a segment cannot be opened"),
    ],
)
def test_lost_partition_directory_is_damage(lose: Callable[[MemoryDisk], None], what: str) -> None:
    disk = used()
    lose(disk)
    for _ in range(2):
        directory = open_on(disk)
        assert what in damage_of(directory)
        with pytest.raises(PartitionDamaged):
            directory.assign(PARTITION)
        disk = disk.restarted()
    directory = open_on(disk)
    directory.unassign(PARTITION, delete_files=True)
    directory.assign(PARTITION)
    assert directory.partition(PARTITION).log.max_id == -1
    assert directory.info(PARTITION).session_id == -1


def test_lost_directory_of_a_partition_without_a_session_is_damage() -> None:
    disk = MemoryDisk()
    open_on(disk).assign(PARTITION)
    remove_directory(disk)
    what = "its directory is missing, although the partition has had files"
    assert what in damage_of(open_on(disk.restarted()))


def test_damaged_partition_cannot_be_switched_on() -> None:
    disk = used()
    remove_directory(disk)
    directory = open_on(disk)
    answer = InlineEngine(directory).administer(
        admin.PartitionAvailableRequest(1, (PARTITION,), True)
    )
    assert isinstance(answer, admin.AdminFailureResponse)
    assert "its directory is missing" in (answer.failure.message or "")
    directory.set_available(PARTITION, False)
    with pytest.raises(PartitionDamaged):
        directory.set_switch(PARTITION, Switch.READ, True)


@pytest.mark.parametrize("record", range(6))
def test_damaged_record_up_to_the_mark_is_damage(record: int) -> None:
    disk = used()
    position = disk.content(DATA).index(b"data", record_at(record))
    disk.damage(DATA, position, b"X")
    partition = open_on(disk).partition(PARTITION)
    assert partition.log.max_id == 5, "the log keeps its length"
    with pytest.raises(PartitionDamaged, match=f"record {record} fails its checksum"):
        partition.records(record, 1)
    # The scan begins at the local low-water mark: the scrubber and reads find older damage.
    assert partition.log.damaged_at_opening == ((record,) if record >= 2 else ())


def test_damaged_partition_switched_off_and_assigned_again_is_refused() -> None:
    disk = used()
    disk.open(DATA).truncate(record_at(4))
    directory = open_on(disk)
    damage_of(directory)
    directory.set_available(PARTITION, False)
    with pytest.raises(PartitionDamaged):
        directory.assign(PARTITION)
    damage_of(directory)
    assert _mark_on(disk) == 5


def test_log_shorter_than_the_mark_is_damage() -> None:
    disk = used()
    disk.open(DATA).truncate(record_at(4))
    assert "flushed up to record 5, but record 4 is missing" in damage_of(open_on(disk))


def test_newest_segment_that_is_lost_is_damage() -> None:
    disk = used(threshold=record_at(2))
    names = sorted(disk.names(str(PARTITION)))
    assert len(names) == 4
    for name in names[2:]:
        disk.remove(f"{PARTITION}/{name}")
    assert "flushed up to record 5, but record" in damage_of(open_on(disk, record_at(2)))


def test_torn_record_above_the_mark_is_cut_off() -> None:
    disk = used()
    log = open_on(disk).partition(PARTITION).log
    log.write(log.stage([batch(6, 2)]))
    disk = disk.restarted()
    disk.damage(DATA, record_at(7) + 40, b"X")
    assert open_on(disk).partition(PARTITION).log.max_id == 6


def test_mark_is_exact_after_the_death_of_the_process() -> None:
    directory = open_on(used())
    engine = InlineEngine(directory)
    for count in range(5):
        engine.ask(storage.AppendRequest(5, count, PARTITION, batch(6 + count, 1)))
        assert _stored_mark(directory) == 6 + count


def test_truncation_lowers_the_mark_before_it_cuts() -> None:
    disk = used()
    directory = open_on(disk)
    crashes: list[MemoryDisk] = []
    disk.observer = lambda: crashes.extend(
        [disk.restarted(), *(disk.crashed(Random(seed)) for seed in range(5))]
    )
    directory.partition(PARTITION).handle(storage.TruncateRequest(6, 0, PARTITION, 3), 1)
    assert len(crashes) > 10
    for crashed in crashes:
        assert open_on(crashed).partition(PARTITION).log.max_id in (3, 5)
    append(directory, 1, b"other")
    assert open_on(disk.restarted()).partition(PARTITION).log.max_id == 4


def test_log_cut_below_its_local_mark_is_opened() -> None:
    disk = used()
    directory = open_on(disk)
    directory.partition(PARTITION).handle(storage.TruncateRequest(6, 0, PARTITION, 0), 1)
    assert open_on(disk.restarted()).partition(PARTITION).log.max_id == 0


def test_older_directory_of_partition_with_other_records_is_damage() -> None:
    data, meta = MemoryDisk(), MemoryDisk()
    options = LogOptions(lambda: 7, allocate_bytes=0)
    directory = StorageDirectory(data, KEY, 2, options, meta)
    directory.assign(PARTITION)
    begin_session(directory, 5, -1)
    append(directory, 9)
    older = data.restarted()
    directory.partition(PARTITION).handle(storage.TruncateRequest(6, 0, PARTITION, 3), 1)
    append(directory, 2, b"other")
    # Only the partition's directory is older: a volume that is older is refused as a whole.
    older.open(DATA_PAIR_FILE).write(0, data.content(DATA_PAIR_FILE))
    directory = StorageDirectory(older, KEY, 2, options, meta.restarted())
    assert "record 5 is not the one that was flushed" in damage_of(directory)


def test_damaged_or_missing_marks_are_written_again() -> None:
    changes: list[Callable[[MemoryDisk], None]] = [
        lambda disk: disk.remove(FLUSHED_FILE),
        lambda disk: disk.open(FLUSHED_FILE).truncate(0),
        lambda disk: disk.open(FLUSHED_FILE).write(0, bytes(2 * PARTITION_BYTES)),
    ]
    for change in changes:
        disk = used()
        change(disk)
        directory = open_on(disk)
        assert list(directory.unmarked) == [PARTITION]
        assert directory.partition(PARTITION).log.max_id == 5
        disk = disk.restarted()
        assert not open_on(disk).unmarked
        disk = disk.restarted()
        disk.open(DATA).truncate(record_at(5))
        assert "flushed up to record 5" in damage_of(open_on(disk))


@pytest.mark.parametrize("lose", [remove_directory, lambda disk: disk.open(DATA).truncate(200)])
def test_lost_records_are_damage_without_marks_too(lose: Callable[[MemoryDisk], None]) -> None:
    disk = used()
    disk.remove(FLUSHED_FILE)
    lose(disk)
    assert "record" in damage_of(open_on(disk))


def test_flushed_mark_older_than_a_use_by_0_13_2_is_replaced() -> None:
    """Waltz 0.13.2 changes the control entry and the log, but not the marks."""
    for last_id in (2, 3, 8):
        disk = used()
        directory = open_on(disk)
        marks = disk.content(FLUSHED_FILE)
        directory.partition(PARTITION).handle(storage.TruncateRequest(6, 0, PARTITION, 2), 1)
        begin_session(directory, 6, 2)
        append(directory, last_id - 2)
        directory.close()
        disk.open(FLUSHED_FILE).write(0, marks)
        directory = open_on(disk)
        assert list(directory.unmarked) == [PARTITION]
        assert directory.partition(PARTITION).log.max_id == last_id
        assert _stored_mark(directory) == last_id


def test_flushed_mark_survives_a_crash_at_any_change_of_the_control_entry() -> None:
    disk = used()
    directory = open_on(disk)
    crashes: list[MemoryDisk] = []
    disk.observer = lambda: crashes.extend(
        [disk.restarted(), *(disk.crashed(Random(seed)) for seed in range(5))]
    )
    for available in (False, True):
        directory.set_available(PARTITION, available)
    begin_session(directory, 7, 5)
    assert len(crashes) > 30
    for crashed in crashes:
        assert _mark_on(crashed) == 5
        assert not open_on(crashed).unmarked


def test_partition_assigned_again_has_no_mark_of_the_former_one() -> None:
    disk = used()
    directory = open_on(disk)
    crashes: list[MemoryDisk] = []
    disk.observer = lambda: crashes.extend(
        [disk.restarted(), *(disk.crashed(Random(seed)) for seed in range(3))]
    )
    directory.unassign(PARTITION, delete_files=True)
    directory.assign(PARTITION)
    for crashed in crashes:
        assert not open_on(crashed).refused
    assert _stored_mark(directory) == -1


def test_flushed_mark_after_power_loss_is_never_lost_or_ahead() -> None:
    """The mark in a crashed file is between the last durable one and the last written one."""
    random = Random(4)
    for _ in range(60):
        disk = MemoryDisk()
        marks = open_marks(disk, 2)
        marks.load(PARTITION, ENTRY_CHECKSUM)
        marks.raise_to(PARTITION, FlushedEnd(0, 0))
        marks.flush()
        durable = 0
        for last_id in range(1, 12):
            marks.raise_to(PARTITION, FlushedEnd(last_id, last_id * 3))
            _check_crashes(disk, durable, last_id)
            if random.random() < 0.3:
                disk.observer = partial(_check_crashes, disk, durable, last_id)
                marks.flush()
                disk.observer = None
                durable = last_id


def test_mark_written_during_a_flush_destroys_no_durable_mark() -> None:
    disk = MemoryDisk()
    marks = open_marks(disk, 2)
    marks.load(PARTITION, ENTRY_CHECKSUM)
    marks.raise_to(PARTITION, FlushedEnd(0, 0))
    marks.flush()
    for last_id in range(1, 30, 2):
        marks.raise_to(PARTITION, FlushedEnd(last_id, last_id * 3))
        end = FlushedEnd(last_id + 1, last_id * 3 + 3)
        _flush_while(marks, disk, partial(marks.raise_to, PARTITION, end))
        _check_crashes(disk, last_id, last_id + 1)


class _WaitingDisk(MemoryDisk):
    """A disk whose next flush of a file begins with a call of ``before_flush``."""

    before_flush: Callable[[], None] | None = None

    def flush(self, inode: Any) -> None:
        wait, self.before_flush = self.before_flush, None
        if wait is not None:
            wait()
        super().flush(inode)


@pytest.mark.parametrize("durable", range(3))
def test_mark_written_during_two_flushes_destroys_no_durable_mark(durable: int) -> None:
    disk = _WaitingDisk()
    marks = open_marks(disk, 2)
    marks.load(PARTITION, ENTRY_CHECKSUM)
    # After each of these marks, another slot has the durable one.
    for last_id in range(durable + 1):
        marks.raise_to(PARTITION, _mark(last_id))
        marks.flush()

    def begin_second_flush() -> None:
        marks.raise_to(PARTITION, _mark(durable + 2))
        disk.before_flush = write_third_mark
        marks.flush()

    def write_third_mark() -> None:
        marks.raise_to(PARTITION, _mark(durable + 3))
        _check_crashes(disk, durable, durable + 3, seeds=400)

    marks.raise_to(PARTITION, _mark(durable + 1))
    disk.before_flush = begin_second_flush
    marks.flush()
    _check_crashes(disk, durable + 2, durable + 3)


def test_mark_of_the_present_control_struct_survives_refused_changes_of_it() -> None:
    """A change that a full disk refuses ends after `before_update`; the older slot is reused."""
    disk = MemoryDisk()
    marks = open_marks(disk, 2)
    marks.load(PARTITION, ENTRY_CHECKSUM)
    marks.raise_to(PARTITION, _mark(4))
    marks.flush()
    for refused in range(ENTRY_CHECKSUM + 1, ENTRY_CHECKSUM + 5):
        marks.before_update(PARTITION, refused)
        _check_crashes(disk, 4, 4)
        raw = disk.content(FLUSHED_FILE)
        assert current_end(raw, PARTITION, refused) == _mark(4)


def test_mark_raised_after_a_refused_change_survives_a_crash_during_a_flush() -> None:
    disk = _WaitingDisk()
    marks = open_marks(disk, 2)
    marks.load(PARTITION, ENTRY_CHECKSUM)
    marks.raise_to(PARTITION, _mark(4))
    marks.flush()
    marks.before_update(PARTITION, ENTRY_CHECKSUM + 1)
    marks.raise_to(PARTITION, _mark(5))

    def raise_again() -> None:
        marks.raise_to(PARTITION, _mark(6))
        _check_crashes(disk, 4, 6, seeds=400)

    disk.before_flush = raise_again
    marks.flush()
    _check_crashes(disk, 5, 6)


def test_mark_whose_flush_failed_is_durable_after_the_next_start() -> None:
    """Its page is in the cache and counts as flushed: only a new write makes it durable."""
    disk = MemoryDisk()
    marks = open_marks(disk, 2)
    marks.load(PARTITION, ENTRY_CHECKSUM)
    marks.raise_to(PARTITION, _mark(4))
    marks.flush()
    marks.raise_to(PARTITION, _mark(5))
    disk.failing_flush = 1
    with pytest.raises(DiskFailed):
        marks.flush()
    disk = disk.restarted()
    assert open_marks(disk, 2).load(PARTITION, ENTRY_CHECKSUM) == _mark(5)
    _check_crashes(disk, 5, 5)


def _mark(last_id: int) -> FlushedEnd:
    """Return a mark that `_check_crashes` recognizes."""
    return FlushedEnd(last_id, last_id * 3)


def _flush_while(marks: FlushedMarks, disk: MemoryDisk, meanwhile: Callable[[], None]) -> None:
    """Flush; the work done ``meanwhile`` is not part of the flush, which has not ended yet."""

    def flushed() -> None:
        disk.observer = None
        meanwhile()

    disk.observer = flushed
    marks.flush()
    assert disk.observer is None


def _check_crashes(disk: MemoryDisk, durable: int, now: int, seeds: int = 12) -> None:
    for seed in range(seeds):
        raw = disk.crashed(Random(seed)).content(FLUSHED_FILE)
        end = current_end(raw, PARTITION, ENTRY_CHECKSUM)
        assert end is not None
        assert durable <= end.last_id <= now
        assert end.checksum == end.last_id * 3


def _mark_on(disk: MemoryDisk) -> int:
    disk = disk.restarted()
    control = open_control(disk, KEY, 2, 5)
    end = control.flushed_marks.load(PARTITION, control.checksum(PARTITION))
    assert end is not None
    return end.last_id


def _stored_mark(directory: StorageDirectory) -> int:
    disk = directory._disk
    assert isinstance(disk, MemoryDisk)
    return _mark_on(disk)
