"""The storage engine without threads: every step is done at once, on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from waltz.protocol import storage
from waltz_storage.core.directory import StorageDirectory
from waltz_storage.core.durability import SegmentDurability
from waltz_storage.core.engine import AppendJob, Arrival, AskJob, Engine
from waltz_storage.shell.admin_handler import AdminDesk


class Inline(Executor):
    """Does work at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class InlineEngine:
    """An engine and an admin desk. ``failures`` is what would end the process."""

    def __init__(self, directory: StorageDirectory) -> None:
        self.directory = directory
        self.failures: list[BaseException] = []
        self._news: list[Arrival] = []
        self.engine = Engine(
            directory,
            SegmentDurability(Inline()),
            Inline(),
            deliver=self._deliver,
            arrive=self._news.append,
            fail=self.failures.append,
            clock=lambda: 0.0,
        )
        self.desk = AdminDesk(directory, self.submit, self._deliver)

    def ask(self, request: Any) -> Any:
        """Return the answer to one request."""
        (answer,) = self.ask_together([request])
        return answer

    def ask_together(self, requests: Sequence[Any]) -> list[Any]:
        """Return the answers to requests that arrive together, in the order of the answers."""
        answers: list[Any] = []
        self.submit([arrival(request, answers.append) for request in requests])
        return answers

    def administer(self, request: Any, version: int = 0) -> Any:
        """Return the answer to one admin request."""
        answers: list[Any] = []
        self.desk.handle(request, version, answers.append)
        (answer,) = answers
        return answer

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        """Do what has arrived, and what follows from it."""
        self._news += arrivals
        while self._news:
            taken, self._news[:] = list(self._news), []
            self.engine.step(taken)

    def _deliver(self, answers: list[tuple[Callable[[Any], None], Any]]) -> None:
        for reply, answer in answers:
            reply(answer)


def arrival(request: Any, reply: Callable[[Any], None], version: int = 1) -> Arrival:
    """Return the arrival of a request of a server."""
    if isinstance(request, storage.AppendRequest):
        return Arrival(request.partition, AppendJob(request, version, reply, 0.0))
    return Arrival(request.partition, AskJob(request, version, reply))
