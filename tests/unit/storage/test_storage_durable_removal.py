"""What a storage removes stays removed, and what it cannot lock or does not own it refuses."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from pathlib import Path
from random import Random

import pytest

from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_file import open_control
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

KEY = uuid.UUID(int=5)
OPTIONS = LogOptions(lambda: 1)
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


@pytest.mark.parametrize("count", [1, 3])
def test_directory_made_for_another_number_of_partitions_is_refused(count: int) -> None:
    disk = MemoryDisk()
    open_control(disk, KEY, 2, 0).close()
    with pytest.raises(DirectoryRefused, match="number of partitions"):
        open_control(disk, KEY, count, 0)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_lock_of_another_process_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = PosixDisk(tmp_path).create("control")
    monkeypatch.setattr(fcntl, "lockf", _failing(number))
    assert not file.lock(10)
    file.close()


def test_lock_that_the_file_system_cannot_take_is_an_error(
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
