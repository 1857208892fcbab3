"""Find the outcome of one append in the transactions of a log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from waltz.client.core.batches import Absent, Appended
from waltz.client.core.values import Transaction
from waltz.protocol.records import ReqId, wrapped


class AppendSearch:
    """Looks for the append ``req_id`` in the transactions of its partition, from old to new.

    ``result`` is `Appended` if a transaction has this request id. It is `Absent` if one of these
    transactions comes first, which proves that the append is not in the log and never will be:

    * A transaction of a later generation. The generation counts the partition's assignments to a
      server. A server drops the appends of earlier generations (spec/behaviour.md section 5).
    * A later append of the same client and generation. A server writes the appends of one client in
      the order in which they were sent (spec/behaviour.md section 8).

    Otherwise ``result`` is None: a server may still write the append.
    """

    def __init__(self, req_id: ReqId) -> None:
        self.result: Appended | Absent | None = None
        self._req_id = req_id

    def examine(self, transactions: Iterable[Transaction[Any]]) -> bool:
        """Examine the next transactions of the log; return whether there is a result now.

        Call this no more after it has returned true.
        """
        wanted = self._req_id
        for transaction in transactions:
            req_id = transaction.req_id
            if req_id == wanted:
                self.result = Appended(transaction.id)
                return True
            # Sequence numbers wrap to 32 bits: the later one is greater by the wrapped difference.
            is_later_of_client = (
                req_id.client_id == wanted.client_id
                and req_id.generation == wanted.generation
                and wrapped(req_id.seq - wanted.seq) > 0
            )
            if req_id.generation > wanted.generation or is_later_of_client:
                self.result = Absent()
                return True
        return False
