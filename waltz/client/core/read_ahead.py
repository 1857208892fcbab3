"""The number of reads of data that a stream may have open, within a bound on memory. Pure."""

from __future__ import annotations

_FIRST_ESTIMATE_BYTES = 64 << 10


class ReadAhead:
    """Counts the open reads, and the data that has arrived and was not taken.

    The size of data is not known before it arrives. It is estimated from earlier data.
    """

    def __init__(self, limit_bytes: int, limit_reads: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_reads = limit_reads
        self._open = 0
        self._held = 0
        self._held_bytes = 0
        self._estimate = float(_FIRST_ESTIMATE_BYTES)

    def room(self) -> bool:
        """Return whether one more read may be opened. The first one always may."""
        if self._open + self._held >= self._limit_reads:
            return False
        expected = self._held_bytes + (self._open + 1) * self._estimate
        return self._open + self._held == 0 or expected <= self._limit_bytes

    def requested(self) -> None:
        """Count one more open read."""
        self._open += 1

    def arrived(self, size: int) -> None:
        """Count an open read that has brought ``size`` bytes."""
        self._open -= 1
        self._held += 1
        self._held_bytes += size
        self._estimate += (size - self._estimate) / 8

    def taken(self, size: int) -> None:
        """Count ``size`` bytes that the application has taken."""
        self._held -= 1
        self._held_bytes -= size
