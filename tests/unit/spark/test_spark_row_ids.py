"""Rows with ids, whose tasks differ from run to run, on a cluster of two partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from waltz.client import Client
from waltz.protocol.checksums import crc32
from waltz.spark.core.rows import Columns
from waltz.spark.ledger_store import LedgerStore
from waltz.spark.writer import WriterSession, WriteTask
from waltz.testing import InProcessCluster
from waltz.testing.zookeeper import MemoryZooKeeper

ROWS = range(20)


class Session(WriterSession):
    """A session with a cluster in this process, and with ledgers in memory."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.cluster = InProcessCluster(partitions=2)
        self.run(self.cluster.start())
        self.zookeeper = self.run(self._connect())

    async def _connect(self) -> Any:
        return MemoryZooKeeper().connect()

    def ledger(self, write_id: str, *, persistent: bool) -> LedgerStore:
        return LedgerStore(self.zookeeper, "", write_id, persistent=persistent, timeout_seconds=5.0)

    async def open_client(self) -> Client[Any]:
        return await self.cluster.connect().__aenter__()

    def close(self) -> None:
        self.run(self.cluster.close())
        self._loop.close()

    def data(self) -> list[bytes]:
        """Return the data of all transactions, those of partition 0 first."""
        return [each.data for partition in (0, 1) for each in self.cluster.transactions(partition)]


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


def batch_of(numbers: Sequence[int], columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return a row for each of ``numbers``, with those values of ``columns`` that they index."""
    return pa.RecordBatch.from_pydict(
        {
            "data": [b"row %d" % number for number in numbers],
            "id": pa.array(numbers, pa.int64()),
            **{name: column.take(pa.array(numbers)) for name, column in columns.items()},
        }
    )


def write(session: Session, run: str, task: int, batch: pa.RecordBatch) -> None:
    columns = Columns(tuple(batch.schema.names))
    session.write(WriteTask("write", True, 0, run, task), columns, [batch])


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"key": pa.array([None] * len(ROWS), pa.string())},
        {"key": pa.array([None, "a key"] * (len(ROWS) // 2), pa.string())},
        {"partition": pa.array([None] * len(ROWS), pa.int32())},
        {"partition": pa.array([None, 1] * (len(ROWS) // 2), pa.int32())},
    ],
    ids=["no column", "null keys", "some null keys", "null partitions", "some null partitions"],
)
def test_row_of_another_task_in_the_next_run_is_appended_once(
    session: Session, columns: Mapping[str, pa.Array]
) -> None:
    """The driver of the first run is killed before it commits."""
    first, last = ROWS[:10], ROWS[10:]
    write(session, "run 0", 0, batch_of(first, columns))
    write(session, "run 1", 0, batch_of(last, columns))
    write(session, "run 1", 1, batch_of(first, columns))
    assert sorted(session.data()) == sorted(b"row %d" % number for number in ROWS)


def test_rows_with_ids_are_distributed_over_all_partitions_by_their_content() -> None:
    batch = batch_of(ROWS, {})
    columns = Columns(("data", "id"))
    by_task = [
        [partition for partition, _ in columns.rows(batch, task, num_partitions=4)]
        for task in range(4)
    ]
    assert set(by_task[0]) == {0, 1, 2, 3}
    assert by_task == [by_task[0]] * 4


def test_rows_without_ids_and_keys_go_to_the_partition_of_their_task() -> None:
    batch = batch_of(ROWS, {})
    rows = Columns(("data",)).rows(batch, task=6, num_partitions=4)
    assert {partition for partition, _ in rows} == {2}


def test_rows_with_ids_and_keys_go_to_the_partition_of_their_key() -> None:
    batch = batch_of(ROWS, {"key": pa.array(["a key"] * len(ROWS))})
    rows = Columns(("data", "id", "key")).rows(batch, task=0, num_partitions=4)
    assert {partition for partition, _ in rows} == {crc32(b"a key") % 4}
