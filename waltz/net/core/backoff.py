"""The growing delays between attempts at an operation that fails. Pure.

Growing delays keep retries from loading a peer that fails. The caller counts the failures, waits,
and resets the count after a success. An opened connection is not a success yet: a peer that accepts
connections and drops them has not recovered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that begin with ``first_seconds`` and double up to ``longest_seconds``."""

    first_seconds: float
    longest_seconds: float

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after a failed attempt.

        ``failures`` counts the failures before this attempt: 0 gives the first delay.
        """
        assert failures >= 0
        # The exponent is bounded, because a float overflows at 2 ** 1024.
        return float(min(self.first_seconds * 2 ** min(failures, 30), self.longest_seconds))

    def delays(self, within_seconds: float = math.inf) -> Iterator[float]:
        """Yield the delays in order, and stop before their sum exceeds ``within_seconds``."""
        waited = 0.0
        for failures in count():
            delay = self.delay(failures)
            waited += delay
            if waited > within_seconds:
                return
            yield delay
