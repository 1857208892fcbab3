"""What a storage removes stays removed, and what it cannot lock or does not own it refuses."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from pathlib import Path
from random import Random

import pytest

from tests.support.inline_engine import InlineEngine
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_file import open_control
from waltz_storage.core.errors import (
    DirectoryRefused,
    PartitionDamaged,
    PartitionUnopened,
    UnknownPartition,
)
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

KEY = uuid.UUID(int=5)
OPTIONS = LogOptions(lambda: 1)
SMALL_SEGMENTS = LogOptions(lambda: 1, 600, allocate_bytes=0)
SEGMENT = "0/0000000000000000000.seg"


@pytest.mark.parametrize("damaged", [False, True])
def test_removed_files_of_a_partition_do_not_come_back_with_a_loss_of_power(damaged: bool) -> None:
    disk = MemoryDisk()
    StorageDirectory(disk, KEY, 1, OPTIONS).assign(0)
    if damaged:
        disk.damage(SEGMENT, 12, b"another key")
    disk = disk.restarted()
    directory = StorageDirectory(disk, KEY, 1, OPTIONS)
    assert bool(directory.refused) is damaged
    directory.unassign(0, delete_files=True)
    for seed in range(20):
        after = disk.crashed(Random(seed))
        assert not after.exists(SEGMENT)


@pytest.mark.parametrize("damaged", [False, True])
def test_removal_interrupted_at_any_step_leaves_a_partition_that_can_be_assigned(
    damaged: bool,
) -> None:
    disk = MemoryDisk()
    engine = InlineEngine(StorageDirectory(disk, KEY, 1, SMALL_SEGMENTS))
    engine.directory.assign(0)
    for number in range(8):
        records = RecordBatch.of([Record(number, ReqId(1, 2, 0, number), 0, bytes(200), 7)])
        assert isinstance(
            engine.ask(storage.AppendRequest(-1, number, 0, records)), storage.SuccessResponse
        )
    engine.directory.close()
    if damaged:
        disk.damage(SEGMENT, 12, b"another key")
    else:
        disk.failing_open = 4
    directory = StorageDirectory(disk, KEY, 1, SMALL_SEGMENTS)
    (refused,) = directory.refused.values()
    assert isinstance(refused, PartitionDamaged if damaged else PartitionUnopened)

    crashed: list[MemoryDisk] = []

    def crash() -> None:
        crashed.extend((disk.restarted(), *(disk.crashed(Random(seed)) for seed in range(6))))

    disk.observer = crash
    directory.unassign(0, delete_files=True)
    interrupted = 0
    for after in crashed:
        again = StorageDirectory(after, KEY, 1, SMALL_SEGMENTS)
        if again.refused or 0 in again.partitions:
            continue
        interrupted += 1
        if damaged and SEGMENT.partition("/")[2] in after.names("0"):
            with pytest.raises(PartitionDamaged):
                again.assign(0)
            again.unassign(0, delete_files=True)
        again.assign(0)
        if damaged:
            assert again.partitions[0].log.max_id == -1
    assert interrupted > 20


def test_unassign_of_unassigned_partition_without_files_is_refused() -> None:
    directory = StorageDirectory(MemoryDisk(), KEY, 1, OPTIONS)
    with pytest.raises(UnknownPartition):
        directory.unassign(0, delete_files=True)


def test_files_that_an_unassigned_partition_kept_are_removed_only_on_request() -> None:
    disk = MemoryDisk()
    directory = StorageDirectory(disk, KEY, 1, OPTIONS)
    directory.assign(0)
    directory.unassign(0, delete_files=False)
    with pytest.raises(UnknownPartition):
        directory.unassign(0, delete_files=False)
    assert disk.exists(SEGMENT)
    directory.unassign(0, delete_files=True)
    assert disk.names("0") == []


@pytest.mark.parametrize("count", [1, 3])
def test_directory_made_for_another_number_of_partitions_is_refused(count: int) -> None:
    disk = MemoryDisk()
    open_control(disk, KEY, 2, 0).close()
    with pytest.raises(DirectoryRefused, match="number of partitions"):
        open_control(disk, KEY, count, 0)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_lock_held_by_another_process_returns_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = PosixDisk(tmp_path).create("control")
    monkeypatch.setattr(fcntl, "lockf", _failing(number))
    assert not file.lock(10)
    file.close()


def test_lock_that_the_file_system_cannot_take_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = PosixDisk(tmp_path).create("control")
    monkeypatch.setattr(fcntl, "lockf", _failing(errno.ENOLCK))
    with pytest.raises(OSError, match=os.strerror(errno.ENOLCK)):
        file.lock(10)
    file.close()


def _failing(number: int) -> object:
    def lockf(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return lockf
