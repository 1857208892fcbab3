"""Decide which database errors are transient, and define the delays between retries. Pure."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from waltz.net.core.backoff import Backoff

BACKOFF = Backoff(0.01, 10.0)
"""The delays between attempts: from 10 ms to 10 s."""


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed.

    A lost connection, a conflict with another SQL transaction, and a busy database are transient.
    An error of the statement, such as a violated constraint or a missing column, is not: every
    retry would fail in the same way. But some drivers, such as that of SQLite, report a missing
    column as an OperationalError, as they report a busy database. Then it counts as transient.
    """
    if isinstance(error, PoolTimeout | OperationalError | InterfaceError | InternalError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated
