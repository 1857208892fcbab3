"""Simulate time: calls run in the order of their times, and only these calls advance time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol


class Timers(Protocol):
    """Virtual time, and calls that are planned."""

    @property
    def now(self) -> float:
        """The virtual time in seconds."""

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Plan ``call`` for ``seconds`` from now."""


_MAX_EVENTS = 400_000
"""More than ten times the events of a run: beyond it, the run is in an endless loop."""


class Clock:
    """A queue of calls. Equal times run in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Plan ``call`` for ``seconds`` from now."""
        self._planned += 1
        heapq.heappush(self._heap, (self.now + seconds, self._planned, call, arguments))

    def run(self, until: Callable[[], bool], deadline: float) -> bool:
        """Advance time until ``until()``; return False if ``deadline`` comes first."""
        while not until():
            if not self._heap or self._heap[0][0] > deadline or self.events > _MAX_EVENTS:
                return False
            self.now, _, call, arguments = heapq.heappop(self._heap)
            self.events += 1
            call(*arguments)
        return True
