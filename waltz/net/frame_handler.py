"""The callbacks by which a connection passes on its messages and its end. Touches nothing.

Servers, storages and clients implement them: `waltz.net.rpc` is one example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from waltz.net.connection import FrameConnection


class FrameHandler(Protocol):
    """The callbacks of a `FrameConnection`. The connection calls them on the event loop's thread.

    A handler must define `received` and `lost`. It may inherit the others, which do nothing. A
    handler that awaits `FrameConnection.handshake` needs no `ready`. A handler that limits its
    requests in flight needs neither `congested` nor `writable`, because only a limited number of
    bytes can wait to be written.
    """

    def ready(self, connection: FrameConnection) -> None:
        """Use ``connection``: the handshake is done, its version is set, sending is allowed."""
        return

    def received(self, bodies: list[bytes]) -> None:
        """Handle the message bodies of one chunk.

        If this raises MalformedMessage, the connection is closed.
        """

    def lost(self, reason: str) -> None:
        """Stop using the connection: it is closed.

        This is called exactly once, even if `ready` was never called.
        """

    def congested(self) -> None:
        """Stop sending until `writable`: too many bytes wait to be written.

        This method must not send: it may be called between two parts of one frame. It may also be
        called during `FrameConnection.close`, which writes the queued frames before it calls
        `lost`.
        """
        return

    def writable(self) -> None:
        """Resume sending after `congested`: most of the waiting bytes have been written."""
        return


class EndedHandler(FrameHandler):
    """Replaces the handler of a connection that is lost. It is never called.

    A handler usually refers to its connection. If the lost connection still referred to its
    handler, only the garbage collector would free the two.
    """

    def received(self, bodies: list[bytes]) -> None:
        """See `FrameHandler`."""

    def lost(self, reason: str) -> None:
        """See `FrameHandler`."""
