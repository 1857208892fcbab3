"""Reads in steps: an append waits for one step, another change for all reads before it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz.testing.engine import ImmediateExecutor
from waltz_storage.core.engine.engine import Arrival, Done, Engine, EngineInput, LaneRead
from waltz_storage.core.log.log_reads import STEP_BYTES, Steps, result_of
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.parallel_flushes import ParallelFlushes

KEY = uuid.UUID(int=5)
DATA = 400 << 10
RECORDS = 10
STEPS = 5
"""How many steps a read of all records has: two records are within the bound of a step."""
EVERYTHING = 1 << 40


def batch(first_id: int, *sizes: int) -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, 0, n), 0, bytes([n % 251]) * size, 7)
        for n, size in enumerate(sizes, first_id)
    )


def directory_with(*sizes: int, threshold: int = 1 << 30) -> StorageDirectory:
    options = LogOptions(lambda: 1, threshold, open_segments=1, allocate_bytes=0)
    directory = StorageDirectory(MemoryDisk(), KEY, 1, options)
    directory.assign(0)
    directory.partition(0).log.append(batch(0, *sizes))
    return directory


def log_with(*sizes: int, threshold: int = 1 << 30) -> PartitionLog:
    return directory_with(*sizes, threshold=threshold).partition(0).log


def read(seq: int, count: int = 100) -> storage.RecordListRequest:
    return storage.RecordListRequest(-1, seq, 0, 0, count)


def append(transaction_id: int) -> storage.AppendRequest:
    return storage.AppendRequest(-1, transaction_id, 0, batch(transaction_id, 10))


class Scene:
    """An engine that the test steps: each turn takes what has arrived, and does the work once."""

    def __init__(self) -> None:
        self.engine = Engine(directory_with(*[DATA] * RECORDS))
        self.answers: list[Any] = []
        self._inputs: list[EngineInput] = []

    def arrive(self, *requests: Any) -> None:
        self._inputs += [arrival(request, self.answers.append) for request in requests]

    def turn(self) -> list[str]:
        """Step the engine; return what the step has begun."""
        inputs, self._inputs = self._inputs, []
        ready = self.engine.step(inputs)
        begun: list[str] = []
        for reply, answer in ready.answers:
            reply(answer)
        for task in ready.tasks:
            begun.append("step" if isinstance(task.job, LaneRead) else "change")
            self._finish(self.engine.run_task(task))
        for part in ready.parts:
            begun.append(f"{len(part.appends)} appends")
            ParallelFlushes(ImmediateExecutor()).commit([part], lambda _: None)
            self._finish(self.engine.settle(part, 0.0))
        return begun

    def until_idle(self) -> list[str]:
        begun = self.turn()
        while not self.engine.idle:
            begun += self.turn()
        return begun

    def answer(self, seq: int) -> Any:
        (found,) = (answer for answer in self.answers if answer.seq_num == seq)
        return found

    def _finish(self, done: Done) -> None:
        for reply, answer in done.answers:
            reply(answer)
        self._inputs.append(done.freed)


# ---- the order in a lane


def test_append_waits_for_one_step_of_a_read() -> None:
    scene = Scene()
    scene.arrive(*(read(seq) for seq in range(10_000)))
    assert scene.turn() == ["step"]
    scene.arrive(append(RECORDS))
    assert scene.turn() == ["1 appends"]
    assert [type(answer) for answer in scene.answers] == [storage.SuccessResponse]
    assert scene.engine.queued(0) == 10_000
    assert scene.turn() == ["step"]


def test_appends_do_not_stop_a_read() -> None:
    scene = Scene()
    scene.arrive(read(1000))
    begun: list[str] = []
    for n in range(2 * STEPS):
        scene.arrive(append(RECORDS + n))
        begun += scene.turn()
    assert begun[:4] == ["1 appends", "step", "2 appends", "step"]
    assert begun.count("step") == STEPS
    assert scene.answer(1000).records.wire == batch(0, *[DATA] * RECORDS).wire + batch(10, 10).wire


def test_read_sees_the_changes_that_arrived_before_it() -> None:
    scene = Scene()
    truncate = storage.TruncateRequest(-1, 7, 0, 3)
    scene.arrive(append(10), read(1000), append(11), read(1001), truncate)
    begun = scene.until_idle()
    assert begun[0] == "2 appends", "a read does not split a group of appends"
    assert scene.answer(1000).records.count >= RECORDS + 1
    assert scene.answer(1001).records.count == RECORDS + 2
    assert scene.answer(7).transaction_id == 3


def test_truncation_waits_for_the_reads_that_arrived_before_it() -> None:
    scene = Scene()
    scene.arrive(read(1000), storage.TruncateRequest(-1, 7, 0, 5), append(6), read(1001))
    begun = scene.until_idle()
    assert begun == [*["step"] * STEPS, "change", "1 appends", *["step"] * 3]
    assert scene.answer(1000).records.count == RECORDS
    assert scene.answer(1001).records.count == 7


def test_waiting_reads_of_an_older_session_are_refused_in_one_step_each() -> None:
    """A new session does not wait until the reads of the old one are done."""
    scene = Scene()
    scene.arrive(*(read(seq) for seq in range(50)))
    scene.arrive(storage.MaxTransactionIdRequest(4, 1000, 0))
    begun = scene.until_idle()
    assert begun == [*["step"] * 50, "change"]
    assert {type(scene.answer(seq)) for seq in range(50)} == {storage.FailureResponse}


def test_read_of_an_administrator_lets_appends_overtake_it() -> None:
    engine = InlineEngine(directory_with(*[DATA] * RECORDS))
    order: list[str] = []
    arrivals: list[Arrival] = []
    handler = AdminHandler(engine.directory, arrivals.extend, lambda answers: None, engine.scrubber)
    handler.handle(admin.RecordListRequest(2, 0, 0, 100), 0, lambda answer: order.append("read"))
    arrivals.append(arrival(append(RECORDS), lambda answer: order.append("append")))
    engine.submit(arrivals)
    assert order == ["append", "read"]


# ---- the steps of a log

BEGIN: list[Callable[[PartitionLog], Steps[Any]]] = [
    lambda log: log.batch_steps(0, RECORDS, EVERYTHING),
    lambda log: log.header_steps(0, RECORDS),
    lambda log: log.stored_steps(0, RECORDS, EVERYTHING),
]
NAMES = ["records", "headers", "stored"]


@pytest.mark.parametrize("begin", BEGIN, ids=NAMES)
def test_read_does_not_continue_after_a_truncation(
    begin: Callable[[PartitionLog], Steps[Any]],
) -> None:
    """It could join records of two different logs."""
    log = log_with(*[DATA] * RECORDS)
    steps = begin(log)
    next(steps)
    log.truncate(8)
    log.append(batch(9, DATA))
    with pytest.raises(AssertionError, match="not removed between two steps"):
        next(steps)


@pytest.mark.parametrize("begin", BEGIN, ids=NAMES)
def test_read_continues_while_appends_begin_segments(
    begin: Callable[[PartitionLog], Steps[Any]],
) -> None:
    """The segment of the read is sealed, and its files are closed, between two steps."""
    log = log_with(*[DATA] * RECORDS, threshold=3 << 20)
    expected = result_of(begin(log))
    steps = begin(log)
    next(steps)
    log.append(batch(RECORDS, *[DATA] * 30))
    log.read_batch(RECORDS + 12, 1, EVERYTHING)
    assert result_of(steps) == expected


@pytest.mark.parametrize("begin", BEGIN, ids=NAMES)
def test_step_reads_about_a_megabyte(begin: Callable[[PartitionLog], Steps[Any]]) -> None:
    log = log_with(*[DATA] * RECORDS)
    data = log._segments.tail.files.data
    sizes: list[int] = []
    read_data = data.read

    def counting(offset: int, length: int) -> bytes:
        sizes.append(length)
        return read_data(offset, length)

    data.read = counting  # type: ignore[method-assign]
    steps, number = begin(log), 0
    while True:
        sizes.clear()
        end = next(steps, steps)
        number += 1
        assert sum(sizes) <= STEP_BYTES + DATA + 40
        if end is steps:
            break
    assert number >= 4


def test_record_larger_than_a_step_is_read_within_the_bound_of_the_request() -> None:
    large = STEP_BYTES + 500
    log = log_with(10, large, 10)
    assert log.read_batch(0, 3, EVERYTHING).wire == batch(0, 10, large, 10).wire
    assert log.read_batch(0, 3, STEP_BYTES + 40).count == 1
    assert log.read_batch(1, 3, 5).wire == batch(1, large).wire
    assert log.read_batch(0, 3, large + 90).count == 2
