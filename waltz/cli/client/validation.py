"""Check order and locks by transactions whose data is the mark of their producer.

Every checked transaction has the end of the log as its producer saw it, and all take one lock. So
no other checked transaction may lie between that end and its own id. Transactions of other
producers may; they are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from waltz.client import Attempt, Draft, Transaction
from waltz.protocol import Lock

LOCK = Lock("validate-lock", 0)
"""As in Waltz 0.13.2, whose producers and consumers can take part."""

_CHECKED_BYTES = 8


def checked_draft(attempt: Attempt) -> Draft:
    """Return the transaction to append: its data is the id that follows the producer's mark."""
    value = attempt.mark + 1
    return Draft(value.to_bytes(_CHECKED_BYTES, "big", signed=True), write_locks=[LOCK])


@dataclass(slots=True)
class Validation:
    """The checks of one partition, in log order."""

    checked: int = 0
    others: int = 0
    problems: list[str] = field(default_factory=list)
    _last_id: int | None = None
    _last_checked: int | None = None

    def see(self, transaction: Transaction) -> bool:
        """Check the next transaction; return whether it is one of `checked_draft`."""
        expected = None if self._last_id is None else self._last_id + 1
        if expected is not None and transaction.id != expected:
            self._report(transaction, f"follows where {expected} is expected")
        self._last_id = transaction.id
        data: bytes = transaction.data
        if len(data) != _CHECKED_BYTES:
            self.others += 1
            return False
        self.checked += 1
        value = int.from_bytes(data, "big", signed=True)
        if value > transaction.id:
            self._report(transaction, f"was appended by a producer that had seen {value - 1}")
        elif self._last_checked is not None and value <= self._last_checked:
            self._report(
                transaction,
                f"was appended by a producer that had seen {value - 1}, although "
                f"{self._last_checked} took the same lock since",
            )
        self._last_checked = transaction.id
        return True

    def _report(self, transaction: Transaction, what: str) -> None:
        self.problems.append(f"{transaction.partition}/{transaction.id} {what}")
