"""Limit how often an event that may repeat many times a second is logged. Pure."""

from __future__ import annotations

_LOG_SECONDS = 10.0
"""The least time between two log lines about one kind of event."""


class LogInterval:
    """Decides whether an event is logged.

    The first event is logged. A later event is logged if at least ten seconds have passed since the
    last event that was logged.
    """

    def __init__(self) -> None:
        self._last_logged_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Return whether to log the event at ``now``, in seconds; if so, count it as logged."""
        last = self._last_logged_at
        if last is not None and now - last < _LOG_SECONDS:
            return False
        self._last_logged_at = now
        return True
