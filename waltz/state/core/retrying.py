"""Decide which database errors are transient, and define the delays between attempts. Pure."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from waltz.net.core.backoff import Backoff

BACKOFF = Backoff(0.01, 10.0)
"""The delays between attempts: from 10 ms to 10 s."""

_MYSQL_STATEMENT_ERRORS = (1054, 1146)
"""The codes of MySQL for an unknown column, and for a table that does not exist.

This is not a set: the first argument of a driver's error is searched in it, and may not be
hashable."""

_POSTGRESQL_ABORTED = "25P02"
"""The SQLSTATE of PostgreSQL for a statement in an SQL transaction that an error has aborted."""


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed.

    A lost connection, a conflict with another SQL transaction, and a busy database are transient.
    An error of the statement, such as a violated constraint or a missing column, is not: every
    retry would fail in the same way. Some drivers report both a busy database and a missing table
    or column as an OperationalError; `_is_statement_error` distinguishes the two. The error of
    `is_aborted` follows from an earlier error, which the application has caught.
    """
    if is_aborted(error):
        return False
    if isinstance(error, OperationalError) and _is_statement_error(error.orig):
        return False
    # InterfaceError and InternalError are errors of the driver and the database (PEP 249), not of
    # the statement.
    if isinstance(error, PoolTimeout | OperationalError | InterfaceError | InternalError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated


def is_aborted(error: BaseException) -> bool:
    """Return whether PostgreSQL refused a statement because an earlier one has failed.

    It refuses every statement until the end of the SQL transaction, which it then rolls back, also
    if the end is a COMMIT.
    """
    cause = error.orig if isinstance(error, InternalError) else None
    # The attribute of psycopg, and that of psycopg2.
    return _POSTGRESQL_ABORTED in (getattr(cause, "sqlstate", None), getattr(cause, "pgcode", None))


def _is_statement_error(cause: BaseException | None) -> bool:
    """Return whether a driver's OperationalError is an error of the statement.

    The driver of SQLite has the error code in an attribute of the error. The drivers of MySQL pass
    it as the first argument.
    """
    if isinstance(cause, sqlite3.OperationalError):
        return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    args = () if cause is None else cause.args
    return bool(args) and args[0] in _MYSQL_STATEMENT_ERRORS
