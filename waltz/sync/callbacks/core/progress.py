"""How far one partition was applied, and whose context each transaction is. Pure.

A transaction of this client can be fed before its append has told its id, so that it is not known
yet whose it is: then it has to wait for the appends that were under way by then, of which it may be
one. Not for ever: it may be nobody's, if the append was given up, or was none of a context.
Completion is told once, also if the application has to be
given the transaction several times.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from waltz.client.core.values import Transaction

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Delivery(Generic[C]):
    """What to do with a transaction: apply it, with its context's callbacks around that.

    ``tell_completion`` is false if that was told already.
    """

    context: C | None
    tell_completion: bool


class PartitionProgress(Generic[C]):
    """One partition of one client: ``mark`` is the last transaction applied.

    One thread may apply while another tells of appends: no step needs more than one of either.
    """

    def __init__(self, client_id: int, mark: int) -> None:
        self.mark = mark
        self._client_id = client_id
        self._committed: dict[int, C] = {}
        self._appending: dict[int, None] = {}
        self.last_append = -1
        """The number of the append that was begun last."""

        self._told = mark

    def committed(self, transaction_id: int, context: C) -> None:
        """The append of ``context`` is in the log."""
        self._committed[transaction_id] = context

    def begin_append(self) -> int:
        """An append is begun; returns its number."""
        self.last_append += 1
        self._appending[self.last_append] = None
        return self.last_append

    def end_append(self, number: int) -> None:
        """Its fate is known, and if it was `committed` that was said; or it was given up."""
        del self._appending[number]

    def unclear(self, transactions: Iterable[Transaction[object]], last_append: int) -> bool:
        """Whether one of these may be of an append that has yet to tell its id.

        ``last_append`` is the last that was begun before they came.
        """
        oldest = next(iter(self._appending), None)
        if oldest is None or oldest > last_append:
            return False
        return any(
            each.req_id.client_id == self._client_id
            and each.id > self.mark
            and each.id not in self._committed
            for each in transactions
        )

    def next(self, transaction: Transaction[object]) -> Delivery[C] | None:
        """Return what to do with a transaction, None if it is not the next in turn."""
        if transaction.id != self.mark + 1:
            return None
        tell = self._told < transaction.id
        self._told = transaction.id
        return Delivery(self._committed.get(transaction.id), tell)

    def applied(self, transaction: Transaction[object]) -> None:
        """The application has applied the transaction, which was the next."""
        assert transaction.id == self.mark + 1
        self.mark = transaction.id
        self._committed.pop(transaction.id, None)

    def abandon(self) -> list[Delivery[C]]:
        """Return what was committed and will not be applied by this client, in order."""
        committed, self._committed = self._committed, {}
        return [
            Delivery(context, tell_completion=transaction_id > self._told)
            for transaction_id, context in sorted(committed.items())
        ]
