"""Run the engine on a thread with an event loop of its own, which also serves the port for servers.

A request is decoded, written, flushed and answered on one thread. To pass the request to another
thread, and the answer back, would take longer than the flush of a fast disk. While a disk hangs,
this thread waits, and servers get no answers. The process still answers administrators and health
checks, because these use the main event loop.

A *round* is the appends, of one or more partitions, that are written and flushed together. A *part*
of a round is the appends of one partition (see `core.engine.rounds`). Each partition has a *lane*,
which does its jobs one after the other; a lane is freed when its job is done. The threads are:

* The thread of the engine. It also writes and flushes a round of one partition, and a short round
  that one flush makes durable.
* The writer. It writes and flushes any other round. Meanwhile the thread of the engine sends the
  answers for each partition as soon as the appends of that partition are durable.
* A few threads that flush (see `parallel_flushes`).
* A few threads for tasks: reads, truncations, sessions, assignments.
* A thread that makes the flushed marks durable, which say how far each log is flushed.

Touches threads, and the disk through the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from waltz.runtime.process import new_event_loop
from waltz_storage.core.engine.engine import Done, Engine, EngineInput, LaneTask, Ready
from waltz_storage.core.engine.rounds import Answer, RoundPart, RoundWriter
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.mailbox import Mailbox
from waltz_storage.shell.parallel_flushes import ParallelFlushes

T = TypeVar("T")

log = logging.getLogger(__name__)

_FLUSH_THREADS = 4
"""How many threads flush the segment files of a round."""
_TASK_THREADS = 4
"""How many threads do tasks."""
_SHORT_ROUND_BYTES = 1 << 20
"""A round of several partitions stays on the thread of the engine up to this size, if one flush
makes all of it durable (`RoundWriter.flushes_once`)."""
_MARKS_SECONDS = 0.1
"""The flushed marks are made durable at most this often. After a loss of power they may lag behind
their logs by the appends of this time: the next start takes a damaged record there for an
interrupted write, and removes it."""


class EngineThread:
    """A running engine. The answers to the arrivals are delivered on the thread of the engine.

    ``fail`` is called from any thread when the process must end: a change of the disk has failed,
    or the program has a bug. ``fail`` must end the process at once. After a failure no step and no
    task begins. Tasks and flushes that have begun are not stopped, but their answers are dropped.
    """

    def __init__(
        self,
        directory: StorageDirectory,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self.engine = Engine(directory)
        self._fail = fail
        self._clock = clock
        self._failed = threading.Event()
        """Set at the first failure."""
        self._loop = new_event_loop()
        self._loop.set_exception_handler(self._handle_exception)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._lock = threading.Lock()
        self._inputs: list[EngineInput] = []
        """The inputs that no step has taken, guarded by ``_lock``. While there are any, a `_turn`
        is running or scheduled, or the writer will schedule one."""
        self._is_committing = False
        """Whether the writer commits a round. No step begins meanwhile, so that the next round gets
        everything that arrives during these flushes."""
        self._mailbox = Mailbox(self._wake_loop)
        """The answers that other threads have for the event loop of the engine."""
        self._writer = ThreadPoolExecutor(1, "writer")
        self._flushers = ThreadPoolExecutor(_FLUSH_THREADS, "flush")
        self._tasks = ThreadPoolExecutor(_TASK_THREADS, "task")
        self._round_writer: RoundWriter = directory.round_writer or ParallelFlushes(self._flushers)
        self._stopping = False
        """Whether `stop` was called."""
        self._idle = threading.Event()
        """Set when all jobs are done after `stop` was called, or after a failure."""
        self._marks_written = threading.Event()
        """Set when a round has raised marks that are not flushed yet, and by `stop`."""
        self._marks_stopped = threading.Event()
        """Set when the thread that flushes the marks must end."""
        self._marks_thread = threading.Thread(target=self._flush_marks, name="marks", daemon=True)

    @property
    def flushes(self) -> int:
        """How many flushes of files the rounds of appends have begun so far."""
        return self._round_writer.flushes

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()
        self._marks_thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the event loop of the engine; return its result. Raises its errors."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def submit(self, inputs: Sequence[EngineInput]) -> None:
        """Queue ``inputs``, from any thread; one step of the engine gets all of them."""
        with self._lock:
            must_wake = not self._inputs
            self._inputs += inputs
        if must_wake:
            self._wake_loop(self._turn)

    async def stop(self) -> None:
        """Finish all submitted jobs, close the directory cleanly, and end the threads.

        After a failure, only end the threads.
        """
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        """Do the work of `stop`, which may wait long: call it on a thread without an event loop."""
        self._stopping = True
        self._wake_loop(self._turn)
        self._idle.wait()
        self._marks_stopped.set()
        self._marks_written.set()  # This wakes the thread, which then finds `_marks_stopped`.
        self._marks_thread.join()
        if not self._failed.is_set():
            try:
                self.engine.directory.close()
            except Exception as error:
                self._give_up(error)
        for pool in (self._writer, self._tasks, self._flushers):
            pool.shutdown()
        self._wake_loop(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        """Run the event loop until it is stopped: the body of the thread of the engine."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _is_current_thread(self) -> bool:
        """Whether the caller runs on the thread of the engine."""
        return threading.get_ident() == self._thread.ident

    def _wake_loop(self, function: Callable[[], None]) -> None:
        """Call ``function`` soon on the event loop; do nothing if the loop has ended."""
        if self._is_current_thread():
            self._loop.call_soon(function)
        else:
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(function)

    def _turn(self) -> None:
        """Step the engine with everything that has arrived, unless the writer is busy."""
        try:
            while not self._is_committing and not self._failed.is_set():
                with self._lock:
                    inputs, self._inputs = self._inputs, []
                self._perform(self.engine.step(inputs))
                # A part that was committed on this thread has freed its lane: step again.
                if not self._inputs:
                    break
        except Exception as error:
            self._give_up(error)
            return
        if self._stopping and self.engine.idle and not self._inputs and not self._is_committing:
            self._idle.set()

    def _perform(self, ready: Ready) -> None:
        """Do what a step has returned: deliver answers, begin tasks, and commit the round."""
        self._deliver(ready.answers)
        for task in ready.tasks:
            self._tasks.submit(self._run_task, task)
        if not ready.parts:
            return
        if self._is_short(ready.parts):
            self._round_writer.commit(ready.parts, self._settle)
        else:
            self._is_committing = True
            self._writer.submit(self._commit, ready.parts)

    def _is_short(self, parts: Sequence[RoundPart]) -> bool:
        """Return whether a round has one flush and few bytes, or one part.

        To pass such a round to the writer, and the answers of its parts back, would take longer
        than its flush on a fast disk.
        """
        if len(parts) == 1:
            return True
        size = sum(part.staged.size for part in parts)
        return self._round_writer.flushes_once and size <= _SHORT_ROUND_BYTES

    def _commit(self, parts: Sequence[RoundPart]) -> None:
        """Commit a round on the writer's thread."""
        if self._failed.is_set():
            return
        try:
            self._round_writer.commit(parts, self._settle)
        except Exception as error:
            self._give_up(error)
        else:
            self._wake_loop(self._end_commit)

    def _end_commit(self) -> None:
        """Continue after a round of the writer, on the thread of the engine."""
        self._is_committing = False
        self._turn()

    def _settle(self, part: RoundPart) -> None:
        """Answer the appends of a part of a round, which is durable now."""
        self._finish(self.engine.settle(part, self._clock()))
        if not self._marks_written.is_set():  # `set` takes a lock, `is_set` does not.
            self._marks_written.set()

    def _flush_marks(self) -> None:
        """Make the flushed marks durable from time to time, while rounds write them."""
        while True:
            self._marks_written.wait()
            # `_stop` sets `_marks_stopped` before `_marks_written`. So this thread clears the
            # latter before it checks the former. In the other order, it could clear the wake-up of
            # `_stop` without seeing `_marks_stopped`, and `_stop` would wait forever.
            self._marks_written.clear()
            if self._marks_stopped.is_set():
                return
            try:
                self.engine.directory.flush_marks()
            except Exception as error:
                self._give_up(error)
                return
            self._marks_stopped.wait(_MARKS_SECONDS)

    def _run_task(self, task: LaneTask) -> None:
        """Do a task, on a thread for tasks."""
        if self._failed.is_set():
            # The task waited for a thread when the failure happened. It must not change files
            # whose content is unknown.
            return
        try:
            self._finish(self.engine.run_task(task))
        except Exception as error:
            self._give_up(error)

    def _finish(self, done: Done) -> None:
        """Deliver the answers of finished work, and submit the lane that it has freed."""
        if self._failed.is_set():
            return
        self._deliver(done.answers)
        if self._is_current_thread():
            # `_turn` is a caller of this method and steps again. To schedule another turn, as
            # `submit` does, would take longer.
            with self._lock:
                self._inputs.append(done.freed)
        else:
            self.submit((done.freed,))

    def _deliver(self, answers: list[Answer]) -> None:
        """Call the callbacks of ``answers`` on the event loop of the engine."""
        if self._is_current_thread():
            # Another thread posts its answers before it submits the lane that it frees. They must
            # be delivered before the answer of the next job of that lane: a server takes the
            # answers to the appends of a partition in the order of its requests.
            self._mailbox.deliver()
            for reply, answer in answers:
                reply(answer)
        elif answers:
            self._mailbox.post(answers)

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Give up after an error of a callback or task, except an OSError of a connection."""
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            log.warning("storage engine: %s: %s; continuing", context.get("message"), error)
        else:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        """Begin no further work, and call ``fail`` for the first error."""
        with self._lock:
            is_first = not self._failed.is_set()
            self._failed.set()
        if is_first:
            self._fail(error)
            self._idle.set()
