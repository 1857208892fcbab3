"""The age of the oldest transaction that no checkpoint has passed."""

from __future__ import annotations

from waltz_storage.core.wal.checkpoint_lag import CheckpointLag


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lag_without_a_transaction_is_zero() -> None:
    assert CheckpointLag(Clock()).seconds == 0.0


def test_lag_is_the_age_of_the_oldest_transaction() -> None:
    clock = Clock()
    lag = CheckpointLag(clock)
    lag.note_transaction()
    clock.now += 2
    lag.note_transaction()
    clock.now += 1
    assert lag.seconds == 3.0


def test_lag_after_a_checkpoint_of_all_transactions_is_zero() -> None:
    clock = Clock()
    lag = CheckpointLag(clock)
    lag.note_transaction()
    lag.note_checkpoint_begin()
    clock.now += 1
    assert lag.seconds == 1.0
    lag.note_checkpoint_end()
    assert lag.seconds == 0.0


def test_lag_after_a_checkpoint_counts_from_the_first_transaction_during_it() -> None:
    clock = Clock()
    lag = CheckpointLag(clock)
    lag.note_transaction()
    lag.note_checkpoint_begin()
    clock.now += 1
    lag.note_transaction()
    clock.now += 1
    lag.note_transaction()
    lag.note_checkpoint_end()
    clock.now += 5
    assert lag.seconds == 6.0


def test_lag_begins_with_the_first_transaction_if_the_log_was_empty_at_the_checkpoint() -> None:
    clock = Clock()
    lag = CheckpointLag(clock)
    lag.note_checkpoint_begin()
    lag.note_transaction()
    clock.now += 4
    assert lag.seconds == 4.0
    lag.note_checkpoint_end()
    assert lag.seconds == 4.0
