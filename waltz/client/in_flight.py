"""Bounds what is in flight in one partition: first come, first served. Waits on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """One who waits, and for how much room."""

    count: int
    size: int
    given: asyncio.Future[None]


class InFlight:
    """Room for ``max_count`` appends of ``max_bytes`` together; with nothing there everything fits.

    Nobody overtakes: a batch that needs much room gets it, as those behind it wait, too.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.count = 0
        self._size = 0
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._queue: deque[_Turn] = deque()
        self._unbounded = False

    async def enter(self, count: int, size: int) -> None:
        """Be in flight, as soon as it is one's turn and there is room; `leave` must follow.

        A caller that is cancelled has not entered.
        """
        if not self._queue and self._fits(count, size):
            self._take(count, size)
            return
        turn = _Turn(count, size, asyncio.get_running_loop().create_future())
        self._queue.append(turn)
        try:
            await turn.given
        except asyncio.CancelledError:
            if turn.given.cancelled():
                self._give()
            else:
                self.leave(count, size)
            raise

    def leave(self, count: int, size: int) -> None:
        """Make room for the next."""
        self.count -= count
        self._size -= size
        self._give()

    def open(self) -> None:
        """Let in everybody, now and later."""
        self._unbounded = True
        self._give()

    def _give(self) -> None:
        while self._queue:
            turn = self._queue[0]
            if not turn.given.done():
                if not self._fits(turn.count, turn.size):
                    return
                self._take(turn.count, turn.size)
                turn.given.set_result(None)
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
