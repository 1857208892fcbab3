"""Append a task's rows, each exactly once. Touches the network and ZooKeeper.

Spark may run several attempts at a task. Every attempt has its own client id, and registers it in
the write's ledger (`core.ledger`) before its first append. The attempt finds the rows of other
attempts in the log by their client ids. It appends the missing rows with locks, by which the server
refuses a row that a competing attempt may have appended since that search. `core.missing_rows`
explains why this is safe while other attempts are still running; the test is
`test_attempts_in_any_order_append_each_row_once`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from waltz.client import Appended, Client, ClientOptions, Draft
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import KazooStore
from waltz.protocol.batches import MAX_LOCKS
from waltz.spark.core.ledger import AttemptLocks, Ledger, NewAttempt
from waltz.spark.core.missing_rows import MissingRows
from waltz.spark.core.rows import Columns, RowToAppend, fingerprint, in_parts
from waltz.spark.ledger_store import LedgerStore
from waltz.spark.log_reader import ClusterLocation, LogEndsBefore

T = TypeVar("T")

_BATCH_ROWS = 2000
"""A partition's buffered rows are appended when there are this many."""
_BATCH_BYTES = 4 << 20
"""A partition's buffered rows are appended before their data would exceed this size.

A search of the log also reads at most this many bytes of records by one request."""
_HEADERS_PER_REQUEST = 10_000
"""How many headers one request of a search reads at most."""
_SESSION_MS = 30_000
"""The timeout of a session with ZooKeeper, in milliseconds."""


@dataclass(frozen=True, slots=True)
class WriteTask:
    """One task of a write.

    `core.ledger` explains ``epoch`` and ``run``, and `LedgerStore` explains ``persistent``.
    ``task`` is the number of the Spark partition that the task appends.
    """

    write_id: str
    persistent: bool
    epoch: int
    run: str
    task: int


@dataclass(frozen=True, slots=True)
class WriteCounts:
    """The number of a task's rows, and how many of them this attempt appended."""

    rows: int
    appended: int


def client_options(location: ClusterLocation) -> ClientOptions:
    """Return the options of a client whose appends and answers take ``timeoutSeconds`` at most."""
    return ClientOptions(
        tls=location.tls,
        access=location.access,
        append_timeout=location.timeout_seconds,
        answer_timeout=location.timeout_seconds,
        max_in_flight=_BATCH_ROWS,  # All appends of a batch are in flight together.
    )


class WriterSession:
    """A session of this process with one cluster's ZooKeeper, which serves one task at a time.

    Spark's driver has such sessions, and each worker.
    """

    def __init__(self, location: ClusterLocation) -> None:
        """Connect. Raises ConnectFailed or BadCredentials."""
        self.location = location
        self._loop = asyncio.new_event_loop()
        try:
            self._store = self.run(
                KazooStore.connect(
                    location.zookeeper,
                    _SESSION_MS,
                    location.zookeeper_access,
                    connect_timeout_s=min(location.timeout_seconds, _SESSION_MS / 1000),
                )
            )
        except BaseException:
            self._loop.close()
            raise

    def run(self, work: Awaitable[T]) -> T:
        """Run the event loop until ``work`` is done; return its result."""

        async def wait() -> T:
            return await work

        return self._loop.run_until_complete(wait())

    def ledger(self, write_id: str, *, persistent: bool) -> LedgerStore:
        """Return the ledger of a write."""
        return LedgerStore(
            self._store,
            self.location.root,
            write_id,
            persistent=persistent,
            timeout_seconds=self.location.timeout_seconds,
        )

    def check_cluster(self) -> None:
        """Raise NoCluster if there is no cluster at the location."""
        self.run(Cluster(self._store, self.location.root).params())

    def write(self, task: WriteTask, columns: Columns, batches: Iterable[Any]) -> WriteCounts:
        """Append the missing rows of a task's Arrow batches.

        Raises RowRefused, EpochIsOver, WriteIsOver, LedgerFull, waltz.WaltzError.
        """
        with TaskAttempt(self, task, columns) as attempt:
            for batch in batches:
                attempt.add(batch)
            attempt.flush()
            return attempt.written

    async def open_client(self) -> Client:
        """Open a client with a new client id."""
        cluster = Cluster(self._store, self.location.root)
        return await Client.over(cluster, client_options(self.location))

    def close(self) -> None:
        """End the session."""
        try:
            self.run(self._store.close())
        finally:
            self._loop.close()


