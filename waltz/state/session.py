"""The database session that an application uses to apply a transaction. Touches the database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from waltz.state.core.errors import NotYourTransaction


class ApplyingSession(Session):
    """A session that refuses every call that would end its SQL transaction.

    The changes of the application and the move of the mark must be committed together. If the
    application committed its changes first, a crash before the commit of the mark would lead to a
    second application of the same transaction. Savepoints (`begin_nested`) are allowed.
    """

    def commit(self) -> NoReturn:
        """Raise NotYourTransaction."""
        raise NotYourTransaction("commit")

    def rollback(self) -> NoReturn:
        """Raise NotYourTransaction."""
        raise NotYourTransaction("rollback")

    def close(self) -> NoReturn:
        """Raise NotYourTransaction."""
        raise NotYourTransaction("close")

    def reset(self) -> NoReturn:
        """Raise NotYourTransaction."""
        raise NotYourTransaction("reset")

    def invalidate(self) -> NoReturn:
        """Raise NotYourTransaction."""
        raise NotYourTransaction("invalidate")

    def prepare(self) -> NoReturn:
        """Raise NotYourTransaction."""
        raise NotYourTransaction("prepare")

    def begin(self, nested: bool = False) -> Any:
        """Begin a savepoint if ``nested``, otherwise raise NotYourTransaction."""
        if not nested:
            raise NotYourTransaction("begin")
        return super().begin(nested=True)

    def discard(self) -> None:
        """Drop all objects of the session. The SQL transaction stays open.

        `StateStore` makes the session with the mode ``rollback_only``, in which `close` of the base
        class does not end the transaction of the connection.
        """
        super().close()


@contextlib.contextmanager
def uncommittable(connection: Connection) -> Iterator[None]:
    """Refuse every commit of the connection's SQL transaction until the block ends.

    The statement COMMIT, executed as a text, cannot be refused. A rollback is not refused either,
    because a session rolls back automatically when a statement fails. After a rollback the SQL
    transaction is not active any more: `StateStore` checks this when `apply` has returned.
    """
    is_in_block = True

    def refuse(_: Connection) -> None:
        if is_in_block:
            raise NotYourTransaction("commit")

    # The listener is never removed. After the block it refuses nothing, so `StateStore` can commit.
    # It is deleted together with the connection object.
    event.listen(connection, "commit", refuse)
    try:
        yield
    finally:
        is_in_block = False
