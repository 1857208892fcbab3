"""Record how far a partition was applied, and which context each transaction belongs to. Pure.

A *context* (`core.context.TransactionContext`) builds one append, and its callbacks report how the
append ends.

A transaction can arrive in the feed before the call of its append has returned the transaction's
id. At that moment it is unknown which context the transaction belongs to. If the transaction were
applied now, the callbacks of its context would not be called. So a transaction of this client waits
for the appends that were open when it arrived (`PartitionProgress.is_undecided`). When these
appends have ended, the context is known, or the transaction belongs to none: the call of its append
ended without the id, or the append did not come from a context.

``on_completion`` is called once per context, even if errors make the application apply the
transaction several times. tests/unit/client/test_client_progress.py shows each of these rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from waltz.client.core.values import Transaction

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Delivery(Generic[C]):
    """How to apply a transaction: the context whose callbacks are called before and after.

    ``context`` is None for a transaction that belongs to no context. ``call_on_completion`` is
    false if ``on_completion`` was called before.
    """

    context: C | None
    call_on_completion: bool


class PartitionProgress(Generic[C]):
    """The progress of one partition in one client. ``mark`` is the last applied transaction.

    `begin_apply` and `applied` run on an applying thread, all other methods on the event loop.
    `take_unapplied` runs only when nothing is applied any more. Any thread may read ``mark``. Only
    ``_committed``, ``_completed_mark`` and ``mark`` are used both by an applying thread and by the
    event loop. Each use is a single atomic operation, so no lock is needed.
    """

    def __init__(self, client_id: int, mark: int) -> None:
        self.mark = mark
        self._client_id = client_id
        self._committed: dict[int, C] = {}
        """The contexts whose transactions are in the log and not yet applied, by transaction id."""

        self._open_appends: dict[int, None] = {}
        """The numbers of the open appends, ascending: a dictionary is used as an ordered set."""

        self.last_append = -1
        """The number of the append that began last."""

        self._completed_mark = mark
        """The last transaction that `begin_apply` has returned a delivery for.

        ``on_completion`` is not called again for this transaction or an earlier one.
        """

    def committed(self, transaction_id: int, context: C) -> None:
        """Record that the append of ``context`` is in the log, as ``transaction_id``."""
        self._committed[transaction_id] = context

    def begin_append(self) -> int:
        """Begin an append and return its number."""
        self.last_append += 1
        self._open_appends[self.last_append] = None
        return self.last_append

    def end_append(self, number: int) -> None:
        """End an append. If its transaction is in the log, `committed` must be called before."""
        del self._open_appends[number]

    def is_undecided(self, transactions: Iterable[Transaction[object]], last_append: int) -> bool:
        """Return whether one of ``transactions`` may belong to an append that is still open.

        ``last_append`` is the number of the append that began last before they arrived.
        """
        oldest = next(iter(self._open_appends), None)
        if oldest is None or oldest > last_append:
            # An append that began after the transactions arrived cannot have caused one of them.
            return False
        return any(
            transaction.req_id.client_id == self._client_id
            and transaction.id > self.mark
            and transaction.id not in self._committed
            for transaction in transactions
        )

    def begin_apply(self, transaction: Transaction[object]) -> Delivery[C] | None:
        """Begin to apply ``transaction``. Return None if it is not the next one to apply.

        The caller must call ``on_completion`` if ``call_on_completion`` of the result is true. Only
        in the first call for a transaction it is true.

        A new mount can feed transactions again that were applied before. If they were applied
        again, they would change the application's state twice.
        """
        if transaction.id != self.mark + 1:
            return None
        call_on_completion = self._completed_mark < transaction.id
        self._completed_mark = transaction.id
        return Delivery(self._committed.get(transaction.id), call_on_completion)

    def applied(self, transaction: Transaction[object]) -> None:
        """Record that the application has applied ``transaction``: advance the mark to it."""
        assert transaction.id == self.mark + 1, "transactions are applied in order"
        self.mark = transaction.id
        self._committed.pop(transaction.id, None)

    def take_unapplied(self) -> list[Delivery[C]]:
        """Remove and return the contexts whose transactions are in the log and not yet applied.

        The partition has stopped, so these transactions will not be applied. The caller ends the
        contexts, and calls ``on_completion`` where the result has ``call_on_completion``. The
        result is in the order of the transactions' ids.
        """
        committed, self._committed = self._committed, {}
        return [
            Delivery(context, call_on_completion=transaction_id > self._completed_mark)
            for transaction_id, context in sorted(committed.items())
        ]
