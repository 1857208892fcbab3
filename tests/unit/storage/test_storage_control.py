"""The control file: the current struct, resets, creation, directories of other clusters."""

from __future__ import annotations

import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_file import ControlFile, open_control
from waltz_storage.core.control.control_format import (
    CONTROL_FILE,
    ENTRY_BYTES,
    HEADER_BYTES,
    STRUCT_BYTES,
    ControlEntry,
    ControlHeader,
    EntryCorrupted,
    PartitionInfo,
    decode_entry,
    fresh_entry,
    reset_steps,
)
from waltz_storage.core.control.flushed_marks import open_marks
from waltz_storage.core.errors import DirectoryRefused, DiskFailed, PartitionDamaged
from waltz_storage.shell.posix_disk import PosixDisk

KEY = uuid.UUID(int=77)
INFO = PartitionInfo(3, 10, 9, 5)
LAST_SEQUENCE = (1 << 31) - 1


def struct_at(slot: int) -> int:
    """Return where a struct begins in a raw entry: after the id of the partition."""
    return 4 + STRUCT_BYTES * slot


def put_struct(raw: bytearray, struct: ControlEntry) -> None:
    start = struct_at(struct.slot)
    raw[start : start + STRUCT_BYTES] = struct.encode()


def entry_of(*structs: ControlEntry) -> bytes:
    raw = bytearray(fresh_entry(0))
    for struct in structs:
        put_struct(raw, struct)
    return bytes(raw)


def opened(disk: MemoryDisk, num_partitions: int = 2) -> ControlFile:
    return open_control(disk, KEY, num_partitions, 5)


def test_current_struct_of_a_new_control_entry_is_the_second() -> None:
    entry = decode_entry(fresh_entry(4))
    assert (entry.sequence, entry.slot, entry.info) == (0, 1, PartitionInfo())
    assert entry.updated(INFO).slot == 0


def test_struct_with_higher_signed_sequence_is_current() -> None:
    raw = entry_of(ControlEntry(INFO, -7, 0), ControlEntry(PartitionInfo(), -6, 1))
    assert decode_entry(raw).sequence == -6


@pytest.mark.parametrize("slot", [0, 1])
def test_entry_with_one_damaged_struct_uses_the_other(slot: int) -> None:
    raw = bytearray(entry_of(ControlEntry(INFO, 7, 0), ControlEntry(INFO, 8, 1)))
    raw[struct_at(slot)] ^= 1
    assert decode_entry(bytes(raw)).slot == 1 - slot


def test_entry_without_unique_current_struct_is_corrupted() -> None:
    raw = bytearray(fresh_entry(0))
    raw[struct_at(0)] ^= 1
    raw[struct_at(1)] ^= 1
    with pytest.raises(EntryCorrupted, match="corrupted"):
        decode_entry(bytes(raw))
    with pytest.raises(EntryCorrupted, match="same sequence number"):
        decode_entry(entry_of(ControlEntry(INFO, 4, 0), ControlEntry(INFO, 4, 1)))


@pytest.mark.parametrize("sequence", [-1, 0, 1, 5])
@pytest.mark.parametrize("slot", [0, 1])
def test_control_entry_reset_interrupted_at_any_step_shows_no_older_info(
    sequence: int, slot: int
) -> None:
    older = ControlEntry(PartitionInfo(2, 1, 1, 5), sequence - 1, 1 - slot)
    current = ControlEntry(INFO, sequence, slot)
    raw = bytearray(entry_of(older, current))
    for step in reset_steps(current):
        torn, start = bytearray(raw), struct_at(step.slot)
        torn[start : start + 20] = bytes(20)
        assert decode_entry(bytes(torn)).info in (INFO, PartitionInfo())
        put_struct(raw, step)
        assert decode_entry(bytes(raw)).info == PartitionInfo()
    sequence_at = struct_at(slot) + 28
    reset_sequence = int.from_bytes(raw[sequence_at : sequence_at + 4], "big", signed=True)
    assert reset_sequence == -1


@pytest.mark.parametrize("sequences", [(4, 4), (LAST_SEQUENCE - 1, LAST_SEQUENCE)])
def test_control_entry_reset_without_current_struct_never_shows_an_undamaged_struct(
    sequences: tuple[int, int],
) -> None:
    # Both structs are undamaged, but their sequence numbers show no current one.
    structs = [ControlEntry(INFO, sequence, slot) for slot, sequence in enumerate(sequences)]
    raw = bytearray(entry_of(*structs))
    for step in reset_steps(None):
        put_struct(raw, step)
        with suppress(EntryCorrupted):
            assert decode_entry(bytes(raw)).info == PartitionInfo()
    assert decode_entry(bytes(raw)) == ControlEntry(PartitionInfo(), 0, 1)


def test_update_is_durable_and_leaves_current_struct_untouched() -> None:
    disk = MemoryDisk()
    control = opened(disk)
    control.update(1, INFO)
    for seed in range(30):
        control.update(1, PartitionInfo(4 + seed, 10, 9, 5))
        assert opened(disk.crashed(Random(seed))).info(1).session_id == 4 + seed
    assert control.sequence(1) == 31
    assert control.info(0) == PartitionInfo()


def test_torn_update_leaves_the_former_or_the_new_info() -> None:
    disk = MemoryDisk()
    control = opened(disk)
    control.update(1, INFO)
    later = PartitionInfo(4, 20, 19, 5)
    crashed: list[MemoryDisk] = []
    disk.observer = lambda: crashed.extend(disk.crashed(Random(seed)) for seed in range(300))
    control.update(1, later)
    assert crashed
    for each in crashed:
        assert opened(each).info(1) in (INFO, later)


