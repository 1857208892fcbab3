"""Define a connection of a client, of which a server only pauses and resumes the reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from waltz.net import FrameConnection
from waltz_server.core.peer import Peer
from waltz_server.shell.node import ServerNode


@dataclass(eq=False, slots=True)
class PausableConnection:
    """The server's end of a connection; ``peer`` is the client."""

    peer: Peer = field(default_factory=lambda: Peer(6))
    reading: bool = True
    resumed: int = 0
    """How often the reading was resumed."""

    @classmethod
    def to(cls, node: ServerNode) -> PausableConnection:
        """Return a new connection to a server, after its handshake."""
        connection = cls()
        node.connected(connection.peer, connection.frames)
        return connection

    @property
    def frames(self) -> FrameConnection:
        """This connection, with the type that the product expects."""
        return cast(FrameConnection, self)

    def pause_reading(self) -> None:
        """Called by the server."""
        self.reading = False

    def resume_reading(self) -> None:
        """Called by the server."""
        self.reading = True
        self.resumed += 1
