"""Call a function at regular intervals. Touches the event loop.

The pure classes of `waltz.client.core` need these calls to notice timeouts, because they have no
clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TICK_SECONDS = 0.1
"""The interval at which a client looks for timeouts."""


class Ticker:
    """Calls ``tick`` with the event loop's time every `TICK_SECONDS`, until it returns false."""

    def __init__(self, tick: Callable[[float], bool]) -> None:
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the calls, unless they are running or `stop` was called."""
        if self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(TICK_SECONDS, self._run)

    def stop(self) -> None:
        """Stop the calls permanently: `start` has no effect afterwards."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        if self._tick(self._loop.time()):
            self.start()
