"""The sink's decisions: the ledger of attempts, and the selection of missing rows."""

from __future__ import annotations

import json

import pytest

from waltz.protocol.locks import Lock
from waltz.spark.core.ledger import AttemptedTask, EpochIsOver, Ledger, LedgerMalformed, NewAttempt
from waltz.spark.core.missing_rows import MissingRows
from waltz.spark.core.rows import RowToAppend, fingerprint


def row(data: bytes) -> RowToAppend:
    return RowToAppend(data, 0, (), fingerprint(0, data))


A, B, C = row(b"a"), row(b"b"), row(b"c")


def ledger(*attempts: NewAttempt) -> Ledger:
    made = Ledger("w", 0)
    for attempt in attempts:
        made = made.with_attempt(attempt, {0: 10})
    return made


def test_ledger_round_trip_keeps_all_fields() -> None:
    made = ledger(NewAttempt(3, "r", 7, 100), NewAttempt(3, "s", 8, 101))
    assert Ledger.decode(made.encode()) == made


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b'{"format": 2}',
        b"[" * 100_000,
        *(
            json.dumps(json.loads(Ledger("w", 3, ("r",)).encode()) | {name: odd}).encode()
            for name, odd in {
                "writeId": 1,
                "epoch": "3",
                "runs": [7],
                "marks": {"0": 5},
                "attempts": {"100": [1, 1]},
            }.items()
        ),
    ],
)
def test_ledger_malformed_data_is_refused(raw: bytes) -> None:
    with pytest.raises(LedgerMalformed):
        Ledger.decode(raw)


def test_ledger_epoch_keeps_its_first_marks() -> None:
    made = ledger(NewAttempt(3, "r", 7, 100)).with_attempt(
        NewAttempt(3, "r", 8, 101), {0: 20, 1: 5}
    )
    assert made.marks == {0: 10, 1: 5}
    assert made.with_attempt(NewAttempt(3, "r", 8, 101), {}) == made


def test_ledger_new_epoch_drops_the_old_one() -> None:
    made = ledger(NewAttempt(3, "r", 7, 100)).with_attempt(NewAttempt(4, "r", 7, 101), {1: 5})
    assert made == Ledger("w", 4, ("r",), {1: 5}, {101: AttemptedTask(7, 0)})


def test_ledger_attempt_of_older_epoch_is_superseded() -> None:
    with pytest.raises(EpochIsOver, match="is in epoch 4 and epoch 3 is over"):
        ledger(NewAttempt(4, "r", 7, 100)).with_attempt(NewAttempt(3, "r", 7, 101), {})


def test_ledger_competing_attempts_are_those_of_the_same_task_or_run() -> None:
    made = ledger(
        NewAttempt(0, "r", 7, 100),
        NewAttempt(0, "r", 8, 101),
        NewAttempt(0, "r", 7, 102),
        NewAttempt(0, "s", 7, 103),
        NewAttempt(0, "s", 8, 104),
    )
    assert made.competing_attempts(102, has_row_ids=False) == {100, 103}
    assert made.competing_attempts(102, has_row_ids=True) == {100, 103, 104}


@pytest.mark.parametrize("has_row_ids", [False, True])
def test_ledger_attempts_at_same_rows_conflict(has_row_ids: bool) -> None:
    """Each attempt takes a lock that every competing attempt checks, in both directions."""
    made = ledger(
        *(NewAttempt(0, f"run-{client // 4}", client % 2, client) for client in range(12))
    )
    fences = {client: made.locks_of(client, has_row_ids=has_row_ids) for client in made.attempts}
    for client, fence in fences.items():
        checked = {*fence.write_locks, *fence.read_locks}
        for other, theirs in fences.items():
            taken: set[Lock] = {*theirs.write_locks, *theirs.append_locks}
            if client != other:
                same_rows = other in made.competing_attempts(client, has_row_ids=has_row_ids)
                assert bool(checked & taken) == same_rows


def test_ledger_locks_do_not_change_when_a_run_begins() -> None:
    made = ledger(NewAttempt(0, "r", 0, 1))
    later = made.with_attempt(NewAttempt(0, "s", 0, 2), {})
    assert made.locks_of(1, has_row_ids=True) == later.locks_of(1, has_row_ids=True)


def test_missing_rows_without_ids_are_counted() -> None:
    missing = MissingRows(5, has_row_ids=False)
    missing.record_found(9, [A.fingerprint, A.fingerprint, B.fingerprint])
    assert missing.select([A, C, A, A]) == [C, A]
    missing.appended(12, [C, A])
    assert missing.mark == 12
    assert missing.select([B, C]) == [C]


def test_missing_rows_with_equal_ids_are_appended_once() -> None:
    missing = MissingRows(5, has_row_ids=True)
    missing.record_found(9, [A.fingerprint])
    assert missing.select([A, B, A, B]) == [B]
    missing.appended(12, [B])
    assert missing.select([A, B, C]) == [C]
