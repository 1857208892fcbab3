"""The pauses of a store between its attempts to begin a session."""

from __future__ import annotations

from waltz.net.core.backoff import Backoff
from waltz_server.core.effects import Ready, StartTimer, WriteLog
from waltz_server.core.replication.session_attempts import SessionAttempts


class Pauses:
    """The attempts of a store, and the pauses that they take."""

    def __init__(self) -> None:
        self.ready = Ready()
        self.attempts = SessionAttempts(3, Backoff(0.1, 20.0), self.ready)

    def taken(self) -> list[float]:
        """Return the pauses since the last call."""
        return [each.seconds for each in self.ready.take() if isinstance(each, StartTimer)]


def test_session_that_fails_after_failures_of_the_metadata_is_retried_soon() -> None:
    """The partition would stay closed for 20 s if it opened late after an outage of ZooKeeper."""
    made = Pauses()
    for _ in range(10):
        made.attempts.pause_without_metadata("no answer")
    assert made.taken() == [0.1, 0.2, 0.4, 0.8] + [1.0] * 6
    for _ in range(3):
        made.attempts.pause_without_session("the store session did not open")
    assert made.taken() == [0.1, 0.2, 0.4]


def test_failure_of_the_metadata_after_failed_sessions_is_retried_soon() -> None:
    made = Pauses()
    made.attempts.pause_without_metadata("no answer")
    for _ in range(5):
        made.attempts.pause_without_session("the store session did not open")
    made.taken()
    made.attempts.pause_without_metadata("no answer")
    made.attempts.pause_without_session("the store session did not open")
    assert made.taken() == [0.1, 3.2]


def test_opened_session_ends_the_growth_of_both_pauses() -> None:
    made = Pauses()
    for _ in range(3):
        made.attempts.pause_without_session("the store session did not open")
        made.attempts.pause_without_metadata("no answer")
    made.attempts.pause_without_metadata("no answer")
    made.taken()
    made.attempts.succeeded()
    made.attempts.pause_without_metadata("no answer")
    made.attempts.pause_without_session("the store session did not open")
    assert made.taken() == [0.1, 0.1]


def test_pause_is_logged_with_its_reason_and_length() -> None:
    made = Pauses()
    made.attempts.pause_without_metadata("metadata: no answer")
    texts = [each.text for each in made.ready.take() if isinstance(each, WriteLog)]
    assert texts == ["partition 3: metadata: no answer; retrying in 0.1 s"]
