"""Test how callbacks record what was applied, and the context of each transaction."""

from __future__ import annotations

from waltz import ReqId, Transaction
from waltz.sync.callbacks.core.progress import Delivery, PartitionProgress

OWN, OTHER = 7, 8
"""The ids of this client and of another one."""


def fed(transaction_id: int, client: int = OWN) -> Transaction[bytes]:
    return Transaction(0, transaction_id, ReqId(client, 1, 0, transaction_id), 0, b"")


def test_begin_apply_accepts_only_the_transaction_after_the_mark() -> None:
    progress: PartitionProgress[str] = PartitionProgress(OWN, 4)
    assert progress.begin_apply(fed(4, OTHER)) is None
    assert progress.begin_apply(fed(6, OTHER)) is None
    assert progress.begin_apply(fed(5, OTHER)) == Delivery(None, call_on_completion=True)
    progress.applied(fed(5, OTHER))
    assert progress.mark == 5
    assert progress.begin_apply(fed(5, OTHER)) is None


def test_own_transaction_is_undecided_until_its_append_has_ended() -> None:
    progress: PartitionProgress[str] = PartitionProgress(OWN, -1)
    number = progress.begin_append()
    assert not progress.is_undecided([fed(0, OTHER)], number)
    assert progress.is_undecided([fed(0, OTHER), fed(1)], number)
    progress.committed(1, "context")
    assert not progress.is_undecided([fed(0, OTHER), fed(1)], number)
    assert progress.is_undecided([fed(1), fed(2)], number)
    progress.end_append(number)
    assert not progress.is_undecided([fed(1), fed(2)], number)


def test_appends_begun_after_a_transaction_was_fed_do_not_delay_it() -> None:
    progress: PartitionProgress[str] = PartitionProgress(OWN, -1)
    before = progress.begin_append()
    after = progress.begin_append()
    progress.end_append(before)
    assert not progress.is_undecided([fed(0)], before)
    assert progress.is_undecided([fed(0)], after)


def test_applied_transactions_are_never_undecided() -> None:
    progress: PartitionProgress[str] = PartitionProgress(OWN, 3)
    number = progress.begin_append()
    assert not progress.is_undecided([fed(2), fed(3)], number)


def test_own_transaction_without_context_is_applied_without_callbacks() -> None:
    progress: PartitionProgress[str] = PartitionProgress(OWN, -1)
    assert progress.begin_apply(fed(0)) == Delivery(None, call_on_completion=True)


def test_on_completion_is_called_once_for_a_repeated_transaction() -> None:
    progress: PartitionProgress[str] = PartitionProgress(OWN, -1)
    progress.committed(0, "context")
    assert progress.begin_apply(fed(0)) == Delivery("context", call_on_completion=True)
    assert progress.begin_apply(fed(0)) == Delivery("context", call_on_completion=False)
    progress.applied(fed(0))
    assert progress.take_unapplied() == []


def test_take_unapplied_returns_each_committed_context_once() -> None:
    progress: PartitionProgress[str] = PartitionProgress(OWN, -1)
    for number in (2, 0, 1):
        progress.committed(number, f"context {number}")
    progress.begin_apply(fed(0))
    assert progress.take_unapplied() == [
        Delivery("context 0", call_on_completion=False),
        Delivery("context 1", call_on_completion=True),
        Delivery("context 2", call_on_completion=True),
    ]
    assert progress.take_unapplied() == []
