"""Run the storage engine without threads: the caller performs every step at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from waltz.protocol import storage
from waltz.testing.engine import ImmediateExecutor
from waltz_storage.core.engine.engine import Arrival, Done, Engine, EngineInput, RequestJob
from waltz_storage.core.engine.rounds import Answer, AppendJob, RoundPart, RoundWriter
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.parallel_flushes import ParallelFlushes


class InlineEngine:
    """An engine and an admin handler; ``failures`` are the errors that would end the process."""

    def __init__(self, directory: StorageDirectory) -> None:
        self.directory = directory
        self.failures: list[BaseException] = []
        self.engine = Engine(directory)
        self.scrubber = Scrubber(0, now=0.0)
        self.writer: RoundWriter = directory.round_writer or ParallelFlushes(ImmediateExecutor())
        self.handler = AdminHandler(directory, self.submit, _deliver, self.scrubber)
        self._inputs: list[EngineInput] = []

    def ask(self, request: Any) -> Any:
        """Return the answer to one request."""
        (answer,) = self.ask_together([request])
        return answer

    def ask_together(self, requests: Sequence[Any]) -> list[Any]:
        """Return the answers to requests that arrive together, as they are sent."""
        answers: list[Any] = []
        self.submit([arrival(request, answers.append) for request in requests])
        return answers

    def administer(self, request: Any, version: int = 0) -> Any:
        """Return the answer to one admin request."""
        answers: list[Any] = []
        self.handler.handle(request, version, answers.append)
        (answer,) = answers
        return answer

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        """Process the arrivals, and all steps that follow from them."""
        self._inputs += arrivals
        while self._inputs:
            taken, self._inputs[:] = list(self._inputs), []
            ready = self.engine.step(taken)
            _deliver(ready.answers)
            for task in ready.tasks:
                try:
                    self._finish(self.engine.run_task(task))
                except Exception as error:
                    self.failures.append(error)
            if ready.parts:
                self.writer.commit(ready.parts, self._settle)

    def _settle(self, part: RoundPart) -> None:
        self._finish(self.engine.settle(part, 0.0))

    def _finish(self, done: Done) -> None:
        _deliver(done.answers)
        self._inputs.append(done.freed)


def _deliver(answers: list[Answer]) -> None:
    for reply, answer in answers:
        reply(answer)


def arrival(request: Any, reply: Callable[[Any], None], version: int = 1) -> Arrival:
    """Return the arrival of a request of a server."""
    if isinstance(request, storage.AppendRequest):
        return Arrival(request.partition, AppendJob(request, version, reply, 0.0))
    return Arrival(request.partition, RequestJob(request, version, reply))
