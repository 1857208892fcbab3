"""Count events and their durations, cheaply enough to do it for every append. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import accumulate

BUCKETS_SECONDS = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
"""The upper bounds of the buckets of a histogram. One more bucket counts all longer durations."""

_RECENT_DURATIONS = 1028
"""How many durations a timer keeps: those of the last calls of `Timer.add`.

Waltz 0.13.2 keeps so many, by its library Dropwizard Metrics. `json_metrics` computes the
percentiles of its JSON forms from them.
"""


class Timer:
    """Counts events, counts their durations by buckets, and keeps the last durations.

    All durations are in seconds. The histogram of prometheus_client takes a lock and loops over its
    buckets for each event; a timer does neither. One thread may add to a timer while other threads
    read it.
    """

    __slots__ = ("_buckets", "_recent", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        """The sum of all durations."""
        self._buckets = [0] * (len(BUCKETS_SECONDS) + 1)
        self._recent: deque[float] = deque(maxlen=_RECENT_DURATIONS)

    def add(self, seconds: float, events: int = 1) -> None:
        """Count ``events`` that took ``seconds`` each.

        Each call adds one duration to the last durations, however many ``events`` it counts.
        """
        self.count += events
        self.seconds += events * seconds
        self._buckets[bisect_left(BUCKETS_SECONDS, seconds)] += events
        self._recent.append(seconds)

    def cumulative_counts(self) -> list[tuple[str, int]]:
        """Return for each bucket its upper bound, and the number of events up to that bound."""
        bounds = (*(str(bound) for bound in BUCKETS_SECONDS), "+Inf")
        # Add up a copy, so that all sums are of one moment: another thread may add an event now.
        return list(zip(bounds, accumulate(tuple(self._buckets)), strict=True))

    def sorted_durations(self) -> list[float]:
        """Return the last durations, the shortest first."""
        # Iterate over a copy: if another thread adds a duration meanwhile, the iterator of the
        # deque raises an error.
        return sorted(self._recent.copy())
