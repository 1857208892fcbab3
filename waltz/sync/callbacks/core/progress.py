"""How far a partition was applied, and which context each transaction belongs to. Pure.

A transaction of this client can be fed before its append has returned its id. At that time its
context is unknown, and applying it immediately would lose the callbacks of that context. So it
waits for the appends that were open when it was fed, because it may be the transaction of one of
them (`PartitionProgress.is_undecided`). After these appends have ended, either its context is
known, or it belongs to none: its append was abandoned, or did not come from a context.

``on_completion`` is called once per context, also if the application has to apply the transaction
several times. tests/unit/client/test_client_progress.py shows each of these rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from waltz.client.core.values import Transaction

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Delivery(Generic[C]):
    """A transaction to apply, and the context whose callbacks are called around that.

    ``call_on_completion`` is false if that callback was called before.
    """

    context: C | None
    call_on_completion: bool


class PartitionProgress(Generic[C]):
    """The progress of one partition of one client. ``mark`` is the last transaction applied.

    One thread may apply transactions while another begins and ends appends. There is no lock: no
    method needs two operations on a shared dictionary to be atomic together.
    """

    def __init__(self, client_id: int, mark: int) -> None:
        self.mark = mark
        self._client_id = client_id
        self._committed: dict[int, C] = {}
        self._open_appends: dict[int, None] = {}
        self.last_append = -1
        """The number of the append that began last."""

        self._completed_mark = mark
        """The last transaction for which ``on_completion`` was called."""

    def committed(self, transaction_id: int, context: C) -> None:
        """Record that the append of ``context`` is in the log."""
        self._committed[transaction_id] = context

    def begin_append(self) -> int:
        """Begin an append and return its number."""
        self.last_append += 1
        self._open_appends[self.last_append] = None
        return self.last_append

    def end_append(self, number: int) -> None:
        """End an append: its outcome is known and, if it is in the log, recorded by `committed`."""
        del self._open_appends[number]

    def is_undecided(self, transactions: Iterable[Transaction[object]], last_append: int) -> bool:
        """Return whether one of these may belong to an append that has not returned its id yet.

        ``last_append`` is the append that began last before the transactions were fed.
        """
        oldest = next(iter(self._open_appends), None)
        if oldest is None or oldest > last_append:
            return False
        return any(
            each.req_id.client_id == self._client_id
            and each.id > self.mark
            and each.id not in self._committed
            for each in transactions
        )

    def next(self, transaction: Transaction[object]) -> Delivery[C] | None:
        """Return what to do with a transaction, or None if it is not the next to apply.

        A new mount feeds transactions again that were applied before. To apply them twice would
        change the application's state twice.
        """
        if transaction.id != self.mark + 1:
            return None
        call_on_completion = self._completed_mark < transaction.id
        self._completed_mark = transaction.id
        return Delivery(self._committed.get(transaction.id), call_on_completion)

    def applied(self, transaction: Transaction[object]) -> None:
        """Advance the mark: the application has applied the transaction."""
        assert transaction.id == self.mark + 1, "transactions are applied in order"
        self.mark = transaction.id
        self._committed.pop(transaction.id, None)

    def abandon(self) -> list[Delivery[C]]:
        """Return the contexts that are in the log and will not be applied here, in order."""
        committed, self._committed = self._committed, {}
        return [
            Delivery(context, call_on_completion=transaction_id > self._completed_mark)
            for transaction_id, context in sorted(committed.items())
        ]
