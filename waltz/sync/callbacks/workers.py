"""The threads that call methods of the application and of contexts. Touches threads."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from waltz.client import ClientClosed
from waltz.sync.callbacks.core.errors import InCallback

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Two pools of threads: one applies transactions, the other retries contexts.

    When the interpreter exits normally, `shut_down` is called first.
    """

    def __init__(self, apply_threads: int, retry_threads: int) -> None:
        self._thread_local = threading.local()
        self._applying = _Pool(apply_threads, "waltz-apply", self._mark_thread)
        self._retrying = _Pool(retry_threads, "waltz-retry", self._mark_thread)
        atexit.register(self.shut_down)

    @property
    def on_worker_thread(self) -> bool:
        """Whether the calling thread is of one of the pools, so that a callback is running."""
        return getattr(self._thread_local, "is_worker", False)

    @property
    def in_callback(self) -> bool:
        """Whether a callback is running on the calling thread, of a pool or in `call_here`."""
        return self.on_worker_thread or getattr(self._thread_local, "is_calling", False)

    def check_outside(self, call: str) -> None:
        """Raise InCallback if the caller is a worker thread: ``call`` would wait for its end.

        ``call`` is the name of the refused call.
        """
        if self.on_worker_thread:
            raise InCallback(call)

    def call_here(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` on the calling thread, with `in_callback` true, and return its result."""
        was_calling = getattr(self._thread_local, "is_calling", False)
        try:
            self._thread_local.is_calling = True
            return work(*args, **kwargs)
        finally:
            self._thread_local.is_calling = was_calling

    async def apply(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` on a thread of the pool that applies transactions; return its result.

        Raises ClientClosed after `shut_down`.
        """
        return await self._applying.run(lambda: work(*args, **kwargs))

    async def retry(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` on a thread of the pool that retries contexts; return its result.

        Raises ClientClosed after `shut_down`.
        """
        return await self._retrying.run(lambda: work(*args, **kwargs))

    def shut_down(self) -> None:
        """Run all calls that wait for a thread, then end the threads; wait for their end."""
        atexit.unregister(self.shut_down)
        self._applying.shut_down()
        self._retrying.shut_down()

    def _mark_thread(self) -> None:
        """Note that the calling thread is a worker; see `on_worker_thread`."""
        self._thread_local.is_worker = True


class _Pool:
    """Threads that run calls. They are daemons, so that they do not keep the process alive.

    A ThreadPoolExecutor is not used, because it refuses work as soon as the main thread has ended.
    Other threads of the program may submit and flush longer
    (`test_threads_submit_and_flush_after_the_main_thread_has_ended`).
    """

    def __init__(self, threads: int, name: str, initializer: Callable[[], None]) -> None:
        """Start ``threads`` threads whose names begin with ``name``; each calls ``initializer``."""
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """The calls that wait for a thread. A thread that takes a None ends."""
        self._is_shut_down = False
        self._threads = [
            threading.Thread(
                target=self._run_calls, args=(initializer,), name=f"{name}_{number}", daemon=True
            )
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` on a thread and return its result. Raises ClientClosed after `shut_down`."""
        # `shut_down` comes just before the event loop stops, or after. So work that is added after
        # this check, and that no thread takes any more, is cancelled by the end of the loop.
        if self._is_shut_down:
            raise ClientClosed
        # No variable may hold the future here, because of the cycle that `_perform` describes.
        return await asyncio.wrap_future(self._add(work))

    def _add(self, work: Callable[[], T]) -> Future[T]:
        """Add ``work`` to the calls that wait for a thread, and return its future."""
        future: Future[T] = Future()
        self._calls.put(partial(_perform, future, work))
        return future

    def shut_down(self) -> None:
        """Run all waiting calls, then end the threads; wait for their end."""
        self._is_shut_down = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _run_calls(self, initializer: Callable[[], None]) -> None:
        """Run calls until `shut_down`."""
        initializer()
        while True:
            call = self._calls.get()
            if call is None:
                return
            call()
            # Otherwise the transactions of this call would stay in memory until the next one.
            del call


def _perform(future: Future[T], work: Callable[[], T]) -> None:
    """Run ``work`` and set its result or error in ``future``, unless the future is cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call_raising_exceptions_only(work)
    except Exception as error:
        future.set_exception(error)
        # The future has the error, whose traceback has this frame. Without this line the cycle
        # would stay in memory until the garbage collector runs, with the transactions of ``work``.
        del future
    else:
        future.set_result(result)


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
