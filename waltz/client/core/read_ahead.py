"""How many reads of data a stream may have open, so that memory stays bounded. Pure."""

from __future__ import annotations

_FIRST_GUESS_BYTES = 64 << 10


class ReadAhead:
    """Counts what is asked for and what has arrived but was not taken yet.

    The size of what is asked for is not known; it is guessed from what came before.
    """

    def __init__(self, limit_bytes: int, limit_reads: int) -> None:
        self._limit_bytes = limit_bytes
        self._limit_reads = limit_reads
        self._open = 0
        self._held = 0
        self._held_bytes = 0
        self._guess = float(_FIRST_GUESS_BYTES)

    def room(self) -> bool:
        """Whether one more read may be asked for. With nothing under way it always may."""
        if self._open + self._held >= self._limit_reads:
            return False
        expected = self._held_bytes + (self._open + 1) * self._guess
        return self._open + self._held == 0 or expected <= self._limit_bytes

    def asked(self) -> None:
        """One more read is open."""
        self._open += 1

    def arrived(self, size: int) -> None:
        """An open read has brought ``size`` bytes."""
        self._open -= 1
        self._held += 1
        self._held_bytes += size
        self._guess += (size - self._guess) / 8

    def taken(self, size: int) -> None:
        """What had arrived was handed on."""
        self._held -= 1
        self._held_bytes -= size
