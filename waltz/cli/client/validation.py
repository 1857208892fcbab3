"""What makes a transaction a witness of order and locks, and whether a log's witnesses agree.

Every witness says where its producer believed the log to end, under a lock that all witnesses take.
So no other witness may stand between that place and its own id. Others' transactions may.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from waltz.client import Attempt, Draft, Transaction
from waltz.protocol import Lock

LOCK = Lock("validate-lock", 0)
"""As in Waltz 0.13.2, whose producers and consumers can take part."""

_WITNESS_BYTES = 8


def witness(attempt: Attempt) -> Draft:
    """Return the transaction to append: the id that it has if nobody is quicker."""
    value = attempt.mark + 1
    return Draft(value.to_bytes(_WITNESS_BYTES, "big", signed=True), write_locks=[LOCK])


@dataclass(slots=True)
class Validation:
    """What has been seen of one partition, in its order."""

    witnesses: int = 0
    others: int = 0
    problems: list[str] = field(default_factory=list)
    _last_id: int | None = None
    _last_witness: int | None = None

    def see(self, transaction: Transaction) -> bool:
        """Check the next transaction of the partition; return whether it is a witness."""
        expected = None if self._last_id is None else self._last_id + 1
        if expected is not None and transaction.id != expected:
            self._report(transaction, f"came where {expected} was due")
        self._last_id = transaction.id
        data: bytes = transaction.data
        if len(data) != _WITNESS_BYTES:
            self.others += 1
            return False
        self.witnesses += 1
        value = int.from_bytes(data, "big", signed=True)
        if value > transaction.id:
            self._report(transaction, f"was appended by who had seen {value - 1}")
        elif self._last_witness is not None and value <= self._last_witness:
            self._report(
                transaction,
                f"was appended by who had seen {value - 1}, though {self._last_witness} took the "
                "same lock since",
            )
        self._last_witness = transaction.id
        return True

    def _report(self, transaction: Transaction, what: str) -> None:
        self.problems.append(f"{transaction.partition}/{transaction.id} {what}")
