"""Run the storage engine on virtual time, with flushes and tasks that take time.

A machine may lose power, or a process may be killed, between a write and its flush.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, Protocol

from typing_extensions import override

from tests.sim.delayed_flushes import TASK_SECONDS, DelayedFlushes
from tests.sim.history import History
from waltz.testing.engine import EventLoopEngine
from waltz_storage.core.engine.engine import Arrival, Done, EngineInput, LaneTask, RequestJob
from waltz_storage.core.engine.rounds import Answer, AppendJob, RoundPart
from waltz_storage.core.partitions.storage_directory import StorageDirectory

_WAKE_SECONDS = 0.0001
"""How long the engine's thread sleeps at most: arrivals in that time are done together."""


class Machine(Protocol):
    """The machine and the process in which an engine runs, and the observer of its requests."""

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do ``work`` after ``seconds``, unless the process has ended by then."""

    def draw_flush_of_marks(self) -> bool:
        """Draw whether the flushed marks are made durable after this round."""

    def record_request(self, request: Any) -> None:
        """Record a request that has arrived."""

    def check_answer(self, connection: object, request: Any, answer: Any) -> None:
        """Check an answer that is about to be sent on a connection."""


class _ObservedReply:
    """The function that sends the answer to a request, with the request and its connection."""

    def __init__(self, request: Any, reply: Callable[[Any], None]) -> None:
        self.request = request
        self.reply = reply
        # Every connection passes its own bound method (`waltz_storage.shell.connections`).
        method = reply.func if isinstance(reply, partial) else reply
        self.connection: object = method.__self__ if isinstance(method, MethodType) else reply

    def __call__(self, answer: Any) -> None:
        self.reply(answer)


class DelayedEngine(EventLoopEngine):
    """Runs an engine as its thread does: it takes what has arrived when it is not flushing."""

    def __init__(
        self,
        directory: StorageDirectory,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
        machine: Machine,
        history: History,
    ) -> None:
        super().__init__(directory, fail, clock)
        self._machine = machine
        self._queue: deque[EngineInput] = deque()
        self._wake_planned = False
        self._flushes = DelayedFlushes(self._later, history)

    @override
    def submit(self, arrivals: Sequence[Arrival]) -> None:
        self._queue += map(self._observed, arrivals)
        if not self._wake_planned:
            self._wake_planned = True
            self._later(_WAKE_SECONDS, self._wake)

    def _observed(self, arrival: Arrival) -> Arrival:
        """Record the request of an arrival; return the arrival, whose answer is checked."""
        job = arrival.job
        if not isinstance(job, AppendJob | RequestJob):
            return arrival
        self._machine.record_request(job.request)
        reply = _ObservedReply(job.request, job.reply)
        if isinstance(job, AppendJob):
            return Arrival(arrival.partition, job._replace(reply=reply))
        return Arrival(arrival.partition, replace(job, reply=reply))

    def _wake(self) -> None:
        """Note that the thread is awake; `_later` then proceeds."""
        self._wake_planned = False

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do ``work`` after ``seconds``, then let the thread take what has arrived meanwhile."""

        def work_and_proceed() -> None:
            work()
            self._proceed()

        self._machine.later(seconds, work_and_proceed)

    def _proceed(self) -> None:
        """Step the engine with all arrivals until there are none, unless it is flushing."""
        while self._queue and not self._flushes.busy and not self._ended:
            taken = list(self._queue)
            self._queue.clear()
            ready = self.engine.step(taken)
            self._post(ready.answers)
            for task in ready.tasks:
                self._later(TASK_SECONDS, partial(self._run_task, task))
            if ready.parts:
                self._flushes.commit(ready.parts, self._settle_part)

    def _run_task(self, task: LaneTask) -> None:
        self._complete(self.engine.run_task(task))

    def _settle_part(self, part: RoundPart) -> None:
        self._complete(self.engine.settle(part, self._clock()))
        if self._machine.draw_flush_of_marks():
            self._later(TASK_SECONDS, self.engine.directory.flush_marks)

    def _complete(self, done: Done) -> None:
        self._post(done.answers)
        self._queue.append(done.freed)

    def _post(self, answers: list[Answer]) -> None:
        for reply, answer in answers:
            if isinstance(reply, _ObservedReply):
                self._machine.check_answer(reply.connection, reply.request, answer)
        self._mailbox.post(answers)
