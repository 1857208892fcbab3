"""Run the argument ``build`` of ``submit`` on the thread that called ``submit``. Touches threads.

The ``submit`` of the asyncio client runs on the thread of the event loop. ``build`` could not block
there, call the same client, or use objects of the calling thread, such as a database session.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
from collections.abc import Callable, Coroutine
from typing import Any, Generic

from waltz.client.core.values import Attempt, DataT, Draft
from waltz.client.submitting import Build
from waltz.sync.event_loop import EventLoopThread

SyncBuild = Callable[[Attempt], Draft[DataT] | None]
"""Returns the transaction to append in this attempt, None if there is nothing to append."""

_Submit = Callable[[Build[DataT]], Coroutine[Any, Any, int | None]]
"""The ``submit`` of the asyncio client for one partition; its argument builds the drafts."""
_DraftFuture = concurrent.futures.Future[Draft[DataT] | None]
"""Gets the result or the error of one call of ``build``."""


class _AttemptQueue(Generic[DataT]):
    """The attempts for which the calling thread must call its ``build``.

    Each item of ``waiting`` is an attempt and the future for its draft. The item None means that
    the ``submit`` of the asyncio client has ended.
    """

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[tuple[Attempt, _DraftFuture[DataT]] | None]
        self.waiting = queue.SimpleQueue()

    async def build(self, attempt: Attempt) -> Draft[DataT] | None:
        """Let the calling thread call its ``build``; return the result. Runs on the event loop."""
        future: _DraftFuture[DataT] = concurrent.futures.Future()
        self.waiting.put((attempt, future))
        return await asyncio.wrap_future(future)


def submit(
    thread: EventLoopThread, build: SyncBuild[DataT], submit_async: _Submit[DataT]
) -> int | None:
    """Run ``submit_async`` on ``thread`` and return its result; run ``build`` on this thread.

    ``submit_async`` is the ``submit`` of the asyncio client. Its argument is an asynchronous
    function, which waits until the calling thread has called ``build``. Raises the errors of
    `EventLoopThread.call`.
    """
    attempts: _AttemptQueue[DataT] = _AttemptQueue()
    work = submit_async(attempts.build)
    try:
        submitted = thread.start(work)
        submitted.add_done_callback(lambda _: attempts.waiting.put(None))
        while (item := attempts.waiting.get()) is not None:
            attempt, future = item
            try:
                draft = build(attempt)
            except (StopIteration, concurrent.futures.CancelledError) as error:
                # A future cannot have StopIteration as its exception, and CancelledError would mean
                # that the future itself was cancelled.
                wrapped = RuntimeError(f"build raised {type(error).__name__}")
                wrapped.__cause__ = error
                _set_outcome(future, wrapped)
            except Exception as error:
                _set_outcome(future, error)
            else:
                _set_outcome(future, draft)
    except BaseException:
        # An interruption of this thread, such as KeyboardInterrupt, or an error of `start`.
        thread.cancel(work)
        raise
    return thread.result(submitted)


def _set_outcome(future: _DraftFuture[DataT], outcome: Draft[DataT] | Exception | None) -> None:
    """Set the result or the exception of ``future``.

    Do nothing if the ``submit`` of the asyncio client has cancelled the future.
    """
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
