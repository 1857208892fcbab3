"""An application whose state is in an SQL database. Clock, SQL database."""

from __future__ import annotations

import abc
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from sqlalchemy import Engine, MetaData
from sqlalchemy.engine import Connection
from sqlalchemy.engine import Transaction as SqlTransaction
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from waltz.client import Transaction
from waltz.client.core.values import DataT
from waltz.protocol.records import NO_TRANSACTION
from waltz.state.core.errors import MarkMismatch, NotYourTransaction
from waltz.state.core.retrying import BACKOFF, is_transient
from waltz.state.marks import Marks
from waltz.state.session import ApplyingSession, uncommittable
from waltz.sync.callbacks import Application

T = TypeVar("T")

PATIENCE_SECONDS = 60.0

log = logging.getLogger(__name__)


class StateStore(Application[DataT], abc.ABC):
    """Applies every transaction once to a database, by the method `apply`.

    Transient errors, such as a lost connection or a conflict, are retried with growing delays.
    After ``patience_seconds``, and at once for any other error, the exception is raised. A client
    with callbacks then reports it to `uncaught_exception` and applies the transaction again.

    Args:
        engine: An engine of SQLAlchemy, for any database.
        table: The table of marks, with one row per partition.
        schema: The schema of that table.
        isolation_level: The isolation level of each SQL transaction; None: that of the engine.
        patience_seconds: How long transient errors are retried.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = "waltz_marks",
        schema: str | None = None,
        isolation_level: str | None = "SERIALIZABLE",
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._engine = (
            engine.execution_options(isolation_level=isolation_level) if isolation_level else engine
        )
        self._metadata = MetaData(schema=schema)
        self._marks = Marks(table, self._metadata)
        self._patience_seconds = patience_seconds
        # SQLite has one writer at a time, and other writers poll until they time out. The threads
        # of this process therefore wait for this lock.
        self._turn: AbstractContextManager[object] = (
            threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()
        )

    @property
    def engine(self) -> Engine:
        """The engine, for reading. An SQL transaction sees data and marks that agree."""
        return self._engine

    @abc.abstractmethod
    def apply(self, session: Session, transaction: Transaction[DataT]) -> None:
        """Change the data by ``transaction``.

        ``session`` cannot be committed or rolled back: it is committed afterwards, together with
        the mark. This method may be called several times for one transaction; the changes of a
        failed call are undone. It must change nothing but the database.
        """

    def create_table(self) -> None:
        """Create the table of marks unless it exists."""
        self._with_patience(lambda: self._metadata.create_all(self._engine))

    def get_client_high_water_mark(self, partition: int) -> int:
        """Return the mark in the database; a partition without one gets the mark -1."""
        return self._with_patience(lambda: self._read_or_insert(partition))

    def apply_transaction(self, transaction: Transaction[DataT]) -> None:
        """Apply a transaction and move the mark, unless another process has done both.

        Raises MarkMismatch, NotYourTransaction, what `apply` raises, and errors of the database.
        """

        def apply_once() -> None:
            with self._turn:
                self._apply_once(transaction)

        self._with_patience(apply_once)

    def _read_or_insert(self, partition: int) -> int:
        with self._engine.begin() as connection:
            mark = self._marks.read(connection, partition)
        if mark is not None:
            return mark
        try:
            with self._engine.begin() as connection:
                self._marks.insert(connection, partition)
        except IntegrityError:
            # Another process has inserted the row in between.
            return self._read_or_insert(partition)
        return NO_TRANSACTION

    def _apply_once(self, transaction: Transaction[DataT]) -> None:
        with self._engine.connect() as connection, connection.begin() as sql_transaction:
            if self._marks.advance(connection, transaction.partition, transaction.id):
                try:
                    self._apply_in(connection, sql_transaction, transaction)
                finally:
                    if not sql_transaction.is_active:
                        # The transaction was ended in apply. Closing the connection drops what
                        # followed, so that nothing is committed without the mark.
                        connection.invalidate()
                return
            mark = self._marks.read(connection, transaction.partition)
        if mark is None or mark < transaction.id:
            found = NO_TRANSACTION if mark is None else mark
            raise MarkMismatch(transaction.partition, transaction.id, found)

    def _apply_in(
        self,
        connection: Connection,
        sql_transaction: SqlTransaction,
        transaction: Transaction[DataT],
    ) -> None:
        session = ApplyingSession(connection, join_transaction_mode="rollback_only")
        with uncommittable(connection):
            try:
                self.apply(session, transaction)
                if not sql_transaction.is_active:
                    raise NotYourTransaction("rollback")
                session.finish()
            finally:
                session.discard()

    def _with_patience(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, called again after transient errors."""
        for pause in BACKOFF.delays(self._patience_seconds):
            try:
                return work()
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("database error, retrying in %g s: %s", pause, error)
                time.sleep(pause)
        return work()
