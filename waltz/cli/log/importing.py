"""Append rows to one partition: each row once, in their order. Touches the network.

An interrupted run of an import may leave an append in flight, which reaches the server late: while
the next run works. So all appends of imports into a partition take the same lock, each with a
*mark*: the id up to which its run has searched the log for appends of earlier runs. The server
refuses an append if a transaction after its mark has taken the lock. There are two cases:

* The next run has appended before the late append arrives. The late append is refused.
* The late append arrives first. The next append of the new run is refused. The new run searches the
  log again, finds the late append, and stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import aclosing

from waltz.cli.client_access import ANSWER_SECONDS, batches_within
from waltz.cli.log.archive import Row
from waltz.cli.progress import Advance
from waltz.cli.running import Failed
from waltz.client import AppendUncertain, Client, Draft, LockFailed, ServerTooOld, Transaction
from waltz.client.core.batches import Appended, Refused
from waltz.protocol import Lock

_LOCK_NAME = "waltz-import"
"""The name of the lock that all appends of imports take."""
_BATCH_ROWS = 1000
"""How many rows one request has at most."""
_BATCH_BYTES = 1 << 20
"""How many bytes of data a batch has at most, unless it has only one row."""


class Importer:
    """Appends rows of one run to ``partition``; ``client_ids`` are those of all runs of the import.

    ``mark`` is the mark of the first append: the caller must have searched the log up to this id,
    by `count_imported`.
    """

    def __init__(
        self, client: Client, partition: int, client_ids: Iterable[int], mark: int
    ) -> None:
        self._client = client
        self._partition = partition
        self._client_ids = frozenset(client_ids)
        self._mark = mark
        self._locks = (Lock(_LOCK_NAME, partition),)

    async def count_imported(self, after: int, last: int, rows: Iterator[Row] | None = None) -> int:
        """Return how many transactions after ``after``, up to ``last``, the import has appended.

        ``rows`` are all rows of the import. The caller will leave out as many rows as this method
        returns. So if the appended transactions are not the first of ``rows``, Failed is raised:
        otherwise the caller would leave out rows that are not in the log. If ``rows`` is None, the
        transactions are only counted.
        """
        if last <= after:
            return 0
        count = 0
        stream = self._client.stream(
            self._partition, after=after, until=last, data=rows is not None
        )
        async with aclosing(batches_within(stream, ANSWER_SECONDS)) as batches:
            async for batch in batches:
                for transaction in batch:
                    if transaction.req_id.client_id not in self._client_ids:
                        continue
                    count += 1
                    # After the last row, only count: the caller fails if there are more
                    # transactions than rows (`import_files`).
                    row = None if rows is None else next(rows, None)
                    if row is not None and not _is_appended(row, transaction):
                        raise Failed(
                            f"an earlier run of this import appended transaction {transaction.id} "
                            f"of partition {self._partition}, which differs from row {count} of "
                            "the files, so they are not the files of that run, or were changed; "
                            "to append all of their rows, name another record with --record"
                        )
        return count

    async def append(self, rows: Iterator[Row], advance: Advance) -> None:
        """Append ``rows``, in batches that the server accepts. Raises Failed, WaltzError."""
        for batch in _batches(rows):
            while batch:
                try:
                    num_appended = await self._append_beginning(batch)
                except AppendUncertain as error:
                    # The usual advice is to find the outcome of each append. The next run does so.
                    raise Failed(
                        f"{error.summary}; run the import again: it continues with the rows that "
                        "are not in the log; find the cause with: waltz doctor"
                    ) from error
                advance(num_appended)
                batch = batch[num_appended:]

    async def _append_beginning(self, batch: list[Row]) -> int:
        """Append rows from the start of ``batch``; return how many of them are in the log now.

        After a refusal or a fault, some rows are left over. A server that does not know batches
        gets only the first row. Raises Failed, WaltzError.
        """
        try:
            num_appended, is_refused = await self._append_batch(batch)
        except ServerTooOld:
            num_appended, is_refused = await self._append_one(batch[0])
        if is_refused:
            await self._check_after_refusal()
        return num_appended

    async def _append_batch(self, batch: list[Row]) -> tuple[int, bool]:
        """Append rows; return how many were appended, and whether the lock refused the next row.

        After a fault, fewer rows may be appended although the lock has refused none: the outcome of
        the others is `Absent`, which means that they are not in the log and never will be.
        """
        drafts = [Draft(row.data, row.header, self._locks) for row in batch]
        outcomes = await self._client.bulk.append(self._partition, drafts, mark=self._mark)
        num_appended = 0
        for outcome in outcomes:
            if not isinstance(outcome, Appended):
                # No later row is in the log either. All rows of a batch have the same lock and
                # mark, so the lock refuses all or none. After a fault, only the first rows are
                # appended.
                return num_appended, isinstance(outcome, Refused)
            num_appended += 1
            self._mark = outcome.transaction_id
        return num_appended, False

    async def _append_one(self, row: Row) -> tuple[int, bool]:
        """Do the same as `_append_batch` for one row. The server need not know batches."""
        try:
            self._mark = await self._client.append(
                self._partition,
                row.data,
                header=row.header,
                write_locks=self._locks,
                mark=self._mark,
            )
        except LockFailed:
            return 0, True
        return 1, False

    async def _check_after_refusal(self) -> None:
        """Raise Failed if an earlier run has appended after the mark; otherwise advance the mark.

        If no earlier run has appended, another import has taken the lock, or another lock has the
        same hash. Then the caller may send the refused row again, with the new mark.
        """
        end = await self._client.high_water_mark(self._partition)
        if await self.count_imported(self._mark, end):
            raise Failed(
                f"an earlier run of this import has appended to partition {self._partition} just "
                "now; run the import again: it continues after that run"
            )
        self._mark = end


def _is_appended(row: Row, transaction: Transaction[bytes]) -> bool:
    """Return whether ``transaction`` has the header and the data of ``row``."""
    return (row.header, row.data) == (transaction.header, transaction.data)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield ``rows`` in batches of at most `_BATCH_ROWS` rows and `_BATCH_BYTES` of data.

    A row with more data is a batch of its own. Its data alone may have the largest size that a
    server accepts in one request.
    """
    batch: list[Row] = []
    size = 0
    for row in rows:
        if batch and (len(batch) == _BATCH_ROWS or size + len(row.data) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row.data)
    if batch:
        yield batch
