"""The time of an event loop on virtual time, in the form that the parts of the simulator use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class LoopClock:
    """The time of the running event loop, which also makes the planned calls."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._loop.time()

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Plan ``call`` for ``seconds`` from now."""
        self._loop.call_later(seconds, call, *arguments)
