"""Runs the engine in a process: its threads, its inbox, and the way back to the event loop.

One thread writes; a few flush, a few do tasks (reads, truncations, sessions, assignments). Touches
threads, and the disk through the engine.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from waltz_storage.core.directory import StorageDirectory
from waltz_storage.core.durability import SegmentDurability
from waltz_storage.core.engine import Arrival, Engine, Reply

_FLUSH_THREADS = 4
_TASK_THREADS = 4


class Mailbox:
    """Brings answers from any thread to the event loop, with one wake-up for many.

    ``wake`` is ``loop.call_soon_threadsafe``, or something like it.
    """

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: list[tuple[Reply, Any]] = []

    def post(self, answers: list[tuple[Reply, Any]]) -> None:
        """Have each reply called with its answer on the event loop."""
        with self._lock:
            asleep = not self._waiting
            self._waiting += answers
        if asleep and answers:
            self._wake(self._empty)

    def _empty(self) -> None:
        with self._lock:
            answers, self._waiting = self._waiting, []
        for reply, answer in answers:
            reply(answer)


class EngineThread:
    """An engine that runs.

    ``fail`` is called once, from any thread, when the process must end: a flush has failed, or
    there is a mistake in this program. From then on nothing is written or answered.
    """

    def __init__(
        self,
        directory: StorageDirectory,
        mailbox: Mailbox,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> None:
        self._inbox: queue.SimpleQueue[Sequence[Arrival] | None] = queue.SimpleQueue()
        self._flushers = ThreadPoolExecutor(_FLUSH_THREADS, "flush")
        self._tasks = ThreadPoolExecutor(_TASK_THREADS, "task")
        self._fail = fail
        self._failed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._durability = SegmentDurability(self._flushers)
        self.engine = Engine(
            directory,
            self._durability,
            self._tasks,
            deliver=mailbox.post,
            arrive=lambda arrival: self._inbox.put((arrival,)),
            fail=self._give_up,
            clock=clock,
        )

    @property
    def flushes(self) -> int:
        """How many flushes appends have taken so far."""
        return self._durability.flushes

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        """Hand over jobs; in one call, they go into the same round if they can."""
        self._inbox.put(arrivals)

    def stop(self) -> None:
        """Do what was submitted, close the directory cleanly, and end. Blocks."""
        self._inbox.put(None)
        self._thread.join()
        for pool in (self._tasks, self._flushers):
            pool.shutdown()

    def _run(self) -> None:
        stopping = False
        try:
            while not self._failed.is_set():
                arrivals: list[Arrival] = []
                arrived = self._inbox.get()
                while True:
                    if arrived is None:
                        stopping = True
                    else:
                        arrivals += arrived
                    if self._inbox.empty():
                        break
                    arrived = self._inbox.get_nowait()
                self.engine.step(arrivals)
                if stopping and self.engine.idle and self._inbox.empty():
                    self.engine.directory.close()
                    return
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        if not self._failed.is_set():
            self._failed.set()
            self._fail(error)
            # The writer may be waiting for news.
            self._inbox.put(())
