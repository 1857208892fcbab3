"""Limit the reads of data that a stream has open, so that its memory is limited. Pure."""

from __future__ import annotations

_FIRST_ESTIMATE_BYTES = 64 << 10
"""The estimated size of one read before any data have arrived."""
_ESTIMATE_READS = 8
"""The estimate follows the average size of about this many last reads."""


class ReadAhead:
    """Counts the *open* reads, whose data have not arrived, and the *held* ones, whose data have.

    A held read counts until the application has taken its data. The size of data is unknown before
    the data arrive, and is estimated from earlier data.
    """

    def __init__(self, limit_bytes: int, limit_reads: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_reads = limit_reads
        self._open = 0
        """The number of open reads."""
        self._held = 0
        """The number of held reads."""
        self._held_bytes = 0
        """The size of the data of the held reads."""
        self._estimated_bytes = float(_FIRST_ESTIMATE_BYTES)
        """How many bytes one open read will return."""

    def has_room(self) -> bool:
        """Whether one more read may be opened.

        If no read is open or held, a read may be opened even if its data may exceed the limit.
        Otherwise a stream with data larger than the limit would stop.
        """
        if self._open + self._held >= self._limit_reads:
            return False
        expected = self._held_bytes + (self._open + 1) * self._estimated_bytes
        return self._open + self._held == 0 or expected <= self._limit_bytes

    def requested(self) -> None:
        """Count one more open read."""
        self._open += 1

    def arrived(self, size: int) -> None:
        """Count an open read as held, because its ``size`` bytes have arrived."""
        self._open -= 1
        self._held += 1
        self._held_bytes += size
        self._estimated_bytes += (size - self._estimated_bytes) / _ESTIMATE_READS

    def taken(self, size: int) -> None:
        """Stop counting a held read, because the application has taken its ``size`` bytes."""
        self._held -= 1
        self._held_bytes -= size
