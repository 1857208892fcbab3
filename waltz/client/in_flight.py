"""Bounds the appends in flight in one partition. Waits on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """An entry that waits, and the room that it needs."""

    count: int
    size: int
    entered: asyncio.Future[None]


class InFlightLimit:
    """Room for ``max_count`` appends with ``max_bytes`` in total; a single entry always fits.

    Entries enter in the order of their calls. So a batch that needs much room gets it, because
    small entries behind it wait as well.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.count = 0
        self._size = 0
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._queue: deque[_Waiter] = deque()
        self._unbounded = False

    async def enter(self, count: int, size: int) -> None:
        """Wait for room and enter; `leave` must follow.

        A caller that is cancelled has not entered.
        """
        if not self._queue and self._fits(count, size):
            self._take(count, size)
            return
        waiter = _Waiter(count, size, asyncio.get_running_loop().create_future())
        self._queue.append(waiter)
        try:
            await waiter.entered
        except asyncio.CancelledError:
            if waiter.entered.cancelled():
                self._admit()
            else:
                self.leave(count, size)
            raise

    def leave(self, count: int, size: int) -> None:
        """Return the room of an entry."""
        self.count -= count
        self._size -= size
        self._admit()

    def unbound(self) -> None:
        """Let every entry in, now and later."""
        self._unbounded = True
        self._admit()

    def _admit(self) -> None:
        while self._queue:
            waiter = self._queue[0]
            if not waiter.entered.done():
                if not self._fits(waiter.count, waiter.size):
                    return
                self._take(waiter.count, waiter.size)
                waiter.entered.set_result(None)
            self._queue.popleft()

    def _fits(self, count: int, size: int) -> bool:
        return (
            not self.count
            or self._unbounded
            or (self.count + count <= self._max_count and self._size + size <= self._max_bytes)
        )

    def _take(self, count: int, size: int) -> None:
        self.count += count
        self._size += size
