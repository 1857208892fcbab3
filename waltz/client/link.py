"""A client's link to one server, which connects again until it is stopped. Touches the network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

from waltz.client.core.codec import encode_message
from waltz.metadata.core.membership_steps import Endpoint
from waltz.net import (
    Backoff,
    ConnectionLost,
    Dialer,
    DialFailed,
    FrameConnection,
    FrameHandler,
    ReconnectingLink,
    join_address,
)
from waltz.protocol.client_server import Message

_BACKOFF = Backoff(0.1, 3.0)
"""The delays in seconds between attempts to connect."""


class ServerLinkOwner(Protocol):
    """The callbacks of a `ServerLink`, which calls them on the event loop's thread."""

    def up(self, link: ServerLink) -> None:
        """Use the link: it is connected now."""

    def down(self, link: ServerLink) -> None:
        """Stop using the link: its connection is lost. The link will open a new connection."""

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """Handle message bodies. If this raises MalformedMessage, the connection is closed."""


class ServerLink(FrameHandler):
    """The link to the server at ``endpoint``, with one connection at a time.

    A `ReconnectingLink` calls `open`, `up` and `down` (as a `waltz.net.link.LinkHandler`), and the
    present `FrameConnection` calls `received` and `lost`. ``seqs`` yields growing numbers for
    connections, and ``seq`` is the number of the last connection, -1 before the first one. A server
    accepts a mount only on the client's connection with the largest number.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        owner: ServerLinkOwner,
        dialer: Dialer,
        seqs: Iterator[int],
    ) -> None:
        self.endpoint = endpoint
        self.seq = -1
        self._owner = owner
        self._dialer = dialer
        self._seqs = seqs
        # The loss of a working connection is only logged for debugging, because every restart of a
        # server causes one. If the loss has consequences, appends and streams raise errors.
        self._link: ReconnectingLink[FrameConnection] = ReconnectingLink(
            f"server {join_address(*endpoint)}", self, _BACKOFF, loss_level=logging.DEBUG
        )

    @property
    def connected(self) -> bool:
        """Whether messages can be sent."""
        return self._link.connection is not None

    @property
    def problem(self) -> str:
        """Which server is not connected, and why; "" while connected and before a first failure."""
        why = self._link.problem
        return f"server {join_address(*self.endpoint)}: {why}" if why else ""

    @property
    def version(self) -> int:
        """The agreed protocol version. The link must be connected."""
        assert self._link.connection is not None
        return self._link.connection.version

    def send(self, messages: list[Message]) -> None:
        """Send ``messages``. Without a connection, drop them.

        After the next ``up``, the owner must send again those messages that it still needs.
        """
        connection = self._link.connection
        if connection is not None:
            version = connection.version
            for message in messages:
                connection.send(encode_message(message, version))

    def pause(self) -> None:
        """Stop reading from the present connection."""
        if self._link.connection is not None:
            self._link.connection.pause_reading()

    def resume(self) -> None:
        """Continue reading from the present connection."""
        if self._link.connection is not None:
            self._link.connection.resume_reading()

    def stop(self) -> asyncio.Task[None]:
        """Close permanently, without a call of the owner. The returned task waits for the end."""
        return self._link.stop()

    async def open(self) -> FrameConnection:
        """See LinkHandler."""
        self.seq = next(self._seqs)
        connection = await self._dialer.dial(self.endpoint, self)
        try:
            await connection.handshake()
        except ConnectionLost as error:
            raise DialFailed(
                f"connection{connection.outside_note} closed during the handshake: {error}"
            ) from error
        except asyncio.CancelledError:
            connection.close("no longer needed")
            raise
        return connection

    def up(self) -> None:
        """See LinkHandler."""
        self._owner.up(self)

    def down(self) -> None:
        """See LinkHandler."""
        self._owner.down(self)

    def received(self, bodies: list[bytes]) -> None:
        """See FrameHandler."""
        # The server works, so after a loss of this connection the delays begin small again.
        self._link.mark_useful()
        # The owner gets no messages before the call of its ``up``, and none after `stop`.
        if self.connected:
            self._owner.received(self, bodies)

    def lost(self, reason: str) -> None:
        """See FrameHandler."""
        self._link.lost(reason)
