"""Test that files that cannot be opened are reported as neither absent nor damaged."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from waltz.testing.disk import MemoryDisk, MemoryFile
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused, PartitionUnopened
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk


class ClosedDisk(MemoryDisk):
    """A disk on which opening one path fails with an error number."""

    refused: tuple[str, int] | None = None

    def open(self, path: str) -> MemoryFile:
        if self.refused is not None and path.startswith(self.refused[0]):
            raise OSError(self.refused[1], os.strerror(self.refused[1]))
        return super().open(path)


def directory_on(disk: Disk) -> StorageDirectory:
    return StorageDirectory(disk, uuid.UUID(int=5), 2, LogOptions(lambda: 1, 1000))


@pytest.fixture
def disk() -> ClosedDisk:
    """A disk with partition 0, after a clean stop."""
    disk = ClosedDisk()
    directory = directory_on(disk)
    directory.assign(0)
    directory.close()
    return disk


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EMFILE, "raise this process's limit of open files"),
        (errno.ENFILE, "raise this machine's limit of open files"),
        (errno.EACCES, "give this process the right"),
    ],
)
def test_partition_that_cannot_be_opened_is_not_damaged(
    disk: ClosedDisk, number: int, advice: str
) -> None:
    disk.refused = ("0/", number)
    directory = directory_on(disk)
    refused = directory.refused[0]
    assert isinstance(refused, PartitionUnopened)
    assert advice in str(refused)
    with pytest.raises(PartitionUnopened, match="its files are unchanged"):
        directory.assign(0)

    disk.refused = None
    directory.assign(0)
    assert not directory.refused
    assert 0 in directory.partitions


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("suffix", ["seg", "idx"])
def test_refused_partition_names_the_file_that_cannot_be_opened(
    disk: ClosedDisk, suffix: str, number: int
) -> None:
    path = f"0/0000000000000000000.{suffix}"
    disk.refused = (path, number)
    assert path in str(directory_on(disk).refused[0])


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_unreadable_control_file_is_refused_with_reason(disk: ClosedDisk, number: int) -> None:
    disk.refused = (CONTROL_FILE, number)
    with pytest.raises(DirectoryRefused) as caught:
        directory_on(disk)
    assert f"{CONTROL_FILE} cannot be used: {os.strerror(number)}; this storage" in str(
        caught.value
    )


def test_exists_of_unreadable_path_raises(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    (tmp_path / "file").touch()
    assert disk.exists("file")
    assert not disk.exists("other")
    assert not disk.exists("file/below")
    with pytest.raises(OSError, match="File name too long"):
        disk.exists("n" * 300)


def test_unreadable_storage_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryRefused, match="cannot be opened: File name too long"):
        PosixDisk(tmp_path / ("n" * 300))
