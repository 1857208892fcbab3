"""Large records with the engine ``wal``: their bytes go to the file, their checksum to the log."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.logged_node import (
    KEY,
    PARTITIONS,
    SEGMENT,
    LoggedNode,
    lengths,
    logged_operations,
    plain,
)
from waltz.protocol import storage
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.operations import Check, WriteData
from waltz_storage.shell.flattening import Directories, flatten_directories

DIRECT_BYTES = 1000
LARGE = 5000
SMALL = 100


def node_with_files(disk: MemoryDisk | None = None) -> LoggedNode:
    """Return a node whose files are durable, so that large records may be written directly."""
    node = LoggedNode(disk or MemoryDisk(), 64, direct_bytes=DIRECT_BYTES)
    checkpoint(node)
    return node


def checkpoint(node: LoggedNode) -> None:
    """Make a checkpoint whose header is durable, by an append to partition 4 without effect."""
    node.commits.checkpoint()
    assert isinstance(node.append(4, SMALL), storage.SuccessResponse)


def large_writes(disk: MemoryDisk) -> list[WriteData]:
    return [
        each
        for each in logged_operations(disk)
        if isinstance(each, WriteData) and len(each.data) >= DIRECT_BYTES
    ]


def checks(disk: MemoryDisk) -> list[Check]:
    return [each for each in logged_operations(disk) if isinstance(each, Check)]


def test_large_record_is_logged_as_a_checksum_and_read_back() -> None:
    node = node_with_files()
    assert isinstance(node.append(0, LARGE), storage.SuccessResponse)
    (check,) = checks(node.disk)
    assert check.length > LARGE
    assert large_writes(node.disk) == []
    assert node.lengths()[0] == 1


def test_small_record_is_copied_to_the_log() -> None:
    node = node_with_files()
    node.append(0, SMALL)
    assert checks(node.disk) == []
    assert node.lengths()[0] == 1


def test_large_and_small_records_of_a_round_are_one_transaction() -> None:
    node = node_with_files()
    before, flushes = node.commits.transactions, node.disk.flushes
    node.engine.ask_together(
        [node.request(0, LARGE), node.request(1, SMALL), node.request(2, LARGE)]
    )
    assert node.commits.transactions == before + 1
    # The log and the two files with direct data.
    assert node.disk.flushes == flushes + 3
    assert node.lengths() == [1, 1, 1, 0, 1]


def test_record_larger_than_a_transaction_flushes_its_file_once_per_transaction() -> None:
    node = LoggedNode(MemoryDisk(), 16, direct_bytes=DIRECT_BYTES)
    checkpoint(node)
    before, flushes = node.commits.transactions, node.disk.flushes
    node.append(0, 4 * node.commits.logged.writer.most_bytes)
    assert node.lengths()[0] == 1
    written = node.commits.transactions - before
    assert written > 1
    # A transaction flushes the log, and the file if it has direct data.
    assert node.disk.flushes - flushes <= 2 * written
    assert LoggedNode(node.disk.crashed(Random(1)), 16).lengths()[0] == 1


def test_acknowledged_large_records_survive_every_crash() -> None:
    """The direct data are durable before the append is answered."""
    for seed in range(60):
        node = node_with_files()
        node.append(0, LARGE)
        node.append(0, SMALL)
        node.append(0, LARGE)
        disk = node.disk.crashed(Random(seed))
        assert LoggedNode(disk, 64).lengths() == [3, 0, 0, 0, 1]


def test_crash_during_a_large_append_leaves_a_prefix_of_the_log() -> None:
    crashes: list[MemoryDisk] = []
    node = node_with_files()
    node.append(0, LARGE)
    node.disk.observer = lambda: crashes.extend(node.disk.crashed(Random(n)) for n in range(5))
    node.append(0, LARGE)
    node.disk.observer = None
    assert len(crashes) > 10
    for disk in crashes:
        again = LoggedNode(disk, 64, direct_bytes=DIRECT_BYTES)
        assert again.lengths()[0] in (1, 2)
        assert isinstance(again.append(0, LARGE), storage.SuccessResponse)


def test_large_record_after_a_truncation_goes_through_the_log_until_a_checkpoint() -> None:
    """A replay applies the truncation again, which would remove direct data (invariant 3)."""
    node = node_with_files()
    node.append(0, LARGE)
    node.append(0, LARGE)
    node.directory.partition(0).log.truncate(0)
    node.append(0, LARGE)
    assert len(large_writes(node.disk)) == 1
    assert LoggedNode(node.disk.crashed(Random(1)), 64).lengths()[0] == 2
    checkpoint(node)
    node.append(0, LARGE)
    assert large_writes(node.disk) == []
    assert len(checks(node.disk)) == 1
    assert LoggedNode(node.disk.crashed(Random(2)), 64).lengths()[0] == 3


def test_large_record_of_a_new_segment_is_copied() -> None:
    """The row that creates the file is in the log: a replay would empty the file."""
    node = node_with_files()
    for _ in range(8):
        node.append(0, LARGE)
    checkpoint(node)
    # The segment is full: this record begins a new one.
    node.append(0, LARGE)
    assert len(large_writes(node.disk)) == 1
    assert LoggedNode(node.disk.crashed(Random(2)), 64).lengths()[0] == 9


def test_large_records_are_in_a_plain_directory_after_a_clean_stop() -> None:
    node = node_with_files()
    for _ in range(20):
        node.append(0, LARGE)
    node.directory.close()
    assert lengths(plain(node.disk)) == [20, 0, 0, 0, 1]


def damaged_after_loss_of_power() -> tuple[MemoryDisk, int]:
    """Return a disk with a damaged large record of partition 0, and the offset of the record.

    The record was flushed, but no flushed mark names it.
    """
    node = node_with_files()
    node.append(0, LARGE)
    (check,) = checks(node.disk)
    node.append(1, SMALL)
    disk = node.disk.crashed(Random(0))
    disk.damage(SEGMENT, check.address.offset + 60, b"?")
    return disk, check.address.offset


def assert_still_refused(directory: StorageDirectory) -> None:
    """Check that partition 0 alone is refused, because of an earlier replay of the log."""
    assert list(directory.refused) == [0]
    assert directory.partition(1).log.next_id == 1
    with pytest.raises(PartitionDamaged, match="an earlier start found records damaged that were"):
        directory.assign(0)
    assert list(directory.refused) == [0]


def test_durable_large_record_that_is_damaged_refuses_its_partition_only() -> None:
    disk, offset = damaged_after_loss_of_power()
    directory = LoggedNode.opened(disk, 64)
    refused = directory.refused[0]
    assert isinstance(refused, PartitionDamaged)
    assert (refused.file, refused.offset) == (SEGMENT, offset)
    assert "fail their checksum in the write-ahead log" in str(refused)
    assert directory.partition(1).log.next_id == 1
    assert_still_refused(directory)


@pytest.mark.parametrize("after", ["loss of power", "restart", "clean stop"])
def test_partition_with_a_damaged_large_record_is_refused_by_later_starts(after: str) -> None:
    """The replay has emptied the log, so that only the flushed mark shows the damage."""
    disk, _ = damaged_after_loss_of_power()
    first = LoggedNode.opened(disk, 64)
    if after == "clean stop":
        first.close()
    disk = disk.crashed(Random(1)) if after == "loss of power" else disk.restarted()
    assert_still_refused(LoggedNode.opened(disk, 64))


@pytest.mark.parametrize("how", ["loss of power", "restart"])
def test_partition_with_a_damaged_large_record_is_refused_if_the_replay_is_interrupted(
    how: str,
) -> None:
    """As soon as the log is empty on the disk, the flushed mark refuses the partition."""
    disk, _ = damaged_after_loss_of_power()
    crashes: list[MemoryDisk] = []

    def changed() -> None:
        if how == "restart":
            crashes.append(disk.restarted())
        else:
            crashes.extend(disk.crashed(Random(seed)) for seed in range(4))

    disk.observer = changed
    LoggedNode.opened(disk, 64)
    assert len(crashes) > 10
    for crashed in crashes:
        assert list(LoggedNode.opened(crashed, 64).refused) == [0]


def test_partition_with_a_damaged_large_record_is_refused_after_a_flattening() -> None:
    disk, _ = damaged_after_loss_of_power()
    result = flatten_directories(Directories(disk), KEY, PARTITIONS, lambda: 1)
    assert [each.partition for each in result.refused] == [0]
    assert_still_refused(plain(disk))


def test_partition_with_a_damaged_large_record_is_empty_after_a_new_assignment() -> None:
    disk, _ = damaged_after_loss_of_power()
    directory = LoggedNode.opened(disk, 64)
    directory.unassign(0, delete_files=True)
    directory.assign(0)
    assert directory.partition(0).log.next_id == 0
    directory.close()
    assert not LoggedNode.opened(disk.restarted(), 64).refused
