"""The session of an application while it applies a transaction. SQL database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from waltz.state.core.errors import NotYourTransaction


class ApplyingSession(Session):
    """Refuses every call that ends the SQL transaction in which the mark is moved.

    A commit by the application would separate its changes from the mark: after a crash in between
    the transaction would be applied twice. Savepoints (`begin_nested`) are allowed.
    """

    def commit(self) -> NoReturn:
        """Raises NotYourTransaction."""
        raise NotYourTransaction("commit")

    def rollback(self) -> NoReturn:
        """Raises NotYourTransaction."""
        raise NotYourTransaction("rollback")

    def close(self) -> NoReturn:
        """Raises NotYourTransaction."""
        raise NotYourTransaction("close")

    def reset(self) -> NoReturn:
        """Raises NotYourTransaction."""
        raise NotYourTransaction("reset")

    def invalidate(self) -> NoReturn:
        """Raises NotYourTransaction."""
        raise NotYourTransaction("invalidate")

    def prepare(self) -> NoReturn:
        """Raises NotYourTransaction."""
        raise NotYourTransaction("prepare")

    def begin(self, nested: bool = False) -> Any:
        """Begin a savepoint. Raises NotYourTransaction unless it is ``nested``."""
        if not nested:
            raise NotYourTransaction("begin")
        return super().begin(nested=True)

    def finish(self) -> None:
        """Write the changes of the application that were not written yet."""
        self.flush()

    def discard(self) -> None:
        """Drop all state; the SQL transaction of the connection is not affected."""
        super().close()


@contextlib.contextmanager
def uncommittable(connection: Connection) -> Iterator[None]:
    """Refuse every commit of the connection's transaction until the block ends.

    COMMIT as SQL text cannot be refused. A rollback is not refused, because a session rolls back
    automatically when a statement fails; the transaction is then no longer active.
    """
    armed = True

    def refuse(_: Connection) -> None:
        if armed:
            raise NotYourTransaction("commit")

    # This connection object is not used afterwards, so the listener need not be removed.
    event.listen(connection, "commit", refuse)
    try:
        yield
    finally:
        armed = False
