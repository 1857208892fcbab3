"""Stop a run at the first violation of a guarantee, wherever in the program it is found."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Alarm:
    """Keeps the first error of a run, and stops the event loop."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.set_exception_handler(self._handle)

    def ring(self, error: BaseException) -> None:
        """Stop the run because of ``error``."""
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
            self.ring(error)

    def _handle(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take an exception that would end the process of a node; see `waltz.runtime.process`."""
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError):
            self.ring(error)
