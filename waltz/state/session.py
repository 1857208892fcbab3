"""The session that an application gets while it applies: everything but ending it. SQL database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

from waltz.state.core.errors import NotYourTransaction


class ApplyingSession(Session):
    """Refuses what would end or leave the SQL transaction in which the mark is moved.

    Savepoints (`begin_nested`) are the application's own and are not refused.
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
        """Begin a savepoint. Raises NotYourTransaction if it is not to be ``nested``."""
        if not nested:
            raise NotYourTransaction("begin")
        return super().begin(nested=True)

    def finish(self) -> None:
        """Write to the connection what the application has left to be written."""
        self.flush()

    def discard(self) -> None:
        """Forget everything; the transaction of the connection is not touched."""
        super().close()


@contextlib.contextmanager
def uncommittable(connection: Connection) -> Iterator[None]:
    """Refuse to commit the connection's transaction, by whatever way, until the block ends.

    SQL text that says COMMIT is out of reach. A rollback is not refused, because a session does one
    by itself when a statement fails; the transaction is no longer active after it.
    """
    armed = True

    def refuse(_: Connection) -> None:
        if armed:
            raise NotYourTransaction("commit")

    # Nobody uses this connection object afterwards, so it need not be taken away.
    event.listen(connection, "commit", refuse)
    try:
        yield
    finally:
        armed = False
