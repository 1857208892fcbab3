"""A write-ahead log in a directory of its own: both directories must belong together."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.logged_node import LoggedNode, lengths, plain
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.wal_file import WAL_FILE


def used_node() -> tuple[LoggedNode, MemoryDisk]:
    """Return a node with one record, and the disk of its log."""
    home = MemoryDisk()
    node = LoggedNode(MemoryDisk(), wal_disk=home)
    node.append(0)
    return node, home


def test_directory_of_the_log_has_the_log_and_its_pair_file_only() -> None:
    node, home = used_node()
    assert sorted(home.names("")) == [WAL_FILE, LOG_PAIR_FILE]
    assert not node.disk.exists(WAL_FILE)
    assert node.disk.exists(CATALOGUE_FILE)
    assert node.disk.content(LOG_PAIR_FILE) == home.content(LOG_PAIR_FILE)


def test_both_volumes_after_a_crash_are_replayed() -> None:
    node, home = used_node()
    for seed in range(20):
        disk, log = node.disk.crashed(Random(seed)), home.crashed(Random(seed + 100))
        assert LoggedNode(disk, wal_disk=log).lengths() == [1, 0, 0, 0, 0]


def test_clean_stop_leaves_a_plain_directory_whose_log_may_move() -> None:
    node, _ = used_node()
    node.directory.close()
    directory = plain(node.disk)
    assert lengths(directory) == [1, 0, 0, 0, 0]
    directory.close()
    other = MemoryDisk()
    node = LoggedNode(node.disk, wal_disk=other)
    node.append(1)
    node.directory.close()
    assert other.exists(WAL_FILE)
    node = LoggedNode(node.disk)
    assert node.lengths() == [1, 1, 0, 0, 0]
    assert not node.disk.exists(LOG_PAIR_FILE)


def test_directory_that_needs_its_log_is_refused_with_another_one() -> None:
    node, _ = used_node()
    _, other = used_node()
    before = other.content(WAL_FILE)
    log = other.restarted()
    with pytest.raises(DirectoryRefused, match="is not the one that belongs to this"):
        LoggedNode(node.disk.restarted(), wal_disk=log)
    assert log.content(WAL_FILE) == before
    with pytest.raises(DirectoryRefused, match="is not the one that belongs to this"):
        LoggedNode(node.disk.restarted(), wal_disk=MemoryDisk())


def test_directory_that_needs_its_log_is_refused_without_the_setting_and_with_a_new_one() -> None:
    node, _ = used_node()
    with pytest.raises(DirectoryRefused, match=r"set storage\.wal\.directory to that directory"):
        LoggedNode(node.disk.restarted())
    alone = LoggedNode(MemoryDisk())
    with pytest.raises(DirectoryRefused, match=r"remove storage\.wal\.directory"):
        LoggedNode(alone.disk.restarted(), wal_disk=MemoryDisk())


def test_plain_directory_does_not_take_the_log_of_another_storage() -> None:
    """The other storage may need its log, even if the log has no transactions at this moment."""
    node, _ = used_node()
    node.directory.close()
    _, other = used_node()
    before = other.content(WAL_FILE)
    log = other.restarted()
    with pytest.raises(DirectoryRefused, match="of another storage"):
        LoggedNode(node.disk, wal_disk=log)
    assert log.content(WAL_FILE) == before
    assert lengths(plain(node.disk.restarted())) == [1, 0, 0, 0, 0]


def test_directory_of_the_log_in_use_is_refused() -> None:
    _, home = used_node()
    with pytest.raises(
        DirectoryRefused, match=r"another process uses this storage\.wal\.directory"
    ):
        LoggedNode(MemoryDisk(), wal_disk=home)


def test_older_copy_of_the_wal_volume_is_refused() -> None:
    node, home = used_node()
    copy = home.restarted()
    for _ in range(3):
        node.append(0)
        node.commits.checkpoint()
    with pytest.raises(DirectoryRefused, match="cannot be replayed"):
        LoggedNode(node.disk.restarted(), wal_disk=copy)


def test_copy_of_the_data_volume_within_a_checkpoint_is_refused_or_has_all_records() -> None:
    """The log gives up all that a checkpoint has flushed, and the copy may lack some of it."""
    node, home = used_node()
    for partition in (0, 0, 1, 2):
        node.append(partition, 30_000)
    wanted = node.lengths()
    copies: list[MemoryDisk] = []
    node.disk.observer = lambda: copies.extend(
        [node.disk.restarted(), *(node.disk.crashed(Random(n)) for n in range(4))]
    )
    node.commits.checkpoint()
    node.disk.observer = None
    opened = 0
    for copy in copies:
        try:
            again = LoggedNode.opened(copy, wal_disk=home.restarted())
        except DirectoryRefused:
            continue
        opened += 1
        assert lengths(again) == wanted
    assert 0 < opened < len(copies)


def test_interrupted_first_start_is_repeated() -> None:
    """Each crash leaves a directory that the same settings open again."""
    data, home = MemoryDisk(), MemoryDisk()
    crashes: list[tuple[MemoryDisk, MemoryDisk]] = []

    def changed() -> None:
        crashes.extend((data.crashed(Random(n)), home.crashed(Random(n + 50))) for n in range(4))

    data.observer = home.observer = changed
    node = LoggedNode(data, wal_disk=home)
    data.observer = home.observer = None
    assert node.lengths() == [0] * 5
    assert len(crashes) > 80
    for disk, log in Random(7).sample(crashes, 80):
        again = LoggedNode(disk, wal_disk=log)
        again.append(0)
        crashed = LoggedNode(disk.crashed(Random(1)), wal_disk=log.crashed(Random(2)))
        assert crashed.lengths() == [1, 0, 0, 0, 0]
