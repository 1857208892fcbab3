"""Select the rows of a task that are not yet in one partition of the log. Pure.

Spark may run several attempts at one task, even at the same time. An attempt searches the log for
rows of other attempts, up to a transaction: the *mark*. It appends the missing rows with that mark
and the locks of `core.ledger`. The server refuses the append if another attempt may have appended
the same rows after the mark. Then the attempt searches the log further, and selects again. So a row
is appended only while it is proven to be missing
(`test_attempts_in_any_order_append_each_row_once`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from waltz.spark.core.rows import RowToAppend


class MissingRows:
    """Selects the missing rows of one attempt, by the rows that it has found in one partition.

    The attempt has searched the partition up to the transaction ``mark``. `core.rows` explains row
    ids and fingerprints.

    With ``has_row_ids``, rows with the same fingerprint are one row, which is missing if no attempt
    has appended it. Without ``has_row_ids``, a task may have several equal rows: if other attempts
    have appended n of them, n rows of the task are not missing.
    """

    def __init__(self, mark: int, *, has_row_ids: bool) -> None:
        self.mark = mark
        self._has_row_ids = has_row_ids
        self._found: Counter[bytes] = Counter()

    def record_found(self, mark: int, fingerprints: Iterable[bytes] = ()) -> None:
        """Record that the log was searched up to ``mark``.

        ``fingerprints`` are those of the rows of other attempts that the search has found since the
        last call.
        """
        assert mark >= self.mark, "a lower mark would let rows above it be appended twice"
        self.mark = mark
        self._found.update(fingerprints)

    def select(self, rows: Iterable[RowToAppend]) -> list[RowToAppend]:
        """Return those of ``rows`` that are missing.

        Without row ids, each row that was found in the log stands for one row of the task, and this
        call uses it up. So the caller passes each row of the task once, and passes a row again only
        if this call has returned it and it was not appended.
        """
        missing = []
        selected: set[bytes] = set()
        for row in rows:
            if self._has_row_ids:
                if not self._found[row.fingerprint] and row.fingerprint not in selected:
                    selected.add(row.fingerprint)
                    missing.append(row)
            elif self._found[row.fingerprint]:
                self._found[row.fingerprint] -= 1
            else:
                missing.append(row)
        return missing

    def appended(self, last_id: int, rows: Iterable[RowToAppend]) -> None:
        """Record that this attempt's own ``rows`` are in the log, the last one as ``last_id``.

        The mark rises without a search: the server has granted the append, so no competing attempt
        has appended the same rows between the mark and ``last_id``. Without row ids, these rows do
        not count as found: an equal row of the task is another row, which must be appended, too.
        """
        self.mark = max(self.mark, last_id)
        if self._has_row_ids:
            self._found.update(row.fingerprint for row in rows)
