"""Run the engine on threads, and pass its answers to the event loop.

One thread, the writer, steps the engine and writes appends. A few threads flush, and the writer
flushes, too (see `parallel_flushes`). A few others do tasks (reads, truncations, sessions,
assignments). Another thread makes the flushed marks durable. Touches threads, and the disk through
the engine.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from waltz_storage.core.engine.engine import Arrival, Done, Engine, LaneTask, Ready
from waltz_storage.core.engine.rounds import Answer, RoundPart, RoundWriter
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.parallel_flushes import ParallelFlushes

_FLUSH_THREADS = 4
_TASK_THREADS = 4
_MARKS_SECONDS = 0.1
"""The flushed marks are made durable at most this often. After a loss of power they may lag behind
their logs by the appends of this time."""


class Mailbox:
    """Passes answers from any thread to the event loop, with one wake-up for many answers.

    ``wake`` schedules a function on the event loop, as ``loop.call_soon_threadsafe`` does.
    """

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: list[Answer] = []

    def post(self, answers: list[Answer]) -> None:
        """Call the callback of each answer later, on the event loop."""
        with self._lock:
            asleep = not self._waiting
            self._waiting += answers
        if asleep and answers:
            self._wake(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            answers, self._waiting = self._waiting, []
        for reply, answer in answers:
            reply(answer)


class EngineThread:
    """A running engine.

    ``fail`` is called from any thread when the process must end: a change of the disk has failed,
    or the program has a bug. ``fail`` must end the process at once. After a failure no step and no
    task begins, and no answer is posted. Tasks and flushes that have begun are not stopped.
    """

    def __init__(
        self,
        directory: StorageDirectory,
        mailbox: Mailbox,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self.engine = Engine(directory)
        self._arrivals: queue.SimpleQueue[Sequence[Arrival] | None] = queue.SimpleQueue()
        self._flushers = ThreadPoolExecutor(_FLUSH_THREADS, "flush")
        self._tasks = ThreadPoolExecutor(_TASK_THREADS, "task")
        self._fail = fail
        self._failed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._round_writer: RoundWriter = directory.round_writer or ParallelFlushes(self._flushers)
        self._marks_written = threading.Event()
        self._stopped = threading.Event()
        self._marks_thread = threading.Thread(target=self._flush_marks, name="marks", daemon=True)
        self._mailbox = mailbox
        self._clock = clock

    @property
    def flushes(self) -> int:
        """How many flushes of files the rounds of appends have begun so far."""
        return self._round_writer.flushes

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()
        self._marks_thread.start()

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        """Queue ``arrivals``; one step of the engine gets all of them."""
        self._arrivals.put(arrivals)

    async def stop(self) -> None:
        """Finish all submitted jobs, close the directory cleanly, and end the threads.

        After a failure, only end the threads.
        """
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._arrivals.put(None)
        self._thread.join()
        self._end_marks_thread()
        self._marks_thread.join()
        for pool in (self._tasks, self._flushers):
            pool.shutdown()

    def _run(self) -> None:
        """Step the engine until `_stop` has put None into the queue and all jobs are done."""
        stopping = False
        try:
            while not self._failed.is_set():
                arrivals: list[Arrival] = []
                arrived = self._arrivals.get()
                # Take everything that has arrived meanwhile: one round serves all of it.
                while True:
                    if arrived is None:
                        stopping = True
                    else:
                        arrivals += arrived
                    if self._arrivals.empty():
                        break
                    arrived = self._arrivals.get_nowait()
                self._perform(self.engine.step(arrivals))
                if stopping and self.engine.idle and self._arrivals.empty():
                    self._end_marks_thread()
                    self._marks_thread.join()
                    self.engine.directory.close()
                    return
        except Exception as error:
            self._give_up(error)

    def _perform(self, ready: Ready) -> None:
        if ready.answers:
            self._mailbox.post(ready.answers)
        for task in ready.tasks:
            self._tasks.submit(self._run_task, task)
        if ready.parts:
            self._round_writer.commit(ready.parts, self._settle)

    def _settle(self, part: RoundPart) -> None:
        self._finish(self.engine.settle(part, self._clock()))
        if not self._marks_written.is_set():
            self._marks_written.set()

    def _flush_marks(self) -> None:
        """Make the flushed marks durable from time to time, while rounds write them."""
        while True:
            self._marks_written.wait()
            if self._stopped.is_set():
                return
            self._marks_written.clear()
            try:
                self.engine.directory.flush_marks()
            except Exception as error:
                self._give_up(error)
                return
            self._stopped.wait(_MARKS_SECONDS)

    def _end_marks_thread(self) -> None:
        self._stopped.set()
        self._marks_written.set()

    def _run_task(self, task: LaneTask) -> None:
        if self._failed.is_set():
            # The task waited for a thread. It must not change files whose content is unknown.
            return
        try:
            self._finish(self.engine.run_task(task))
        except Exception as error:
            self._give_up(error)

    def _finish(self, done: Done) -> None:
        if self._failed.is_set():
            return
        self._mailbox.post(done.answers)
        self._arrivals.put((done.freed,))

    def _give_up(self, error: BaseException) -> None:
        """Begin no further work, and call ``fail`` for the first error."""
        if not self._failed.is_set():
            self._failed.set()
            self._fail(error)
            # Wake the writer thread, which may wait for arrivals, so that it ends.
            self._arrivals.put(())
