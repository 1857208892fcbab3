"""Which errors of a database may pass by themselves, and how long to wait before. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

FIRST_PAUSE_SECONDS = 0.01
LAST_PAUSE_SECONDS = 10.0
"""Between attempts; doubles from the first to the last."""


def may_pass(error: BaseException) -> bool:
    """Whether doing the same again may succeed: a lost connection, a conflict, a busy database.

    What the statements themselves are to blame for does not pass: a constraint, a missing column.
    """
    if isinstance(error, PoolTimeout | OperationalError | InterfaceError | InternalError):
        return True
    return isinstance(error, DBAPIError) and error.connection_invalidated


def pauses(patience_seconds: float) -> Iterator[float]:
    """Yield the pauses before further attempts, in seconds, until they add up to the patience."""
    pause, waited = FIRST_PAUSE_SECONDS, 0.0
    while waited + pause <= patience_seconds:
        yield pause
        waited += pause
        pause = min(2 * pause, LAST_PAUSE_SECONDS)
