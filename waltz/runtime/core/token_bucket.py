"""A token bucket: it bounds a rate, with a clock that the caller reads. Pure."""

from __future__ import annotations


class TokenBucket:
    """Allows ``rate`` tokens per second, and up to ``capacity`` tokens at once after a pause.

    A token is one unit of what is bounded, such as a byte. A caller does its work first, and takes
    the tokens for it afterwards. So it may take more than the bucket has: the number of tokens is
    then negative. Before the next work, the caller waits until the number is 0 again.
    """

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        assert rate > 0, "a bucket without a rate would never let its caller continue"
        self._rate = rate
        self._capacity = capacity
        self._tokens = capacity
        self._filled_at = now

    def wait_seconds(self, now: float) -> float:
        """Return how many seconds the caller must wait before its next work."""
        self._fill(now)
        return max(0.0, -self._tokens / self._rate)

    def take(self, tokens: float, now: float) -> None:
        """Remove the tokens for the work that the caller has done."""
        self._fill(now)
        self._tokens -= tokens

    def is_full(self, now: float) -> bool:
        """Return whether the bucket has ``capacity`` tokens: then a new bucket can replace it."""
        self._fill(now)
        return self._tokens >= self._capacity

    def _fill(self, now: float) -> None:
        passed = max(0.0, now - self._filled_at)
        self._tokens = min(self._capacity, self._tokens + passed * self._rate)
        self._filled_at = now
