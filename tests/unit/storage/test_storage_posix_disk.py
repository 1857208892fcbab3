"""Test which calls of the disk make which changes durable."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from waltz_storage.core.errors import DirectoryRefused, DiskFailed, NoSpace
from waltz_storage.shell.posix_disk import PosixDisk


class Flushes:
    """The calls of fsync and fdatasync: the inode of each flushed file or directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[int] = []
        self.directories: list[int] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._recording(getattr(os, name)))

    def _recording(self, flush: Callable[[int], None]) -> Callable[[int], None]:
        def record(fd: int) -> None:
            found = os.fstat(fd)
            is_directory = stat.S_ISDIR(found.st_mode)
            (self.directories if is_directory else self.files).append(found.st_ino)
            flush(fd)

        return record


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> Flushes:
    return Flushes(monkeypatch)


@pytest.fixture
def disk(tmp_path: Path) -> PosixDisk:
    return PosixDisk(tmp_path)


def test_flush_directory_flushes_that_directory(
    disk: PosixDisk, tmp_path: Path, flushes: Flushes
) -> None:
    disk.make_directory("3")
    disk.flush_directory("")
    assert flushes.directories == [tmp_path.stat().st_ino]
    disk.flush_directory("3")
    assert flushes.directories[1:] == [(tmp_path / "3").stat().st_ino]


def test_flush_directory_leaves_no_file_open(disk: PosixDisk) -> None:
    def next_descriptor() -> int:
        free = os.dup(0)
        os.close(free)
        return free

    before = next_descriptor()
    disk.flush_directory("")
    assert next_descriptor() == before


def test_flush_and_write_durably_flush_the_file(
    disk: PosixDisk, tmp_path: Path, flushes: Flushes
) -> None:
    file = disk.create("log")
    inode = (tmp_path / "log").stat().st_ino
    file.write(0, b"abc")
    assert flushes.files == []
    file.flush()
    assert flushes.files == [inode]
    file.write_durably(1, b"xy")
    assert flushes.files == [inode, inode]
    assert file.read(0, 9) == b"axy"
    file.close()


def test_write_durably_flushes_after_its_write(
    disk: PosixDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create("log")
    seen: list[bytes] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: seen.append((tmp_path / "log").read_bytes()))
    file.write_durably(0, b"abc")
    assert seen == [b"abc"]
    file.close()


def test_failed_flush_raises_disk_failed(disk: PosixDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = disk.create("log")
    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(DiskFailed, match="flush of log"):
        file.flush()
    with pytest.raises(DiskFailed, match="flush of directory"):
        disk.flush_directory("")
    file.close()


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.ENOSPC, NoSpace), (errno.EDQUOT, NoSpace), (errno.EIO, DiskFailed)],
)
def test_failed_write_says_whether_the_disk_is_full(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    file = disk.create("log")
    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(raised):
        file.write(0, b"abc")
    file.close()


def test_write_continues_after_a_short_write(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, pwrite = disk.create("log"), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:3], at))
    file.write(0, b"0123456789")
    assert file.read(0, 20) == b"0123456789"
    file.close()


def test_read_continues_after_a_short_read(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, pread = disk.create("log"), os.pread
    file.write(0, b"0123456789")
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(3, length), at))
    assert file.read(1, 7) == b"1234567"
    assert file.read(8, 9) == b"89"
    file.close()


def test_allocate_writes_zeros_up_to_the_end_only(disk: PosixDisk) -> None:
    file = disk.create("log")
    file.write(0, b"abc")
    end = (1 << 20) + 10
    file.allocate(3, end)
    assert file.size() == end
    assert file.read(0, 5) == b"abc\0\0"
    file.close()


def test_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryRefused, match="does not exist"):
        PosixDisk(tmp_path / "missing")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EAGAIN, errno.ENOLCK])
def test_lock_returns_false_only_if_another_process_holds_it(
    disk: PosixDisk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A file system without locks must not look like a storage that runs already."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    file = disk.create("control")
    monkeypatch.setattr(fcntl, "lockf", fail)
    if number == errno.ENOLCK:
        with pytest.raises(OSError, match=os.strerror(number)):
            file.lock(8)
    else:
        assert not file.lock(8)
    file.close()
