"""The flushed marks that several threads flush at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from waltz.testing.disk import MemoryDisk, MemoryFile
from waltz_storage.core.control.flushed_marks import FlushedMarks
from waltz_storage.core.log.flushed_end import FlushedEnd
from waltz_storage.shell.posix_disk import PosixDisk

_COUNTERS = ("_newest_begun_flush", "_newest_ended_flush")


class _GuardedFile(MemoryFile):
    """A file that knows whether a thread holds its lock for flushes."""

    held = False
    unguarded_flushes = 0

    @contextmanager
    def one_flush(self) -> Iterator[None]:
        self.held = True
        yield
        self.held = False

    def flush(self) -> None:
        self.unguarded_flushes += not self.held
        super().flush()


class _RecordingMarks(FlushedMarks):
    """Marks that record each change of a counter, and whether the lock was held."""

    changes: list[tuple[str, bool]]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _COUNTERS and hasattr(self, "changes"):
            file = self._file
            assert isinstance(file, _GuardedFile)
            self.changes.append((name, file.held))
        super().__setattr__(name, value)


def test_counters_of_flushes_change_only_under_the_lock_of_the_file() -> None:
    """A thread that stored its number late would set a counter back.

    A slot that was written after the beginning of a flush would then count as durable when that
    flush ends.
    """
    disk = MemoryDisk()
    file = disk.create("marks")
    guarded = _GuardedFile(disk, file._inode)
    marks = _RecordingMarks(guarded, 2)
    marks.changes, guarded.unguarded_flushes = [], 0
    marks.load(0, 7)
    marks.raise_to(0, FlushedEnd(3, 9))
    marks.flush()
    marks.lower_to(0, FlushedEnd(2, 6))
    assert marks.changes == [(name, True) for name in _COUNTERS] * 2
    assert guarded.unguarded_flushes == 0, "no flush hides the error of another one"


@pytest.mark.parametrize("durable_write", [True, False])
def test_flushes_of_one_file_wait_for_each_other(tmp_path: Path, durable_write: bool) -> None:
    """Of two flushes at the same time, the operating system reports a lost write to only one."""
    file = PosixDisk(tmp_path).create("marks")
    flushed = threading.Event()

    def flush() -> None:
        if durable_write:
            file.write_durably(0, b"x")
        else:
            with file.one_flush():
                file.flush()
        flushed.set()

    with file.one_flush():
        thread = threading.Thread(target=flush)
        thread.start()
        assert not flushed.wait(0.05)
    thread.join(60)
    assert flushed.is_set()
    file.close()
