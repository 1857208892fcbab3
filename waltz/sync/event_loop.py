"""Run coroutines on an event loop of a separate thread. Touches threads."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from waltz.client import ClientClosed, WaltzError

T = TypeVar("T")


class WrongProcess(WaltzError):
    """A call was made in a fork of the process that opened the client."""

    def __init__(self, opened_in: int) -> None:
        super().__init__(
            f"this client was opened by process {opened_in}, and this process is a fork of it: a "
            "fork has no connections; open another client after the fork"
        )


class WrongThread(WaltzError):
    """A blocking call was made on the client's own thread, and would wait for itself."""

    def __init__(self) -> None:
        super().__init__(
            "a blocking call on the client's own thread would never return: make it on another "
            "thread, or use an asyncio client (waltz.connect)"
        )


class EventLoopThread:
    """A thread with an event loop, which runs coroutines for callers on other threads.

    The thread is a daemon, so that it does not keep the process alive. When the interpreter exits
    normally, `stop` is called first.
    """

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        """The process in which the thread runs: a fork has this object, but not the thread."""
        self._loop = asyncio.new_event_loop()
        self._starting = threading.Lock()
        """Held while work is started, and while `stop` forbids to start more."""
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called. `call` and `start` raise ClientClosed afterwards."""
        return self._stopped

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end and return its result.

        An interruption of the caller, such as KeyboardInterrupt, cancels ``work``. Raises the
        errors of ``work``, ClientClosed after `stop`, WrongProcess or WrongThread.
        """
        try:
            return self.result(self.start(work))
        except BaseException:
            # Also for an Exception, because it may come from a signal handler. If it is an error of
            # ``work`` or of `start`, ``work`` has ended already, and the cancellation does nothing.
            # Cancel the coroutine, and not the future that `start` returns: the interruption can
            # come before `start` has returned the future.
            self.cancel(work)
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start ``work`` on the thread. Raises ClientClosed, WrongProcess or WrongThread."""
        try:
            self.check()
        except WaltzError:
            work.close()
            raise
        # With the lock, ``work`` is started before `stop`, which cancels it, or not at all. Without
        # the lock, a stopped loop could get ``work``, and the caller would wait forever.
        with self._starting:
            if self._stopped:
                work.close()
                raise ClientClosed
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def cancel(self, work: Coroutine[Any, Any, Any]) -> None:
        """Cancel ``work`` if it runs. If it was not passed to the loop, close it.

        A call in a fork has no effect: the loop runs in the parent process.
        """
        if os.getpid() != self._pid:
            return
        with contextlib.suppress(RuntimeError):  # The loop is closed: `stop` has cancelled work.
            self._loop.call_soon_threadsafe(self._cancel, work)

    def check(self) -> None:
        """Raise the WrongProcess, WrongThread or ClientClosed that `call` would raise now."""
        self.check_caller()
        if self._stopped:
            raise ClientClosed

    def check_caller(self) -> None:
        """Raise WrongProcess or WrongThread if the caller would wait for the thread forever."""
        if os.getpid() != self._pid:
            raise WrongProcess(self._pid)
        if threading.current_thread() is self._thread:
            raise WrongThread

    @staticmethod
    def result(future: concurrent.futures.Future[T]) -> T:
        """Wait for ``future``, which `start` has returned; return its result.

        Raises the errors of the work, and ClientClosed if `stop` has cancelled the work.
        """
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # The caller did not cancel the work, so `stop` did.
            raise ClientClosed from None

    def stop(self) -> None:
        """Cancel all running work and end the thread.

        A second call has no effect. A call in a fork has no effect either, because the thread
        belongs to the parent process.
        """
        if os.getpid() != self._pid:
            return
        with self._starting:
            if self._stopped:
                return
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        atexit.unregister(self.stop)
        if threading.current_thread() is not self._thread:  # A thread cannot join itself.
            self._thread.join()

    def _run(self) -> None:
        """Run the event loop until `stop`, then cancel all work. Runs on the thread."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._cancel_all()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _cancel(self, work: Coroutine[Any, Any, Any]) -> None:
        """See `cancel`. Runs on the thread."""
        for task in asyncio.all_tasks(self._loop):
            if task.get_coro() is work:
                task.cancel()
                return
        work.close()

    def _cancel_all(self) -> None:
        """Cancel all work and wait until it has ended. Runs on the thread."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