class TaskAttempt:
    """One attempt at a task. A ``with`` block opens its client, and closes it at the end."""

    def __init__(self, session: WriterSession, task: WriteTask, columns: Columns) -> None:
        self.written = WriteCounts(0, 0)
        """The counts so far, of the rows that were passed to `add`."""
        self._session = session
        self._task = task
        self._columns = columns
        self._ledger = session.ledger(task.write_id, persistent=task.persistent)
        self._locks: AttemptLocks
        """The locks of all appends of this attempt; they are known after the first `_join`."""
        self._missing_rows: dict[int, MissingRows] = {}
        """By partition, for the partitions in which this attempt is registered: see `_join`."""
        self._buffered: defaultdict[int, list[RowToAppend]] = defaultdict(list)
        """The rows to append, by partition."""
        self._sizes: defaultdict[int, int] = defaultdict(int)
        """The bytes of data in ``_buffered``, by partition."""

    def __enter__(self) -> TaskAttempt:
        self._client = self._session.run(self._session.open_client())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._session.run(self._client.close())

    def add(self, batch: Any) -> None:
        """Buffer the rows of an Arrow batch; append those of partitions with a full buffer."""
        rows = self._columns.rows(batch, self._task.task, self._client.num_partitions)
        for partition, row in rows:
            buffered = self._buffered[partition]
            size_with_row = self._sizes[partition] + len(row.data)
            if buffered and (size_with_row > _BATCH_BYTES or len(buffered) >= _BATCH_ROWS):
                self._session.run(self._append([partition]))
            # Not to ``buffered``: `_append` has removed that list.
            self._buffered[partition].append(row)
            self._sizes[partition] += len(row.data)
        self.written = WriteCounts(self.written.rows + batch.num_rows, self.written.appended)

    def flush(self) -> None:
        """Append all buffered rows."""
        self._session.run(self._append([p for p, rows in self._buffered.items() if rows]))

    async def _append(self, partitions: list[int]) -> None:
        """Append the missing rows among the buffered rows of ``partitions``; empty the buffers."""
        await self._join([p for p in partitions if p not in self._missing_rows])
        for partition in partitions:
            self._sizes.pop(partition)
        await asyncio.gather(*(self._append_rows(p, self._buffered.pop(p)) for p in partitions))

    async def _append_rows(self, partition: int, rows: list[RowToAppend]) -> None:
        """Append the missing ones of ``rows`` in batches that a server accepts.

        Each row has all locks of the attempt. If rows have ids, these include two locks for each
        earlier run of the epoch. So all rows together could have more locks than a server accepts.
        """
        locks = self._locks
        num_locks = len(locks.write_locks) + len(locks.read_locks) + len(locks.append_locks)
        for part in in_parts(rows, num_locks, MAX_LOCKS):
            await self._append_to(partition, part)

    async def _append_to(self, partition: int, rows: Sequence[RowToAppend]) -> None:
        """Append the missing ones of ``rows`` to a partition in which the attempt is registered.

        All rows have the attempt's locks. They do not refuse each other, because they are appended
        as one batch (`LogBulk.append`). If an append was refused, search the log, and append the
        rows that are still missing. Do the same after the outcome `Absent`: a fault has kept the
        append out of the log.
        """
        missing = self._missing_rows[partition]
        selected = missing.select(rows)
        while selected:
            drafts = [self._draft(row) for row in selected]
            outcomes = await self._client.bulk.append(partition, drafts, mark=missing.mark)
            appended: dict[int, RowToAppend] = {}
            not_appended: list[RowToAppend] = []
            for outcome, row in zip(outcomes, selected, strict=True):
                if isinstance(outcome, Appended):
                    appended[outcome.transaction_id] = row
                else:
                    not_appended.append(row)
            if appended:
                missing.appended(max(appended), appended.values())
                self.written = WriteCounts(self.written.rows, self.written.appended + len(appended))
            if not_appended:
                await self._catch_up(partition)
            selected = missing.select(not_appended)

    def _draft(self, row: RowToAppend) -> Draft[bytes]:
        """Return the draft of a row: with the attempt's locks and the row's own."""
        locks = self._locks
        return Draft(
            row.data,
            row.header,
            locks.write_locks,
            locks.read_locks,
            (*locks.append_locks, *row.locks),
        )

    async def _join(self, partitions: list[int]) -> None:
        """Register this attempt in the ledger, before its first append to each of ``partitions``.

        If the attempt appended earlier, the next attempt at the task could not find these rows, and
        would append them again. After the registration, find the rows that competing attempts have
        appended to these partitions.
        """
        if not partitions:
            return
        marks = await asyncio.gather(*map(self._client.high_water_mark, partitions))
        ledger = await self._register_attempt(dict(zip(partitions, marks, strict=True)))
        for partition in partitions:
            # Not from ``marks``: if an attempt joined this partition earlier in the epoch, the
            # ledger has an older mark. The rows of all attempts are after that mark.
            self._missing_rows[partition] = MissingRows(
                ledger.marks[partition], has_row_ids=self._columns.has_row_ids
            )
        self._locks = ledger.locks_of(self._client.client_id, has_row_ids=self._columns.has_row_ids)
        if self._competing_attempts(ledger):
            await asyncio.gather(*map(self._catch_up, partitions))

    async def _register_attempt(self, marks: Mapping[int, int]) -> Ledger:
        """Register this attempt, and return the ledger as it is now."""
        task = self._task
        joining = NewAttempt(task.epoch, task.run, task.task, self._client.client_id)
        return await self._ledger.join(joining, marks)

    async def _read_ledger(self) -> Ledger:
        """Return the ledger as it is now.

        This attempt is registered already, so nothing is written. Raises EpochIsOver, WriteIsOver.
        """
        return await self._register_attempt({})

    def _competing_attempts(self, ledger: Ledger) -> frozenset[int]:
        """Return the client ids of the attempts that may append the same rows."""
        return ledger.competing_attempts(
            self._client.client_id, has_row_ids=self._columns.has_row_ids
        )

    async def _catch_up(self, partition: int) -> None:
        """Find the rows that competing attempts have appended up to the log's present end.

        The search ends when it has reached the end that the log had when the search began. If a
        competing attempt appends a row later, the server refuses this attempt's append of the row.
        """
        missing = self._missing_rows[partition]
        end = None
        while end is None or missing.mark < end:
            first = missing.mark + 1
            page = await self._client.bulk.headers(
                partition, first, max_headers=_HEADERS_PER_REQUEST
            )
            if end is None:
                end = page.high_water_mark
            if not page.headers:
                return  # The log has no transaction after the mark.
            # The ledger is read after the headers. Every attempt registers before it appends, so
            # this ledger has all attempts whose rows are among the headers.
            competing = self._competing_attempts(await self._read_ledger())
            ids = [
                header.transaction_id
                for header in page.headers
                if header.req_id.client_id in competing
            ]
            found_fingerprints: list[bytes] = []
            for start, stop in _consecutive_ranges(ids):
                found_fingerprints += await read_fingerprints(self._client, partition, start, stop)
            missing.record_found(page.headers[-1].transaction_id, found_fingerprints)


