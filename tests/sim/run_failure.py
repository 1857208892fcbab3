"""Stop a run at the first violation of a guarantee, wherever in the program it is found."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class RunFailure:
    """The first error of a run, which stops the event loop. It must be created on that loop."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.set_exception_handler(self._handle)

    def stop_run(self, error: BaseException) -> None:
        """Stop the run because of ``error``. A later error has no effect."""
        if self.error is None:
            self.error = error
            self._loop.stop()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin ``work``, whose error stops the run."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.stop_run(error)

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Stop the run because of an exception that would end the process of a node.

        `waltz.runtime.process` has the same rule for a real process.
        """
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError):
            self.stop_run(error)
