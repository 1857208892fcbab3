"""A client's link to one server: connects again until it is stopped. Touches the network."""

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
)
from waltz.protocol.client_server import Message

_BACKOFF = Backoff(0.1, 3.0)


class ServerLinkOwner(Protocol):
    """The callbacks of a `ServerLink`; every call comes from the event loop."""

    def up(self, link: ServerLink) -> None:
        """Use the link: messages can be sent."""

    def down(self, link: ServerLink) -> None:
        """Stop using the link: the connection is lost, and the link opens another one."""

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """Take message bodies. May raise MalformedMessage to close the connection."""


class ServerLink(FrameHandler):
    """The link to the server at ``endpoint``.

    It is the handler of its `FrameConnection`, of which there is one at a time. ``seqs`` numbers
    the connections: a server takes a mount only from one with a larger number than the last.
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
        # Every restart of a server loses connections, so the loss of a working one is no warning.
        # Appends and feeds report its consequences.
        self._link: ReconnectingLink[FrameConnection] = ReconnectingLink(
            "server {}:{}".format(*endpoint), self, _BACKOFF, loss_level=logging.DEBUG
        )

    @property
    def connected(self) -> bool:
        """Whether messages can be sent."""
        return self._link.connection is not None

    @property
    def version(self) -> int:
        """The protocol version agreed on; there must be a connection."""
        assert self._link.connection is not None
        return self._link.connection.version

    def send(self, messages: list[Message]) -> None:
        """Send ``messages``; without a connection they are dropped: the owner was called back."""
        connection = self._link.connection
        if connection is not None:
            version = connection.version
            for message in messages:
                connection.send(encode_message(message, version))

    def pause(self) -> None:
        """Stop reading."""
        if self._link.connection is not None:
            self._link.connection.pause_reading()

    def resume(self) -> None:
        """Continue reading."""
        if self._link.connection is not None:
            self._link.connection.resume_reading()

    def stop(self) -> asyncio.Task[None]:
        """Close permanently without calling the owner; return the task, which then ends."""
        return self._link.stop()

    async def open(self) -> FrameConnection:
        """See LinkHandler."""
        self.seq = next(self._seqs)
        connection = await self._dialer.dial(self.endpoint, self)
        try:
            await connection.handshake()
        except ConnectionLost as error:
            raise DialFailed(f"connection closed during the handshake: {error}") from error
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
        self._link.mark_useful()
        if self.connected:
            self._owner.received(self, bodies)

    def lost(self, reason: str) -> None:
        """See FrameHandler."""
        self._link.lost(reason)
