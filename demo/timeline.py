"""Keeps producers in step with the clock of the data. No I/O.

A flight may be logged as soon as every flight scheduled more than ``lead`` minutes earlier is in
the log. So flights of one aircraft that are further apart than that are logged in order by any
producer, and the others still overlap.
"""

from __future__ import annotations

from collections.abc import Sequence


class Timeline:
    """Which flights, numbered in the order of ``departures``, are in the log."""

    def __init__(self, departures: Sequence[int], lead: int) -> None:
        self._departures = departures
        self._lead = lead
        self._done = bytearray(len(departures))
        self._oldest = 0

    @property
    def horizon(self) -> int | None:
        """The latest departure that may be logged now; None when all have been."""
        if self._oldest == len(self._departures):
            return None
        return self._departures[self._oldest] + self._lead

    def may_depart(self, departure: int) -> bool:
        """Whether a flight scheduled for ``departure`` may be logged."""
        horizon = self.horizon
        return horizon is None or departure <= horizon

    def logged(self, number: int) -> bool:
        """Note that a flight is in the log; return whether the horizon has moved."""
        before = self._oldest
        self._done[number] = True
        while self._oldest < len(self._done) and self._done[self._oldest]:
            self._oldest += 1
        return self._oldest > before
