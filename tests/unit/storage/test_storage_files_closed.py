"""A storage directory closes all its files and ends its thread, also if its opening fails."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from tests.support.logged_node import KEY, OPTIONS, PARTITIONS
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import DirectoryRefused, DiskFailed
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_file import WAL_FILE
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

DATA, META, LOG = range(3)


class Disks:
    """The directories of a storage: of its partitions, its control file and its log."""

    def __init__(self, data: MemoryDisk, meta: MemoryDisk, log: MemoryDisk) -> None:
        self.all = (data, meta, log)

    @classmethod
    def used(cls, engine: str) -> Disks:
        """Return the directories after a crash of a storage with this ``engine``."""
        disks = cls(MemoryDisk(), MemoryDisk(), MemoryDisk())
        directory = disks.open(engine, in_background=False)
        for partition in range(PARTITIONS):
            directory.assign(partition)
        return disks.restarted()

    def restarted(self) -> Disks:
        """Return the directories as the next process finds them."""
        return Disks(*(disk.restarted() for disk in self.all))

    def open(self, engine: str, *, in_background: bool = True) -> StorageDirectory:
        """Open the storage directory; with ``in_background``, a thread makes checkpoints."""
        data, meta, log = self.all
        fail = _ignore if in_background else None
        options = WalOptions(64 * BLOCK_BYTES, lambda: 0.0, fail, directory=log)
        wal = WalEngine(options) if engine == "wal" else None
        return StorageDirectory(data, KEY, PARTITIONS, OPTIONS, meta, wal)

    def assert_closed(self) -> None:
        """Check that no file is open or locked, and that no thread makes checkpoints."""
        assert [disk.open_files for disk in self.all] == [0, 0, 0]
        assert [disk.locks for disk in self.all] == [{}, {}, {}]
        assert "checkpoints" not in {thread.name for thread in threading.enumerate()}


def _ignore(error: BaseException) -> None:
    """Do nothing about a checkpoint that failed."""


@pytest.mark.parametrize("engine", ["files", "wal"])
def test_files_are_closed_after_a_clean_stop(engine: str) -> None:
    disks = Disks.used(engine)
    disks.open(engine).close()
    disks.assert_closed()


@pytest.mark.parametrize("failing", ["failing_open", "failing_flush"])
@pytest.mark.parametrize("disk", [DATA, META, LOG])
@pytest.mark.parametrize("engine", ["files", "wal"])
def test_files_are_closed_after_an_opening_that_failed(
    engine: str, disk: int, failing: str
) -> None:
    """Each operation of the opening fails once."""
    used = Disks.used(engine)
    for number in count(1):
        disks = used.restarted()
        setattr(disks.all[disk], failing, number)
        try:
            directory = disks.open(engine)
        except (DirectoryRefused, DiskFailed):
            disks.assert_closed()
            continue
        remaining = getattr(disks.all[disk], failing)
        setattr(disks.all[disk], failing, 0)
        directory.close()
        disks.assert_closed()
        if remaining > 0:
            break  # The opening has fewer operations.
    assert number > 1 or (engine, disk) == ("files", LOG)


@pytest.mark.parametrize(("disk", "file"), [(LOG, WAL_FILE), (DATA, CATALOGUE_FILE)])
def test_files_are_closed_after_a_refused_replay(disk: int, file: str) -> None:
    disks = Disks.used("wal")
    disks.all[disk].damage(file, 0, bytes(2 * BLOCK_BYTES))
    with pytest.raises(DirectoryRefused, match="cannot be replayed"):
        disks.open("wal")
    disks.assert_closed()
