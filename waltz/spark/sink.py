"""The sink as Spark drives it: batch and stream. Touches what `appending` touches."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from waltz.spark.appending import SESSIONS, WriteTask, Written
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.rows import Columns
from waltz.spark.core.write_options import WriteOptions
from waltz.spark.reading import Where

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class WrittenMessage(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed
    """What a task tells the driver."""

    written: Written


class WaltzWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed
    """A batch write: made where the query is planned, copied into every task."""

    def __init__(self, where: Where, options: WriteOptions, columns: Columns) -> None:
        """Begin the write. Raises waltz.WaltzError, NoCluster, ConnectFailed."""
        self._where = where
        self._columns = columns
        self._lasting = options.write_id is not None
        self._write_id = options.write_id or f"batch-{uuid.uuid4()}"
        self._run = str(uuid.uuid4())
        session = SESSIONS.at(where)
        session.check_cluster()
        session.run(self._ledger().create())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append one task's rows."""
        task = WriteTask(self._write_id, self._lasting, 0, self._run, _context().partitionId())
        return _write(self._where, task, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are in the log."""
        self._end()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Some rows may be in the log, and stay there; no task appends any more."""
        self._end()

    def _end(self) -> None:
        if not self._lasting:
            SESSIONS.at(self._where).run(self._ledger().delete())

    def _ledger(self) -> Any:
        return SESSIONS.at(self._where).ledger(self._write_id, lasting=self._lasting)


class WaltzStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed
    """The sink of a streaming query: copied into every task of every micro-batch."""

    def __init__(self, where: Where, options: WriteOptions, columns: Columns) -> None:
        self._where = where
        self._columns = columns
        self._write_id = options.write_id
        self._run = str(uuid.uuid4())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append one task's rows of one micro-batch."""
        return _write(self._where, self.task(), self._columns, iterator)

    def task(self) -> WriteTask:
        """Return the task that this process is at."""
        context = _context()
        write_id = self._write_id or context.getLocalProperty(_QUERY_ID)
        epoch = context.getLocalProperty(_BATCH_ID)
        assert write_id is not None
        assert epoch is not None
        return WriteTask(write_id, True, int(epoch), self._run, context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the rows are in the log, and the next epoch ends this one."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the micro-batch is tried again, and finds what is in the log."""


def refuse_overwriting(overwrite: bool) -> None:
    """Raise OptionError for what a log cannot do."""
    if overwrite:
        raise OptionError(
            "a log is only appended to: use mode('append'), or outputMode('append') or 'update'"
        )


def _context() -> Any:
    context = TaskContext.get()
    assert context is not None
    return context


def _write(
    where: Where, task: WriteTask, columns: Columns, batches: Iterator[Any]
) -> WrittenMessage:
    try:
        return WrittenMessage(SESSIONS.at(where).write(task, columns, batches))
    except BaseException:
        SESSIONS.forget(where)
        raise
