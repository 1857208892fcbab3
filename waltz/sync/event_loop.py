"""An event loop on a separate thread. Threads."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
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
    """A blocking call was made on the client's own thread, which would have to do the work."""

    def __init__(self) -> None:
        super().__init__(
            "a blocking call on the client's own thread would never return: make it on another "
            "thread, or use an asyncio client (waltz.connect)"
        )


class EventLoopThread:
    """Runs coroutines for callers on other threads.

    The thread is a daemon, so that it does not keep the process alive. When the interpreter exits
    normally, the thread is stopped first.
    """

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._handing = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called, so that nothing can be run."""
        return self._stopped

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` to its end and return what it returns.

        An interruption of the caller, such as KeyboardInterrupt, cancels ``work``. Raises what
        ``work`` raises, ClientClosed after `stop`, WrongProcess, WrongThread.
        """
        return self.result(self.start(work))

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run ``work`` in the background. Raises ClientClosed, WrongProcess, WrongThread."""
        try:
            self.check()
            # The lock orders this before or after `stop`. Work that is handed over before `stop` is
            # begun by the loop and then cancelled, so that its caller does not wait for ever.
            with self._handing:
                if self._stopped:
                    raise ClientClosed
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def check(self) -> None:
        """Raises WrongProcess, WrongThread or ClientClosed if `call` would raise it."""
        if os.getpid() != self._pid:
            raise WrongProcess(self._pid)
        if threading.current_thread() is self._thread:
            raise WrongThread
        if self._stopped:
            raise ClientClosed

    @staticmethod
    def result(future: concurrent.futures.Future[T]) -> T:
        """Return the result of work that `start` has started, as `call` does."""
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # Only `stop` cancels work without its caller.
            raise ClientClosed from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Cancel all running work and end the thread.

        A second call has no effect. In a fork it does nothing, because the thread is the parent's.
        """
        if os.getpid() != self._pid:
            return
        with self._handing:
            if self._stopped:
                return
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        atexit.unregister(self.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._cancel_all()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
