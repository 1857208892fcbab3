"""Keep producers in step with the departure times in the data. No input or output.

A flight may be logged when every flight that departs more than ``lead`` minutes earlier is in the
log. So two flights of one aircraft whose departures are more than ``lead`` minutes apart are logged
in order, even by different producers. Flights that are closer together may be logged at the same
time.
"""

from __future__ import annotations

from collections.abc import Sequence


class Timeline:
    """Records which flights are in the log.

    ``departures`` are the sorted departure times of all flights, in minutes since 1970. ``lead`` is
    in minutes. The number of a flight is its index in ``departures``.
    """

    def __init__(self, departures: Sequence[int], lead: int) -> None:
        self._departures = departures
        self._lead = lead
        self._is_logged = bytearray(len(departures))
        self._first_missing = 0
        """The number of the first flight that is not in the log."""

    @property
    def horizon(self) -> int | None:
        """The latest departure that may be logged now, None when all flights are in the log."""
        if self._first_missing == len(self._departures):
            return None
        return self._departures[self._first_missing] + self._lead

    def may_log(self, departure: int) -> bool:
        """Whether a flight scheduled for ``departure`` may be logged."""
        horizon = self.horizon
        return horizon is None or departure <= horizon

    def logged(self, number: int) -> bool:
        """Record that a flight is in the log; return whether `horizon` may have changed."""
        before = self._first_missing
        self._is_logged[number] = True
        while self._first_missing < len(self._departures) and self._is_logged[self._first_missing]:
            self._first_missing += 1
        return self._first_missing > before
