"""The storage engine without threads: each step is done on the event loop. Touches the event loop.

The engine handles all requests that arrive in one iteration of the event loop in one step, as the
thread of a busy storage does. A disk in memory does not block, so no step needs a thread. A *job*
is a request, or work of an administrator. The appends of a step are a *round*, which is written and
flushed in one pass. Each *part* of a round has the appends of one partition. The other jobs of a
step, such as reads, are its *tasks*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from typing_extensions import override

from waltz_storage.core.engine.engine import Arrival, Done, Engine, EngineInput
from waltz_storage.core.engine.rounds import RoundPart, RoundWriter
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.mailbox import Mailbox
from waltz_storage.shell.parallel_flushes import ParallelFlushes

T = TypeVar("T")


class ImmediateExecutor(Executor):
    """Does work at once, on the thread that submits it."""

    @override
    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class EventLoopEngine:
    """Runs an engine on the running event loop.

    It is used in place of `waltz_storage.shell.engine_thread.EngineThread`, and has the same
    arguments and methods. An error of the engine is passed to ``fail``. Afterwards, and after
    `abandon`, the engine neither writes nor answers.
    """

    def __init__(
        self,
        directory: StorageDirectory,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self.engine = Engine(directory)
        self._mailbox = Mailbox(asyncio.get_running_loop().call_soon_threadsafe)
        self._fail = fail
        self._clock = clock
        # A directory with a write-ahead log has a writer that commits each round in that log.
        self._round_writer: RoundWriter = directory.round_writer or ParallelFlushes(
            ImmediateExecutor()
        )
        self._inputs: list[EngineInput] = []
        self._scheduled = False
        """Whether a call of `_run` is scheduled."""
        self._ended = False
        """Whether the engine was stopped or abandoned, or has failed."""

    @property
    def flushes(self) -> int:
        """How many flushes of files the rounds of appends have begun so far."""
        return self._round_writer.flushes

    def start(self) -> None:
        """Do nothing: the first call of `submit` schedules the first step."""

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        """Queue jobs that have arrived for the next iteration of the event loop."""
        self._inputs += arrivals
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the running event loop, on which this engine runs, too."""
        return await work

    async def stop(self) -> None:
        """Process all queued jobs and close the storage directory cleanly.

        After `abandon` or a failure, do nothing.
        """
        self._run()
        if not self._ended:
            self._ended = True
            self.engine.directory.close()

    def abandon(self) -> None:
        """End without doing anything more, as the death of the process does."""
        self._ended = True

    def _run(self) -> None:
        self._scheduled = False
        try:
            while self._inputs and not self._ended:
                inputs, self._inputs = self._inputs, []
                self._step(inputs)
        except Exception as error:
            self._ended = True
            self._fail(error)

    def _step(self, inputs: Sequence[EngineInput]) -> None:
        """Do a step of the engine, and then its tasks and its round of appends."""
        ready = self.engine.step(inputs)
        self._mailbox.post(ready.answers)
        for task in ready.tasks:
            self._finish(self.engine.run_task(task))
        if ready.parts:
            self._round_writer.commit(ready.parts, self._settle)

    def _settle(self, part: RoundPart) -> None:
        """Let the engine answer the appends in ``part`` of a round, after it was flushed."""
        self._finish(self.engine.settle(part, self._clock()))

    def _finish(self, done: Done) -> None:
        """Send the answers, and let the next step begin another job: the partition is free now."""
        self._mailbox.post(done.answers)
        self._inputs.append(done.freed)
