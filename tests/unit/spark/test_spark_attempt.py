"""One attempt at a task, with a ledger in memory and a scripted log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pyarrow as pa
import pytest

from waltz.client import Appended, Client, Draft
from waltz.protocol.batches import MAX_LOCKS
from waltz.protocol.records import Record, RecordBatch, RecordHeader, ReqId, checksum
from waltz.spark import writer
from waltz.spark.core.ledger import NewAttempt
from waltz.spark.core.rows import Columns
from waltz.spark.ledger_store import LedgerStore
from waltz.spark.writer import WriterSession, WriteTask
from waltz.testing.zookeeper import MemoryZooKeeper

T = TypeVar("T")
TASK = WriteTask("write", True, 0, "run", 0)
OWN, ABANDONED, OTHER = 1, 2, 3
"""The client ids of attempts at the task."""


class Log:
    """A log of one partition; it is the client of the attempt, and the bulk interface of it."""

    num_partitions = 1
    client_id = OWN

    def __init__(self) -> None:
        self.bulk = self
        self.records_: list[Record] = []
        self.batches: list[int] = []
        """The size of each batch of appends."""
        self.before_headers: Callable[[], Awaitable[None]] | None = None

    def add(self, client: int, data: bytes) -> int:
        number = len(self.records_)
        req_id = ReqId(client, 0, 0, number)
        self.records_.append(Record(number, req_id, 0, data, checksum(data)))
        return number

    def data(self) -> list[bytes]:
        return [record.data for record in self.records_]

    async def high_water_mark(self, partition: int) -> int:
        return -1

    async def headers(self, partition: int, first: int, *, max_headers: int) -> Any:
        if self.before_headers is not None:
            await self.before_headers()
        found = [
            RecordHeader(r.transaction_id, r.req_id, r.header)
            for r in self.records_[first : first + max_headers]
        ]
        return SimpleNamespace(headers=found, high_water_mark=len(self.records_) - 1)

    async def records(self, partition: int, first: int, *, max_records: int, max_bytes: int) -> Any:
        found = RecordBatch.of(self.records_[first : first + max_records])
        return SimpleNamespace(records=found, high_water_mark=len(self.records_) - 1)

    async def append(
        self, partition: int, drafts: Sequence[Draft[bytes]], *, mark: int
    ) -> list[Appended]:
        self.batches.append(sum(len(draft.data) for draft in drafts))
        num_locks = sum(
            len((*draft.write_locks, *draft.read_locks, *draft.append_locks)) for draft in drafts
        )
        assert num_locks <= MAX_LOCKS, "a server refuses the batch"
        return [Appended(self.add(OWN, draft.data)) for draft in drafts]

    async def close(self) -> None:
        return


class Session(WriterSession):
    """A session whose client is a `Log`."""

    def __init__(self, log: Log) -> None:
        self._loop = asyncio.new_event_loop()
        self.log = log
        self.zookeeper = self.run(self._connect())

    async def _connect(self) -> Any:
        return MemoryZooKeeper().connect()

    def ledger(self, write_id: str, *, persistent: bool) -> LedgerStore:
        return LedgerStore(self.zookeeper, "", write_id, persistent=persistent, timeout_seconds=5.0)

    async def open_client(self) -> Client[Any]:
        return cast(Client[Any], self.log)

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(Log())
    yield session
    session.close()


def write(session: Session, rows: Sequence[bytes]) -> None:
    batch = pa.RecordBatch.from_pydict({"data": list(rows)})
    session.write(TASK, Columns(("data",)), [batch])


async def join(session: Session, client: int) -> None:
    ledger = session.ledger(TASK.write_id, persistent=True)
    await ledger.join(NewAttempt(TASK.epoch, TASK.run, TASK.task, client), {0: -1})


def test_rows_of_an_attempt_that_joins_during_the_search_are_found(session: Session) -> None:
    """An attempt registers before it appends: the ledger that is read later has all attempts."""
    session.run(join(session, ABANDONED))

    async def append_by_another_attempt() -> None:
        if not session.log.records_:
            await join(session, OTHER)
            session.log.add(OTHER, b"first")

    session.log.before_headers = append_by_another_attempt
    write(session, [b"first", b"second"])
    assert session.log.data() == [b"first", b"second"]


def test_rows_of_an_attempt_beyond_the_first_page_of_headers_are_found(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_HEADERS_PER_REQUEST", 2)
    rows = [b"a", b"b", b"c", b"d", b"e"]
    session.run(join(session, ABANDONED))
    for row in rows:
        session.log.add(ABANDONED, row)
    write(session, [*rows, b"f"])
    assert session.log.data() == [*rows, b"f"]


def test_batches_of_rows_with_many_locks_have_at_most_the_locks_that_a_server_accepts(
    session: Session,
) -> None:
    rows = [b"%04d" % n for n in range(2000)]
    locks = [{"name": "account", "id": n} for n in range(40)]
    batch = pa.RecordBatch.from_pydict({"data": rows, "locks": [locks] * len(rows)})
    session.write(TASK, Columns(("data", "locks")), [batch])
    assert session.log.data() == rows
    assert len(session.log.batches) > 1


def test_sixteenth_run_of_an_epoch_appends_the_rows_that_are_missing(session: Session) -> None:
    for run in range(16):
        session.run(
            session.ledger(TASK.write_id, persistent=True).join(
                NewAttempt(TASK.epoch, f"run {run}", TASK.task, 100 + run), {0: -1}
            )
        )
    rows = [b"%04d" % n for n in range(2000)]
    batch = pa.RecordBatch.from_pydict({"data": rows, "id": [str(n) for n in range(2000)]})
    session.write(TASK, Columns(("data", "id")), [batch])
    assert session.log.data() == rows


def test_batches_are_bounded_in_bytes(session: Session) -> None:
    rows = [bytes([n]) * (1 << 20) for n in range(10)]
    write(session, rows)
    assert session.log.data() == rows
    assert session.log.batches == [4 << 20, 4 << 20, 2 << 20]
