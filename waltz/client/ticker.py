"""Calls the pure parts regularly while they wait for time to pass. Touches the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TICK_SECONDS = 0.1


class Ticker:
    """Calls ``tick(now)`` every tenth of a second while it returns true."""

    def __init__(self, tick: Callable[[float], bool]) -> None:
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Start, unless it runs or was stopped."""
        if self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(TICK_SECONDS, self._run)

    def stop(self) -> None:
        """Stop; `start` has no effect afterwards."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        if self._tick(self._loop.time()):
            self.start()
