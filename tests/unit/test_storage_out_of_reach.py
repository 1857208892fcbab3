"""Files that are whole but out of reach are neither called absent nor damaged."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from tests.faultdisk import FaultDisk, FaultFile
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused, PartitionUnopened
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk


class ClosedDisk(FaultDisk):
    """A disk that answers one path's ``open`` with an error number."""

    refused: tuple[str, int] | None = None

    def open(self, path: str) -> FaultFile:
        if self.refused is not None and path.startswith(self.refused[0]):
            raise OSError(self.refused[1], os.strerror(self.refused[1]))
        return super().open(path)


def directory_on(disk: Disk) -> StorageDirectory:
    return StorageDirectory(disk, uuid.UUID(int=5), 2, LogOptions(lambda: 1, 1000))


@pytest.fixture
def disk() -> ClosedDisk:
    """A disk with partition 0 on it, as a clean stop leaves it."""
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
def test_a_partition_out_of_reach_is_not_called_damaged(
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
def test_a_control_file_out_of_reach_is_said_in_a_sentence(disk: ClosedDisk, number: int) -> None:
    disk.refused = (CONTROL_FILE, number)
    with pytest.raises(DirectoryRefused) as caught:
        directory_on(disk)
    assert f"{CONTROL_FILE} cannot be used: {os.strerror(number)}; this storage" in str(
        caught.value
    )


def test_what_cannot_be_looked_at_is_not_absent(tmp_path: Path) -> None:
    disk = PosixDisk(tmp_path)
    (tmp_path / "file").touch()
    assert disk.exists("file")
    assert not disk.exists("other")
    assert not disk.exists("file/below")
    with pytest.raises(OSError, match="File name too long"):
        disk.exists("n" * 300)


def test_a_storage_directory_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryRefused, match="cannot be opened: File name too long"):
        PosixDisk(tmp_path / ("n" * 300))
