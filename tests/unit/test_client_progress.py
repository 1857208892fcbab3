"""How far a partition was applied, and whose context each transaction is."""

from __future__ import annotations

from waltz import ReqId, Transaction
from waltz.sync.callbacks.core.progress import Delivery, PartitionProgress

MINE, THEIRS = 7, 8


def fed(transaction_id: int, client: int = MINE) -> Transaction[bytes]:
    return Transaction(0, transaction_id, ReqId(client, 1, 0, transaction_id), 0, b"")


def test_only_the_next_in_turn_is_applied() -> None:
    progress: PartitionProgress[str] = PartitionProgress(MINE, 4)
    assert progress.next(fed(4, THEIRS)) is None
    assert progress.next(fed(6, THEIRS)) is None
    assert progress.next(fed(5, THEIRS)) == Delivery(None, tell_completion=True)
    progress.applied(fed(5, THEIRS))
    assert progress.mark == 5
    assert progress.next(fed(5, THEIRS)) is None


def test_ones_own_waits_until_it_is_known_whose_it_is() -> None:
    progress: PartitionProgress[str] = PartitionProgress(MINE, -1)
    number = progress.begin_append()
    assert not progress.unclear([fed(0, THEIRS)], number)
    assert progress.unclear([fed(0, THEIRS), fed(1)], number)
    progress.committed(1, "context")
    assert not progress.unclear([fed(0, THEIRS), fed(1)], number)
    assert progress.unclear([fed(1), fed(2)], number)
    progress.end_append(number)
    assert not progress.unclear([fed(1), fed(2)], number)


def test_it_waits_only_for_appends_begun_before() -> None:
    progress: PartitionProgress[str] = PartitionProgress(MINE, -1)
    before = progress.begin_append()
    after = progress.begin_append()
    progress.end_append(before)
    assert not progress.unclear([fed(0)], before)
    assert progress.unclear([fed(0)], after)


def test_what_was_applied_needs_no_clarity() -> None:
    progress: PartitionProgress[str] = PartitionProgress(MINE, 3)
    number = progress.begin_append()
    assert not progress.unclear([fed(2), fed(3)], number)


def test_what_is_no_contexts_is_applied_as_anybodys() -> None:
    progress: PartitionProgress[str] = PartitionProgress(MINE, -1)
    assert progress.next(fed(0)) == Delivery(None, tell_completion=True)


def test_completion_is_told_once() -> None:
    progress: PartitionProgress[str] = PartitionProgress(MINE, -1)
    progress.committed(0, "context")
    assert progress.next(fed(0)) == Delivery("context", tell_completion=True)
    assert progress.next(fed(0)) == Delivery("context", tell_completion=False)
    progress.applied(fed(0))
    assert progress.abandon() == []


def test_what_is_abandoned_is_told_once_too() -> None:
    progress: PartitionProgress[str] = PartitionProgress(MINE, -1)
    for number in (2, 0, 1):
        progress.committed(number, f"context {number}")
    progress.next(fed(0))
    assert progress.abandon() == [
        Delivery("context 0", tell_completion=False),
        Delivery("context 1", tell_completion=True),
        Delivery("context 2", tell_completion=True),
    ]
    assert progress.abandon() == []
