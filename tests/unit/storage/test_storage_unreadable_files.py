"""Test that files that cannot be opened are reported as neither absent nor damaged."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk, MemoryFile
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused, PartitionDamaged, PartitionUnopened
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.shell.posix_disk import PosixDisk
from waltz_storage.shell.wal_engine import WalEngine, WalOptions


class UnreadableFile(MemoryFile):
    """A file whose size cannot be read."""

    def size(self) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class ClosedDisk(MemoryDisk):
    """A disk on which opening one path, or listing one directory, fails with an error number.

    What is below the directory that cannot be listed cannot be found, either. ``unreadable`` is a
    path that can be opened, but whose size cannot be read.
    """

    refused: tuple[str, int] | None = None
    refused_listing: tuple[str, int] | None = None
    unreadable: str | None = None

    def exists(self, path: str) -> bool:
        if self.refused_listing is not None and path.startswith(f"{self.refused_listing[0]}/"):
            raise OSError(self.refused_listing[1], os.strerror(self.refused_listing[1]))
        return super().exists(path)

    def names(self, directory: str) -> list[str]:
        if self.refused_listing is not None and directory == self.refused_listing[0]:
            raise OSError(self.refused_listing[1], os.strerror(self.refused_listing[1]))
        return super().names(directory)

    def open(self, path: str) -> MemoryFile:
        if self.refused is not None and path.startswith(self.refused[0]):
            raise OSError(self.refused[1], os.strerror(self.refused[1]))
        if path == self.unreadable:
            return UnreadableFile(self, self._names[path])
        return super().open(path)


def directory_on(disk: Disk, engine: str = "files") -> StorageDirectory:
    wal = WalEngine(WalOptions(32 * BLOCK_BYTES, lambda: 0.0)) if engine == "wal" else None
    return StorageDirectory(disk, uuid.UUID(int=5), 2, LogOptions(lambda: 1, 1000), wal=wal)


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


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, PartitionDamaged), (errno.EACCES, PartitionUnopened)]
)
def test_index_without_data_file_that_cannot_be_opened_refuses_its_partition_only(
    disk: ClosedDisk, number: int, kind: type[Exception]
) -> None:
    directory = directory_on(disk)
    directory.assign(1)
    directory.close()
    # The remains of an interrupted creation of a segment: an index without its data file.
    path = "0/0000000000000000005.idx"
    disk.create(path).close()
    disk.refused = (path, number)
    directory = directory_on(disk)
    assert isinstance(directory.refused[0], kind)
    assert path in str(directory.refused[0])
    assert 1 in directory.partitions
    assert disk.exists(path)


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, PartitionDamaged), (errno.EMFILE, PartitionUnopened)]
)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("start", ["files", "wal", "wal after a crash"])
def test_directory_that_cannot_be_listed_refuses_its_partition_only(
    disk: ClosedDisk, number: int, kind: type[Exception], known: bool, start: str
) -> None:
    engine = start.partition(" ")[0]
    directory = directory_on(disk, engine)
    directory.assign(1)
    if start.endswith("crash"):
        directory._abandon()
    else:
        directory.close()
    if not known:
        disk.remove(FLUSHED_FILE)
    disk.refused_listing = ("0", number)
    directory = directory_on(disk, engine)
    assert isinstance(directory.refused[0], kind)
    assert f"{os.strerror(number)} (0" in str(directory.refused[0])
    assert 1 in directory.partitions


@pytest.mark.parametrize("assigned", [True, False])
def test_files_that_the_log_could_not_list_are_kept_until_a_start_after_a_clean_stop(
    disk: ClosedDisk, assigned: bool
) -> None:
    """To take them for missing would create the first segment anew, over the records."""
    directory = directory_on(disk, "wal")
    record = Record(0, ReqId(1, 2, 0, 0), 0, b"data", 7)
    directory.partition(0).log.append(RecordBatch.of([record]))
    if not assigned:
        directory.unassign(0, delete_files=False)
    directory.close()
    disk.refused_listing = ("0", errno.EACCES)
    directory = directory_on(disk, "wal")
    disk.refused_listing = None
    remedy = "stop this storage node cleanly and start it again"
    with pytest.raises(PartitionUnopened, match=remedy):
        directory.assign(0)
    with pytest.raises(PartitionUnopened, match=remedy):
        directory.unassign(0, delete_files=True)
    with pytest.raises(PartitionUnopened, match=remedy):
        directory.assign(0)
    directory.close()
    directory = directory_on(disk, "wal")
    directory.assign(0)
    assert list(directory.partition(0).log.read_batch(0, 9, 999)) == [record]


def test_index_without_data_file_whose_size_is_unreadable_is_damage(disk: ClosedDisk) -> None:
    path = "0/0000000000000000005.idx"
    disk.create(path).close()
    disk.unreadable = path
    refused = directory_on(disk).refused[0]
    assert isinstance(refused, PartitionDamaged)
    assert "it cannot be read: Input/output error" in str(refused)


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


def test_refused_partition_keeps_nothing_of_the_requests_that_it_refuses(disk: ClosedDisk) -> None:
    """An error that is raised again and again would keep the frames of each raise in memory."""
    disk.refused = ("0/", errno.EMFILE)
    directory = directory_on(disk)
    kept = directory.refused[0]
    for _ in range(3):
        with pytest.raises(PartitionUnopened) as refused:
            directory.partition(0)
        assert str(refused.value) == str(kept)
    assert directory.refused[0] is kept
    assert kept.__traceback__ is None
    assert kept.__context__ is None
