"""The base class of an application whose state is in an SQL database.

Touches the clock and the SQL database. A *mark* is the id of the last transaction of a partition
that the state contains; `waltz.state.marks` has the table of the marks.
"""

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
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from waltz.client import Transaction
from waltz.client.core.values import DataT
from waltz.protocol.records import NO_TRANSACTION
from waltz.state.core.errors import ROLLBACK, MarkMismatch, NotYourTransaction
from waltz.state.core.retrying import BACKOFF, is_aborted, is_transient
from waltz.state.marks import Marks
from waltz.state.session import ApplyingSession, uncommittable
from waltz.sync.callbacks import Application

T = TypeVar("T")

RETRY_SECONDS = 60.0
"""The default of ``retry_seconds``: how long transient errors are retried."""

log = logging.getLogger(__name__)


class StateStore(Application[DataT], abc.ABC):
    """Applies every transaction of the log once to a database. Subclasses define `apply`.

    After a transient error, such as a lost connection or a conflict, the work is repeated with
    growing delays for ``retry_seconds``; then the error is raised. Any other error is raised at
    once. The client with callbacks passes a raised error to `uncaught_exception` and applies the
    transaction again.

    Args:
        engine: An engine of SQLAlchemy, for any database.
        table: The name of the table of marks, which has one row per partition.
        schema: The schema of the table of marks; None: the default schema.
        isolation_level: The isolation level of each SQL transaction; None: that of the engine.
        retry_seconds: The time for which transient errors are retried.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = "waltz_marks",
        schema: str | None = None,
        isolation_level: str | None = "SERIALIZABLE",
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._engine = (
            engine.execution_options(isolation_level=isolation_level) if isolation_level else engine
        )
        self._metadata = MetaData(schema=schema)
        self._marks = Marks(table, self._metadata)
        self._retry_seconds = retry_seconds
        self._sleep: Callable[[float], None] = time.sleep
        # SQLite allows one writer at a time. Other writers poll the database and may time out. So
        # a lock lets the threads of this process apply transactions one after the other.
        self._sqlite_lock: AbstractContextManager[object] = (
            threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()
        )

    @property
    def engine(self) -> Engine:
        """The engine, for reads of the state. State and marks agree within one SQL transaction."""
        return self._engine

    @abc.abstractmethod
    def apply(self, session: Session, transaction: Transaction[DataT]) -> None:
        """Apply ``transaction`` to the data in the database.

        ``session`` refuses commit and rollback: its changes are committed after this method has
        returned, together with the mark. This method may be called several times for one
        transaction. Only the changes that a failed call made to the database are undone. So the
        method must change nothing but the database.
        """

    def create_table(self) -> None:
        """Create the table of marks if it does not exist."""
        self._retry_transient_errors(self._create_if_absent)

    def get_client_high_water_mark(self, partition: int) -> int:
        """Return the mark of ``partition``. If the table has none, insert the mark -1."""
        return self._retry_transient_errors(lambda: self._read_or_insert(partition))

    def apply_transaction(self, transaction: Transaction[DataT]) -> None:
        """Call `apply` and move the mark, unless another process has applied the transaction.

        Raises MarkMismatch, NotYourTransaction, RowCountUnknown, and errors of `apply` and of the
        database.
        """

        def apply_once() -> None:
            with self._sqlite_lock:
                self._apply_once(transaction)

        self._retry_transient_errors(apply_once)

    def _create_if_absent(self) -> None:
        """Create the table of marks, unless it exists or another process creates it meanwhile."""
        try:
            self._metadata.create_all(self._engine)
        except DBAPIError:
            # Another process may have created the table since `create_all` found none. A database
            # reports this by an error of its own kind, so the table is looked for once more.
            self._metadata.create_all(self._engine)

    def _read_or_insert(self, partition: int) -> int:
        """Return the mark of ``partition``; insert -1 if the table has none."""
        with self._engine.begin() as connection:
            mark = self._marks.read(connection, partition)
        if mark is not None:
            return mark
        try:
            with self._engine.begin() as connection:
                self._marks.insert(connection, partition)
        except IntegrityError:
            # Another process has inserted the row since it was read.
            return self._read_or_insert(partition)
        return NO_TRANSACTION

    def _apply_once(self, transaction: Transaction[DataT]) -> None:
        """Apply a transaction in one SQL transaction; do nothing if it was applied before.

        The mark is moved first. If another process applies the same transaction, it then waits or
        fails at the mark, before it changes any data. Raises MarkMismatch if the transaction is not
        the next one and was not applied before.
        """
        with self._engine.connect() as connection:
            with connection.begin() as sql_transaction:
                if self._marks.advance(connection, transaction.partition, transaction.id):
                    try:
                        self._apply_in_session(connection, sql_transaction, transaction)
                    finally:
                        if not sql_transaction.is_active:
                            # `apply` has ended the SQL transaction in which the mark was moved.
                            # What it changed afterwards would be committed without the mark.
                            # `invalidate` closes the connection, and the database rolls these
                            # changes back.
                            connection.invalidate()
                    return
                # A driver that counts wrong rows must not commit a mark without data.
                sql_transaction.rollback()
            mark = self._marks.read(connection, transaction.partition)
        if mark is None or mark < transaction.id:
            present = NO_TRANSACTION if mark is None else mark
            raise MarkMismatch(transaction.partition, transaction.id, present)

    def _apply_in_session(
        self,
        connection: Connection,
        sql_transaction: SqlTransaction,
        transaction: Transaction[DataT],
    ) -> None:
        """Call `apply` with a session that cannot commit ``sql_transaction``.

        Raises NotYourTransaction if the database has rolled ``sql_transaction`` back.
        """
        # In this mode, the end of the session leaves ``sql_transaction`` open. A rollback of the
        # session, such as that after a failed flush, also rolls back ``sql_transaction``.
        session = ApplyingSession(connection, join_transaction_mode="rollback_only")
        with uncommittable(connection):
            try:
                self.apply(session, transaction)
                if not sql_transaction.is_active:
                    raise NotYourTransaction(ROLLBACK)
                session.flush()
                # A database may have rolled back without the knowledge of SQLAlchemy: some do after
                # every failed statement, some after a deadlock. The move of the mark is then
                # undone, too, and PostgreSQL would answer a COMMIT without an error.
                if self._marks.read(connection, transaction.partition) != transaction.id:
                    raise NotYourTransaction(ROLLBACK)
            except DBAPIError as error:
                if is_aborted(error):
                    raise NotYourTransaction(ROLLBACK) from error
                raise
            finally:
                session.discard()

    def _retry_transient_errors(self, work: Callable[[], T]) -> T:
        """Call ``work`` and return its result. Call ``work`` again after a transient error.

        The delays between the calls take at most ``retry_seconds`` together. Any error of the last
        call is raised.
        """
        for pause in BACKOFF.delays(self._retry_seconds):
            try:
                return work()
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("database error, retrying in %g s: %s", pause, error)
                self._sleep(pause)
        return work()
