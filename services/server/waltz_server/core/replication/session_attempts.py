"""Pause between the attempts of a store to begin a session. Pure."""

from __future__ import annotations

from waltz.net.core.backoff import Backoff
from waltz_server.core.effects import LogLevel, Ready, RetrySession, StartTimer, WriteLog
from waltz_server.core.replication.session_metadata import METADATA_BACKOFF


class SessionAttempts:
    """The failures since a session opened, and the timer of the next attempt.

    ``retry`` has the delays after an attempt whose session did not open.
    """

    def __init__(self, partition: int, retry: Backoff, ready: Ready) -> None:
        self._partition = partition
        self._retry = retry
        self._ready = ready
        self._failures = 0
        """Number of attempts that have failed since a session opened."""
        self._last_timer = 0
        """Number of the last timer that was started; earlier ones are ignored."""

    def succeeded(self) -> None:
        """Note that a session has opened."""
        self._failures = 0

    def pause_without_metadata(self, reason: str) -> None:
        """Start the timer: an attempt failed, because its operation on the metadata failed."""
        self._pause(METADATA_BACKOFF, reason)

    def pause_without_session(self, reason: str) -> None:
        """Start the timer: an attempt failed, because its session cannot begin or did not open."""
        self._pause(self._retry, reason)

    def is_due(self, timer: RetrySession) -> bool:
        """Whether ``timer``, which has expired, is the last one that was started."""
        return timer.number == self._last_timer

    def _pause(self, backoff: Backoff, reason: str) -> None:
        """Log ``reason``, and start the timer; the pause grows with each failure."""
        seconds = backoff.delay(self._failures)
        self._failures += 1
        self._last_timer += 1
        text = f"partition {self._partition}: {reason}; retrying in {seconds:g} s"
        self._ready.add(WriteLog(LogLevel.WARNING, text))
        self._ready.add(StartTimer(seconds, RetrySession(self._last_timer)))
