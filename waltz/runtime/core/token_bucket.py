"""A token bucket: it bounds a rate, with a clock that the caller reads. Pure."""

from __future__ import annotations


class TokenBucket:
    """Allows ``rate`` tokens per second, and up to ``capacity`` tokens at once after a pause.

    A caller takes tokens after it has used them, and may use more than the bucket has. Before the
    next use, the caller waits until the missing tokens have come in.
    """

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        assert rate > 0, "a bucket without a rate would never let its caller continue"
        self._rate = rate
        self._capacity = capacity
        self._tokens = capacity
        self._filled_at = now

    def wait_seconds(self, now: float) -> float:
        """Return how many seconds the caller must wait before it may use tokens again."""
        self._fill(now)
        return max(0.0, -self._tokens / self._rate)

    def take(self, tokens: float, now: float) -> None:
        """Remove the tokens that the caller has used."""
        self._fill(now)
        self._tokens -= tokens

    def is_full(self, now: float) -> bool:
        """Return whether the bucket has all its tokens, like a new bucket."""
        self._fill(now)
        return self._tokens >= self._capacity

    def _fill(self, now: float) -> None:
        passed = max(0.0, now - self._filled_at)
        self._tokens = min(self._capacity, self._tokens + passed * self._rate)
        self._filled_at = now
