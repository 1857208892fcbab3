"""Which errors of a database may pass by themselves, and how long to wait before. Pure."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from waltz.net.core.backoff import Backoff

BACKOFF = Backoff(0.01, 10.0)
"""Between attempts."""


def may_pass(error: BaseException) -> bool:
    """Whether doing the same again may succeed: a lost connection, a conflict, a busy database.

    What the statements themselves are to blame for does not pass: a constraint, a missing column.
    """
    if isinstance(error, PoolTimeout | OperationalError | InterfaceError | InternalError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated
