"""Pause between the attempts of a store to begin a session. Pure."""

from __future__ import annotations

from waltz.net.core.backoff import Backoff
from waltz_server.core.effects import LogLevel, Ready, RetrySession, StartTimer, WriteLog
from waltz_server.core.replication.session_metadata import METADATA_BACKOFF


class SessionAttempts:
    """The failures since a session opened, and the timer of the next attempt.

    ``retry`` has the delays after an attempt whose session cannot begin or did not open.
    `METADATA_BACKOFF` has the delays after an attempt whose operation on the metadata failed. The
    two kinds of failures are counted separately: a session that does not open after a long outage
    of ZooKeeper is retried after the first delay of ``retry``.
    """

    def __init__(self, partition: int, retry: Backoff, ready: Ready) -> None:
        self._partition = partition
        self._retry = retry
        self._ready = ready
        self._session_failures = 0
        """Number of sessions that have failed to begin or to open since a session opened."""
        self._metadata_failures = 0
        """Number of attempts in a row whose operation on the metadata failed."""
        self._last_timer = 0
        """Number of the last timer that was started; earlier ones are ignored."""

    def succeeded(self) -> None:
        """Note that a session has opened."""
        self._session_failures = self._metadata_failures = 0

    def pause_without_metadata(self, reason: str) -> None:
        """Start the timer: an attempt failed, because its operation on the metadata failed."""
        self._pause(METADATA_BACKOFF.delay(self._metadata_failures), reason)
        self._metadata_failures += 1

    def pause_without_session(self, reason: str) -> None:
        """Start the timer: an attempt failed, because its session cannot begin or did not open."""
        self._pause(self._retry.delay(self._session_failures), reason)
        self._session_failures += 1
        self._metadata_failures = 0  # This attempt failed for another reason.

    def is_due(self, timer: RetrySession) -> bool:
        """Whether ``timer``, which has expired, is the last one that was started."""
        return timer.number == self._last_timer

    def _pause(self, seconds: float, reason: str) -> None:
        """Log ``reason``, and start the timer."""
        self._last_timer += 1
        text = f"partition {self._partition}: {reason}; retrying in {seconds:g} s"
        self._ready.add(WriteLog(LogLevel.WARNING, text))
        self._ready.add(StartTimer(seconds, RetrySession(self._last_timer)))
