"""The backoff of storages: when a storage may take part again, and when its failures are reset."""

from __future__ import annotations

from waltz_server.core.effects import BackoffOver, Ready, ResetFailures, StartTimer
from waltz_server.core.replication.storage_backoff import StorageBackoff

PAUSES = (5.0, 10.0, 20.0)


def backoff() -> tuple[StorageBackoff, Ready]:
    ready = Ready()
    made = StorageBackoff(PAUSES.__getitem__, ready)
    made.track(["a"])
    made.set_connected("a", True)
    return made, ready


def timers(ready: Ready) -> list[StartTimer]:
    """Take the timers that were requested since the last call."""
    return [effect for effect in ready.take() if isinstance(effect, StartTimer)]


def test_failure_count_is_reset_a_minute_after_the_end_of_the_pause() -> None:
    """During the pause a storage cannot fail, so this time must not count."""
    made, ready = backoff()
    for failures, pause in enumerate(PAUSES, 1):
        made.back_off(["a"])
        assert timers(ready) == [
            StartTimer(pause, BackoffOver("a")),
            StartTimer(pause + 60.0, ResetFailures("a", failures)),
        ]
        assert made.available() == []
        made.backoff_over("a")
        assert made.available() == ["a"]


def test_reset_of_a_failure_count_that_has_grown_since_is_ignored() -> None:
    made, ready = backoff()
    for _ in range(2):
        made.back_off(["a"])
        made.backoff_over("a")
    timers(ready)
    made.reset_failures("a", 1)
    made.back_off(["a"])
    assert timers(ready)[0].seconds == PAUSES[2]
    made.backoff_over("a")
    made.reset_failures("a", 3)
    made.back_off(["a"])
    assert timers(ready)[0].seconds == PAUSES[0]