def test_interrupted_creation_is_repeated_at_next_start() -> None:
    disk = MemoryDisk()
    crashes: list[MemoryDisk] = []
    disk.observer = lambda: crashes.extend(disk.crashed(Random(n)) for n in range(10))
    opened(disk)
    for crashed in crashes:
        assert opened(crashed).info(1) == PartitionInfo()


def test_update_with_failed_flush_raises_disk_failed() -> None:
    disk = MemoryDisk()
    control = opened(disk)
    disk.failing_flush = 1
    with pytest.raises(DiskFailed):
        control.update(0, INFO)


@pytest.mark.parametrize(
    ("key", "partitions", "message"),
    [(uuid.UUID(int=78), 2, "cluster key"), (KEY, 3, "number of partitions")],
)
def test_directory_of_another_cluster_is_refused(
    key: uuid.UUID, partitions: int, message: str
) -> None:
    disk = MemoryDisk()
    opened(disk).close()
    with pytest.raises(DirectoryRefused, match=message):
        open_control(disk, key, partitions, 5)


@pytest.mark.parametrize("size", [0, 100, None])
def test_directory_with_partitions_but_no_valid_control_file_is_refused(size: int | None) -> None:
    disk = MemoryDisk()
    opened(disk).close()
    if size is None:
        disk.remove(CONTROL_FILE)
    else:
        disk.open(CONTROL_FILE).truncate(size)
    opened(disk).close()
    disk.make_directory("1")
    if size is None:
        disk.remove(CONTROL_FILE)
    else:
        disk.open(CONTROL_FILE).truncate(size)
    with pytest.raises(DirectoryRefused, match="partitions"):
        opened(disk)


def test_truncated_control_file_refuses_only_the_missing_partitions() -> None:
    disk = MemoryDisk()
    opened(disk).close()
    disk.open(CONTROL_FILE).truncate(HEADER_BYTES + ENTRY_BYTES + 30)
    control = opened(disk)
    assert control.info(0) == PartitionInfo()
    assert set(control.damaged) == {1}
    with pytest.raises(PartitionDamaged, match="cut off"):
        control.info(1)
    control.reset(1)
    assert opened(disk.crashed(Random(3))).info(1) == PartitionInfo()


_HOLDER = """
import sys, uuid
from pathlib import Path
from waltz_storage.core.control.control_file import open_control
from waltz_storage.shell.posix_disk import PosixDisk
control = open_control(PosixDisk(Path(sys.argv[1])), uuid.UUID(int=77), 2, 5)
print("open", flush=True)
sys.stdin.read()
"""


def test_directory_locked_by_another_process_is_refused(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(DirectoryRefused, match="failed to acquire the lock"):
            open_control(PosixDisk(tmp_path), KEY, 2, 5)
        holder.communicate("")
    open_control(PosixDisk(tmp_path), KEY, 2, 5).close()


def test_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryRefused, match="does not exist"):
        PosixDisk(tmp_path / "missing")


def test_damaged_entries_are_listed_while_another_thread_repairs_one() -> None:
    class RepairedMeanwhile(dict[int, str]):
        """Reasons of damage; another thread resets an entry just before it is looked up."""

        def __getitem__(self, partition: int) -> str:
            control.reset(partition)
            return super().__getitem__(partition)

    disk = MemoryDisk()
    opened(disk).close()
    reasons = RepairedMeanwhile({1: "checksums are wrong"})
    entries = [decode_entry(fresh_entry(0)), None]
    header = ControlHeader(1, KEY, 2)
    marks = open_marks(disk, 2)
    control = ControlFile(disk.open(CONTROL_FILE), header, KEY, entries, reasons, marks)
    assert "checksums are wrong" in str(control.damaged[1])
    control.reset(1)
    assert control.damaged == {}


# ---- updates whose flush failed


def test_update_whose_flush_failed_is_made_durable_before_its_use() -> None:
    """The next process reads the update from the page cache, and then the power is lost."""
    disk = MemoryDisk()
    control = opened(disk)
    disk.failing_flush = 1
    with pytest.raises(DiskFailed):
        control.update(1, INFO)
    after_restart = disk.restarted()
    found = opened(after_restart).info(1)
    assert found == INFO
    for seed in range(20):
        assert opened(after_restart.crashed(Random(seed))).info(1) == found


def test_control_file_that_cannot_be_made_durable_is_not_opened() -> None:
    disk = MemoryDisk()
    opened(disk).update(1, INFO)
    after_restart = disk.restarted()
    after_restart.failing_flush = 1
    with pytest.raises(DiskFailed):
        opened(after_restart)


def test_power_loss_while_the_control_file_opens_keeps_every_durable_entry() -> None:
    disk = MemoryDisk()
    control = opened(disk)
    control.update(0, INFO)
    disk.failing_flush = 1
    with pytest.raises(DiskFailed):
        control.update(1, INFO)
    after_restart = disk.restarted()
    crashed: list[MemoryDisk] = []
    after_restart.observer = lambda: crashed.extend(
        after_restart.crashed(Random(seed)) for seed in range(20)
    )
    opened(after_restart)
    assert crashed
    for each in crashed:
        found = opened(each)
        assert found.info(0) == INFO
        assert found.info(1) in (INFO, PartitionInfo())
