"""The threads that call methods of the application and of contexts. Touches threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from waltz.sync.callbacks.core.errors import InCallback

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Two pools of threads: one applies transactions, the other retries contexts."""

    def __init__(self, apply_threads: int, retry_threads: int) -> None:
        self._thread_local = threading.local()
        self._applying = self._pool(apply_threads, "waltz-apply")
        self._retrying = self._pool(retry_threads, "waltz-retry")

    @property
    def in_callback(self) -> bool:
        """Whether the calling thread is of one of the pools, so that a callback is running."""
        return getattr(self._thread_local, "is_worker", False)

    def check_outside(self, call: str) -> None:
        """Raise InCallback if the caller is a callback: the call would wait for its end forever.

        ``call`` is the name of the refused call.
        """
        if self.in_callback:
            raise InCallback(call)

    async def apply(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` on a thread of the pool that applies transactions; return its result."""
        return await self._run_on(self._applying, lambda: work(*args, **kwargs))

    async def retry(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` on a thread of the pool that retries contexts; return its result."""
        return await self._run_on(self._retrying, lambda: work(*args, **kwargs))

    def shut_down(self) -> None:
        """Run all calls that wait for a thread, then end the threads; wait for their end."""
        self._applying.shutdown()
        self._retrying.shutdown()

    def _pool(self, threads: int, name: str) -> ThreadPoolExecutor:
        """Return a new pool; ``name`` is the beginning of the names of its threads."""
        return ThreadPoolExecutor(threads, name, initializer=self._mark_thread)

    def _mark_thread(self) -> None:
        """Note that the calling thread is a worker; see `in_callback`."""
        self._thread_local.is_worker = True

    @staticmethod
    async def _run_on(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """Run ``work`` on a thread of ``pool`` and return its result."""
        return await asyncio.get_running_loop().run_in_executor(
            pool, call_raising_exceptions_only, work
        )


def call_raising_exceptions_only(work: Callable[[], T]) -> T:
    """Call ``work`` and return its result. Raise only errors that are an Exception.

    Any other error becomes a RuntimeError. Otherwise a SystemExit in a callback would end the event
    loop, which waits for the callback. Use this function only on threads of the pools: on other
    threads, a KeyboardInterrupt must reach the caller.
    """
    try:
        return work()
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"a callback raised {type(error).__name__}") from error
