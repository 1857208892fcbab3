"""Histories of one partition, with a loss of power after every change of the disk.

After reopening, answered appends are in the log. An append under way is there in full, in part or
not at all. Records that an answered truncation removed do not return. The log accepts appends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import HEADER_BYTES, decode_entries
from waltz_storage.core.partitions.fencing import begin_session
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

KEY = uuid.UUID("12345678-1234-5678-9abc-def012345678")
FRESH = PartitionInfo()
WAL_BYTES = 12 << 12
"""A log that wraps within a history."""
DIRECT_BYTES = 300
"""Some appends of a history are written directly, and some are copied to the log."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation; ``size`` counts records, or picks a mark."""

    kind: str
    size: int
    data: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ["append", "append", "append", "many", "truncate", "mark", "reopen", "drop", "recreate"]
        ),
        st.integers(0, 6),
        st.integers(0, 200),
    ),
    min_size=1,
    max_size=7,
)


@dataclass(slots=True)
class Expected:
    """What may be found after a crash: the log is ``log[:n]`` for some n in ``lengths``."""

    log: list[bytes] = field(default_factory=list)
    shortest: int = 0
    infos: tuple[PartitionInfo, ...] = (FRESH,)
    dropping: bool = False

    def settle(self, log: list[bytes], info: PartitionInfo) -> None:
        self.log, self.shortest, self.infos, self.dropping = log, len(log), (info,), False

    def copy(self) -> Expected:
        return Expected(list(self.log), self.shortest, self.infos, self.dropping)


