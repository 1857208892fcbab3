"""Test that threads that wait for a commit or a checkpoint of another thread are woken."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.logged_node import LoggedNode
from waltz.protocol import storage
from waltz.testing.disk import MemoryDisk
from waltz_storage.shell.wal_commits import WalCommits

_SECONDS = 20.0
"""How long a thread may take. A thread that is not woken fails the test after this time."""


class _BlockingDisk(MemoryDisk):
    """A disk whose flush of a file waits for ``may_flush`` while it is blocked."""

    blocked = False

    def __init__(self) -> None:
        super().__init__()
        self.flushing = threading.Event()
        self.may_flush = threading.Event()

    def flush(self, inode: Any) -> None:
        if self.blocked:
            self.flushing.set()
            assert self.may_flush.wait(_SECONDS)
        super().flush(inode)


def _watch_waits(commits: WalCommits) -> threading.Event:
    """Return an event that is set when a thread begins to wait for another one."""
    waits, wait = threading.Event(), commits._changed.wait

    def begin_to_wait() -> bool:
        waits.set()
        return wait()

    commits._changed.wait = begin_to_wait  # type: ignore[assignment]
    return waits


def _append(node: LoggedNode, partition: int) -> Callable[[], None]:
    log, records = node.directory.partition(partition).log, node.request(partition).records
    return lambda: log.append(records)


@pytest.mark.parametrize("work", ["commit", "checkpoint"])
def test_thread_that_waits_for_another_thread_is_woken(work: str) -> None:
    disk = _BlockingDisk()
    node = LoggedNode(disk)
    node.append(0)
    if work == "commit":
        first, second = _append(node, 0), _append(node, 1)
    else:
        first = second = node.commits.checkpoint
    waits = _watch_waits(node.commits)
    threads = [threading.Thread(target=each, daemon=True) for each in (first, second)]
    disk.blocked = True
    threads[0].start()
    assert disk.flushing.wait(_SECONDS)
    threads[1].start()
    assert waits.wait(_SECONDS)
    disk.may_flush.set()
    for thread in threads:
        thread.join(_SECONDS)
        assert not thread.is_alive()


def test_checkpoint_that_was_asked_for_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = LoggedNode(MemoryDisk())
    node.append(0)
    made, checkpoint = threading.Event(), node.commits.checkpoint

    def make() -> None:
        checkpoint()
        made.set()

    monkeypatch.setattr(node.commits, "checkpoint", make)
    node.commits._wake.set()
    node.commits.start(node.failures.put)
    try:
        assert made.wait(_SECONDS)
        assert not node.commits._wake.is_set(), "the thread would not pause"
    finally:
        node.commits.end_thread()


class _EndBeforeClear(threading.Event):
    """An event before whose first `clear` another thread ends the thread of ``commits``."""

    def __init__(self, commits: WalCommits) -> None:
        super().__init__()
        self.ending = threading.Thread(target=commits.end_thread, daemon=True)
        self._was_set = threading.Event()

    def set(self) -> None:
        super().set()
        self._was_set.set()

    def clear(self) -> None:
        if self.ending.ident is None:
            self._was_set.clear()
            self.ending.start()
            assert self._was_set.wait(_SECONDS)
        super().clear()


def test_end_that_is_asked_for_before_a_checkpoint_does_not_wait_for_its_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("waltz_storage.shell.wal_commits.pause_after", lambda _: 2 * _SECONDS)
    node = LoggedNode(MemoryDisk())
    wake = node.commits._wake = _EndBeforeClear(node.commits)
    wake.set()
    node.commits.start(node.failures.put)
    while wake.ending.ident is None:
        threading.Event().wait(0.001)
    wake.ending.join(_SECONDS)
    assert not wake.ending.is_alive()


class _SlowCheckpointDisk(MemoryDisk):
    """A disk whose flushes wait for ``may_flush`` on the thread of the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: threading.Thread | None = None
        self.flushing = threading.Event()
        self.may_flush = threading.Event()

    def flush(self, inode: Any) -> None:
        if threading.current_thread() is self.slow:
            self.flushing.set()
            assert self.may_flush.wait(_SECONDS)
        super().flush(inode)


def test_commit_in_a_full_log_makes_another_checkpoint_after_the_present_one() -> None:
    """The present checkpoint began before most transactions, so its end makes too little room."""
    disk = _SlowCheckpointDisk()
    node = LoggedNode(disk, blocks=17)
    node.commits.checkpoint()
    node.append(0)
    disk.slow = threading.Thread(target=node.commits.checkpoint, daemon=True)
    disk.slow.start()
    assert disk.flushing.wait(_SECONDS)
    waits, answers = _watch_waits(node.commits), list[Any]()

    def fill() -> None:
        while not waits.is_set():
            # Three blocks of the log; the checkpoint that is under way gives up only one.
            answers.append(node.append(1 + len(answers) % 4, 9_000))

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    assert waits.wait(_SECONDS)
    disk.may_flush.set()
    for thread in (disk.slow, filling):
        thread.join(_SECONDS)
        assert not thread.is_alive()
    assert len(answers) == 5
    assert all(isinstance(answer, storage.SuccessResponse) for answer in answers)
    assert node.engine.failures == []
    assert node.lengths() == [1, 2, 1, 1, 1]


def test_checkpoint_thread_is_woken_when_more_than_a_fourth_of_the_log_is_used() -> None:
    node = LoggedNode(MemoryDisk(), blocks=34)
    node.commits.checkpoint()
    node.commits._wake.clear()
    woken = []
    for _ in range(8):
        node.append(0, 10)
        woken.append(node.commits._wake.is_set())
    # Transactions can use 31 blocks of the ring, and each of these takes one.
    assert node.commits.logged.writer.used_blocks == 8
    assert woken == [False] * 7 + [True]
