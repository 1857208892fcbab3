"""Counts events and how long they take, cheaply enough for every append. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import accumulate

BUCKETS_SECONDS = (
    *(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
"""The upper bounds of the buckets of a histogram; one more bucket has all longer durations."""

_RECENT_DURATIONS = 1028


class Timer:
    """Counts events, sorts their durations into buckets and keeps the most recent ones, in seconds.

    prometheus_client's own histogram takes a lock and a loop over its buckets for each event; this
    one takes neither, and a collector reads it when it is scraped. Other threads may read a timer
    while one adds to it.
    """

    __slots__ = ("_buckets", "_recent", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        """The sum of all durations."""
        self._buckets = [0] * (len(BUCKETS_SECONDS) + 1)
        self._recent: deque[float] = deque(maxlen=_RECENT_DURATIONS)

    def add(self, seconds: float, events: int = 1) -> None:
        """Count ``events`` that took ``seconds`` each."""
        self.count += events
        self.seconds += events * seconds
        self._buckets[bisect_left(BUCKETS_SECONDS, seconds)] += events
        self._recent.append(seconds)

    def cumulative(self) -> list[tuple[str, int]]:
        """Return each bucket's bound, and the number of events up to it."""
        bounds = (*(str(bound) for bound in BUCKETS_SECONDS), "+Inf")
        return list(zip(bounds, accumulate(tuple(self._buckets)), strict=True))

    def ordered(self) -> list[float]:
        """Return the most recent durations, shortest first."""
        # Copied in one step: a deque that grows under an iterator makes it fail.
        return sorted(self._recent.copy())
