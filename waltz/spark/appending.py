"""Appends a task's rows, each once. Network and ZooKeeper.

Every attempt at a task has a client id of its own, which it notes in the write's ledger before it
appends anything. What other attempts have appended it finds in the log by their client ids, and
appends what is missing, under a lock that only attempts at the same rows take: `missing` says why
that is safe whoever else is still at work.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from waltz.client import Appended, Client, ClientOptions, Draft
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import KazooStore
from waltz.spark.core.ledger import Joining, Ledger
from waltz.spark.core.missing import Missing
from waltz.spark.core.rows import Columns, Row, fingerprint
from waltz.spark.ledger_store import LedgerStore
from waltz.spark.reading import Where

T = TypeVar("T")

_BATCH_ROWS = 2000
_BATCH_BYTES = 4 << 20
_HEADERS = 10_000
_SESSION_MS = 30_000


@dataclass(frozen=True, slots=True)
class WriteTask:
    """One task of a write. ``lasting``: the write's ledger outlives it; see `LedgerStore`."""

    write_id: str
    lasting: bool
    epoch: int
    run: str
    task: int


@dataclass(frozen=True, slots=True)
class Written:
    """How many rows a task had, and how many of them this attempt appended."""

    rows: int
    appended: int


class WriterSession:
    """A worker's session with one cluster's ZooKeeper, for one task after the other."""

    def __init__(self, where: Where) -> None:
        """Connect. Raises ConnectFailed."""
        self.where = where
        self._loop = asyncio.new_event_loop()
        self._store = self.run(
            KazooStore.connect(
                where.zookeeper,
                _SESSION_MS,
                connect_timeout_s=min(where.timeout_seconds, _SESSION_MS / 1000),
            )
        )

    def run(self, work: Awaitable[T]) -> T:
        """Return what ``work`` returns; the event loop runs only meanwhile."""

        async def wait() -> T:
            return await work

        return self._loop.run_until_complete(wait())

    def ledger(self, write_id: str, *, lasting: bool) -> LedgerStore:
        """Return the ledger of a write."""
        return LedgerStore(
            self._store,
            self.where.root,
            write_id,
            lasting=lasting,
            timeout_seconds=self.where.timeout_seconds,
        )

    def check_cluster(self) -> None:
        """Raise NoCluster if there is none."""
        self.run(Cluster(self._store, self.where.root).params())

    def write(self, task: WriteTask, columns: Columns, batches: Iterable[Any]) -> Written:
        """Append what is missing of a task's Arrow batches.

        Raises RowRefused, Superseded, WriteIsOver, waltz.WaltzError.
        """
        with Attempt(self, task, columns) as attempt:
            for batch in batches:
                attempt.add(batch)
            attempt.flush()
            return attempt.written

    async def client(self) -> Client:
        """Open a client with an id of its own."""
        seconds = self.where.timeout_seconds
        options = ClientOptions(
            tls=self.where.tls,
            append_timeout=seconds,
            answer_timeout=seconds,
            max_in_flight=_BATCH_ROWS,
        )
        return await Client.over(Cluster(self._store, self.where.root), options)

    def close(self) -> None:
        """End the session."""
        self.run(self._store.close())
        self._loop.close()


