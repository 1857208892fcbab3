"""Operations that a second replay could apply wrongly, and space that is given up too early.

Each test applies a transaction, and then replays it over files that already have its changes.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.support.logged_node import LoggedNode, lengths, plain
from tests.support.logged_world import LoggedWorld, state_on
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import DirectoryRefused, DiskFailed
from waltz_storage.core.wal.catalogue import FileKind, FileName, present, removed, write_row
from waltz_storage.core.wal.operations import Address, Move, WriteData

A, B = FileName(FileKind.DATA, 0, 0), FileName(FileKind.DATA, 1, 0)


def with_files() -> tuple[LoggedWorld, int, int]:
    """Return a world whose files A and B have six bytes, and the regions of the files."""
    world = LoggedWorld.create(Random(1), 12)
    catalogue = world.logged.files.catalogue
    a, b = catalogue.new_region(), catalogue.new_region()
    world.logged.commit(
        [
            write_row(a, present(A)),
            write_row(b, present(B)),
            WriteData(Address(a, 0), b"abcdef"),
            WriteData(Address(b, 0), b"uvwxyz"),
        ]
    )
    world.logged.checkpoint()
    return world, a, b


def flush_files(world: LoggedWorld) -> None:
    """Make the files durable as a checkpoint does, and crash before its header is written."""
    for flush in world.logged.begin_checkpoint():
        flush()
    world.logged.write_position()()


def test_replay_of_overlapping_move_does_not_move_twice() -> None:
    world, a, _ = with_files()
    world.logged.commit([Move(Address(a, 1), Address(a, 0), 5)])
    flush_files(world)
    assert state_on(world.disk)[A] == b"aabcde"
    assert LoggedWorld(world.disk.restarted(), Random(2)).state[A] == b"aabcde"


def test_move_whose_source_the_same_transaction_changes_is_replayed_without_the_change() -> None:
    world, a, b = with_files()
    world.logged.commit([Move(Address(b, 0), Address(a, 0), 3), WriteData(Address(a, 0), b"NEW")])
    flush_files(world)
    state = LoggedWorld(world.disk.restarted(), Random(2)).state
    assert (state[A], state[B]) == (b"NEWdef", b"abcxyz")


def test_write_to_the_source_of_a_logged_move_waits_for_a_checkpoint() -> None:
    world, a, b = with_files()
    world.logged.commit([Move(Address(b, 0), Address(a, 0), 3)])
    change = [WriteData(Address(a, 0), b"NEW")]
    assert not world.logged.can_write(change)
    world.logged.checkpoint()
    assert world.logged.can_write(change)
    world.logged.commit(change)
    flush_files(world)
    state = LoggedWorld(world.disk.restarted(), Random(2)).state
    assert (state[A], state[B]) == (b"NEWdef", b"abcxyz")


def test_region_of_a_removed_file_is_not_used_before_the_checkpoint_is_durable() -> None:
    """An operation in the log would mean the new file (invariant 5)."""
    world, a, b = with_files()
    catalogue = world.logged.files.catalogue
    world.logged.commit([WriteData(Address(b, 0), b"1")])
    earlier = world.logged.begin_checkpoint()
    world.logged.commit([write_row(a, removed(A))])
    for flush in earlier:
        flush()
    world.logged.write_position()()
    world.logged.end_checkpoint()
    world.logged.flush_header()
    other = catalogue.new_region()
    assert other != a, "the checkpoint began before the removal"
    catalogue.return_region(other)
    flush_files(world)
    world.logged.end_checkpoint()
    assert catalogue.new_region() == other, "the header is not durable yet"
    catalogue.return_region(other)
    world.logged.flush_header()
    assert {catalogue.new_region(), catalogue.new_region()} == {a, other}


def test_space_of_a_checkpoint_is_used_only_when_its_header_is_durable() -> None:
    """A crash may leave the older header, whose transactions must still be there."""
    world, a, _ = with_files()
    world.logged.commit([WriteData(Address(a, 0), b"1")])
    free = world.logged.writer.free_blocks
    flush_files(world)
    world.logged.end_checkpoint()
    assert world.logged.header_pending
    assert world.logged.writer.free_blocks == free
    world.logged.flush_header()
    assert world.logged.writer.free_blocks > free


def test_crash_during_a_clean_stop_leaves_all_records() -> None:
    """The key becomes plain only when the log is empty and all files are durable."""
    node = LoggedNode(MemoryDisk())
    for number in range(12):
        node.append(number % 5)
    crashes: list[MemoryDisk] = []
    node.disk.observer = lambda: crashes.extend(node.disk.crashed(Random(n)) for n in range(4))
    node.directory.close()
    node.disk.observer = None
    expected = [3, 3, 2, 2, 2]
    ended = 0
    for disk in crashes:
        try:
            found = lengths(plain(disk.restarted()))
        except DirectoryRefused:
            pass
        else:
            ended += 1
            assert found == expected
        assert LoggedNode(disk).lengths() == expected
    assert 0 < ended < len(crashes)


def test_transaction_whose_flush_failed_is_replayed_whole_or_not_at_all() -> None:
    """After a failed flush its pages are only in the cache, and no later flush writes them."""
    world, a, b = with_files()
    world.logged.write([WriteData(Address(a, 0), b"1"), WriteData(Address(b, 0), b"1")])
    world.disk.failing_flush = 1
    with pytest.raises(DiskFailed):
        world.logged.writer.flush()
    disk = world.disk.restarted()
    crashes: list[MemoryDisk] = []
    disk.observer = lambda: crashes.extend(disk.every_crash() if disk.unflushed <= 6 else [])
    opened = LoggedWorld(disk, Random(2))
    disk.observer = None
    assert opened.state[A] == b"1bcdef"
    found = set()
    for crashed in crashes:
        state = LoggedWorld(crashed, Random(3)).state
        found.add((state[A][:1], state[B][:1]))
    assert found == {(b"a", b"u"), (b"1", b"1")}
