"""Who has written what, and which rows are missing: the sink's decisions."""

from __future__ import annotations

import pytest

from waltz.protocol.locks import Lock
from waltz.spark.core.ledger import Attempted, Joining, Ledger, LedgerMalformed, Superseded
from waltz.spark.core.missing import Missing
from waltz.spark.core.rows import Row, fingerprint


def row(data: bytes) -> Row:
    return Row(data, 0, (), fingerprint(0, data))


A, B, C = row(b"a"), row(b"b"), row(b"c")


def ledger(*attempts: Joining) -> Ledger:
    made = Ledger("w", 0)
    for attempt in attempts:
        made = made.joined(attempt, {0: 10})
    return made


def test_what_is_written_down_is_read_again() -> None:
    made = ledger(Joining(3, "r", 7, 100), Joining(3, "s", 8, 101))
    assert Ledger.decode(made.encode()) == made


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"format": 2}'])
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(LedgerMalformed):
        Ledger.decode(raw)


def test_an_epoch_keeps_the_first_marks() -> None:
    made = ledger(Joining(3, "r", 7, 100)).joined(Joining(3, "r", 8, 101), {0: 20, 1: 5})
    assert made.marks == {0: 10, 1: 5}
    assert made.joined(Joining(3, "r", 8, 101), {}) == made


def test_an_epoch_begins_anew() -> None:
    made = ledger(Joining(3, "r", 7, 100)).joined(Joining(4, "r", 7, 101), {1: 5})
    assert made == Ledger("w", 4, ("r",), {1: 5}, {101: Attempted(7, 0)})


def test_an_attempt_of_an_older_epoch_is_told() -> None:
    with pytest.raises(Superseded, match="is in epoch 4 and epoch 3 is over"):
        ledger(Joining(4, "r", 7, 100)).joined(Joining(3, "r", 7, 101), {})


def test_whose_rows_may_be_the_same() -> None:
    made = ledger(
        Joining(0, "r", 7, 100),
        Joining(0, "r", 8, 101),
        Joining(0, "r", 7, 102),
        Joining(0, "s", 7, 103),
        Joining(0, "s", 8, 104),
    )
    assert made.others(102, stable=False) == {100, 103}
    assert made.others(102, stable=True) == {100, 103, 104}


@pytest.mark.parametrize("stable", [False, True])
def test_whoever_may_have_the_same_rows_is_locked_out(stable: bool) -> None:
    """Each attempt takes a lock that each other such attempt checks, whoever was first."""
    made = ledger(*(Joining(0, f"run-{client // 4}", client % 2, client) for client in range(12)))
    fences = {client: made.fence(client, stable=stable) for client in made.attempts}
    for client, fence in fences.items():
        checked = {*fence.write_locks, *fence.read_locks}
        for other, theirs in fences.items():
            taken: set[Lock] = {*theirs.write_locks, *theirs.append_locks}
            if client != other:
                same_rows = other in made.others(client, stable=stable)
                assert bool(checked & taken) == same_rows


def test_a_fence_does_not_change_when_another_run_begins() -> None:
    made = ledger(Joining(0, "r", 0, 1))
    later = made.joined(Joining(0, "s", 0, 2), {})
    assert made.fence(1, stable=True) == later.fence(1, stable=True)


def test_equal_rows_of_a_task_are_counted() -> None:
    missing = Missing(5, stable=False)
    missing.take_in(9, [A.fingerprint, A.fingerprint, B.fingerprint])
    assert missing.of([A, C, A, A]) == [C, A]
    missing.appended(12, [C, A])
    assert missing.mark == 12
    assert missing.of([B, C]) == [C]


def test_rows_with_ids_are_the_same_row() -> None:
    missing = Missing(5, stable=True)
    missing.take_in(9, [A.fingerprint])
    assert missing.of([A, B, A, B]) == [B]
    missing.appended(12, [B])
    assert missing.of([A, B, C]) == [C]
