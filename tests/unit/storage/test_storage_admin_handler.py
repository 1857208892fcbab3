"""The admin port's versions 1 and 2: switches, states, range checksums, damage, failures."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import admin, storage
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.log.log_check import CheckedRecords
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import HEADER_BYTES
from waltz_storage.core.partitions import range_checksum
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell import admin_handler

KEY = uuid.UUID(int=5)
PARTITIONS = 4
RECORD_BYTES = 100


def batch(partition: int, first_id: int, count: int) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, partition, n), 0, bytes([n % 251]) * 60, 7)
        for n in range(first_id, first_id + count)
    )


def append(partition: int, first_id: int, count: int) -> storage.AppendRequest:
    return storage.AppendRequest(-1, first_id, partition, batch(partition, first_id, count))


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def engine(disk: MemoryDisk) -> InlineEngine:
    options = LogOptions(lambda: 1, 700, allocate_bytes=50)
    engine = InlineEngine(StorageDirectory(disk, KEY, PARTITIONS, options))
    for partition in range(PARTITIONS - 1):
        engine.directory.assign(partition)
    engine.ask_together([append(0, 0, 30), append(1, 0, 3)])
    return engine


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_checksum, "_SLICE_BYTES", 250)


def done(answer: Any) -> bool:
    return isinstance(answer, admin.AdminSuccessResponse)


def switch(engine: InlineEngine, which: admin.Switch, on: bool, *partitions: int) -> Any:
    return engine.administer(admin.PartitionSwitchRequest(1, partitions, which, on), 1)


def test_switch_request_leaves_the_other_switch_unchanged(engine: InlineEngine) -> None:
    assert done(switch(engine, admin.Switch.READ, False, 0, 1))
    assert done(switch(engine, admin.Switch.WRITE, False, 1, 2))
    states = engine.administer(admin.PartitionStatesRequest(5), 1).states
    assert [(s.readable, s.writable) for s in states] == [
        (False, True),
        (False, False),
        (True, False),
    ]
    status = engine.administer(admin.AssignedPartitionStatusRequest(1)).available
    assert status == dict.fromkeys(range(3), False)
    assert done(engine.administer(admin.PartitionAvailableRequest(1, (0, 1, 2), True)))
    assert all(state.available for state in engine.directory.states())


def test_states_request_returns_all_assigned_partitions(
    engine: InlineEngine, disk: MemoryDisk
) -> None:
    engine.ask(storage.SetLowWaterMarkRequest(6, 1, 1, 2))
    answer = engine.administer(admin.PartitionStatesRequest(5), 1)
    assert answer.seq_num == 5
    assert [s.partition for s in answer.states] == [0, 1, 2]
    assert answer.states[1] == admin.PartitionState(1, 6, 2, 2, 2, sizes(disk, 1), True, True)
    assert answer.states[0].max_transaction_id == 29
    assert answer.states[0].size_bytes == sizes(disk, 0)


def sizes(disk: MemoryDisk, partition: int) -> int:
    names = [name for name in disk.names(str(partition)) if name.endswith(".seg")]
    return sum(len(disk.content(f"{partition}/{name}")) for name in names)


def test_states_of_refused_partition_show_both_switches_off(
    engine: InlineEngine, disk: MemoryDisk
) -> None:
    engine.directory.close()
    disk.damage("1/0000000000000000000.seg", 12, b"another key")
    options = LogOptions(lambda: 1, 700)
    again = InlineEngine(StorageDirectory(disk, KEY, PARTITIONS, options))
    states = again.administer(admin.PartitionStatesRequest(5), 1).states
    assert states[1] == admin.PartitionState(1, -1, -1, -1, -1, 0, False, False)
    assert states[0].available


# ---- checksums


def checksum(engine: InlineEngine, first: int, last: int, partition: int = 0) -> Any:
    return engine.administer(admin.RangeChecksumRequest(9, partition, first, last), 1)


def on_disk(disk: MemoryDisk) -> bytes:
    names = sorted(name for name in disk.names("0") if name.endswith(".seg"))
    return b"".join(disk.content(f"0/{name}")[HEADER_BYTES:].rstrip(b"\0") for name in names)


@settings(max_examples=60)
@given(st.integers(0, 33), st.integers(-1, 40))
@pytest.mark.parametrize("slice_bytes", [1, 250, 1 << 20])
def test_range_checksum_equals_crc_of_bytes_on_disk(
    slice_bytes: int, first: int, last: int
) -> None:
    disk = MemoryDisk()
    options = LogOptions(lambda: 1, 700, allocate_bytes=0)
    engine = InlineEngine(StorageDirectory(disk, KEY, PARTITIONS, options))
    engine.directory.assign(0)
    engine.ask(append(0, 0, 30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_checksum, "_SLICE_BYTES", slice_bytes)
        answer = checksum(engine, first, last)
    end = max(min(last, 29), first - 1)
    raw = on_disk(disk)[first * RECORD_BYTES : (end + 1) * RECORD_BYTES] if end >= first else b""
    (expected,) = struct.unpack(">i", struct.pack(">I", crc32(raw)))
    assert answer == admin.RangeChecksumResponse(9, 0, first, end, len(raw), expected)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(("limit", "last"), [(1, 0), (100, 0), (999, 8), (1000, 9), (1099, 9)])
def test_range_checksum_stops_before_byte_limit(
    engine: InlineEngine, monkeypatch: pytest.MonkeyPatch, limit: int, last: int
) -> None:
    monkeypatch.setattr(range_checksum, "RANGE_LIMIT_BYTES", limit)
    answer = checksum(engine, 0, 29)
    assert (answer.last_id, answer.num_bytes) == (last, (last + 1) * RECORD_BYTES)


@pytest.mark.usefixtures("small_slices")
def test_append_during_range_checksum_is_done_between_slices(
    engine: InlineEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    read = engine.directory.partition(0).log.scan
    slices: list[int] = []

    def scan(*args: int) -> Any:
        slices.append(args[0])
        order.append("slice")
        if len(slices) == 1:
            # The append arrives while the first slice is read.
            engine._inputs.append(arrival(append(0, 30, 1), lambda _: order.append("append")))
        return read(*args)

    monkeypatch.setattr(engine.directory.partition(0).log, "scan", scan)
    assert checksum(engine, 0, 29).last_id == 29
    assert order[:3] == ["slice", "append", "slice"]


@pytest.mark.usefixtures("small_slices")
def test_range_checksum_over_damaged_record_fails(engine: InlineEngine, disk: MemoryDisk) -> None:
    disk.damage("0/0000000000000000006.seg", HEADER_BYTES + 50, b"rot")
    text = checksum(engine, 0, 29).failure.message
    assert "partition 0 is damaged: record 6 fails its checksum" in text
    assert checksum(engine, 0, 5).last_id == 5
    assert checksum(engine, 7, 29).last_id == 29


@pytest.mark.usefixtures("small_slices")
def test_range_checksum_of_partition_unassigned_meanwhile_fails(
    engine: InlineEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = engine.directory.partition(0)
    read = opened.log.scan

    def scan(*args: int) -> Any:
        found = read(*args)
        engine.directory.unassign(0, delete_files=True)
        return found

    monkeypatch.setattr(opened.log, "scan", scan)
    assert "not assigned" in checksum(engine, 0, 29).failure.message


def test_range_checksum_ignores_switches(engine: InlineEngine) -> None:
    engine.directory.set_available(0, False)
    assert checksum(engine, 0, 29).last_id == 29


# ---- answers


IMPOSSIBLE: list[tuple[Callable[[], Any], str]] = [
    (lambda: admin.PartitionAvailableRequest(4, (0, 9), False), "partition 9 is outside 0..3"),
    (lambda: admin.PartitionSwitchRequest(4, (-1,), admin.Switch.READ, False), "partition -1"),
    (lambda: admin.PartitionAssignmentRequest(4, (9,), True, False), "partition 9 is outside"),
    (lambda: admin.PartitionAssignmentRequest(4, (3,), False, False), "partition 3 is not assig"),
    (lambda: admin.AdminSuccessResponse(4), "AdminSuccessResponse is not a request"),
]


@pytest.mark.parametrize(("make", "reason"), IMPOSSIBLE)
def test_impossible_request_in_version_1_is_answered(
    engine: InlineEngine, make: Callable[[], Any], reason: str
) -> None:
    answer = engine.administer(make(), 1)
    assert isinstance(answer, admin.AdminFailureResponse)
    assert answer.seq_num == 4
    assert reason in (answer.failure.message or "")
    assert engine.directory.status() == dict.fromkeys(range(3), True), "nothing was done"
    assert engine.administer(make(), 0) is None


@pytest.mark.parametrize("partition", [3, 9, -1])
def test_request_for_unassigned_partition_fails(engine: InlineEngine, partition: int) -> None:
    for request in (
        admin.RangeChecksumRequest(1, partition, 0, 5),
        admin.RecordListRequest(1, partition, 0, 5),
        admin.LastSessionInfoRequest(1, partition),
    ):
        answer = engine.administer(request, 1)
        assert f"Partition:{partition} is not assigned" in answer.failure.message


def test_range_checksum_from_negative_id_is_refused(engine: InlineEngine) -> None:
    assert "ids begin at 0" in checksum(engine, -1, 5).failure.message


@pytest.mark.parametrize("partitions", [(1, 3), (3, 1)])
def test_unassign_request_that_fails_for_one_partition_is_answered_with_the_failure(
    engine: InlineEngine, partitions: tuple[int, int]
) -> None:
    """Partition 3 is not assigned; the answer does not depend on the order of the partitions."""
    answer = engine.administer(admin.PartitionAssignmentRequest(1, partitions, False, False), 1)
    assert isinstance(answer, admin.AdminFailureResponse)
    assert "partition 3 is not assigned" in (answer.failure.message or "")


def test_request_with_an_unknown_partition_changes_no_partition(engine: InlineEngine) -> None:
    before = engine.directory.states()
    answer = switch(engine, admin.Switch.READ, False, 0, PARTITIONS)
    assert isinstance(answer, admin.AdminFailureResponse)
    assert engine.directory.states() == before


def test_damaged_ranges_of_all_partitions_are_reported_since_version_2() -> None:
    engine = InlineEngine(StorageDirectory(MemoryDisk(), KEY, PARTITIONS, LogOptions(lambda: 1)))
    assert engine.administer(admin.DamagedRecordsRequest(7), 2).ranges == ()
    engine.scrubber.findings.note(2, CheckedRecords(0, 9, 9, 0, (4, 5, 8)))
    engine.scrubber.findings.note(0, CheckedRecords(0, 9, 9, 0, (1,)))
    assert engine.administer(admin.DamagedRecordsRequest(7), 2) == admin.DamagedRecordsResponse(
        7,
        (
            DamagedRange(0, 1, 1),
            DamagedRange(2, 4, 5),
            DamagedRange(2, 8, 8),
        ),
    )


def assign(engine: InlineEngine, assigned: bool) -> None:
    request = admin.PartitionAssignmentRequest(1, (0,), assigned, False)
    assert not isinstance(engine.administer(request, 1), admin.AdminFailureResponse)


def test_damaged_records_are_forgotten_when_their_log_is_closed(engine: InlineEngine) -> None:
    findings = engine.scrubber.findings
    findings.note(0, CheckedRecords(0, 9, 30, 0, (5,)))
    assign(engine, True)
    assert set(findings.ranges) == {0}, "the log was open already"
    assign(engine, False)
    assert not findings.ranges


def test_damaged_records_are_noted_when_a_refused_log_is_opened(
    disk: MemoryDisk, engine: InlineEngine
) -> None:
    engine.directory.flush_marks()
    disk = disk.restarted()
    path = max(f"0/{name}" for name in disk.names("0") if name.endswith(".seg"))
    content = disk.content(path)
    disk.open(path).truncate(140)
    again = InlineEngine(StorageDirectory(disk, KEY, PARTITIONS, LogOptions(lambda: 1, 700)))
    assert set(again.directory.refused) == {0}
    disk.open(path).write(0, content.replace(bytes([29]) * 60, bytes([30]) * 60))
    assign(again, True)
    assert not again.directory.refused
    assert [str(ids) for ids in again.scrubber.findings.ranges[0]] == ["29"]


def test_answer_has_a_bounded_number_of_damaged_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranges of a lost disk would exceed the largest message."""
    monkeypatch.setattr(admin_handler, "_MAX_RANGES", 2)
    engine = InlineEngine(StorageDirectory(MemoryDisk(), KEY, PARTITIONS, LogOptions(lambda: 1)))
    engine.scrubber.findings.note(2, CheckedRecords(0, 9, 9, 0, (1, 3, 5)))
    answer = engine.administer(admin.DamagedRecordsRequest(7), 2)
    assert answer.ranges == (DamagedRange(2, 1, 1), DamagedRange(2, 3, 3))
