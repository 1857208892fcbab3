"""Which rows of a task are not yet in one partition of the log. Pure.

`mark` is the last transaction that was taken into account. An append under the write's lock and
that mark is refused if anybody has appended for the same rows since; then what came is taken in,
and the rest decided anew. So a row is appended only by somebody who knows that it is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from waltz.spark.core.rows import Row


class Missing:
    """One attempt's knowledge of one partition.

    ``stable``: rows have ids of their own, so equal rows are the same row, whoever wrote it.
    Otherwise equal rows are counted, and only those of the same task.
    """

    def __init__(self, mark: int, *, stable: bool) -> None:
        self.mark = mark
        self._stable = stable
        self._found: Counter[bytes] = Counter()

    def take_in(self, mark: int, fingerprints: Iterable[bytes] = ()) -> None:
        """The log was read up to ``mark``, and other attempts have appended rows with these."""
        assert mark >= self.mark
        self.mark = mark
        self._found.update(fingerprints)

    def of(self, rows: Iterable[Row]) -> list[Row]:
        """Return those of ``rows`` that must be appended; each row is asked about until it is."""
        missing = []
        asked: set[bytes] = set()
        for row in rows:
            if self._stable:
                if not self._found[row.fingerprint] and row.fingerprint not in asked:
                    asked.add(row.fingerprint)
                    missing.append(row)
            elif self._found[row.fingerprint]:
                self._found[row.fingerprint] -= 1
            else:
                missing.append(row)
        return missing

    def appended(self, last_id: int, rows: Iterable[Row]) -> None:
        """This attempt's own ``rows`` are in the log, up to the transaction ``last_id``."""
        self.mark = max(self.mark, last_id)
        if self._stable:
            self._found.update(row.fingerprint for row in rows)
