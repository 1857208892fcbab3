"""Reads with the engine ``wal``: a slow read delays no commit, and finds what was applied."""

from __future__ import annotations

import threading
from random import Random

from typing_extensions import override

from tests.support.logged_node import PARTITIONS, SEGMENT, LoggedNode
from waltz.protocol import storage
from waltz.protocol.records import RecordBatch
from waltz.testing.disk import MemoryDisk, MemoryFile
from waltz_storage.core.wal.logged_file_state import LoggedFileState, QueuedChange

SECONDS = 20.0
"""A test that waits for longer than this fails."""


class SlowDisk(MemoryDisk):
    """A disk on which reads of `SEGMENT` wait until ``proceed`` is set, while ``slow``."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False
        self.reading = threading.Event()
        self.proceed = threading.Event()

    @override
    def open(self, path: str) -> MemoryFile:
        opened = super().open(path)
        return _SlowFile(self, path) if path == SEGMENT else opened


class _SlowFile(MemoryFile):
    """A file whose reads wait while its disk is slow."""

    def __init__(self, disk: SlowDisk, path: str) -> None:
        super().__init__(disk, disk._names[path])
        self._slow_disk = disk

    @override
    def read(self, offset: int, length: int) -> bytes:
        disk = self._slow_disk
        if disk.slow:
            disk.reading.set()
            assert disk.proceed.wait(SECONDS), "the test lets the read proceed"
        return super().read(offset, length)


def test_slow_read_of_a_partition_delays_no_commit_of_another() -> None:
    disk = SlowDisk()
    node = LoggedNode(disk)
    node.append(0)
    disk.slow = True
    log = node.directory.partition(0).log
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.append(log.read_batch(0, 10, 1 << 20).count))
    reader.start()
    assert disk.reading.wait(SECONDS)
    written = threading.Event()

    def append() -> None:
        node.directory.partition(1).log.append(node.request(1).records)
        written.set()

    writer = threading.Thread(target=append)
    writer.start()
    committed = written.wait(SECONDS)
    disk.proceed.set()
    reader.join()
    writer.join()
    assert committed, "the commit waited for the read"
    assert found == [1]


def test_read_finds_bytes_that_were_applied_and_are_not_in_the_file_yet() -> None:
    """A handle of its own does not see the bytes that the log keeps for a larger write."""
    node = LoggedNode(MemoryDisk())
    node.commits.checkpoint()
    before = node.disk.content(SEGMENT).rstrip(b"\0")
    node.append(0)
    assert node.disk.content(SEGMENT).rstrip(b"\0") == before
    assert node.lengths()[0] == 1


def test_read_of_a_record_that_is_queued_returns_it() -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    log = node.directory.partition(0).log
    staged = log.stage([node.request(0).records])
    log.write(staged)
    log.complete(staged)
    assert log.read_batch(0, 10, 1 << 20).count == 2


def test_read_succeeds_after_checkpoint_closed_log_files() -> None:
    node = LoggedNode(MemoryDisk())
    assert isinstance(node.append(0), storage.SuccessResponse)
    assert node.lengths()[0] == 1
    node.commits.checkpoint()
    node.commits.logged.files.end_flush(0)
    assert node.lengths()[0] == 1


def test_read_after_a_truncation_that_is_not_applied_returns_the_records_before_it() -> None:
    node = LoggedNode(MemoryDisk())
    for _ in range(3):
        node.append(0)
    node.directory.partition(0).log.truncate(1)
    assert node.lengths()[0] == 2
    node.append(0)
    assert node.lengths()[0] == 3


def test_reads_beside_commits_and_checkpoints_return_the_records() -> None:
    """Each thread has a partition. A commit of one thread applies the changes of the others."""
    node = LoggedNode(MemoryDisk(), blocks=20, in_background=True, direct_bytes=400)
    failures: list[BaseException] = []

    def work(partition: int) -> None:
        random = Random(partition)
        log = node.directory.partition(partition).log
        appended: list[RecordBatch] = []
        try:
            for _ in range(80):
                batch = node.request(partition, random.randrange(900)).records
                log.append(batch)
                appended.append(batch)
                number = random.randrange(len(appended))
                assert log.read_batch(number, 1, 1 << 20) == appended[number]
                if random.random() < 0.05:
                    log.truncate(number)
                    del appended[number + 1 :]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    node.commits.end_thread()
    assert failures == []
    assert node.failures.empty()


class _SettledMeanwhile(list[QueuedChange]):
    """Changes that another thread removes directly after their number was read."""

    @override
    def __len__(self) -> int:
        length = super().__len__()
        self.clear()
        return length


def test_last_change_is_read_while_another_thread_settles_the_changes() -> None:
    state = LoggedFileState(changes=_SettledMeanwhile([QueuedChange(3, 0, b"x")]))
    assert state.last_change == 3
