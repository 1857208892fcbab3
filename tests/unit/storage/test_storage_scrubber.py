"""The scrubber: every changed byte of a log is found, at a bounded rate, pass after pass."""

from __future__ import annotations

import asyncio
import errno
import uuid
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.eventually import eventually
from tests.support.inline_engine import InlineEngine, arrival
from tests.support.virtual_time import on_virtual_time
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.runtime.core.token_bucket import TokenBucket
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.engine.engine import Arrival
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.log.log_check import MAX_CHECKED_RECORDS, CheckedRecords
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    entry_position,
    segment_name,
)
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.findings import Findings, IdRange
from waltz_storage.core.scrub.scrubber import (
    CHECK_BYTES,
    PASS_SECONDS,
    Scrubber,
    ScrubCheck,
    ScrubPause,
)
from waltz_storage.shell.scrubbing import Scrubbing

IDENTITY = LogIdentity(uuid.UUID(int=5), 3, "3")
EVERYTHING = 1 << 40
LONG = 5000


def file(first_id: int, suffix: str) -> str:
    return f"3/{segment_name(first_id)}{suffix}"


def log_with(disk: MemoryDisk, sizes: Sequence[int], threshold: int = EVERYTHING) -> PartitionLog:
    options = LogOptions(lambda: 9, threshold, open_segments=2, allocate_bytes=0)
    log = open_log(disk, IDENTITY, options, KnownLog())
    log.append(
        RecordBatch.of(
            Record(n, ReqId(n, 2, 3, -n), 100 + n, bytes([n % 251]) * size, 7)
            for n, size in enumerate(sizes)
        )
    )
    return log


def checked_to_the_end(log: PartitionLog, max_bytes: int = CHECK_BYTES) -> list[CheckedRecords]:
    """Return the results of all checks of a pass over one log."""
    results, next_id = [], 0
    while next_id < log.next_id:
        results.append(log.check(next_id, max_bytes))
        assert results[-1].first_id == next_id < results[-1].next_id
        next_id = results[-1].next_id
    return results


def damaged(log: PartitionLog, max_bytes: int = CHECK_BYTES) -> list[int]:
    return [t for result in checked_to_the_end(log, max_bytes) for t in result.damaged]


def checked(first_id: int, next_id: int, *ids: int, end_id: int = 100) -> CheckedRecords:
    return CheckedRecords(first_id, next_id, end_id, 10 * (next_id - first_id), ids)


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    disk.damage(path, position, bytes([disk.content(path)[position] ^ 0x10]))


# ---- checks of a log


@pytest.mark.parametrize("max_bytes", [1, 150, CHECK_BYTES])
def test_check_of_undamaged_log_reads_each_record_once(max_bytes: int) -> None:
    log = log_with(MemoryDisk(), (0, 10, 300, 1, 1, 40), threshold=300)
    results = checked_to_the_end(log, max_bytes)
    assert not any(result.damaged for result in results)
    assert sum(result.size for result in results) == log.size_bytes - 2 * HEADER_BYTES
    assert all(r.size <= max_bytes or r.next_id == r.first_id + 1 for r in results)


def test_check_finds_every_changed_byte_of_a_data_file_in_its_record() -> None:
    sizes = (0, 10, 300, 1, 40, 2)
    log = log_with(disk := MemoryDisk(), sizes, threshold=300)
    for first_id, ids in ((0, (0, 1, 2)), (3, (3, 4, 5))):
        path, position = file(first_id, ".seg"), HEADER_BYTES
        for transaction_id in ids:
            size = sizes[transaction_id] + RECORD_OVERHEAD_BYTES
            for offset in range(position, position + size):
                flip(disk, path, offset)
                for max_bytes in (1, 150, CHECK_BYTES):
                    assert damaged(log, max_bytes) == [transaction_id], (path, offset)
                flip(disk, path, offset)
            position += size
        assert position == len(disk.content(path))


def test_changed_byte_of_an_index_entry_damages_the_records_on_both_sides() -> None:
    log = log_with(disk := MemoryDisk(), (0, 10, 300, 1, 40, 2), threshold=300)
    path = file(0, ".idx")
    for number in range(3):
        expected = [n for n in (number - 1, number) if n >= 0]
        for offset in range(8):
            flip(disk, path, entry_position(number) + offset)
            assert damaged(log) == expected
            flip(disk, path, entry_position(number) + offset)


