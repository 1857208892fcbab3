"""Changes that a killed process has left in the cache are durable before they are relied on.

Example: a process ends between the creation of a segment and the flush of its directory. The next
process finds the segment, and answers appends to it. Without a flush of the directory, a loss of
power would then remove the file with all its records.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.support.logged_node import KEY
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

_THRESHOLD = 1000
_SIZE = 300


class Disks:
    """The directory of the partitions, and that of the control file."""

    def __init__(self, data: MemoryDisk, meta: MemoryDisk) -> None:
        self.data = data
        self.meta = meta

    def open(self, engine: str = "files") -> StorageDirectory:
        """Open the storage directory."""
        options = LogOptions(lambda: 1, _THRESHOLD)
        wal = None
        if engine == "wal":
            wal = WalEngine(WalOptions(64 * BLOCK_BYTES, lambda: 0.0))
        return StorageDirectory(self.data, KEY, 1, options, self.meta, wal)

    def observe(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` after each change of either directory."""
        self.data.observer = self.meta.observer = changed

    def killed(self) -> Disks:
        """Return the disks as the next process finds them if this one ends now."""
        return Disks(self.data.restarted(), self.meta.restarted())

    def without_power(self, seed: int) -> Disks:
        """Return the disks after a loss of power."""
        random = Random(seed)
        return Disks(self.data.crashed(random), self.meta.crashed(random))


def append(directory: StorageDirectory, count: int = 1) -> int:
    """Append ``count`` records durably; return the length of the log."""
    log = directory.partition(0).log
    for number in range(log.next_id, log.next_id + count):
        log.append(RecordBatch.of([Record(number, ReqId(1, 2, 0, number), 0, bytes(_SIZE), 7)]))
    return log.next_id


def killed_at_each_change(disks: Disks, change: str) -> list[Disks]:
    """Return what is left if the process is killed at any moment of ``change``."""
    left: list[Disks] = []

    def changed() -> None:
        left.append(disks.killed())

    directory = disks.open()
    if change == "truncation":
        directory.assign(0)
        append(directory, 10)
    elif change == "segment":
        directory.assign(0)
    disks.data.observer = changed
    match change:
        case "assignment":
            directory.assign(0)
        case "segment":
            append(directory, 5)
        case "truncation":
            directory.partition(0).log.truncate(1)
    disks.data.observer = None
    return left


@pytest.mark.parametrize("engine", ["files", "wal"])
@pytest.mark.parametrize("change", ["assignment", "segment", "truncation"])
def test_records_of_a_process_after_a_killed_one_survive_a_loss_of_power(
    change: str, engine: str
) -> None:
    left = killed_at_each_change(Disks(MemoryDisk(), MemoryDisk()), change)
    assert len(left) > 5
    for disks in left:
        directory = disks.open(engine)
        assert not directory.refused
        if 0 not in directory.partitions:
            directory.assign(0)
        length = append(directory)
        for seed in range(6):
            again = disks.without_power(seed).open("wal")
            assert not again.refused
            assert again.partition(0).log.next_id == length


def test_start_after_a_killed_start_survives_a_loss_of_power_at_any_moment() -> None:
    """The generation that a killed start has written is durable before the next one is."""
    used = Disks(MemoryDisk(), MemoryDisk())
    used.open()
    killed: list[Disks] = []
    lost: list[Disks] = []
    first = used.killed()
    first.observe(lambda: killed.append(first.killed()))
    first.open()
    for disks in killed:
        second = disks.killed()

        def changed(second: Disks = second) -> None:
            lost.extend(second.without_power(seed) for seed in range(6))

        second.observe(changed)
        second.open()
    assert len(lost) > 100
    for disks in lost:
        disks.open()
