"""An event loop on virtual time: time jumps to the next timer when nothing else is to be done.

So a test that waits for minutes takes milliseconds. The same program with the same seed does the
same steps at the same virtual times. Touches event loops.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from typing_extensions import override

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class NothingToWaitFor(RuntimeError):
    """Every task waits, and no timer is set: on real time the program would hang."""

    def __init__(self) -> None:
        super().__init__("every task waits for another, and no timer is set: nothing can happen")


class _VirtualSelector(selectors.BaseSelector):
    """A selector that never waits: it advances ``now`` by the time that it would have waited."""

    def __init__(self) -> None:
        self.now = 0.0
        self._real = selectors.DefaultSelector()

    @override
    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    @override
    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # One file is always registered: the pipe through which other threads wake the event loop.
        # There are no other threads. So if it is the only file, the slow system call is left out.
        if len(self._real.get_map()) > 1:
            ready = self._real.select(0)
            if ready:
                return ready
        if timeout is None:  # No timer is set.
            raise NothingToWaitFor
        self.now += max(0.0, timeout)
        return []

    @override
    def close(self) -> None:
        self._real.close()

    @override
    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time begins at 0 and is advanced only by waiting for timers.

    Work for other threads (`asyncio.to_thread`) is done at once, on this thread, so that its order
    is always the same. No task may wait for a socket of the operating system, which has no virtual
    time.
    """

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    @override
    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual.now

    @override
    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Do the same as `call_soon`: there are no other threads."""
        return self.call_soon(callback, *args, context=context)

    @override
    def run_in_executor(  # type: ignore[override]
        self, executor: concurrent.futures.Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do the work now; return its outcome as a future."""
        outcome: asyncio.Future[T] = self.create_future()
        try:
            outcome.set_result(func(*args))
        except Exception as error:
            outcome.set_exception(error)
        return outcome


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` on virtual time and return its result, as `asyncio.run` does on real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
