"""Limit the appends in flight (sent or to be sent, without an outcome) of one partition.

Waits on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A call of `InFlightLimit.enter` that waits: its number of appends, and their bytes."""

    count: int
    size: int
    entered: asyncio.Future[None]


class InFlightLimit:
    """Allows ``max_count`` appends at a time, with ``max_bytes`` in total.

    A call that is larger than these limits may enter when no other append is in flight. Calls enter
    in their order: smaller calls behind a large one wait, too, so that the large call is not
    delayed forever.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.count = 0
        """The number of appends in flight."""
        self._size = 0
        """The bytes of data of these appends."""
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._queue: deque[_Waiter] = deque()
        self._unlimited = False

    async def enter(self, count: int, size: int) -> None:
        """Wait until the limits allow ``count`` appends of ``size`` bytes, then count them.

        The caller must call `leave` when the appends have outcomes, but not if this call was
        cancelled.
        """
        if not self._queue and self._fits(count, size):
            self._take(count, size)
            return
        waiter = _Waiter(count, size, asyncio.get_running_loop().create_future())
        self._queue.append(waiter)
        try:
            await waiter.entered
        except asyncio.CancelledError:
            # If the waiter was not admitted, its future is cancelled. `_admit` removes it from the
            # head of the queue, and then admits those behind it. A waiter that was admitted just
            # before the cancellation must leave, because its caller does not call `leave`.
            if waiter.entered.cancelled():
                self._admit()
            else:
                self.leave(count, size)
            raise

    def leave(self, count: int, size: int) -> None:
        """Stop counting ``count`` appends of ``size`` bytes, which `enter` has counted."""
        self.count -= count
        self._size -= size
        self._admit()

    def remove_limits(self) -> None:
        """Remove the limits: present and later calls of `enter` do not wait.

        Called when the client closes: no outcome will follow that could admit the waiting calls.
        """
        self._unlimited = True
        self._admit()

    def _admit(self) -> None:
        """Let waiting calls enter in their order, as far as the limits allow."""
        # A waiter whose future is done was cancelled: it only leaves the queue.
        while self._queue:
            waiter = self._queue[0]
            if not waiter.entered.done():
                if not self._fits(waiter.count, waiter.size):
                    return
                self._take(waiter.count, waiter.size)
                waiter.entered.set_result(None)
            self._queue.popleft()

    def _fits(self, count: int, size: int) -> bool:
        """Whether ``count`` more appends of ``size`` bytes may enter now."""
        return (
            not self.count
            or self._unlimited
            or (self.count + count <= self._max_count and self._size + size <= self._max_bytes)
        )

    def _take(self, count: int, size: int) -> None:
        self.count += count
        self._size += size
