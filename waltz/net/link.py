"""Keep a connection open: open it again whenever it is lost. Touches the event loop only.

A client has a link to each server that it needs, and a server has a link to each storage. The
link's handler opens the connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Generic, Protocol, TypeVar

from waltz.net.core.backoff import Backoff
from waltz.net.dialer import DialFailed
from waltz.net.rpc import RemoteFailure

log = logging.getLogger(__name__)


class Closable(Protocol):
    """A connection that a link holds open. A link has one connection at a time."""

    def close(self) -> None:
        """Close the connection, which may call `ReconnectingLink.lost` during this call."""


ConnectionT = TypeVar("ConnectionT", bound=Closable)
OpenedT = TypeVar("OpenedT", bound=Closable, covariant=True)


class LinkHandler(Protocol[OpenedT]):
    """The callbacks of a `ReconnectingLink`. The link calls them on the event loop's thread."""

    async def open(self) -> OpenedT:
        """Open a connection, which must call `ReconnectingLink.lost` when it ends.

        Raises DialFailed or RemoteFailure. When this method raises an exception or is cancelled, it
        leaves no connection open.
        """

    def up(self) -> None:
        """Use `ReconnectingLink.connection`: it is open now."""

    def down(self) -> None:
        """Stop using the connection: it is lost. The link will open another one."""


class ReconnectingLink(Generic[ConnectionT]):
    """Opens a connection, waits until it is lost, and opens the next one after a backoff.

    Only a connection for which `mark_useful` was called resets the backoff: an opened connection
    may still fail at once. So a peer that accepts connections and drops them is dialed less and
    less often (test_storage_that_accepts_and_drops_is_dialed_with_growing_delays).

    ``name`` starts every log line. ``loss_level`` is the log level for the loss of a useful
    connection. Other problems are logged as warnings. A problem with the same text as the problem
    before it is logged at the level debug.
    """

    def __init__(
        self,
        name: str,
        handler: LinkHandler[ConnectionT],
        backoff: Backoff,
        *,
        loss_level: int = logging.WARNING,
    ) -> None:
        self.connection: ConnectionT | None = None
        """The open connection, None while there is none."""
        self.problem = ""
        """Why there is no connection; "" while there is one, and before the first failure."""
        self._name = name
        self._handler = handler
        self._backoff = backoff
        self._loss_level = loss_level
        self._loop = asyncio.get_running_loop()
        self._loss: asyncio.Future[str] = self._loop.create_future()
        """Completed with the reason when the connection is lost; a new one for each connection."""
        self._useful = False
        """Whether `mark_useful` was called for the present connection."""
        self.task = self._loop.create_task(self._keep_connected())

    def mark_useful(self) -> None:
        """Reset the backoff when the present connection ends, because it has worked."""
        self._useful = True

    def lost(self, reason: str) -> None:
        """Notify the link that the connection of the last `LinkHandler.open` has ended."""
        if not self._loss.done():
            self._loss.set_result(reason)
        if self.connection is not None:
            self.connection = None
            self._handler.down()

    def stop(self) -> asyncio.Task[None]:
        """Close permanently, without a call of the handler; return the cancelled task."""
        # Without `self.connection`, `lost` does not call the handler.
        connection, self.connection = self.connection, None
        self.task.cancel()
        if connection is not None:
            connection.close()
        return self.task

    async def _keep_connected(self) -> None:
        """Connect again after each loss or failure, until the task is cancelled."""
        failures, last_problem = 0, ""
        while True:
            self._useful, self._loss = False, self._loop.create_future()
            self.problem = problem = await self._connect_once()
            if self._useful:
                failures, last_problem = 0, ""
            delay = self._backoff.delay(failures)
            level = self._loss_level if self._useful else logging.WARNING
            log.log(
                level if problem != last_problem else logging.DEBUG,
                "%s: %s; retrying in %g s, then after growing delays",
                self._name,
                problem,
                delay,
            )
            last_problem = problem
            await asyncio.sleep(delay)
            failures += 1

    async def _connect_once(self) -> str:
        """Open a connection and wait until it is lost. Return the reason of the failure or loss."""
        try:
            connection = await self._handler.open()
        except (DialFailed, RemoteFailure) as error:
            return str(error)
        # The connection may already have ended, between the end of `open` and this line.
        if not self._loss.done():
            log.info("%s: connected", self._name)
            self.connection, self.problem = connection, ""
            self._handler.up()
        return f"connection lost: {await self._loss}"
