"""Check the order and the locks of a log by transactions that contain the mark of their producer.

The producer's mark is the id of the last transaction that the producer knew to be in the log when
it began the append. The data of a checked transaction is this mark plus one, as in Waltz 0.13.2
(see `LOCK`). All checked transactions take the same lock, so the server must refuse one if another
has been appended after its mark. In the log, there must be no other checked transaction between
the mark in a checked transaction and the transaction itself. Transactions of other producers may
be anywhere; they are only counted.

Example: a producer that knows transactions up to 16 appends the data 17, and the append becomes
transaction 20. Then none of the transactions 17 to 19 may be a checked one: the server should have
refused this append, because a transaction after the mark 16 had taken the same lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from waltz.client import Attempt, Draft, Transaction
from waltz.protocol import Lock

LOCK = Lock("validate-lock", 0)
"""The lock of the same check in Waltz 0.13.2: its producers and consumers can take part in it."""

CHECKED_BYTES = 8
"""The size of the data of a checked transaction. Data of another size are not checked."""


def checked_draft(attempt: Attempt) -> Draft:
    """Return the draft of a checked transaction: its data is the producer's mark plus one."""
    following_id = attempt.mark + 1
    return Draft(following_id.to_bytes(CHECKED_BYTES, "big", signed=True), write_locks=[LOCK])


@dataclass(slots=True)
class Validation:
    """The checks of one partition, in log order.

    ``checked`` counts checked transactions, ``others`` transactions of other producers.
    """

    checked: int = 0
    others: int = 0
    problems: list[str] = field(default_factory=list)
    _last_id: int | None = None
    """The id of the last transaction; None before the first one."""
    _last_checked: int | None = None
    """The id of the last checked transaction; None before the first one."""

    def check_next(self, transaction: Transaction) -> bool:
        """Check the next transaction of the log; note a problem in ``problems``.

        Return True for a checked transaction (see `checked_draft`), False for any other.
        """
        expected = None if self._last_id is None else self._last_id + 1
        if expected is not None and transaction.id != expected:
            self._report(
                transaction, f"is the next transaction, but the next id must be {expected}"
            )
        self._last_id = transaction.id
        data: bytes = transaction.data
        if len(data) != CHECKED_BYTES:
            self.others += 1
            return False
        self.checked += 1
        producer_mark = int.from_bytes(data, "big", signed=True) - 1
        # A producer appends after its mark, so the id must be larger than the mark.
        if producer_mark >= transaction.id:
            self._report(transaction, f"was appended by a producer that had seen {producer_mark}")
        elif self._last_checked is not None and producer_mark < self._last_checked:
            self._report(
                transaction,
                f"was appended by a producer that had seen {producer_mark}, although "
                f"{self._last_checked} took the same lock since",
            )
        self._last_checked = transaction.id
        return True

    def _report(self, transaction: Transaction, what: str) -> None:
        """Add a problem: its text is the partition and id of ``transaction``, then ``what``."""
        self.problems.append(f"{transaction.partition}/{transaction.id} {what}")
