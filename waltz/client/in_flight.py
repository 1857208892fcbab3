"""Limit the appends of one partition that are in flight. Waits on the event loop.

An append is *in flight* from when it may be sent until it has an outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A waiting call of `InFlightLimit.enter`: ``count`` appends with ``size`` bytes of data."""

    count: int
    size: int
    entered: asyncio.Future[None]


class InFlightLimit:
    """Allows ``max_count`` appends in flight, with ``max_bytes`` of data in total.

    A call that exceeds these limits by itself may enter when no append is in flight. Calls enter in
    the order in which they were made: smaller calls behind a large one wait, too, so that the large
    call is not delayed forever.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.count = 0
        """The number of appends in flight."""
        self._size = 0
        """The bytes of data of these appends."""
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._queue: deque[_Waiter] = deque()
        """The waiting calls in their order, and cancelled ones that `_admit` has not removed."""
        self._unlimited = False
        """Whether `remove_limits` was called."""

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
            # If this call was not admitted, its future is cancelled, and `_admit` removes it from
            # the queue as soon as it is the first. Then others behind it may enter. If this call
            # was admitted just before the cancellation, it must leave, because its caller does not
            # call `leave`.
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

        The appender calls this when the client is closed or fails. No outcome would follow that
        could admit the waiting calls.
        """
        self._unlimited = True
        self._admit()

    def _admit(self) -> None:
        """Let waiting calls enter in their order, as far as the limits allow."""
        # A waiter whose future is done was cancelled: it is only removed.
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
        """Count ``count`` more appends of ``size`` bytes."""
        self.count += count
        self._size += size
