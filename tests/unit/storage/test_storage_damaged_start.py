"""A start keeps a log whole that has damaged records with certain places, and names them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from random import Random

import pytest

from waltz.protocol.checksums import crc32
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log import damaged_scan
from waltz_storage.core.log.flushed_end import FlushedEnd, KnownLog
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import (
    CHECKPOINT_INTERVAL,
    CHECKSUM,
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    entry_position,
)

IDENTITY = LogIdentity(uuid.UUID(int=5), 3, "3")
FIRST, FIRST_INDEX = "3/0000000000000000000.seg", "3/0000000000000000000.idx"
ALL = 1 << 40
DATA_BYTES = 12
RECORD_BYTES = RECORD_OVERHEAD_BYTES + DATA_BYTES
COUNT = 6
ID_AND_LENGTH = {*range(8), *range(28, 32)}
"""The bytes of a record with its id and the length of its data."""


def record(number: int) -> RecordBatch:
    data = b"%012d" % number
    return RecordBatch.of([Record(number, ReqId(1, 2, 3, number), 0, data, checksum(data))])


def record_at(number: int) -> int:
    """Return where a record begins; ``number`` counts the records of its segment."""
    return HEADER_BYTES + RECORD_BYTES * number


@dataclass(slots=True)
class Past:
    """A disk with a log of `COUNT` records, all of which were flushed, and the flushed mark."""

    disk: MemoryDisk
    flushed: FlushedEnd

    def open(self, *, local_mark: int = -1, mark_known: bool = True) -> PartitionLog:
        flushed = self.flushed if mark_known else None
        return open_log(self.disk, IDENTITY, options(), KnownLog(local_mark, flushed, True))

    def flip(self, file: str, position: int, bits: int = 0x20) -> None:
        before = self.disk.content(file)[position]
        self.disk.damage(file, position, bytes([before ^ bits]))


def options(threshold: int = ALL) -> LogOptions:
    return LogOptions(lambda: 9, threshold, allocate_bytes=0)


def past(*, stopped: bool = True, threshold: int = ALL, count: int = COUNT) -> Past:
    """Return a log after a clean stop, or after the death of its process."""
    disk = MemoryDisk()
    log = open_log(disk, IDENTITY, options(threshold), KnownLog())
    for number in range(count):
        log.append(record(number))
    if stopped:
        log.close()
    else:
        log.release()
    return Past(disk.restarted(), log.end)


def readable(log: PartitionLog) -> list[int]:
    """Return the ids of the records that can be read, each with its right content."""
    found = []
    for number in range(log.next_id):
        try:
            wire = log.read_batch(number, 1, ALL).wire
        except PartitionDamaged:
            continue
        assert wire == record(number).wire
        found.append(number)
    return found


def damaged_by_check(log: PartitionLog) -> set[int]:
    """Return the damaged records that a scrubber finds."""
    found: set[int] = set()
    next_id = 0
    while next_id < log.next_id:
        checked = log.check(next_id, ALL)
        found |= set(checked.damaged)
        next_id = checked.next_id
    return found


def check_whole(log: PartitionLog, damaged: set[int], count: int = COUNT) -> None:
    """Check that the log has all its records, of which only the damaged ones cannot be read."""
    assert log.max_id == count - 1
    assert set(log.damaged_at_opening) == damaged
    assert readable(log) == [number for number in range(count) if number not in damaged]
    assert damaged_by_check(log) == damaged


def contents(disk: MemoryDisk) -> dict[str, bytes]:
    """Return the content of each file of the log."""
    return {name: disk.content(f"3/{name}") for name in disk.names("3")}


def check_refused(made: Past, what: str) -> None:
    """Check that the log is refused, and its files unchanged."""
    before = contents(made.disk)
    with pytest.raises(PartitionDamaged, match=what):
        made.open()
    assert contents(made.disk) == before


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("byte", range(RECORD_BYTES))
@pytest.mark.parametrize("number", [0, 3, COUNT - 1])
def test_flipped_byte_of_a_record_damages_only_that_record(
    number: int, byte: int, stopped: bool
) -> None:
    """After the death of the process the index lacks the newest records, with their places."""
    last = number == COUNT - 1
    for bits in (0x04, 0x20):  # a smaller length, and a larger one
        made = past(stopped=stopped)
        made.flip(FIRST, record_at(number) + byte, bits)
        if byte in ID_AND_LENGTH and (last or not stopped):
            check_refused(made, f"record {number} is (missing or )?invalid")
        elif last and byte >= RECORD_BYTES - CHECKSUM.size:
            # The flushed mark has another checksum: this could be another record.
            check_refused(made, f"record {number}")
        else:
            check_whole(made.open(), {number})


@pytest.mark.parametrize("stopped", [True, False])
def test_damaged_records_after_each_other_and_apart_are_all_found(stopped: bool) -> None:
    for damaged in ({0, 1}, {1, 2, 4}, {0, 2, 3, 5}, {4, 5}, set(range(COUNT))):
        made = past(stopped=stopped)
        for number in damaged:
            made.flip(FIRST, record_at(number) + 33)
        check_whole(made.open(), damaged)


def test_damaged_record_is_found_without_a_flushed_mark_up_to_the_local_low_water_mark() -> None:
    made = past(stopped=False)
    made.flip(FIRST, record_at(3) + 33)
    check_whole(made.open(local_mark=4, mark_known=False), {3})


def test_damaged_record_at_the_local_low_water_mark_is_found_if_a_record_follows() -> None:
    made = past(stopped=False)
    made.flip(FIRST, record_at(3) + 33)
    check_whole(made.open(local_mark=3, mark_known=False), {3})
    made = past(stopped=False)
    made.flip(FIRST, record_at(5) + 33)
    with pytest.raises(PartitionDamaged, match="record 5"):
        made.open(local_mark=5, mark_known=False)


def test_damaged_record_at_the_local_low_water_mark_before_an_invalid_one_is_refused() -> None:
    made = past(stopped=False)
    made.flip(FIRST, record_at(3) + 33)
    made.flip(FIRST, record_at(4) + 33)
    with pytest.raises(PartitionDamaged, match="record 3"):
        made.open(local_mark=3, mark_known=False)


@pytest.mark.parametrize("bits", [0x04, 0x20])
def test_damaged_length_at_the_local_low_water_mark_is_refused(bits: int) -> None:
    made = past(stopped=False)
    made.flip(FIRST, record_at(3) + 31, bits)
    with pytest.raises(PartitionDamaged, match="record 3"):
        made.open(local_mark=3, mark_known=False)


def test_invalid_record_above_the_known_clean_ones_is_cut_off() -> None:
    """It may be the rest of an interrupted write, although a valid record follows."""
    made = past(stopped=False)
    made.flip(FIRST, record_at(4) + 33)
    log = made.open(local_mark=2, mark_known=False)
    assert (log.max_id, log.damaged_at_opening) == (3, ())


def test_invalid_last_record_at_a_checkpoint_is_cut_off() -> None:
    """The index has an entry of it, which the checkpoint does not show to be flushed."""
    made = past(count=CHECKPOINT_INTERVAL + 1)
    made.flip(FIRST, record_at(CHECKPOINT_INTERVAL) + 33)
    log = made.open(mark_known=False)
    assert (log.max_id, log.damaged_at_opening) == (CHECKPOINT_INTERVAL - 1, ())


def test_damage_and_an_interrupted_write_are_distinguished_in_one_log() -> None:
    made = past(stopped=False)
    log = made.open()
    log.append(record(COUNT))
    log.append(record(COUNT + 1))
    made.disk = made.disk.restarted()
    made.flip(FIRST, record_at(2) + 33)
    made.flip(FIRST, record_at(COUNT + 1) + 33)
    check_whole(made.open(), {2}, COUNT + 1)


def test_damaged_last_record_with_another_checksum_than_the_mark_is_refused() -> None:
    made = past()
    raw = bytearray(made.disk.content(FIRST)[record_at(5) :])
    raw[33] ^= 1
    wrong = crc32(bytes(raw[: -CHECKSUM.size])) ^ 1
    made.disk.damage(FIRST, record_at(5), bytes(raw[: -CHECKSUM.size]) + CHECKSUM.pack(wrong))
    check_refused(made, "record 5")


def test_log_that_is_cut_off_is_refused_and_unchanged() -> None:
    for end in (record_at(5) - 1, record_at(5) + 20, record_at(6) - 1):
        made = past()
        made.disk.open(FIRST).truncate(end)
        check_refused(made, "record [45] is")


@pytest.mark.parametrize("number", [3, 5])
def test_damaged_record_with_a_wrong_index_entry_is_found_by_its_length(number: int) -> None:
    """Two faults at once: the entry of the next record, and the record."""
    made = past(count=COUNT + 1)
    made.flip(FIRST, record_at(number) + 33)
    made.flip(FIRST_INDEX, entry_position(number + 1) + 7)
    check_whole(made.open(), {number}, COUNT + 1)


def test_damaged_record_behind_a_large_one_is_found() -> None:
    disk = MemoryDisk()
    log = open_log(disk, IDENTITY, options(), KnownLog())
    sizes = (5, 3 << 20, 5, 3 << 20, 5)
    for number, size in enumerate(sizes):
        log.append(RecordBatch.of([Record(number, ReqId(1, 2, 3, number), 0, b"x" * size, 7)]))
    log.release()
    made = Past(disk.restarted(), log.end)
    position = HEADER_BYTES + RECORD_OVERHEAD_BYTES + 5
    made.flip(FIRST, position + RECORD_OVERHEAD_BYTES + (3 << 20) - 7)
    made.flip(FIRST, position + RECORD_OVERHEAD_BYTES + (3 << 20) + 34)
    opened = made.open()
    assert (opened.max_id, opened.damaged_at_opening) == (4, (1, 2))


@pytest.mark.parametrize("byte", range(RECORD_BYTES))
def test_damaged_record_at_the_mark_before_a_valid_one_is_served_around(byte: int) -> None:
    """The mark may lag behind the log; its checksum cannot be compared with a damaged record."""
    made = past(stopped=False)
    log = made.open()
    log.append(record(COUNT))
    made.disk = made.disk.restarted()
    made.flip(FIRST, record_at(COUNT - 1) + byte)
    if byte in ID_AND_LENGTH:
        check_refused(made, f"record {COUNT - 1}")
    else:
        check_whole(made.open(), {COUNT - 1}, COUNT + 1)


@pytest.mark.parametrize("file", [FIRST, FIRST_INDEX])
def test_damaged_record_at_a_mark_that_lags_far_behind_is_no_older_copy(file: str) -> None:
    """The start does not scan the record; either it is damaged, or the index entry that ends it."""
    count = 2 * CHECKPOINT_INTERVAL + 9
    made = past(count=count)
    log = made.open()
    made.flushed = log.end_at(CHECKPOINT_INTERVAL // 2)
    log.release()
    number = made.flushed.last_id
    made.disk = made.disk.restarted()
    if file == FIRST:
        made.disk.damage(FIRST, record_at(number), bytes(RECORD_BYTES))
        check_whole(made.open(), {number}, count)
    else:
        # The wrong entry is between those before and after it, which the start compares.
        made.flip(FIRST_INDEX, entry_position(number + 1) + 7, 0x01)
        log = made.open()
        assert set(log.damaged_at_opening) == damaged_by_check(log) == {number, number + 1}


def test_wrong_index_entry_behind_a_damaged_record_hides_no_intact_one() -> None:
    """The wrong entry is a possible end of the damaged record, inside the next one."""
    made = past(count=COUNT + 1)
    made.flip(FIRST, record_at(3) + 33)
    made.disk.damage(
        FIRST_INDEX, entry_position(4), (record_at(4) + RECORD_OVERHEAD_BYTES).to_bytes(8, "big")
    )
    log = made.open()
    check_whole(log, {3}, COUNT + 1)


def test_segment_with_too_many_damaged_records_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(damaged_scan, "MOST_DAMAGED", 3)
    made = past()
    for number in (0, 2, 3):
        made.flip(FIRST, record_at(number) + 33)
    check_whole(made.open(), {0, 2, 3})
    made.flip(FIRST, record_at(5) + 33)
    check_refused(made, "record 5")


@pytest.mark.parametrize("stopped", [True, False])
def test_start_with_damage_that_is_interrupted_can_be_repeated(stopped: bool) -> None:
    """The index alone shows where a record ends whose head is damaged."""
    made = past(stopped=stopped, count=2 * CHECKPOINT_INTERVAL + 9)
    count = 2 * CHECKPOINT_INTERVAL + 9
    damaged = {3, 4, CHECKPOINT_INTERVAL + 1}
    for number in damaged:
        made.disk.damage(FIRST, record_at(number), bytes(RECORD_BYTES))
    made.flip(FIRST, record_at(2 * CHECKPOINT_INTERVAL) + 33)  # so that all records are scanned
    damaged.add(2 * CHECKPOINT_INTERVAL)
    states: list[MemoryDisk] = []
    opened = made.disk.restarted()
    opened.observer = lambda: states.append(opened.restarted())
    log = open_log(opened, IDENTITY, options(), KnownLog(-1, made.flushed, True))
    found = log.damaged_at_opening
    assert set(found) == (damaged if stopped else damaged - {3, 4})
    assert len(states) > 5
    for state in states:
        again = Past(state, made.flushed).open()
        assert again.max_id == count - 1
        assert set(found) <= set(again.damaged_at_opening) <= damaged
        assert damaged_by_check(again) == damaged


# ---- sealed segments, each with two records


SEGMENT_BYTES = record_at(2) - 1


@pytest.mark.parametrize("byte", range(RECORD_BYTES))
def test_flipped_byte_of_the_last_record_of_a_sealed_segment_damages_only_that_record(
    byte: int,
) -> None:
    for bits in (0x04, 0x20):
        made = past(threshold=SEGMENT_BYTES)
        assert len(made.disk.names("3")) == 6
        made.flip(FIRST, record_at(1) + byte, bits)
        if byte in ID_AND_LENGTH:
            check_refused(made, "record 1")
        else:
            check_whole(made.open(), {1})


@pytest.mark.parametrize("cut", [1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1])
def test_sealed_segment_that_is_cut_off_is_refused(cut: int) -> None:
    made = past(threshold=SEGMENT_BYTES)
    made.disk.open(FIRST).truncate(record_at(2) - cut)
    check_refused(made, "record [01]")


def test_segment_that_reaches_into_the_next_one_is_refused() -> None:
    """The files of the first segment are those of a log that had no second one yet."""
    made, longer = past(threshold=SEGMENT_BYTES), past(count=3)
    for file in (FIRST, FIRST_INDEX):
        made.disk.open(file).write(0, longer.disk.content(file))
    check_refused(made, "has records up to 2, but the next segment begins with record 2")


def test_missing_segment_between_others_is_refused() -> None:
    made = past(threshold=SEGMENT_BYTES)
    for suffix in ("seg", "idx"):
        made.disk.remove(f"3/0000000000000000002.{suffix}")
    with pytest.raises(PartitionDamaged, match="ends before record 2"):
        made.open()


# ---- afterwards


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("damaged", [{1}, {2, 3}, {0, 5}])
def test_log_opened_with_damage_can_be_repaired_and_continued(
    damaged: set[int], stopped: bool
) -> None:
    made = past(stopped=stopped)
    before = made.disk.content(FIRST)[: record_at(COUNT)]
    for number in damaged:
        made.flip(FIRST, record_at(number) + 33)
    log = made.open()
    for number in sorted(damaged):
        start = record_at(number)
        log.repair(record(number), crc32(before[start : start + RECORD_BYTES]))
    assert made.disk.content(FIRST)[: record_at(COUNT)] == before
    log.append(record(COUNT))
    log.close()
    check_whole(Past(made.disk.restarted(), log.end).open(), set(), COUNT + 1)


@pytest.mark.parametrize("stopped", [True, False])
def test_log_opened_with_damage_twice_has_the_same_damage(stopped: bool) -> None:
    made = past(stopped=stopped)
    made.flip(FIRST, record_at(2) + 33)
    made.open().close()
    made.disk = made.disk.restarted()
    log = made.open()
    log.append(record(COUNT))
    assert log.max_id == COUNT
    assert damaged_by_check(log) == {2}


def test_repaired_record_can_be_the_last_one_after_a_truncation() -> None:
    made = past()
    start = record_at(2)
    right = made.disk.content(FIRST)[start : start + RECORD_BYTES]
    made.disk.damage(FIRST, start, bytes(RECORD_BYTES))
    log = made.open()
    log.repair(record(2), crc32(right))
    log.truncate(2)
    log.release()
    check_whole(Past(made.disk.restarted(), log.end).open(), set(), 3)


def test_start_after_random_damage_takes_no_record_for_another() -> None:
    """Bytes at any place of the data and the index are changed: a start is right or refuses."""
    random = Random(11)
    refused = whole = 0
    for _ in range(1500):
        made = past(stopped=random.random() < 0.5, threshold=random.choice((ALL, SEGMENT_BYTES)))
        files = [f"3/{name}" for name in made.disk.names("3")]
        for _ in range(random.choice((1, 1, 2, 5))):
            file = random.choice(files)
            content = made.disk.content(file)
            if len(content) > HEADER_BYTES:
                at = random.randrange(HEADER_BYTES, len(content))
                size = random.choice((1, 1, 8, 40))
                made.disk.damage(file, at, random.randbytes(min(size, len(content) - at)))
        try:
            log = made.open()
        except PartitionDamaged:
            refused += 1
            continue
        assert log.max_id == COUNT - 1
        readable(log)
        assert set(log.damaged_at_opening) <= damaged_by_check(log)
        whole += bool(log.damaged_at_opening)
    assert whole > 300
    assert refused > 100
