"""Lets the thread that called ``submit`` build what is submitted, not the client's. Threads.

An application's ``build`` may block, ask the same client, and use what belongs to its thread, such
as a database session. On the event loop it could do none of that.
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
"""Decides what to append, given the attempt; None if there is nothing to do."""

_Submit = Callable[[Build[DataT]], Coroutine[Any, Any, int | None]]
_Built = concurrent.futures.Future[Draft[DataT] | None]


class _Turns(Generic[DataT]):
    """Attempts on their way to the caller's thread, and None at the end."""

    def __init__(self) -> None:
        self.waiting: queue.SimpleQueue[tuple[Attempt, _Built[DataT]] | None] = queue.SimpleQueue()

    async def build(self, attempt: Attempt) -> Draft[DataT] | None:
        """Have the caller's thread build."""
        built: _Built[DataT] = concurrent.futures.Future()
        self.waiting.put((attempt, built))
        return await asyncio.wrap_future(built)


def submit(thread: EventLoopThread, build: SyncBuild[DataT], call: _Submit[DataT]) -> int | None:
    """Return what ``call`` returns, which runs on ``thread`` while ``build`` is called here."""
    turns: _Turns[DataT] = _Turns()
    result = thread.start(call(turns.build))
    result.add_done_callback(lambda _: turns.waiting.put(None))
    try:
        while (turn := turns.waiting.get()) is not None:
            attempt, built = turn
            try:
                draft = build(attempt)
            except Exception as error:
                _end(built, error)
            else:
                _end(built, draft)
    except BaseException:
        result.cancel()
        raise
    return thread.result(result)


def _end(built: _Built[DataT], outcome: Draft[DataT] | Exception | None) -> None:
    """Say what was built, unless nobody waits for it any more: its time has run out."""
    if not built.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        built.set_exception(outcome)
    else:
        built.set_result(outcome)