class History:
    """Runs steps, and takes a crashed copy of the disk after every change."""

    def __init__(self, threshold: int, seed: int, engine: str = "files") -> None:
        self.engine = engine
        self.random = Random(seed)
        self.disk = MemoryDisk()
        self.options = LogOptions(lambda: 7, threshold, open_segments=2, allocate_bytes=700)
        self.expected = Expected()
        self.crashes: list[tuple[MemoryDisk, Expected]] = []
        self.disk.observer = self._crash
        self.directory = self.open(self.disk)
        self.count = 0
        self._recreate()

    def open(self, disk: MemoryDisk) -> StorageDirectory:
        options = WalOptions(WAL_BYTES, lambda: 0.0, direct_bytes=DIRECT_BYTES)
        wal = WalEngine(options) if self.engine == "wal" else None
        return StorageDirectory(disk, KEY, 2, self.options, wal=wal)

    def run(self, step: Step) -> None:
        handlers: dict[str, Callable[[Step], None]] = {
            "append": self._append,
            "many": self._append_many,
            "truncate": self._truncate,
            "mark": self._mark,
            "reopen": self._reopen,
            "drop": self._drop,
            "recreate": lambda _: self._recreate(),
        }
        if 1 in self.directory.partitions or step.kind == "recreate":
            handlers[step.kind](step)

    def check(self, disk: MemoryDisk, expected: Expected) -> None:
        """Open a crashed disk, compare its log with the expectation, and append to it."""
        directory = self.open(disk)
        assert not directory.refused
        info = directory.info(1)
        assert info in expected.infos
        shortest = expected.shortest
        if not info.assigned:
            if expected.dropping:
                shortest = 0
            directory.assign(1)
        log = directory.partition(1).log
        found = [record.encode() for record in log.read_batch(0, 1 << 30, 1 << 30)]
        assert shortest <= len(found) <= len(expected.log)
        assert found == expected.log[: len(found)]
        for n in self.random.sample(range(len(found)), min(len(found), 30)):
            assert log.read_batch(n, 1, 1 << 30).wire == found[n]
        log.append(self._batch(len(found), 3, 10))
        log.truncate(len(found))
        log.release()
        reopened = self.open(disk.crashed(self.random)).partition(1).log
        assert reopened.next_id == len(found) + 1

    def _crash(self) -> None:
        self.crashes.append((self.disk.crashed(self.random), self.expected.copy()))

    def _batch(self, first_id: int, count: int, data: int) -> RecordBatch:
        # Contents differ each time, so that old records are distinguished from new ones.
        self.count += 1
        content = self.count.to_bytes(4, "big") * (data // 4)
        return RecordBatch.of(
            Record(n, ReqId(1, 2, 1, self.count), 0, content, 9)
            for n in range(first_id, first_id + count)
        )

    def _append(self, step: Step, records: int = 3) -> None:
        log = self.directory.partition(1).log
        sizes = [step.size % 3 + 1, records]
        batches: list[RecordBatch] = []
        for size in sizes:
            batches.append(
                self._batch(log.next_id + sum(b.count for b in batches), size, step.data)
            )
        self.expected.log = self.expected.log + [r.encode() for b in batches for r in b]
        staged = log.stage(batches)
        log.write(staged)
        log.flush(staged)
        assert log.complete(staged) == [None, None]
        self.expected.settle(self.expected.log, self.directory.info(1))

    def _append_many(self, step: Step) -> None:
        fill = self.options.segment_threshold // 40
        self._append(Step("append", step.size, 0), min(400 * step.size, fill))

    def _truncate(self, step: Step) -> None:
        log = self.directory.partition(1).log
        kept = max(0, log.next_id - 1 - step.size * step.size)
        self.expected.shortest = min(kept, log.next_id)
        if kept < log.next_id:
            log.truncate(kept - 1)
        self.expected.settle(self.expected.log[: log.next_id], self.directory.info(1))
        assert log.next_id == kept or kept > log.next_id

    def _mark(self, step: Step) -> None:
        partition = self.directory.partition(1)
        info, last = self.directory.info(1), partition.log.max_id
        if last < info.local_low_water_mark:
            return
        mark = max(last, info.low_water_mark) + step.size % 2
        after = begin_session(info, info.session_id + 1, mark, last)
        self.expected.infos = (info, after)
        partition._begin_session(info.session_id + 1, mark)
        self.expected.settle(self.expected.log, after)

    def _reopen(self, step: Step) -> None:
        if step.size % 2:
            self.directory.close()
        else:
            self.disk = self.disk.restarted()
            self.disk.observer = self._crash
        self.directory = self.open(self.disk)

    def _drop(self, step: Step) -> None:
        delete = bool(step.size % 2)
        self.expected.infos = (self.directory.info(1), FRESH)
        self.expected.dropping = delete
        self.directory.unassign(1, delete_files=delete)
        self.expected.settle([] if delete else self.expected.log, FRESH)

    def _recreate(self) -> None:
        info = self.directory.info(1)
        self.expected.infos = (info, info.as_assigned())
        self.directory.assign(1)
        self.expected.settle(self.expected.log, info.as_assigned())


def check_every_crash(history: list[Step], threshold: int, seed: int) -> None:
    """Run the steps of ``history``, and check the disk of every crash."""
    run = History(threshold, seed)
    for step in history:
        run.run(step)
    for disk, expected in run.crashes:
        run.check(disk, expected)


@settings(max_examples=50)
@given(steps, st.sampled_from([300, 2_000, 60_000]), st.integers(0, 1 << 30))
def test_answered_appends_survive_any_crash(history: list[Step], threshold: int, seed: int) -> None:
    check_every_crash(history, threshold, seed)


@pytest.mark.slow
@settings(max_examples=100)
@given(steps, st.sampled_from([300, 2_000, 60_000]), st.integers(0, 1 << 30))
def test_answered_appends_survive_any_crash_of_more_histories(
    history: list[Step], threshold: int, seed: int
) -> None:
    check_every_crash(history, threshold, seed)


@settings(max_examples=25, deadline=None)
@given(steps, st.sampled_from([300, 2_000, 60_000]), st.integers(0, 1 << 30))
def test_answered_appends_survive_crashes_with_the_write_ahead_log(
    history: list[Step], threshold: int, seed: int
) -> None:
    """With this engine a step has many more changes of the disk: the crashes are a sample."""
    run = History(threshold, seed, "wal")
    for step in history:
        run.run(step)
    for disk, expected in run.random.sample(run.crashes, min(len(run.crashes), 10)):
        run.check(disk, expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_answered_appends_survive_every_crash_with_the_write_ahead_log(seed: int) -> None:
    run = History(2_000, seed, "wal")
    kinds = ("append", "many", "truncate", "mark", "reopen", "drop", "recreate")
    for kind in run.random.choices(kinds, k=4):
        run.run(Step(kind, run.random.randrange(7), run.random.randrange(200)))
    for disk, expected in run.crashes:
        run.check(disk, expected)


@pytest.mark.parametrize("seed", range(12))
def test_index_torn_at_checkpoint_is_rebuilt(seed: int) -> None:
    run = History(1_000_000, seed)
    run.crashes.clear()
    for size in (3, 3, 6, 1, 1):
        run.run(Step("many", size, 0))
    run.run(Step("mark", 1, 0))
    for disk, expected in run.crashes:
        run.check(disk, expected)


def test_index_torn_by_truncation_below_local_mark_loses_no_answered_append() -> None:
    """A crash leaves zeros in the index, at its former size, and a valid last entry."""
    run = History(60_000, 21_008)
    for data in (0, 126, 100, 0, 126):
        run.run(Step("append", 0, data))
    run.run(Step("mark", 0, 0))
    written = len(run.crashes)
    run.run(Step("truncate", 6, 0))
    assert any(_has_torn_index(disk) for disk, _ in run.crashes[written:])
    for disk, expected in run.crashes:
        run.check(disk, expected)


def _has_torn_index(disk: MemoryDisk) -> bool:
    entries = decode_entries(disk.content("1/0000000000000000000.idx")[HEADER_BYTES:])
    return 0 in entries and entries[-1] > 0