def test_long_record_is_checked_alone() -> None:
    log = log_with(disk := MemoryDisk(), (10, LONG, 10))
    assert [r.size for r in checked_to_the_end(log, 1000)] == [
        10 + RECORD_OVERHEAD_BYTES,
        LONG + RECORD_OVERHEAD_BYTES,
        10 + RECORD_OVERHEAD_BYTES,
    ]
    flip(disk, file(0, ".seg"), HEADER_BYTES + LONG // 2)
    assert damaged(log, 1000) == [1]


def test_wrong_index_entry_does_not_make_check_read_whole_segment() -> None:
    log = log_with(disk := MemoryDisk(), [100] * 50, threshold=3000)
    last = len(disk.content(file(0, ".seg"))) - RECORD_OVERHEAD_BYTES
    disk.damage(file(0, ".idx"), entry_position(1), last.to_bytes(8, "big"))
    found = log.check(0, 200)
    assert (found.damaged, found.size) == ((0, 1), 100 + RECORD_OVERHEAD_BYTES)


def test_missing_index_entries_damage_the_records_of_the_segment() -> None:
    log = log_with(disk := MemoryDisk(), [100] * 50, threshold=3000)
    next_id = log.check(0, EVERYTHING).next_id
    disk.open(file(0, ".idx")).truncate(entry_position(2))
    found = log.check(0, EVERYTHING)
    assert found == CheckedRecords(0, next_id, 50, 0, tuple(range(next_id)))


def test_check_is_bounded_in_records() -> None:
    log = log_with(MemoryDisk(), [0] * (MAX_CHECKED_RECORDS + 1))
    assert log.check(0, EVERYTHING).next_id == MAX_CHECKED_RECORDS


def test_missing_file_damages_its_records_but_lack_of_descriptors_does_not() -> None:
    options = LogOptions(lambda: 9, 300, open_segments=1, allocate_bytes=0)
    disk = MemoryDisk()
    log_with(disk, (10, 300, 10, 300, 1), threshold=300).release()
    log = open_log(disk, IDENTITY, options, KnownLog())
    disk.failing_open = 1
    with pytest.raises(OSError, match="open files") as refused:
        log.check(0, CHECK_BYTES)
    assert refused.value.errno == errno.EMFILE
    disk.remove(file(0, ".seg"))
    assert log.check(0, CHECK_BYTES).damaged == (0, 1)


# ---- findings

_CHECKS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(0, 30), st.randoms()),
    max_size=12,
)


@given(_CHECKS)
@settings(max_examples=150, deadline=None)
def test_findings_of_random_checks_equal_a_set_of_ids(
    checks: list[tuple[int, int, int, Random]],
) -> None:
    findings, expected = Findings(), set[int]()
    for first_id, count, end_id, random in checks:
        next_id = max(first_id, min(first_id + count, end_id))
        ids = [t for t in range(first_id, next_id) if random.random() < 0.5]
        new = findings.note(3, checked(first_id, next_id, *ids, end_id=end_id))
        assert _ids(new) == set(ids) - expected
        kept = {t for t in expected if not first_id <= t < next_id and t < end_id}
        expected = kept | set(ids)
        ranges = findings.ranges.get(3, ())
        assert _ids(ranges) == expected
        assert findings.count == len(expected)
        assert all(a.last_id + 1 < b.first_id for a, b in pairwise(ranges))


def _ids(ranges: Sequence[IdRange]) -> set[int]:
    return {t for each in ranges for t in range(each.first_id, each.last_id + 1)}


# ---- the rate


def test_token_bucket_keeps_its_rate_and_allows_one_burst() -> None:
    bucket = TokenBucket(100.0, 50.0, now=10.0)
    assert bucket.wait_seconds(10.0) == 0.0
    bucket.take(250, 10.0)
    assert bucket.wait_seconds(10.0) == pytest.approx(2.0)
    assert bucket.wait_seconds(11.0) == pytest.approx(1.0)
    assert bucket.wait_seconds(12.0) == 0.0
    # After a long pause there are 50 tokens, not more.
    bucket.take(150, 100.0)
    assert bucket.wait_seconds(100.0) == pytest.approx(1.0)


# ---- passes


def test_pass_checks_every_open_partition_from_its_beginning() -> None:
    scrubber = Scrubber(1 << 30, now=0.0)
    sizes = {2: 100, 0: 300}
    assert scrubber.next_action(0.0, lambda: sizes) == ScrubCheck(0, 0)
    assert scrubber.note(ScrubCheck(0, 0), checked(0, 10, end_id=30), 0.0) == ()
    assert scrubber.next_action(0.0, lambda: sizes) == ScrubCheck(0, 10)
    new = scrubber.note(ScrubCheck(0, 10), checked(10, 30, 11, 12, 20, end_id=30), 0.0)
    assert new == (IdRange(11, 12), IdRange(20, 20))
    assert scrubber.progress.share == pytest.approx(0.75)
    assert scrubber.next_action(0.0, lambda: sizes) == ScrubCheck(2, 0)
    # A partition that was unassigned meanwhile is skipped.
    assert scrubber.note(ScrubCheck(2, 0), None, 0.0) == ()
    assert scrubber.next_action(1.0, lambda: sizes) == ScrubPause(PASS_SECONDS - 1)
    assert (scrubber.progress.passes, scrubber.progress.checked_bytes) == (1, 300)
    assert scrubber.progress.share == 1.0


