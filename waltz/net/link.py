"""A connection that is opened again whenever it is lost. Touches the event loop only.

The handler opens the connections: a client has a link to each server that it needs, a server has a
link to each storage.
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
    """The connection that a link opens; a link has one at a time."""

    def close(self) -> None:
        """Close; the loss may be reported to the link during the call."""


ConnectionT = TypeVar("ConnectionT", bound=Closable)
OpenedT = TypeVar("OpenedT", bound=Closable, covariant=True)


class LinkHandler(Protocol[OpenedT]):
    """The callbacks of a `ReconnectingLink`; every call comes from the event loop."""

    async def open(self) -> OpenedT:
        """Open a connection whose end is reported by `ReconnectingLink.lost`.

        Raises DialFailed or RemoteFailure, and leaves nothing open when it raises or is cancelled.
        """

    def up(self) -> None:
        """Use the connection: it is open. `down` follows when it is lost."""

    def down(self) -> None:
        """Stop using the connection: it is lost, and the link opens another one."""


class ReconnectingLink(Generic[ConnectionT]):
    """Opens a connection, waits until it is lost, and opens the next one after a backoff.

    The backoff is reset only by a connection that worked (`mark_useful`). A peer that accepts
    connections and drops them is therefore dialed less and less often:
    ``test_storage_that_accepts_and_drops_is_dialed_with_growing_delays``.

    ``name`` starts every log line; ``loss_level`` is the level of the line that reports the loss of
    a connection that worked. A problem is logged as a warning once; its repetitions are logged at
    the level debug.
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
        """The connection that is up."""
        self._name = name
        self._handler = handler
        self._backoff = backoff
        self._loss_level = loss_level
        self._loop = asyncio.get_running_loop()
        self._loss: asyncio.Future[str] = self._loop.create_future()
        self._useful = False
        self.task = self._loop.create_task(self._keep_connected())

    def mark_useful(self) -> None:
        """Reset the backoff, because the present connection works."""
        self._useful = True

    def lost(self, reason: str) -> None:
        """Report the end of the connection that `LinkHandler.open` opened or is opening."""
        if not self._loss.done():
            self._loss.set_result(reason)
        if self.connection is not None:
            self.connection = None
            self._handler.down()

    def stop(self) -> asyncio.Task[None]:
        """Close permanently without calling the handler; return the task, which then ends."""
        connection, self.connection = self.connection, None
        self.task.cancel()
        if connection is not None:
            connection.close()
        return self.task

    async def _keep_connected(self) -> None:
        failures, logged = 0, ""
        while True:
            self._useful, self._loss = False, self._loop.create_future()
            problem = await self._connect_once()
            if self._useful:
                failures, logged = 0, ""
            delay = self._backoff.delay(failures)
            level = self._loss_level if self._useful else logging.WARNING
            log.log(
                level if problem != logged else logging.DEBUG,
                "%s: %s; retrying in %g s, then after growing delays",
                self._name,
                problem,
                delay,
            )
            logged = problem
            await asyncio.sleep(delay)
            failures += 1

    async def _connect_once(self) -> str:
        """Open a connection and wait until it is lost; return why it is not open."""
        try:
            connection = await self._handler.open()
        except (DialFailed, RemoteFailure) as error:
            return str(error)
        # The connection may have ended between its opening and this task's turn.
        if not self._loss.done():
            log.info("%s: connected", self._name)
            self.connection = connection
            self._handler.up()
        return f"connection lost: {await self._loss}"
