"""Test that a failed engine thread begins no further task and posts no further answer."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from waltz.testing.disk import MemoryDisk
from waltz_storage.core.engine.engine import AdminJob, Arrival
from waltz_storage.core.errors import DiskFailed
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.engine_thread import EngineThread

THREADS = 4
"""How many tasks run at the same time."""


async def test_failed_engine_thread_neither_begins_waiting_tasks_nor_answers() -> None:
    begun = threading.Barrier(THREADS + 1)
    may_fail, failed = threading.Event(), threading.Event()
    calls: list[str] = []
    answers: list[Any] = []

    def failing() -> list[Any]:
        begun.wait(60)
        assert may_fail.wait(60)
        raise DiskFailed("as configured by the test")

    def slow() -> list[Any]:
        begun.wait(60)
        assert failed.wait(60)
        return [(answers.append, "answer of a task that has begun before the failure")]

    def waiting() -> list[Any]:
        calls.append("begun after the failure")
        return [(answers.append, "answer of a task that has begun after the failure")]

    tasks: list[AdminJob] = [failing, *[slow] * (THREADS - 1), waiting]
    directory = StorageDirectory(MemoryDisk(), uuid.UUID(int=5), len(tasks), LogOptions(lambda: 1))
    running = EngineThread(directory, lambda _: failed.set(), lambda: 0.0)
    running.start()
    running.submit([Arrival(partition, task) for partition, task in enumerate(tasks)])
    begun.wait(60)
    may_fail.set()
    await running.stop()
    assert failed.is_set()
    assert calls == []
    assert answers == []


async def test_stopping_engine_thread_completes_submitted_jobs() -> None:
    """A directory that is closed below a task would lose the answer, and could lose the change."""
    answers: list[Any] = []
    failures: list[BaseException] = []
    begun = threading.Event()

    def slow() -> list[Any]:
        begun.set()
        # While this task lasts, a thread that does not wait for it ends.
        time.sleep(0.1)
        return [(answers.append, "first")]

    def waiting() -> list[Any]:
        return [(answers.append, "second")]

    directory = StorageDirectory(MemoryDisk(), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    running = EngineThread(directory, failures.append, lambda: 0.0)
    running.start()
    running.submit([Arrival(0, slow), Arrival(0, waiting)])
    begun.wait(60)
    await running.stop()
    assert (answers, failures) == (["first", "second"], [])