def test_second_pass_reports_known_damage_no_more_and_forgets_partitions_that_left() -> None:
    scrubber = Scrubber(1 << 30, now=0.0)
    for partition in (0, 1):
        assert scrubber.next_action(0.0, lambda: {0: 1, 1: 1}) == ScrubCheck(partition, 0)
        assert scrubber.note(ScrubCheck(partition, 0), checked(0, 2, 1, end_id=2), 0.0)
    assert isinstance(scrubber.next_action(0.0, dict), ScrubPause)
    assert scrubber.next_action(PASS_SECONDS, lambda: {0: 1}) == ScrubCheck(0, 0)
    assert dict(scrubber.findings.ranges) == {0: (IdRange(1, 1),)}
    assert scrubber.note(ScrubCheck(0, 0), checked(0, 2, 1, end_id=2), PASS_SECONDS) == ()


def test_scrubber_reads_no_faster_than_its_rate() -> None:
    rate, now, read = 100_000, 0.0, 0
    scrubber = Scrubber(rate, now)
    next_id = 0
    while now < 60.0:
        action = scrubber.next_action(now, lambda: {0: 1 << 40})
        if isinstance(action, ScrubPause):
            assert action.seconds > 0
            now += action.seconds
            continue
        result = CheckedRecords(next_id, next_id + 10, 1 << 40, CHECK_BYTES, ())
        scrubber.note(action, result, now)
        read, next_id = read + CHECK_BYTES, next_id + 10
    assert rate * 60 <= read <= rate * 60 + 2 * CHECK_BYTES


def test_records_that_cannot_be_read_use_up_the_rate_too() -> None:
    scrubber = Scrubber(CHECK_BYTES, now=0.0)
    for first_id in (0, 4096):
        assert scrubber.next_action(0.0, lambda: {0: 1}) == ScrubCheck(0, first_id)
        ids = tuple(range(first_id, first_id + 4096))
        scrubber.note(
            ScrubCheck(0, first_id), CheckedRecords(first_id, ids[-1] + 1, 9000, 0, ids), 0.0
        )
    assert scrubber.next_action(0.0, lambda: {0: 1}) == ScrubPause(1.0)


def test_rate_of_zero_switches_scrubber_off() -> None:
    assert not Scrubber(0, now=0.0).enabled
    assert Scrubber(1, now=0.0).enabled


# ---- checks in the lane of a partition


async def test_append_that_arrives_with_a_check_is_done_first() -> None:
    options = LogOptions(lambda: 9, EVERYTHING, allocate_bytes=0)
    engine = InlineEngine(StorageDirectory(MemoryDisk(), IDENTITY.key, 1, options))
    engine.directory.assign(0)
    engine.directory.set_available(0, True)
    scrubber, arrivals = Scrubber(1 << 30, now=0.0), list[Arrival]()
    scrubbing = Scrubbing(scrubber, engine.directory, arrivals.extend, lambda: 0.0)
    task = asyncio.create_task(scrubbing.run())
    await eventually(lambda: arrivals)
    record = Record(0, ReqId(1, 2, 0, 4), 5, b"x" * 10, 7)
    append = storage.AppendRequest(-1, 1, 0, RecordBatch.of([record]))
    engine.submit([*arrivals, arrival(append, lambda answer: None)])
    await eventually(lambda: scrubber.progress.passes)
    assert scrubber.progress.checked_bytes == 10 + RECORD_OVERHEAD_BYTES
    task.cancel()
    await asyncio.wait((task,))
    assert not engine.failures


@on_virtual_time
async def test_pass_begins_on_time_after_work_that_followed_the_last_one() -> None:
    clock = asyncio.get_running_loop().time
    begun, ends = clock(), []

    async def after_pass(_passes: int) -> None:
        ends.append(clock() - begun)
        await asyncio.sleep(6)

    directory: Any = SimpleNamespace(partitions={})
    scrubber = Scrubber(1000, clock(), pass_seconds=10)
    scrubbing = Scrubbing(scrubber, directory, lambda _: None, clock, after_pass=after_pass)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(scrubbing.run(), 25)
    assert ends == pytest.approx([0, 10, 20])
