"""Test a control file in a separate directory: both directories must belong together."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from waltz.protocol import Record, RecordBatch, ReqId, checksum
from waltz.testing.disk import MemoryDisk, MemoryFile
from waltz_storage.core.control.control_file import open_control
from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.control.directory_pair import DATA_PAIR_FILE, META_PAIR_FILE, Pair
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.posix_disk import PosixDisk

KEY = uuid.UUID(int=55)


def storage_on(data: Disk, meta: Disk | None) -> StorageDirectory:
    return StorageDirectory(data, KEY, 2, LogOptions(lambda: 1, 1000, allocate_bytes=0), meta)


@dataclass(slots=True)
class Disks:
    """The two disks of one machine."""

    data: MemoryDisk
    meta: MemoryDisk

    def open(self) -> StorageDirectory:
        return storage_on(self.data, self.meta)

    def crashed(self, random: Random) -> Disks:
        return Disks(self.data.crashed(random), self.meta.crashed(random))

    def content(self) -> list[dict[str, bytes]]:
        return [
            {name: disk.content(name) for name in disk.names("") if name not in disk.directories}
            for disk in (self.data, self.meta)
        ]


def used() -> Disks:
    """Return the disks of a storage that has partition 1 with one record, after a clean stop."""
    disks = Disks(MemoryDisk(), MemoryDisk())
    storage = disks.open()
    storage.assign(1)
    record = Record(0, ReqId(7, 3, 1, 0), 0, b"kept", checksum(b"kept"))
    storage.partition(1).log.append(RecordBatch.of([record]))
    storage.close()
    return disks


def move(name: str, source: MemoryDisk, target: MemoryDisk) -> None:
    target.create(name).write(0, source.content(name))
    source.remove(name)


def test_meta_directory_holds_only_control_file_and_flushed_marks() -> None:
    disks = used()
    assert sorted(disks.meta.names("")) == [CONTROL_FILE, FLUSHED_FILE, META_PAIR_FILE]
    assert sorted(disks.data.names("")) == ["1", DATA_PAIR_FILE]
    storage = disks.open()
    assert storage.status() == {1: True}
    assert storage.partition(1).log.next_id == 1


def test_storage_with_one_directory_writes_no_pair_files() -> None:
    disk = MemoryDisk()
    storage_on(disk, None).close()
    assert sorted(disk.names("")) == [CONTROL_FILE, FLUSHED_FILE]


def test_interrupted_creation_of_pair_is_repeated() -> None:
    disks = Disks(MemoryDisk(), MemoryDisk())
    crashes: list[Disks] = []

    def crash() -> None:
        crashes.extend(disks.crashed(Random(n)) for n in range(10))

    disks.data.observer = disks.meta.observer = crash
    disks.open().assign(1)
    assert len(crashes) > 50
    for number, crashed in enumerate(crashes):
        crashed.open().assign(1)
        assert crashed.crashed(Random(number)).open().status() == {1: True}


def lose_control(disks: Disks) -> None:
    disks.meta.remove(CONTROL_FILE)


def cut_control(disks: Disks) -> None:
    disks.meta.open(CONTROL_FILE).truncate(100)


def lose_meta(disks: Disks) -> None:
    disks.meta = MemoryDisk()


def lose_data(disks: Disks) -> None:
    disks.data = MemoryDisk()


def take_data_of_another(disks: Disks) -> None:
    disks.data = used().data


def take_meta_of_another(disks: Disks) -> None:
    disks.meta = used().meta


def take_meta_of_an_unused_one(disks: Disks) -> None:
    disks.meta = MemoryDisk()
    storage_on(MemoryDisk(), disks.meta).close()


def exchange(disks: Disks) -> None:
    disks.data, disks.meta = disks.meta, disks.data


def leave_control_with_the_data(disks: Disks) -> None:
    move(CONTROL_FILE, disks.meta, disks.data)


def set_the_setting_late(disks: Disks) -> None:
    disks.data, disks.meta = MemoryDisk(), MemoryDisk()
    storage = storage_on(disks.data, None)
    storage.assign(1)
    storage.close()


def move_an_old_control_file(disks: Disks) -> None:
    set_the_setting_late(disks)
    move(CONTROL_FILE, disks.data, disks.meta)


def name_an_old_directory_as_meta(disks: Disks) -> None:
    set_the_setting_late(disks)
    disks.data, disks.meta = MemoryDisk(), disks.data


def empty_both_pair_files(disks: Disks) -> None:
    disks.data.open(DATA_PAIR_FILE).truncate(0)
    disks.meta.open(META_PAIR_FILE).truncate(0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lose_control, "is missing in storage.metaDirectory, but there are directories of"),
        (cut_control, "is cut off, but there are directories of partitions"),
        (lose_meta, "is missing in storage.metaDirectory, but there are directories of"),
        (lose_data, "it has no waltz-storage.data. Mount both volumes of the same storage"),
        (take_data_of_another, "differ. Mount both volumes of the same storage"),
        (take_meta_of_another, "differ. Mount both volumes of the same storage"),
        (take_meta_of_an_unused_one, "differ. Mount both volumes of the same storage"),
        (exchange, "storage.directory and storage.metaDirectory are exchanged"),
        (leave_control_with_the_data, "if the file was once moved from that meta directory, move"),
        (set_the_setting_late, "this storage keeps everything in one directory. Remove the"),
        (move_an_old_control_file, "move it back to its partitions and remove the setting"),
        (name_an_old_directory_as_meta, "move it back to its partitions and remove the setting"),
        (empty_both_pair_files, "differ. Mount both volumes of the same storage"),
    ],
)
def test_directories_that_are_not_a_pair_are_refused_unchanged(
    change: Callable[[Disks], None], sentence: str
) -> None:
    disks = used()
    change(disks)
    before = disks.content()
    with pytest.raises(DirectoryRefused) as refused:
        disks.open()
    assert sentence in str(refused.value)
    assert disks.content() == before
    assert not disks.data.locks
    assert not disks.meta.locks


def test_volume_restored_from_an_earlier_start_is_refused() -> None:
    disks = used()
    older = Disks(disks.data.restarted(), disks.meta.restarted())
    for _ in range(2):
        disks.open().close()
    for data, meta in ((older.data, disks.meta), (disks.data, older.meta)):
        mixed = Disks(data.restarted(), meta.restarted())
        before = mixed.content()
        with pytest.raises(DirectoryRefused, match="one of the volumes was restored from an older"):
            mixed.open()
        assert mixed.content() == before
    assert older.open().partition(1).log.next_id == 1


def test_start_interrupted_at_any_step_is_repeated() -> None:
    disks = used()
    for seed in range(12):
        crashes: list[Disks] = []

        def crash(disks: Disks = disks, crashes: list[Disks] = crashes) -> None:
            crashes.extend(disks.crashed(Random(n)) for n in range(4))

        disks.data.observer = disks.meta.observer = crash
        storage = disks.open()
        assert not storage.refused
        disks = crashes[seed % len(crashes)]


def test_pair_file_with_flipped_bit_is_refused_or_harmless() -> None:
    for name in (DATA_PAIR_FILE, META_PAIR_FILE):
        for place in range(96):
            disks = used()
            damaged = disks.data if name == DATA_PAIR_FILE else disks.meta
            damaged.damage(name, place, bytes((damaged.content(name)[place] ^ 4,)))
            try:
                storage = disks.open()
            except DirectoryRefused:
                continue
            assert storage.partition(1).log.next_id == 1


def test_directory_pair_without_the_setting_meta_directory_is_refused() -> None:
    disks = used()
    with pytest.raises(DirectoryRefused, match=r"set storage\.metaDirectory to that"):
        storage_on(disks.data, None)
    with pytest.raises(DirectoryRefused, match="is the meta directory of a storage"):
        storage_on(disks.meta, None)


def test_control_file_moved_to_data_directory_ends_pair() -> None:
    """In one directory, as Waltz 0.13.2 has it, and then in two again."""
    disks = used()
    move(CONTROL_FILE, disks.meta, disks.data)
    storage = storage_on(disks.data, None)
    assert storage.partition(1).log.next_id == 1
    storage.close()
    move(CONTROL_FILE, disks.data, disks.meta)
    assert disks.open().partition(1).log.next_id == 1


def test_pair_without_partitions_starts_after_loss() -> None:
    disks = Disks(MemoryDisk(), MemoryDisk())
    disks.open().close()
    disks.meta = MemoryDisk()
    disks.open().assign(0)
    disks.data, disks.meta = disks.data.restarted(), disks.meta.restarted()
    assert disks.open().status() == {0: True}


class _GuardedFile(MemoryFile):
    """A file with the lock ``guard``; records for each access whether the lock is held."""

    guard: threading.Lock
    accesses: list[bool]

    def one_flush(self) -> threading.Lock:
        return self.guard

    def read(self, offset: int, length: int) -> bytes:
        self.accesses.append(self.guard.locked())
        return super().read(offset, length)

    def write(self, offset: int, data: bytes) -> None:
        self.accesses.append(self.guard.locked())
        super().write(offset, data)


def test_generation_is_read_and_raised_under_one_lock() -> None:
    """Several threads truncate partitions: none may write a generation that it read before."""
    disks = used()
    control = open_control(disks.data, KEY, 2, 1, disks.meta)
    lock = threading.Lock()
    accesses: list[bool] = []

    def guarded(disk: MemoryDisk, name: str) -> _GuardedFile:
        file = _GuardedFile(disk, disk.open(name)._inode)
        file.guard, file.accesses = lock, accesses
        return file

    control._file = guarded(disks.meta, CONTROL_FILE)
    control._pair = Pair(guarded(disks.data, DATA_PAIR_FILE), guarded(disks.meta, META_PAIR_FILE))
    control.advance_generation()
    assert accesses == [True] * 4, "both files are read, then both are written"
    assert not lock.locked()


_HOLDER = """
import sys, uuid
from pathlib import Path
from waltz_storage.core.control.control_file import open_control
from waltz_storage.shell.posix_disk import PosixDisk
data, meta = (PosixDisk(Path(each)) for each in sys.argv[1:])
control = open_control(data, uuid.UUID(int=55), 2, 5, meta)
print("open", flush=True)
sys.stdin.read()
"""


def test_pair_with_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    data, meta, third = (tmp_path / name for name in ("data", "meta", "third"))
    for each in (data, meta, third):
        each.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(data), str(meta)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(DirectoryRefused, match="failed to acquire the lock"):
            storage_on(PosixDisk(data), PosixDisk(meta))
        with pytest.raises(DirectoryRefused, match="failed to acquire the lock"):
            storage_on(PosixDisk(data), PosixDisk(third))
        with pytest.raises(DirectoryRefused, match=r"it has no waltz-storage\.data"):
            storage_on(PosixDisk(third), PosixDisk(meta))
        holder.communicate("")
    storage_on(PosixDisk(data), PosixDisk(meta)).close()
