"""Test that a change of the disk that fails ends the process, and a failed read does not."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DiskFailed
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

KEY = uuid.UUID(int=5)
SEGMENT_BYTES = 600


def directory_on(disk: Disk) -> StorageDirectory:
    return StorageDirectory(disk, KEY, 2, LogOptions(lambda: 1, SEGMENT_BYTES, allocate_bytes=0))


def engine_on(disk: Disk) -> InlineEngine:
    """An engine with 20 records of 100 bytes in partition 0, in several segments."""
    directory = directory_on(disk)
    directory.assign(0)
    engine = InlineEngine(directory)
    assert isinstance(engine.ask(append(0, 20)), storage.SuccessResponse)
    return engine


def append(first_id: int, count: int) -> storage.AppendRequest:
    records = RecordBatch.of(
        Record(n, ReqId(1, 2, 0, n), 0, bytes(60), 7) for n in range(first_id, first_id + count)
    )
    return storage.AppendRequest(-1, first_id, 0, records)


def outcome(engine: InlineEngine, request: Any) -> tuple[list[Any], list[type[BaseException]]]:
    """Return the answers, and the errors that would end the process."""
    answers: list[Any] = []
    try:
        if isinstance(request, admin.PartitionAssignmentRequest):
            engine.handler.handle(request, 0, answers.append)
        else:
            engine.submit([arrival(request, answers.append)])
    except DiskFailed as failed:
        engine.failures.append(failed)
    return answers, [type(failure) for failure in engine.failures]


CHANGES: dict[str, Any] = {
    "truncate to an older segment": storage.TruncateRequest(-1, 1, 0, 3),
    "truncate within the tail": storage.TruncateRequest(-1, 1, 0, 18),
    "unassign": admin.PartitionAssignmentRequest(1, (0,), False, delete_files=True),
    "assign": admin.PartitionAssignmentRequest(1, (1,), True, delete_files=False),
    "roll over": append(20, 8),
    "begin a session": storage.SetLowWaterMarkRequest(4, 1, 0, 19),
}


@pytest.mark.parametrize("fault", ["remove", "open", "flush"])
@pytest.mark.parametrize("change", CHANGES)
def test_failing_change_ends_process_without_answer(change: str, fault: str) -> None:
    for count in range(1, 100):
        disk = MemoryDisk()
        engine = engine_on(disk)
        setattr(disk, f"failing_{fault}", count)
        answers, failures = outcome(engine, CHANGES[change])
        if getattr(disk, f"failing_{fault}") > 0:
            assert (len(answers), failures) == (1, [])
            break
        if change == "assign" and fault == "open" and failures == []:
            assert isinstance(answers[0], admin.AdminFailureResponse), "refused before any change"
            assert 1 not in engine.directory.partitions
            continue
        assert (answers, failures) == ([], [DiskFailed])
        for after in (disk.restarted(), disk.crashed(Random(count))):
            assert not directory_on(after).refused
    else:
        pytest.fail("the change never ends")


def test_read_that_cannot_open_file_fails_alone() -> None:
    disk = MemoryDisk()
    engine = engine_on(disk)
    engine.directory.close()
    engine = InlineEngine(directory_on(disk))
    disk.failing_open = 1
    failed = engine.ask(storage.RecordRequest(-1, 1, 0, 2))
    assert "the storage disk cannot be read" in failed.failure.message
    assert engine.ask(storage.RecordRequest(-1, 1, 0, 2)).record.count == 1
    disk.failing_open = 1
    refused = engine.administer(admin.RecordListRequest(1, 0, 8, 1))
    assert "the storage disk cannot be read" in refused.failure.message
    assert engine.failures == []


def test_truncation_with_missing_file_ends_process(tmp_path: Path) -> None:
    engine = engine_on(PosixDisk(tmp_path))
    newest = max((tmp_path / "0").glob("*.idx"))
    newest.unlink()
    answers, failures = outcome(engine, storage.TruncateRequest(-1, 1, 0, 3))
    assert (answers, failures) == ([], [DiskFailed])


def test_truncation_that_cannot_read_the_last_record_fails_alone() -> None:
    """Nothing is changed yet. If the process ended, one bad block would end it at each retry."""
    disk = MemoryDisk()
    engine_on(disk).directory.close()
    engine = InlineEngine(directory_on(disk))
    disk.failing_open = 1
    answers, failures = outcome(engine, storage.TruncateRequest(-1, 1, 0, 3))
    assert "the storage disk cannot be read" in answers[0].failure.message
    assert failures == []
    assert engine.directory.partition(0).log.max_id == 19
    answers, failures = outcome(engine, storage.TruncateRequest(-1, 2, 0, 3))
    assert ([answer.transaction_id for answer in answers], failures) == ([3], [])


def test_closed_file_never_uses_reused_descriptor(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    closed = disk.create("closed")
    closed.close()
    others = [disk.create(f"other{n}") for n in range(3)]
    misuses: list[Callable[[], object]] = [
        lambda: closed.write(0, b"lost"),
        lambda: closed.truncate(7),
        closed.flush,
        lambda: closed.read(0, 1),
        closed.size,
        closed.close,
    ]
    for misuse in misuses:
        with pytest.raises((DiskFailed, OSError, ValueError), match=r"(?i)file descriptor"):
            misuse()
    assert [other.size() for other in others] == [0, 0, 0]
    for other in others:
        other.close()


def test_failed_change_of_directory_raises_disk_failed(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    for change in (
        lambda: disk.remove("absent"),
        lambda: disk.rename("absent", "other"),
        lambda: disk.create("absent/file"),
        lambda: disk.make_directory("absent/directory"),
        lambda: disk.flush_directory("absent"),
    ):
        with pytest.raises(DiskFailed, match=r"absent.* failed: No such file or directory"):
            change()
    with pytest.raises(FileNotFoundError):
        disk.open("absent")
