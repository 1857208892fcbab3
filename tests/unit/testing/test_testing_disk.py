"""What the disk in memory keeps after a crash, and who holds its locks."""

from __future__ import annotations

from random import Random

from waltz.testing.disk import MemoryDisk


def disk_with_a_file(*, durable_directory: bool) -> MemoryDisk:
    """Return a disk with a flushed file, whose name in its directory is flushed, too."""
    disk = MemoryDisk()
    disk.make_directory("7")
    file = disk.create("7/log")
    file.write_durably(0, b"records")
    disk.flush_directory("7")
    if durable_directory:
        disk.flush_directory("")
    return disk


def test_crash_loses_files_of_a_directory_whose_name_is_not_durable() -> None:
    for seed in range(20):
        kept = disk_with_a_file(durable_directory=True).crashed(Random(seed))
        assert kept.content("7/log") == b"records"
    ends = []
    for seed in range(20):
        left = disk_with_a_file(durable_directory=False).crashed(Random(seed))
        assert left.exists("7") == left.exists("7/log")
        ends.append(left.exists("7"))
    assert {True, False} == set(ends)


def test_lock_of_a_file_ends_when_the_file_is_closed() -> None:
    disk = MemoryDisk()
    first, second = disk.create("control"), disk.open("control")
    assert first.lock(10)
    assert not second.lock(10)
    second.close()
    assert not disk.open("control").lock(10), "only its holder releases a lock"
    first.close()
    assert disk.open("control").lock(10)
