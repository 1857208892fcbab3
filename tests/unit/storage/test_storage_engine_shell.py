"""The threads of the engine: rounds, flushed marks, failures and the end."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.eventually import eventually
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.engine.engine import Arrival
from waltz_storage.core.engine.rounds import AppendJob, RoundPart, RoundWriter
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.engine_thread import _SHORT_ROUND_BYTES, EngineThread

PARTITIONS = 4


class Scene:
    """A running engine whose partitions take appends of session 1."""

    def __init__(self) -> None:
        self.directory = StorageDirectory(
            MemoryDisk(), uuid.UUID(int=5), PARTITIONS, LogOptions(lambda: 1)
        )
        for partition in range(PARTITIONS):
            self.directory.assign(partition)
            self.directory.set_available(partition, available=True)
            opened = self.directory.partition(partition)
            opened.handle(storage.SetLowWaterMarkRequest(1, 0, partition, -1), 1)
        self.failures: list[BaseException] = []
        self.answers: list[Any] = []
        self.engine = EngineThread(self.directory, self.failures.append, lambda: 0.0)

    def append(self, *partitions: int, transaction: int = 0, data: bytes = b"x") -> None:
        """Submit an append to each partition, all of them together."""
        self.engine.submit([self._arrival(each, transaction, data) for each in partitions])

    def _arrival(self, partition: int, transaction: int, data: bytes) -> Arrival:
        records = RecordBatch.of([Record(transaction, ReqId(1, 1, partition, 0), 0, data, 7)])
        request = storage.AppendRequest(1, transaction, partition, records)
        return Arrival(partition, AppendJob(request, 1, self.answers.append, 0.0))

    async def answered(self, count: int) -> None:
        await eventually(lambda: len(self.answers) == count)


class SlowRounds:
    """Commits rounds when the test lets it; implements `RoundWriter`."""

    flushes = 0
    flushes_once = False

    def __init__(self, writer: RoundWriter) -> None:
        self._writer = writer
        self.rounds: list[list[int]] = []
        self.may_commit = threading.Semaphore(0)
        self.error: Exception | None = None

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        self.rounds.append([part.partition.partition for part in parts])
        assert self.may_commit.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        self._writer.commit(parts, durable)


class FirstDurableOnOtherThread:
    """Reports the first round as durable on another thread, as a flush of two files may.

    During this round ``arrive`` is called. Implements `RoundWriter`.
    """

    flushes = 0
    flushes_once = False

    def __init__(self, writer: RoundWriter, arrive: Callable[[], None]) -> None:
        self._writer = writer
        self._arrive = arrive
        self._is_first = True

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        def durable_on_other_thread(part: RoundPart) -> None:
            flusher = threading.Thread(target=durable, args=(part,))
            flusher.start()
            flusher.join()

        if self._is_first:
            self._is_first = False
            self._arrive()
            self._writer.commit(parts, durable_on_other_thread)
        else:
            self._writer.commit(parts, durable)


class RoundsOnThreads:
    """Notes the thread and the number of parts of each round; implements `RoundWriter`."""

    flushes = 0

    def __init__(self, writer: RoundWriter, *, flushes_once: bool) -> None:
        self._writer = writer
        self.flushes_once = flushes_once
        self.rounds: list[tuple[str, int]] = []

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        self.rounds.append((threading.current_thread().name.partition("_")[0], len(parts)))
        self._writer.commit(parts, durable)


class PausedCheck(threading.Event):
    """An event that was found unset once, on a thread that goes on only after ``may_go_on``."""

    def __init__(self) -> None:
        super().__init__()
        self.found_unset = threading.Event()
        self.may_go_on = threading.Event()

    def is_set(self) -> bool:
        if not super().is_set() and not self.found_unset.is_set():
            self.found_unset.set()
            assert self.may_go_on.wait(60)
            return False
        return super().is_set()


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_round_gets_everything_that_arrives_during_the_round_before(scene: Scene) -> None:
    slow = scene.engine._round_writer = SlowRounds(scene.engine._round_writer)
    scene.engine.start()
    scene.append(0, 1)
    await eventually(lambda: slow.rounds == [[0, 1]])
    for partition in (2, 3):
        scene.append(partition)
        turned = threading.Event()
        scene.engine._wake_loop(turned.set)
        assert await asyncio.to_thread(turned.wait, 5)
    assert slow.rounds == [[0, 1]], "no round begins during another one"
    assert scene.answers == []
    slow.may_commit.release(2)
    await scene.answered(4)
    assert slow.rounds == [[0, 1], [2, 3]]
    await scene.engine.stop()
    assert scene.failures == []


@pytest.mark.parametrize(
    ("flushes_once", "size", "expected"),
    [(True, 1, "engine"), (True, _SHORT_ROUND_BYTES // 2, "writer"), (False, 1, "writer")],
)
async def test_round_of_several_partitions_is_committed_by_the_thread(
    scene: Scene, flushes_once: bool, size: int, expected: str
) -> None:
    engine = scene.engine
    noting = RoundsOnThreads(engine._round_writer, flushes_once=flushes_once)
    engine._round_writer = noting
    engine.start()
    scene.append(0, 1, data=bytes(size))
    await scene.answered(2)
    await engine.stop()
    assert noting.rounds == [(expected, 2)]
    assert scene.failures == []


async def test_answer_of_a_round_does_not_overtake_that_of_the_round_before(scene: Scene) -> None:
    """A server that gets them in another order ends: it counts on the order of its appends."""

    def arrive() -> None:
        scene.append(0, transaction=1)

    engine = scene.engine
    engine._round_writer = FirstDurableOnOtherThread(engine._round_writer, arrive)
    engine.start()
    scene.append(0)
    await scene.answered(2)
    assert [answer.seq_num for answer in scene.answers] == [0, 1]
    await engine.stop()
    assert scene.failures == []


async def test_failed_round_is_reported_once_and_nothing_is_answered_after_it(scene: Scene) -> None:
    closed: list[bool] = []
    scene.directory.close = lambda: closed.append(True)  # type: ignore[method-assign]
    slow = scene.engine._round_writer = SlowRounds(scene.engine._round_writer)
    slow.error = RuntimeError("the disk failed")
    scene.engine.start()
    scene.append(0, 1)
    await eventually(lambda: slow.rounds)
    scene.append(2, 3)
    slow.may_commit.release(9)
    await eventually(lambda: scene.failures)
    scene.append(0, 1, transaction=1)
    scene.engine._give_up(RuntimeError("a later error"))
    await scene.engine.stop()
    assert scene.failures == [slow.error]
    assert slow.rounds == [[0, 1]]
    assert scene.answers == []
    assert closed == [], "a directory whose content is unknown is not closed as if it were complete"


async def test_no_round_begins_after_a_failure(scene: Scene) -> None:
    slow = scene.engine._round_writer = SlowRounds(scene.engine._round_writer)
    scene.engine.start()
    scene.engine._give_up(RuntimeError("a task failed"))
    scene.append(0)
    scene.append(1, 2)
    await scene.engine.stop()
    assert slow.rounds == []
    assert scene.answers == []


async def test_stop_closes_the_directory_and_ends_all_threads(scene: Scene) -> None:
    closed: list[bool] = []
    close = scene.directory.close
    scene.directory.close = lambda: closed.append(True)  # type: ignore[method-assign]
    scene.engine.start()
    scene.append(0, 1)
    await scene.answered(2)
    await scene.engine.stop()
    assert closed == [True]
    assert scene.failures == []
    assert not scene.engine._thread.is_alive()
    assert not scene.engine._marks_thread.is_alive()
    close()


async def test_stop_between_the_check_and_the_wait_of_the_marks_thread_ends_it(
    scene: Scene,
) -> None:
    engine = scene.engine
    stopped = engine._marks_stopped = PausedCheck()
    engine.start()
    scene.append(0)
    await scene.answered(1)
    assert await asyncio.to_thread(stopped.found_unset.wait, 60)
    stopping = asyncio.create_task(engine.stop())
    try:
        await eventually(lambda: threading.Event.is_set(stopped) and engine._marks_written.is_set())
        stopped.may_go_on.set()
        await asyncio.wait_for(asyncio.shield(stopping), 10)
    finally:
        engine._marks_written.set()  # A thread that waits forever would keep the tests from ending.
        await stopping
    assert scene.failures == []


async def test_failed_close_of_the_directory_is_reported(scene: Scene) -> None:
    problem = RuntimeError("no space")

    def fail() -> None:
        raise problem

    scene.directory.close = fail  # type: ignore[method-assign]
    scene.engine.start()
    await scene.engine.stop()
    assert scene.failures == [problem]


async def test_marks_are_flushed_after_rounds_and_only_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waltz_storage.shell.engine_thread._MARKS_SECONDS", 0.0)
    flushed: list[int] = []
    scene.directory.flush_marks = lambda: flushed.append(1)  # type: ignore[method-assign]
    scene.engine.start()
    await asyncio.sleep(0.02)
    assert flushed == []
    for transaction in (0, 1):
        before = len(flushed)
        scene.append(0, transaction=transaction)
        await eventually(lambda before=before: len(flushed) > before)  # type: ignore[misc]
    after = len(flushed)
    await asyncio.sleep(0.05)
    assert len(flushed) <= after + 1, "without a round nothing is flushed"
    await scene.engine.stop()


async def test_mark_written_during_a_flush_of_the_marks_is_flushed_after_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush under way may have passed this mark: no later append may come to flush it."""
    monkeypatch.setattr("waltz_storage.shell.engine_thread._MARKS_SECONDS", 0.0)
    begun: list[int] = []
    may_end = threading.Event()

    def flush() -> None:
        begun.append(1)
        assert may_end.wait(60)

    scene.directory.flush_marks = flush  # type: ignore[method-assign]
    scene.engine.start()
    scene.append(0)
    await eventually(lambda: begun)
    scene.append(0, transaction=1)
    await scene.answered(2)
    settled = threading.Event()
    scene.engine._wake_loop(settled.set)
    assert await asyncio.to_thread(settled.wait, 60)
    assert len(begun) == 1
    may_end.set()
    await eventually(lambda: len(begun) == 2)
    await scene.engine.stop()


async def test_failed_flush_of_the_marks_is_reported(scene: Scene) -> None:
    problem = RuntimeError("the disk failed")

    def fail() -> None:
        raise problem

    scene.directory.flush_marks = fail  # type: ignore[method-assign]
    scene.engine.start()
    scene.append(0)
    await eventually(lambda: scene.failures)
    await scene.engine.stop()
    assert scene.failures == [problem]


async def test_error_of_a_connection_on_the_loop_is_logged_and_any_other_error_ends_the_engine(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.engine.start()
    handle = scene.engine._loop.call_exception_handler
    handle({"message": "a socket", "exception": ConnectionResetError("reset")})
    handle({"message": "a transport was not closed"})
    assert scene.failures == []
    assert [text for text in caplog.messages if "a socket" in text or "a transport" in text]
    problem = RuntimeError("a bug")
    handle({"message": "a callback", "exception": problem})
    assert scene.failures == [problem]
    await scene.engine.stop()
