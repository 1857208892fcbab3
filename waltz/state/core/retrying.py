"""Which errors of a database are transient, and the delays between retries. Pure."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from waltz.net.core.backoff import Backoff

BACKOFF = Backoff(0.01, 10.0)
"""The delays between attempts, in seconds."""


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed: after a lost connection, a conflict, a busy database.

    An error in the statement itself, such as a violated constraint or a missing column, is not
    transient: every retry would fail in the same way.
    """
    if isinstance(error, PoolTimeout | OperationalError | InterfaceError | InternalError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated
