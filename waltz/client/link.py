"""The connection to one server: dialed, and dialed again, until it is stopped. Network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Protocol

from waltz.client.core.codec import encode_message
from waltz.metadata.core.membership_steps import Endpoint
from waltz.net import DialFailed, FrameConnection, FrameHandler, TlsConfig, dial
from waltz.protocol import ProtocolSpec
from waltz.protocol.client_server import Message

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.1
LAST_PAUSE_SECONDS = 3.0
"""Between failed attempts to connect; doubles from the first to the last."""

_HANDSHAKE_SECONDS = 10.0


class LinkOwner(Protocol):
    """Whom a `Link` tells; every call comes from the event loop."""

    def up(self, link: Link) -> None:
        """Messages can be sent."""

    def down(self, link: Link) -> None:
        """The connection is gone; another one is being sought."""

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """Message bodies have come. May raise MalformedMessage to close the connection."""


class Link(FrameHandler):
    """The connection to the server at ``endpoint``.

    It is the handler of its `FrameConnection`, of which there is one at a time. ``seqs`` numbers
    the connections: a server takes a mount only from one with a larger number than the last.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        owner: LinkOwner,
        tls: TlsConfig,
        spec: ProtocolSpec,
        seqs: Iterator[int],
    ) -> None:
        self.endpoint = endpoint
        self.seq = -1
        self._owner = owner
        self._tls = tls
        self._spec = spec
        self._seqs = seqs
        self._connection: FrameConnection | None = None
        self._dialed: FrameConnection | None = None
        self._ready: asyncio.Event = asyncio.Event()
        self._lost: asyncio.Event = asyncio.Event()
        self._useful = False
        self._reason = ""
        self._task = asyncio.get_running_loop().create_task(self._keep_up())

    @property
    def connected(self) -> bool:
        """Whether messages can be sent."""
        return self._connection is not None

    @property
    def version(self) -> int:
        """The protocol version agreed on; there must be a connection."""
        assert self._connection is not None
        return self._connection.version

    def send(self, messages: list[Message]) -> None:
        """Send ``messages``; without a connection they are dropped, and the owner knows it."""
        connection = self._connection
        if connection is not None:
            version = connection.version
            for message in messages:
                connection.send(encode_message(message, version))

    def pause(self) -> None:
        """Stop reading."""
        if self._connection is not None:
            self._connection.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._connection is not None:
            self._connection.resume_reading()

    def stop(self) -> asyncio.Task[None]:
        """Close for good, without telling the owner; return the task that then ends."""
        connection = self._connection or self._dialed
        self._connection = None
        self._task.cancel()
        if connection is not None:
            connection.close("no longer needed")
        return self._task

    def ready(self, connection: FrameConnection) -> None:
        """See FrameHandler."""
        self._connection = connection
        self._ready.set()
        self._owner.up(self)

    def received(self, bodies: list[bytes]) -> None:
        """See FrameHandler."""
        self._useful = True
        if self._connection is not None:
            self._owner.received(self, bodies)

    def lost(self, reason: str) -> None:
        """See FrameHandler."""
        self._reason = reason
        self._lost.set()
        if self._connection is not None:
            self._connection = None
            self._owner.down(self)

    async def _keep_up(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        said = ""
        while True:
            self._useful = False
            problem = await self._connect_once()
            if self._useful:
                pause = FIRST_PAUSE_SECONDS
            level = logging.WARNING if problem != said and not self._useful else logging.DEBUG
            log.log(level, "%s; trying again in %g s and after growing pauses", problem, pause)
            said = problem
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _connect_once(self) -> str:
        """Connect and wait until that is over; return why."""
        self._ready.clear()
        self._lost.clear()
        self.seq = next(self._seqs)
        try:
            self._dialed = await dial(*self.endpoint, self._spec, self, self._tls)
        except DialFailed as error:
            return str(error)
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await _first(self._ready, self._lost)
        except TimeoutError:
            self._dialed.abort(f"no Hello from {self._name} within {_HANDSHAKE_SECONDS:g} s")
        await self._lost.wait()
        self._dialed = None
        return f"{self._name} ended the connection: {self._reason}"

    @property
    def _name(self) -> str:
        return f"server {self.endpoint[0]}:{self.endpoint[1]}"


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of ``events`` is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