async def read_fingerprints(client: Client, partition: int, first: int, stop: int) -> list[bytes]:
    """Read the rows with ids from ``first`` to before ``stop``; return their fingerprints.

    Raises LogEndsBefore, and the errors of `Client.bulk`.
    """
    found: list[bytes] = []
    while first < stop:
        page = await client.bulk.records(
            partition, first, max_records=stop - first, max_bytes=_BATCH_BYTES
        )
        if not page.records.count:
            raise LogEndsBefore(partition, first, page.high_water_mark)
        found += (fingerprint(record.header, record.data) for record in page.records)
        first += page.records.count
    return found


class SessionCache:
    """The sessions of one worker process, by cluster; the process runs one task at a time."""

    def __init__(self) -> None:
        self._open: dict[ClusterLocation, WriterSession] = {}

    def open(self, location: ClusterLocation) -> WriterSession:
        """Return the session with a cluster; it stays open from task to task."""
        session = self._open.get(location)
        if session is None:
            session = self._open[location] = WriterSession(location)
        return session

    def forget(self, location: ClusterLocation) -> None:
        """End the session with a cluster, so that `open` begins a new session."""
        session = self._open.pop(location, None)
        if session is not None:
            # The caller is about to raise the error of its task, which is the more important one.
            with suppress(Exception):
                session.close()


def _consecutive_ranges(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive ``ids``: the first id, and the id after the last."""
    first: int | None = None
    stop = 0
    for transaction_id in ids:
        if first is None:
            first = transaction_id
        elif transaction_id != stop:
            yield first, stop
            first = transaction_id
        stop = transaction_id + 1
    if first is not None:
        yield first, stop


SESSION_CACHE = SessionCache()
"""The cache of this process: Spark offers tasks no place to keep connections."""
