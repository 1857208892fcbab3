"""Validation of order and locks reports every violation."""

from __future__ import annotations

from waltz.cli.bench import rows as load_rows
from waltz.cli.bench.validation import LOCK, Validation, checked_draft
from waltz.client import Attempt, Transaction
from waltz.protocol import ReqId


def seen(*transactions: tuple[int, bytes | int]) -> Validation:
    """Return the checks of a log of transactions, each by its id and its data.

    Data that are a number are those of a checked transaction: the mark of its producer plus one.
    """
    validation = Validation()
    for number, content in transactions:
        data = content if isinstance(content, bytes) else content.to_bytes(8, "big", signed=True)
        validation.check_next(Transaction(0, number, ReqId(1, 1, 0, number), 0, data))
    return validation


def test_checked_transaction_has_mark_of_its_producer() -> None:
    draft = checked_draft(Attempt(0, 1, 41))
    assert (draft.data, list(draft.write_locks)) == ((42).to_bytes(8, "big"), [LOCK])


def test_serialized_producers_pass_validation() -> None:
    validation = seen((5, 5), (6, 6), (7, 7))
    assert (validation.checked, validation.others, validation.problems) == (3, 0, [])


def test_transactions_of_other_producers_are_counted_separately() -> None:
    validation = seen((5, 5), (6, b"other"), (7, 6), (8, 8))
    assert (validation.checked, validation.others, validation.problems) == (3, 1, [])


def test_lock_granted_twice_is_reported() -> None:
    (problem,) = seen((5, 5), (6, 5)).problems
    assert problem == (
        "0/6 was appended by a producer that had seen 4, although 5 took the same lock since"
    )


def test_producer_ahead_of_log_is_reported() -> None:
    (problem,) = seen((5, 7)).problems
    assert problem == "0/5 was appended by a producer that had seen 6"


def test_gap_of_ids_is_reported() -> None:
    (problem,) = seen((5, 5), (7, 7)).problems
    assert problem == "0/7 is the next transaction, but the next id must be 6"


def test_validation_shows_first_problems() -> None:
    shown = load_rows.render_validation({0: seen((0, 0), (1, 1)), 1: seen((0, 3))}, 2.0)
    assert not shown.value["passed"]
    assert (shown.value["transactions"], len(shown.value["problems"])) == (3, 1)
    assert shown.tables[1].cells == [["0/0", "was appended by a producer that had seen 2"]]


def test_throughput_and_durations_are_summarized() -> None:
    shown = load_rows.render_appends(4_000_000, 2.0, [0.001, 0.002, 0.004, 0.001], 6)
    assert shown.value == {
        "transactions": 4,
        "megabytes": 4.0,
        "seconds": 2.0,
        "transactions_per_second": 2.0,
        "megabytes_per_second": 2.0,
        "retries_per_transaction": 0.5,
        "mean_ms": 2.0,
        "p50_ms": 2.0,
        "p99_ms": 4.0,
        "max_ms": 4.0,
    }
    assert load_rows.render_appends(0, 0.0, [], 0).value["transactions_per_second"] == 0.0