class Attempt:
    """One attempt at a task; to be entered with ``with``."""

    def __init__(self, session: WriterSession, task: WriteTask, columns: Columns) -> None:
        self.written = Written(0, 0)
        self._session = session
        self._task = task
        self._columns = columns
        self._ledger = session.ledger(task.write_id, lasting=task.lasting)
        self._partitions: dict[int, Missing] = {}
        self._waiting: defaultdict[int, list[Row]] = defaultdict(list)
        self._sizes: defaultdict[int, int] = defaultdict(int)

    def __enter__(self) -> Attempt:
        self._client = self._session.run(self._session.client())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._session.run(self._client.close())

    def add(self, batch: Any) -> None:
        """Take the rows of an Arrow batch; append those of partitions that have enough."""
        rows = self._columns.rows(batch, self._task.task, self._client.num_partitions)
        for partition, row in rows:
            waiting, size = self._waiting[partition], self._sizes[partition] + len(row.data)
            if waiting and (size > _BATCH_BYTES or len(waiting) >= _BATCH_ROWS):
                self._session.run(self._append([partition]))
            self._waiting[partition].append(row)
            self._sizes[partition] += len(row.data)
        self.written = Written(self.written.rows + batch.num_rows, self.written.appended)

    def flush(self) -> None:
        """Append whatever is left."""
        self._session.run(self._append([p for p, rows in self._waiting.items() if rows]))

    async def _append(self, partitions: list[int]) -> None:
        await self._join([p for p in partitions if p not in self._partitions])
        for partition in partitions:
            self._sizes.pop(partition)
        await asyncio.gather(*(self._append_to(p, self._waiting.pop(p)) for p in partitions))

    async def _append_to(self, partition: int, rows: list[Row]) -> None:
        missing = self._partitions[partition]
        left = missing.of(rows)
        while left:
            drafts = [self._draft(row) for row in left]
            outcomes = await self._client.bulk.append(partition, drafts, mark=missing.mark)
            done = [
                (outcome.transaction_id, row)
                for outcome, row in zip(outcomes, left, strict=True)
                if isinstance(outcome, Appended)
            ]
            if done:
                missing.appended(max(last for last, _ in done), (row for _, row in done))
                self.written = Written(self.written.rows, self.written.appended + len(done))
            refused = [
                row
                for outcome, row in zip(outcomes, left, strict=True)
                if not isinstance(outcome, Appended)
            ]
            if refused:
                await self._catch_up(partition)
            left = missing.of(refused)

    def _draft(self, row: Row) -> Draft[bytes]:
        fence = self._fence
        return Draft(
            row.data,
            row.header,
            fence.write_locks,
            fence.read_locks,
            (*fence.append_locks, *row.locks),
        )

    async def _join(self, partitions: list[int]) -> None:
        """Note this attempt in the ledger, before its first append to each of ``partitions``."""
        if not partitions:
            return
        marks = await asyncio.gather(*map(self._client.high_water_mark, partitions))
        ledger = await self._noted(dict(zip(partitions, marks, strict=True)))
        for partition in partitions:
            self._partitions[partition] = Missing(
                ledger.marks[partition], stable=self._columns.stable
            )
        self._fence = ledger.fence(self._client.client_id, stable=self._columns.stable)
        if self._others(ledger):
            await asyncio.gather(*map(self._catch_up, partitions))

    async def _noted(self, marks: Mapping[int, int]) -> Ledger:
        task = self._task
        joining = Joining(task.epoch, task.run, task.task, self._client.client_id)
        return await self._ledger.join(joining, marks)

    def _others(self, ledger: Ledger) -> frozenset[int]:
        return ledger.others(self._client.client_id, stable=self._columns.stable)

    async def _catch_up(self, partition: int) -> None:
        """Take in what other attempts have appended, up to the log's present end."""
        missing = self._partitions[partition]
        end = None
        while end is None or missing.mark < end:
            first = missing.mark + 1
            page = await self._client.bulk.headers(partition, first, max_headers=_HEADERS)
            end = page.high_water_mark if end is None else end
            if not page.headers:
                return
            # Read after the headers: an attempt is noted before it appends.
            others = self._others(await self._noted({}))
            ids = [h.transaction_id for h in page.headers if h.req_id.client_id in others]
            found: list[bytes] = []
            for start, stop in _runs(ids):
                found += await self._fingerprints(partition, start, stop)
            missing.take_in(page.headers[-1].transaction_id, found)

    async def _fingerprints(self, partition: int, first: int, stop: int) -> list[bytes]:
        found: list[bytes] = []
        while first < stop:
            part = await self._client.bulk.records(
                partition, first, max_records=stop - first, max_bytes=_BATCH_BYTES
            )
            found += (fingerprint(record.header, record.data) for record in part.records)
            first += part.records.count
        return found


class WriterSessions:
    """The sessions of a worker process, by cluster."""

    def __init__(self) -> None:
        self._open: dict[Where, WriterSession] = {}

    def at(self, where: Where) -> WriterSession:
        """Return the session with a cluster, still open from the task before."""
        session = self._open.get(where)
        if session is None:
            session = self._open[where] = WriterSession(where)
        return session

    def forget(self, where: Where) -> None:
        """End the session with a cluster: something went wrong, and the next begins anew."""
        session = self._open.pop(where, None)
        if session is not None:
            with suppress(Exception):
                session.close()


def _runs(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield first id and successor of the last one for each run of consecutive ``ids``."""
    first = stop = None
    for each in ids:
        if first is not None and each != stop:
            assert stop is not None
            yield first, stop
            first = None
        if first is None:
            first = each
        stop = each + 1
    if first is not None:
        assert stop is not None
        yield first, stop


SESSIONS = WriterSessions()
"""Of this process: Spark gives its workers one task after the other, and nothing to keep."""
