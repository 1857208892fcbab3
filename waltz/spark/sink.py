"""The writers that Spark calls, for batches and streams. Touches the network and ZooKeeper.

`writer` appends the rows. A write has a *ledger* in ZooKeeper (`core.ledger`): the client ids of
all attempts at its tasks, by which an attempt finds the rows of the other attempts in the log. An
*epoch* is one micro-batch of a stream; a batch is epoch 0. A *run* is one execution of an epoch by
a driver.
"""

from __future__ import annotations

import logging
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

from waltz.spark.core.option_values import OptionError
from waltz.spark.core.rows import Columns
from waltz.spark.core.write_options import WriteOptions
from waltz.spark.log_reader import ClusterLocation
from waltz.spark.writer import SESSION_CACHE, WriteCounts, WriteTask

_QUERY_ID = "sql.streaming.queryId"
"""The property in which Spark passes the id of a streaming query to its tasks."""
_BATCH_ID = "streaming.sql.batchId"
"""The property in which Spark passes the number of the micro-batch to its tasks."""

log = logging.getLogger(__name__)


@dataclass
class WrittenMessage(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed
    """The result of a task, for the driver."""

    written: WriteCounts


class WaltzWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not typed
    """Writes a batch. Spark creates one object in the driver; every task has a copy of it."""

    def __init__(self, location: ClusterLocation, options: WriteOptions, columns: Columns) -> None:
        """Create the write's ledger before its first task runs.

        Without the option writeId, a task takes a missing ledger for the end of the write, and
        appends nothing (`ledger_store`). Raises waltz.WaltzError, NoCluster, ConnectFailed.
        """
        self._location = location
        self._columns = columns
        self._persistent = options.write_id is not None
        self._write_id = options.write_id or f"batch-{uuid.uuid4()}"
        self._run = str(uuid.uuid4())
        """The id of this run of the write: a restarted driver makes another run (`core.ledger`)."""
        session = SESSION_CACHE.open(location)
        session.check_cluster()
        session.run(self._ledger().create())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append one task's rows."""
        task = WriteTask(
            self._write_id,
            persistent=self._persistent,
            epoch=0,  # A batch is one epoch.
            run=self._run,
            task=_context().partitionId(),
        )
        return _write(self._location, task, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the write, whose rows are all in the log.

        An error is only logged. If this method raised it, Spark would report the write as failed,
        and who repeats the write would append all rows again.
        """
        try:
            self._end()
        except Exception as error:
            log.warning(
                "write %s: all rows are in the log, but its ledger could not be deleted from "
                "ZooKeeper (%s: %s); the ledger stays: delete the znode spark/%s below the root "
                "of the cluster",
                self._write_id,
                type(error).__name__,
                error,
                self._write_id,
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the write, which failed; its rows stay in the log."""
        self._end()

    def _end(self) -> None:
        """Delete the ledger of a write that cannot be repeated.

        Attempts that are still running fail with WriteIsOver when they need the ledger: before
        their first append to a partition, and after an append that was refused.
        """
        if not self._persistent:
            SESSION_CACHE.open(self._location).run(self._ledger().delete())

    def _ledger(self) -> Any:
        return SESSION_CACHE.open(self._location).ledger(
            self._write_id, persistent=self._persistent
        )


class WaltzStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not typed
    """Writes a stream. Spark creates one object in the driver; every task has a copy of it.

    The ledger of a stream is persistent (`ledger_store`): its first attempt creates the ledger.
    """

    def __init__(self, location: ClusterLocation, options: WriteOptions, columns: Columns) -> None:
        self._location = location
        self._columns = columns
        self._write_id = options.write_id
        self._run = str(uuid.uuid4())
        """The id of the run of each epoch that this object writes (`core.ledger`). A restarted
        driver makes another run."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append one task's rows of one micro-batch."""
        return _write(self._location, self.task(), self._columns, iterator)

    def task(self) -> WriteTask:
        """Return the task that this process is running."""
        context = _context()
        write_id = self._write_id or context.getLocalProperty(_QUERY_ID)
        epoch = context.getLocalProperty(_BATCH_ID)
        assert write_id is not None
        assert epoch is not None
        return WriteTask(
            write_id,
            persistent=True,
            epoch=int(epoch),
            run=self._run,
            task=context.partitionId(),
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the rows are in the log, and the ledger is kept for the next micro-batch."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: when Spark repeats the micro-batch, new attempts find the appended rows."""


def refuse_overwriting(overwrite: bool) -> None:
    """Raise OptionError if the write would overwrite: a log can only be appended to."""
    if overwrite:
        raise OptionError(
            "a log cannot be overwritten: use mode('append'), or outputMode('append') or 'update'"
        )


def _context() -> Any:
    """Return the context of the task that this process is running."""
    context = TaskContext.get()
    assert context is not None
    return context


def _write(
    location: ClusterLocation, task: WriteTask, columns: Columns, batches: Iterator[Any]
) -> WrittenMessage:
    """Append one task's rows. After any error, end the session: the next task opens a new one."""
    try:
        return WrittenMessage(SESSION_CACHE.open(location).write(task, columns, batches))
    except BaseException:
        SESSION_CACHE.forget(location)
        raise
