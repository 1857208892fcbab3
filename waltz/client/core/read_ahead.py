"""Limit the reads of data that a stream has open, so that its memory is limited. Pure."""

from __future__ import annotations

_FIRST_ESTIMATE_BYTES = 64 << 10


class ReadAhead:
    """Counts the open reads, and the data that have arrived and that the application has not taken.

    The size of data is unknown before the data arrive. It is estimated from earlier data.
    """

    def __init__(self, limit_bytes: int, limit_reads: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_reads = limit_reads
        self._open = 0
        self._held = 0
        self._held_bytes = 0
        self._estimate = float(_FIRST_ESTIMATE_BYTES)

    def room(self) -> bool:
        """Return whether one more read may be opened. The first read may always be opened."""
        if self._open + self._held >= self._limit_reads:
            return False
        expected = self._held_bytes + (self._open + 1) * self._estimate
        return self._open + self._held == 0 or expected <= self._limit_bytes

    def requested(self) -> None:
        """Count one more open read."""
        self._open += 1

    def arrived(self, size: int) -> None:
        """Count an open read whose ``size`` bytes have arrived."""
        self._open -= 1
        self._held += 1
        self._held_bytes += size
        self._estimate += (size - self._estimate) / 8

    def taken(self, size: int) -> None:
        """Count one read whose ``size`` bytes the application has taken."""
        self._held -= 1
        self._held_bytes -= size
