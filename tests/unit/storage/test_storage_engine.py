"""The engine: order within a partition, rounds over partitions, fencing, failing disks, threads."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, cast

import pytest

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import admin, storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import UNLIMITED, MemoryDisk
from waltz.testing.engine import ImmediateExecutor
from waltz_storage.core.engine import engine as engine_module
from waltz_storage.core.engine.engine import GROUP_LIMIT_BYTES, Arrival, Engine
from waltz_storage.core.engine.rounds import RoundPart
from waltz_storage.core.errors import DiskFailed, RequestRefused, SessionFenced
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.engine_thread import EngineThread
from waltz_storage.shell.mailbox import Mailbox
from waltz_storage.shell.parallel_flushes import ParallelFlushes

KEY = uuid.UUID(int=5)
PARTITIONS = 4


def directory_on(disk: MemoryDisk) -> StorageDirectory:
    options = LogOptions(lambda: 1, 100_000, allocate_bytes=0)
    directory = StorageDirectory(disk, KEY, PARTITIONS, options)
    for partition in range(PARTITIONS - 1):
        directory.assign(partition)
    return directory


def append(partition: int, first_id: int, count: int = 1, session: int = -1) -> Any:
    records = RecordBatch.of(
        Record(n, ReqId(1, 2, partition, n), 0, b"data", 7)
        for n in range(first_id, first_id + count)
    )
    return storage.AppendRequest(session, first_id, partition, records)


def max_id(partition: int, session: int = -1) -> Any:
    return storage.MaxTransactionIdRequest(session, 77, partition)


def kinds(answers: list[Any]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def engine(disk: MemoryDisk) -> InlineEngine:
    return InlineEngine(directory_on(disk))


def test_appends_waiting_together_share_one_write_and_flush(
    engine: InlineEngine, disk: MemoryDisk
) -> None:
    before = disk.flushes
    writes: list[None] = []
    disk.observer = lambda: writes.append(None)
    answers = engine.ask_together([append(0, n) for n in range(50)])
    assert kinds(answers) == ["SuccessResponse"] * 50
    assert [answer.seq_num for answer in answers] == list(range(50))
    assert disk.flushes == before + 1
    assert len(writes) == 3, "one write, one flush, one flushed mark"


def test_round_flushes_each_partition_once(engine: InlineEngine, disk: MemoryDisk) -> None:
    before = disk.flushes
    answers = engine.ask_together([append(p, n) for n in range(5) for p in range(3)])
    assert kinds(answers) == ["SuccessResponse"] * 15
    assert disk.flushes == before + 3


def test_requests_of_partition_are_done_in_arrival_order(
    engine: InlineEngine,
) -> None:
    answers = engine.ask_together(
        [
            append(0, 0),
            max_id(0),
            append(0, 1),
            append(0, 2),
            max_id(0),
            storage.TruncateRequest(-1, 5, 0, 0),
            append(0, 1),
            max_id(0),
        ]
    )
    maxima = [a.transaction_id for a in answers if isinstance(a, storage.MaxTransactionIdResponse)]
    assert maxima == [0, 2, 0, 1]


def test_group_of_appends_is_bounded_in_bytes(engine: InlineEngine, disk: MemoryDisk) -> None:
    big = bytes(GROUP_LIMIT_BYTES // 2 + 1)
    requests = [
        storage.AppendRequest(-1, n, 0, RecordBatch.of([Record(n, ReqId(1, 2, 0, n), 0, big, 7)]))
        for n in range(3)
    ]
    parts: list[int] = []
    commit = ParallelFlushes.commit

    class Counting(ParallelFlushes):
        def commit(
            self, parts_of_round: Sequence[RoundPart], durable: Callable[[RoundPart], None]
        ) -> None:
            parts.append(len(parts_of_round[0].staged.ends))
            commit(self, parts_of_round, durable)

    with ThreadPoolExecutor(1) as pool:
        engine.writer = Counting(pool)
        assert kinds(engine.ask_together(requests)) == ["SuccessResponse"] * 3
    assert parts == [1, 1, 1]


def test_waiting_append_is_refused_when_newer_session_arrives(engine: InlineEngine) -> None:
    answers = engine.ask_together([append(0, 0, session=4), max_id(0, session=5)])
    assert kinds(answers) == ["FailureResponse", "MaxTransactionIdResponse"]
    assert "ConcurrentUpdateException" in answers[0].failure.message
    assert answers[1].transaction_id == -1


class _Overtaken(int):
    """A session id during whose first comparison a request of a newer one arrives."""

    arrive: Callable[[], None] | None

    def __gt__(self, other: int) -> bool:
        if self.arrive is not None:
            newer = threading.Thread(target=self.arrive)
            self.arrive = None
            newer.start()
            newer.join()
        return int(self) > other


def test_fence_raised_during_admission_is_not_lowered() -> None:
    partition = directory_on(MemoryDisk()).partition(0)
    older = _Overtaken(5)
    older.arrive = lambda: partition.raise_fence(max_id(0, session=6))
    with pytest.raises(SessionFenced, match="session id has changed to 6"):
        partition.admit(max_id(0, session=older), 1)
    with pytest.raises(SessionFenced, match="session id has changed to 6"):
        partition.admit(max_id(0, session=5), 1)
    partition.admit(max_id(0, session=6), 1)


@pytest.mark.parametrize("partition", [3, 4, -1, 1 << 30])
def test_request_for_unassigned_partition_is_refused(engine: InlineEngine, partition: int) -> None:
    for request in (append(partition, 0), max_id(partition)):
        answer = engine.ask(request)
        text = f"java.lang.Exception: Partition:{partition} is not assigned."
        assert answer.failure.message == text


def test_damaged_partition_is_refused_alone_and_can_be_recreated(disk: MemoryDisk) -> None:
    engine = InlineEngine(directory_on(disk))
    engine.ask_together([append(p, 0, 5) for p in range(3)])
    engine.directory.close()
    disk.damage("1/0000000000000000000.seg", 12, b"another key")
    engine = InlineEngine(StorageDirectory(disk, KEY, PARTITIONS, LogOptions(lambda: 1, 100_000)))
    assert set(engine.directory.refused) == {1}
    assert engine.ask(max_id(0)).transaction_id == 4
    failure = engine.ask(max_id(1)).failure.message
    assert "1/0000000000000000000.seg at offset 12" in failure
    assert engine.directory.status() == {0: True, 1: False, 2: True}
    assert isinstance(engine.administer(_session(1)), admin.LastSessionInfoResponse)
    assert isinstance(engine.administer(_assignment(1, assigned=False)), admin.AdminSuccessResponse)
    assert isinstance(engine.administer(_assignment(1, assigned=True)), admin.AdminSuccessResponse)
    assert engine.ask(max_id(1)).transaction_id == -1
    assert not engine.directory.refused


def test_refused_partition_is_served_when_its_files_are_restored_and_it_is_assigned(
    disk: MemoryDisk,
) -> None:
    engine = InlineEngine(directory_on(disk))
    engine.ask_together([append(p, 0, 5) for p in range(3)])
    engine.directory.close()
    path = "1/0000000000000000000.seg"
    intact = disk.content(path)[12:23]
    disk.damage(path, 12, b"another key")
    engine = InlineEngine(StorageDirectory(disk, KEY, PARTITIONS, LogOptions(lambda: 1, 100_000)))
    assert set(engine.directory.refused) == {1}
    disk.damage(path, 12, intact)
    assert isinstance(engine.administer(_assignment(1, assigned=True)), admin.AdminSuccessResponse)
    assert engine.ask(max_id(1)).transaction_id == 4
    assert not engine.directory.refused
    assert engine.directory.status() == {0: True, 1: True, 2: True}


def _assignment(*partitions: int, assigned: bool) -> admin.PartitionAssignmentRequest:
    return admin.PartitionAssignmentRequest(1, partitions, assigned, delete_files=not assigned)


def _session(partition: int) -> admin.LastSessionInfoRequest:
    return admin.LastSessionInfoRequest(1, partition)


def test_admin_request_for_unassigned_partition_fails(engine: InlineEngine) -> None:
    assert engine.administer(_assignment(0, 9, assigned=False)) is None
    assert engine.directory.status() == {0: True, 1: True, 2: True}, "nothing was done"
    for request in (_session(3), _session(9), admin.RecordListRequest(1, 9, 0, 5)):
        assert isinstance(engine.administer(request), admin.AdminFailureResponse)
    switched = engine.administer(admin.PartitionAvailableRequest(1, (), available=True))
    assert isinstance(switched, admin.AdminSuccessResponse)


def test_admin_read_ignores_switches(engine: InlineEngine) -> None:
    engine.ask(append(0, 0, 3))
    engine.administer(admin.PartitionAvailableRequest(1, (0,), available=False))
    assert isinstance(engine.ask(max_id(0)), storage.FailureResponse)
    assert engine.administer(admin.RecordListRequest(1, 0, 1, 9)).records.count == 2
    assert engine.directory.status()[0] is False


def test_append_on_full_disk_fails_and_later_appends_succeed(
    engine: InlineEngine, disk: MemoryDisk
) -> None:
    engine.ask(append(0, 0, 3))
    disk.space = disk.space - disk.free_bytes() + 20
    answers = engine.ask_together([append(0, 3, 200), max_id(0)])
    assert "no space" in answers[0].failure.message
    assert answers[1].transaction_id == 2
    disk.space = UNLIMITED
    assert isinstance(engine.ask(append(0, 3, 200)), storage.SuccessResponse)


def test_failed_flush_answers_no_append(engine: InlineEngine, disk: MemoryDisk) -> None:
    engine.ask(append(0, 0))
    disk.failing_flush = 1
    answers: list[Any] = []
    with pytest.raises(DiskFailed):
        engine.submit([arrival(append(0, 1), answers.append)])
    assert answers == []
    found = directory_on(disk.crashed(Random(1))).partition(0).log.max_id
    assert found in (0, 1)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_failed_flush_of_one_partition_fails_the_round(
    engine: InlineEngine, disk: MemoryDisk, failing: int
) -> None:
    """Every flush of a round counts, also those that run on other threads than the last one."""
    disk.failing_flush = failing
    answers: list[Any] = []
    with pytest.raises(DiskFailed):
        engine.submit([arrival(append(p, 0), answers.append) for p in range(3)])
    assert disk.failing_flush <= 0
    assert len(answers) < 3


def test_session_is_not_persisted_if_the_log_cannot_be_flushed(
    engine: InlineEngine, disk: MemoryDisk
) -> None:
    """The control file must not name a mark below which records are not durable."""
    engine.ask(append(0, 0, 3))
    before = engine.directory.info(0)
    disk.failing_flush = 1
    answers: list[Any] = []
    engine.submit([arrival(storage.SetLowWaterMarkRequest(4, 1, 0, 2), answers.append)])
    assert answers == []
    assert [type(error) for error in engine.failures] == [DiskFailed]
    restarted = StorageDirectory(disk.restarted(), KEY, PARTITIONS, LogOptions(lambda: 1, 100_000))
    assert restarted.info(0) == before
    assert before.session_id == -1


class Loop:
    """Stands for an event loop: collects wake-ups until it is run."""

    def __init__(self) -> None:
        self.wakes: list[Callable[[], None]] = []
        self.awake = threading.Event()

    def wake(self, callback: Callable[[], None]) -> None:
        self.wakes.append(callback)
        self.awake.set()


def test_mailbox_posts_share_one_wake_up() -> None:
    loop = Loop()
    answers: list[int] = []
    mailbox = Mailbox(loop.wake)
    for n in range(5):
        mailbox.post([(answers.append, n)])
    assert len(loop.wakes) == 1
    loop.wakes.pop()()
    assert answers == [0, 1, 2, 3, 4]
    mailbox.post([(answers.append, 5)])
    assert len(loop.wakes) == 1


def running_engine(
    fail: Callable[[BaseException], None], disk: MemoryDisk | None = None
) -> EngineThread:
    """Return an engine that runs, on ``disk`` or on a new one."""
    directory = directory_on(disk or MemoryDisk())
    running = EngineThread(directory, fail, lambda: 0.0)
    running.start()
    return running


def test_engine_thread_answers_all_in_order_and_stops_cleanly() -> None:
    disk = MemoryDisk()
    answered: dict[int, list[int]] = {p: [] for p in range(3)}
    complete = threading.Event()

    def reply(answer: Any) -> None:
        assert isinstance(answer, storage.SuccessResponse)
        answered[answer.partition].append(answer.seq_num)
        if sum(map(len, answered.values())) == 600:
            complete.set()

    failures: list[BaseException] = []
    running = running_engine(failures.append, disk)
    for n in range(200):
        running.submit([arrival(append(p, n), reply) for p in range(3)])
    assert complete.wait(60)
    asyncio.run(running.stop())
    assert answered == {p: list(range(200)) for p in range(3)}
    assert not failures
    after = directory_on(disk.crashed(Random(7)))
    assert [after.partition(p).log.max_id for p in range(3)] == [199] * 3


def test_engine_thread_after_failed_flush_answers_nothing() -> None:
    disk = MemoryDisk()
    failed = threading.Event()
    failures: list[BaseException] = []
    answers: list[Any] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        failed.set()

    running = running_engine(fail, disk)
    disk.failing_flush = 1
    running.submit([arrival(append(0, 0), answers.append)])
    assert failed.wait(60)
    running.submit([arrival(append(1, 0), answers.append)])
    asyncio.run(running.stop())
    assert [type(error) for error in failures] == [DiskFailed]
    assert answers == []


def test_engine_thread_after_failed_session_answers_nothing() -> None:
    """A session is persisted on another thread than appends are written."""
    disk = MemoryDisk()
    failed = threading.Event()
    failures: list[BaseException] = []
    answers: list[Any] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        failed.set()

    running = running_engine(fail, disk)
    disk.failing_flush = 1
    running.submit([arrival(storage.SetLowWaterMarkRequest(4, 1, 0, -1), answers.append)])
    assert failed.wait(60)
    running.submit([arrival(append(1, 0), answers.append)])
    asyncio.run(running.stop())
    assert [type(error) for error in failures] == [DiskFailed]
    assert answers == []


class ScriptedPart:
    """A part of a round that adds its steps to ``steps``, and needs a number of flushes."""

    def __init__(self, name: str, flushes: int, steps: list[str]) -> None:
        self.log = self
        self.staged = None
        self.name = name
        self._flushes = flushes
        self._steps = steps

    def write(self, staged: None) -> None:
        self._steps.append(f"write {self.name}")

    def unflushed(self, staged: None) -> list[Callable[[], None]]:
        return [lambda: self._steps.append(f"flush {self.name}")] * self._flushes


def test_round_part_is_durable_after_all_its_flushes() -> None:
    """A part has two flushes when it writes a checkpoint: of its records and of its index."""
    steps: list[str] = []
    parts: list[Any] = [ScriptedPart(name, count, steps) for name, count in (("a", 2), ("b", 3))]
    parts.append(ScriptedPart("c", 0, steps))
    writer = ParallelFlushes(ImmediateExecutor())
    writer.commit(parts, lambda part: steps.append(f"durable {cast(Any, part).name}"))
    assert [step for step in steps if step.endswith("a")] == [
        "write a",
        "flush a",
        "flush a",
        "durable a",
    ]
    assert [step for step in steps if step.endswith("b")] == [
        "write b",
        *["flush b"] * 3,
        "durable b",
    ]
    assert [step for step in steps if step.endswith("c")] == ["write c", "durable c"]
    assert writer.flushes == 5


def test_append_above_the_limit_of_a_group_is_done_alone(
    engine: InlineEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "GROUP_LIMIT_BYTES", 10)
    answers = engine.ask_together([append(0, 0), append(0, 1)])
    assert kinds(answers) == ["SuccessResponse"] * 2


def test_engine_is_not_idle_while_a_round_or_a_task_is_under_way() -> None:
    engine = Engine(directory_on(MemoryDisk()))
    ready = engine.step([arrival(append(0, 0), lambda _: None)])
    assert not engine.idle
    (part,) = ready.parts
    ParallelFlushes(ImmediateExecutor()).commit([part], lambda _: None)
    done = engine.settle(part, 0.0)
    assert not engine.idle
    engine.step([done.freed])
    assert engine.idle
    (task,) = engine.step([arrival(max_id(0), lambda _: None)]).tasks
    assert not engine.idle
    engine.step([engine.run_task(task).freed])
    assert engine.idle


async def test_failed_task_ends_the_engine_thread() -> None:
    failures: list[BaseException] = []

    def task() -> list[Any]:
        raise DiskFailed("as configured by the test")

    running = running_engine(failures.append)
    running.submit([Arrival(0, task)])
    await running.stop()
    assert [type(failure) for failure in failures] == [DiskFailed]
    assert not running._thread.is_alive()


async def test_engine_reports_the_first_of_two_failures_only() -> None:
    failures: list[BaseException] = []
    both = threading.Barrier(2)

    def task() -> list[Any]:
        both.wait(60)
        raise DiskFailed("as configured by the test")

    running = running_engine(failures.append)
    running.submit([Arrival(0, task), Arrival(1, task)])
    await running.stop()
    assert len(failures) == 1


def test_unassigned_partition_stays_unassigned_even_if_its_files_cannot_be_removed(
    engine: InlineEngine, disk: MemoryDisk
) -> None:
    """An entry without files would open as an empty log with the marks of a full one."""
    engine.ask(append(0, 0, 3))
    engine.ask(storage.SetLowWaterMarkRequest(4, 1, 0, 2))
    disk.failing_remove = 1
    with pytest.raises(DiskFailed):
        engine.directory.unassign(0, delete_files=True)
    restarted = StorageDirectory(disk.restarted(), KEY, PARTITIONS, LogOptions(lambda: 1, 100_000))
    assert not restarted.info(0).assigned
    assert restarted.info(0).session_id == -1
    assert set(restarted.partitions) == {1, 2}


def test_partition_whose_old_files_are_damaged_is_not_assigned(disk: MemoryDisk) -> None:
    directory = directory_on(disk)
    directory.unassign(0, delete_files=False)
    disk.damage("0/0000000000000000000.seg", 12, b"another key")
    with pytest.raises(RequestRefused):
        directory.assign(0)
    assert not directory.info(0).assigned
