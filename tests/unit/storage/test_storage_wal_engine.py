"""The storage engine ``wal``: commits, checkpoints, a full log, and the change between engines."""

from __future__ import annotations

import threading
import uuid
from random import Random

import pytest

from tests.support.logged_node import (
    KEY,
    PARTITIONS,
    SEGMENT,
    LoggedNode,
    lengths,
    plain,
    used,
)
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_file import open_control
from waltz_storage.core.control.control_format import CONTROL_FILE, inverted
from waltz_storage.core.errors import DirectoryRefused, DiskFailed, NoSpace
from waltz_storage.core.partitions.storage_directory import WalFigures
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_file import WAL_FILE
from waltz_storage.shell.wal_commits import pause_after


def test_round_of_all_partitions_is_one_transaction_and_one_flush() -> None:
    node = LoggedNode(MemoryDisk())
    before, transactions = node.disk.flushes, node.commits.transactions
    node.engine.ask_together([node.request(partition) for partition in range(PARTITIONS)])
    assert node.lengths() == [1] * PARTITIONS
    assert node.disk.flushes == before + 1
    assert node.commits.transactions == transactions + 1


def test_records_reach_their_files_after_their_transaction() -> None:
    node = LoggedNode(MemoryDisk())
    node.commits.checkpoint()
    before = node.disk.content(SEGMENT)
    log = node.directory.partition(0).log
    staged = log.stage([node.request(0).records])
    log.write(staged)
    assert node.disk.content(SEGMENT).rstrip(b"\0") == before.rstrip(b"\0")
    log.flush(staged)
    log.complete(staged)
    node.commits.checkpoint()
    assert node.disk.content(SEGMENT).rstrip(b"\0") != before.rstrip(b"\0")


def test_directory_after_clean_stop_opens_with_the_engine_files() -> None:
    node = LoggedNode(MemoryDisk())
    for number in range(300):
        node.append(number % PARTITIONS)
    node.directory.close()
    directory = plain(node.disk)
    assert lengths(directory) == [60] * PARTITIONS
    assert directory.unmarked == []
    directory.partition(0).log.append(RecordBatch.of([Record(60, ReqId(1, 2, 0, 60), 0, b"", 7)]))
    directory.close()
    assert LoggedNode(node.disk).lengths() == [61, 60, 60, 60, 60]


def test_directory_after_crash_is_refused_by_the_engine_files() -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    disk = node.disk.crashed(Random(1))
    with pytest.raises(DirectoryRefused, match=r"needs its write-ahead log.*storage.engine: wal"):
        plain(disk)
    assert LoggedNode(disk).lengths() == [1, 0, 0, 0, 0]


def test_crashed_directory_has_a_key_that_waltz_0_13_2_refuses() -> None:
    node = LoggedNode(MemoryDisk())
    disk = node.disk.restarted()
    with pytest.raises(DirectoryRefused, match="cluster key does not match"):
        open_control(disk, uuid.UUID(int=1), PARTITIONS, 1)
    assert inverted(KEY).bytes in disk.content(CONTROL_FILE)
    assert KEY.bytes not in disk.content(CONTROL_FILE)
    node.directory.close()
    assert KEY.bytes in node.disk.content(CONTROL_FILE)


@pytest.mark.parametrize("lost", [WAL_FILE, CATALOGUE_FILE])
def test_directory_without_a_file_that_its_replay_needs_is_refused(lost: str) -> None:
    disk = LoggedNode(MemoryDisk()).disk.restarted()
    disk.remove(lost)
    with pytest.raises(DirectoryRefused, match=f"the file {lost} is missing"):
        LoggedNode(disk)


def test_log_that_is_not_empty_beside_a_plain_directory_is_refused() -> None:
    node = LoggedNode(MemoryDisk())
    control = node.disk.content(CONTROL_FILE)
    # The key is in the bytes 12 to 27. A plain directory has it in its usual form.
    header = control[:12] + KEY.bytes + control[28:]
    node.append(0)
    disk = node.disk.restarted()
    disk.damage(CONTROL_FILE, 0, header)
    with pytest.raises(DirectoryRefused, match="is not empty"):
        LoggedNode(disk)


def test_damage_in_the_log_refuses_the_directory_and_changes_no_segment() -> None:
    node = LoggedNode(MemoryDisk())
    block = node.commits.logged.writer.following.block
    node.append(0)
    node.append(1)
    disk = node.disk.restarted()
    disk.damage(WAL_FILE, block * BLOCK_BYTES + 30, b"?")
    before = disk.content(SEGMENT)
    with pytest.raises(DirectoryRefused, match="cannot be replayed"):
        LoggedNode(disk)
    assert disk.content(SEGMENT) == before


