"""The growing delays between attempts at an operation that fails. Pure.

Every retry in the repository that must not load a failing peer takes its delays from here. The
caller counts the failures, waits, and decides when the count is reset: after a success, not after
an attempt that merely began (a peer that accepts connections and drops them has not recovered).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from the first to the longest."""

    first_seconds: float
    longest_seconds: float

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after an attempt that ``failures`` failures preceded."""
        assert failures >= 0
        # The exponent is bounded, because a float overflows after 1,024 failures.
        return float(min(self.first_seconds * 2 ** min(failures, 30), self.longest_seconds))

    def delays(self, within_seconds: float = math.inf) -> Iterator[float]:
        """Yield the delays one after another, as long as their sum is within the bound."""
        waited = 0.0
        for failures in count():
            delay = self.delay(failures)
            waited += delay
            if waited > within_seconds:
                return
            yield delay