@pytest.mark.parametrize("size", [10, 3000, 30_000])
def test_full_log_delays_appends_and_fails_none(size: int) -> None:
    """The log has 15 blocks: it is filled many times, and one group is larger than the log."""
    node = LoggedNode(MemoryDisk(), blocks=17)
    for _ in range(40):
        requests = [node.request(partition, size) for partition in range(PARTITIONS)]
        answers = node.engine.ask_together(requests)
        assert all(isinstance(answer, storage.SuccessResponse) for answer in answers)
    assert node.lengths() == [40] * PARTITIONS
    assert node.commits.logged.writer.following.sequence > 3
    assert LoggedNode(node.disk.crashed(Random(3)), blocks=17).lengths() == [40] * PARTITIONS


def test_size_of_the_log_changes_with_the_start_after_a_clean_stop() -> None:
    node = LoggedNode(MemoryDisk(), blocks=20)
    node.append(0)
    node.directory.close()
    node = LoggedNode(node.disk, blocks=40)
    assert len(node.disk.content(WAL_FILE)) == 40 * BLOCK_BYTES
    assert node.lengths() == [1, 0, 0, 0, 0]


def test_full_disk_refuses_an_append_and_leaves_an_open_log() -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    node.disk.space = used(node.disk)
    refused = node.append(0, 20_000)
    assert isinstance(refused, storage.FailureResponse)
    assert "no space left" in str(refused.failure.message)
    node.disk.space = 1 << 60
    assert isinstance(node.append(0, 20_000), storage.SuccessResponse)
    assert LoggedNode(node.disk.crashed(Random(2))).lengths() == [2, 0, 0, 0, 0]


def test_failed_flush_of_the_log_fails_every_later_commit() -> None:
    node = LoggedNode(MemoryDisk())
    log = node.directory.partition(0).log
    node.disk.failing_flush = 1
    with pytest.raises(DiskFailed):
        log.append(node.request(0).records)
    with pytest.raises(DiskFailed, match="has failed before"):
        node.directory.partition(1).log.append(node.request(1).records)


def test_failed_flush_of_a_checkpoint_fails_every_later_commit() -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    node.disk.failing_flush = 2
    with pytest.raises(DiskFailed):
        node.commits.checkpoint()
    with pytest.raises(DiskFailed, match="has failed before"):
        node.directory.partition(1).log.append(node.request(1).records)


def test_commits_of_many_threads_share_transactions() -> None:
    """Checkpoints of another thread run beside the commits, and the log wraps."""
    node = LoggedNode(MemoryDisk(), blocks=20, in_background=True)
    before = node.commits.transactions
    failures: list[BaseException] = []

    def append(partition: int) -> None:
        try:
            for _ in range(60):
                node.directory.partition(partition).log.append(node.request(partition).records)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=append, args=(n,)) for n in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert node.commits.transactions - before <= 60 * PARTITIONS
    assert node.lengths() == [60] * PARTITIONS
    crashed = node.disk.crashed(Random(4))
    node.directory.close()
    assert LoggedNode(crashed, blocks=20).lengths() == [60] * PARTITIONS
    assert lengths(plain(node.disk)) == [60] * PARTITIONS


def test_write_that_a_full_disk_refuses_leaves_the_file_unchanged() -> None:
    node = LoggedNode(MemoryDisk())
    node.commits.checkpoint()
    size = len(node.disk.content(SEGMENT))
    node.disk.space = used(node.disk) + 10
    log = node.directory.partition(0).log
    staged = log.stage([node.request(0, 3000).records])
    log.write(staged)
    assert isinstance(staged.outcomes[0], NoSpace)
    assert len(node.disk.content(SEGMENT)) == size


def test_failed_checkpoint_on_the_thread_ends_the_process_without_another_append() -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    node.disk.failing_flush = 1
    node.commits.start(node.failures.put)
    error = node.failures.get(timeout=20)
    node.commits.end_thread()
    assert isinstance(error, DiskFailed)
    assert "flush of a file failed" in str(error)


def test_figures_show_the_fill_of_the_log_and_the_age_of_its_oldest_transaction() -> None:
    node = LoggedNode(MemoryDisk(), blocks=32)
    node.commits.checkpoint()
    assert node.directory.wal_figures.checkpoint_lag == 0.0
    node.now = 10.0
    node.append(0)
    node.now = 12.5
    node.append(1)
    figures = node.directory.wal_figures
    assert figures.checkpoint_lag == 2.5
    # Two transactions of one block each. One block of the ring of 30 stays unused.
    assert figures.fill == 2 / 29
    node.commits.checkpoint()
    assert node.directory.wal_figures.checkpoint_lag == 0.0


def test_figures_of_a_directory_without_a_log_are_zero() -> None:
    assert plain(MemoryDisk()).wal_figures == WalFigures()


@pytest.mark.parametrize(
    ("took", "pause"), [(0.0, 1.0), (0.2, 1.0), (0.5, 1.5), (2.0, 6.0), (9, 10)]
)
def test_pause_between_checkpoints_follows_their_duration_within_bounds(
    took: float, pause: float
) -> None:
    assert pause_after(took) == pause
