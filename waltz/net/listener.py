"""Accept connections, and log why a connection fails. Touches the network.

A TLS listener looks at a peer's first byte before the TLS handshake. If the peer uses plaintext,
the log says so. A plaintext listener does not look at the first byte, because the frame decoder
recognises TLS.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from waltz.net.accepted import AcceptedConnections
from waltz.net.connection import FrameConnection
from waltz.net.core.addresses import join_address
from waltz.net.frame_handler import FrameHandler
from waltz.net.tls import TlsConfig
from waltz.protocol import ProtocolSpec

log = logging.getLogger(__name__)

_TLS_HANDSHAKE_SECONDS = 10.0
"""How long a peer may take to begin a TLS handshake, and again to finish it."""
_TLS_HANDSHAKE_TYPE = b"\x16"
"""The first byte of a TLS connection: the content type of a handshake record."""
_BACKLOG = 512
"""The most peers that wait until the process accepts them."""
_ACCEPT_PAUSE_SECONDS = 1.0
"""The pause after the system has failed to accept a connection.

Without it, the event loop would call `Listener._accept` again at once: the peer still waits."""


class ListenFailed(OSError):
    """The listener cannot bind its port. The text names the port, the reason and the remedy."""


class Listener:
    """A listening socket of one protocol, and its connections.

    ``new_handler`` makes a handler for each accepted connection. ``accepted`` counts and bounds the
    connections; None: the default bounds, for this port alone.
    """

    def __init__(
        self,
        spec: ProtocolSpec,
        new_handler: Callable[[], FrameHandler],
        tls: TlsConfig,
        accepted: AcceptedConnections | None = None,
    ) -> None:
        self.spec = spec
        self.port = 0
        """The number of the port, 0 before `start`."""
        self._new_handler = new_handler
        self._tls = tls
        self._accepted = accepted or AcceptedConnections()
        # Load the TLS files now, so that unusable files stop the start of the process. Otherwise
        # only the first connection would show the error.
        tls.listening_context()
        self._socket: socket.socket | None = None
        self._connections: set[FrameConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        """The tasks of `_open_connection`: each makes a connection of an accepted socket."""
        self._unconnected: set[socket.socket] = set()
        """The accepted sockets that have no `FrameConnection` yet."""

    def start(self, host: str | None, port: int) -> None:
        """Bind ``host`` (None: all addresses) and listen. Port 0 makes the system choose a port.

        Raises ListenFailed.
        """
        try:
            self._socket = _bind(host, port)
        except OSError as error:
            where = join_address(host or "*", port)
            advice = {
                errno.EADDRINUSE: "another process listens there: stop it or choose another port",
                errno.EACCES: "ports below 1024 need privileges: choose another port",
                errno.EADDRNOTAVAIL: "this machine has no such address: check *.bind.host",
            }.get(error.errno or 0, "check *.bind.host and the port")
            # `socket.create_server` puts the address into the text of its error once more.
            reason = (error.strerror or str(error)).partition(" (while attempting")[0]
            raise ListenFailed(
                f"cannot listen for {self.spec.name} connections on {where}: {reason}; {advice}"
            ) from error
        self.port = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    async def close(self) -> None:
        """Stop listening, and close all connections, also those that are being opened."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for connection in list(self._connections):
            connection.close("shutting down")

    def _accept(self, listening: socket.socket) -> None:
        """Accept one connection. The event loop calls this when a peer waits at ``listening``."""
        try:
            peer_socket, address = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # The peer has left, or the event loop calls this method again for it.
        except OSError as error:
            # Most likely the process has no free file handle. The peer waits in the backlog.
            log.error(
                "cannot accept %s connections: %s; retrying in %g s",
                self.spec.name,
                error,
                _ACCEPT_PAUSE_SECONDS,
            )
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume_accepting)
            return
        host, peer_port = address[:2]
        if not self._accepted.enter(self.spec.name, join_address(host, peer_port)):
            peer_socket.close()
            return
        peer_socket.setblocking(False)
        self._unconnected.add(peer_socket)
        task = asyncio.get_running_loop().create_task(self._open_connection(peer_socket))
        self._opening.add(task)
        task.add_done_callback(partial(self._opening_ended, peer_socket))

    def _resume_accepting(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)

    async def _open_connection(self, peer_socket: socket.socket) -> None:
        """Make a connection of an accepted socket; if that fails, close the socket and log why."""
        peer = "?"
        connection: FrameConnection | None = None

        def new_connection() -> FrameConnection:
            nonlocal connection
            connection = FrameConnection(
                self.spec,
                self._new_handler(),
                dialer=False,
                on_end=self._connection_ended,
                accepted=self._accepted,
            )
            self._connections.add(connection)
            self._unconnected.discard(peer_socket)
            return connection

        try:
            # For IPv6 the address also has a flow label and a scope.
            peer = join_address(*peer_socket.getpeername()[:2])
            context = self._tls.listening_context()
            if context is not None:
                await self._expect_tls(peer_socket)
            await asyncio.get_running_loop().connect_accepted_socket(
                new_connection,
                peer_socket,
                ssl=context,
                ssl_handshake_timeout=_TLS_HANDSHAKE_SECONDS if context else None,
            )
        except (OSError, ssl.SSLError) as error:
            # asyncio's exception has no text if the peer closed during the handshake.
            why = str(error) or "the peer ended the TLS handshake"
            log.warning("a %s connection from %s failed: %s; closing it", self.spec.name, peer, why)
            peer_socket.close()
            if connection is not None:
                # asyncio does not report a failed TLS handshake to the connection itself
                # (test_refused_peer_leaves_no_connection). The end calls `_connection_ended`,
                # which stops counting the connection.
                connection.abort(why)

    def _opening_ended(self, peer_socket: socket.socket, task: asyncio.Task[None]) -> None:
        """Close the socket of a cancelled task; stop counting a socket without a connection.

        `_open_connection` cannot do this: the coroutine of a task that is cancelled before its
        first step never runs.
        """
        self._opening.discard(task)
        if task.cancelled():
            # `close` has cancelled the task, and also ends the connection, if there is one already.
            peer_socket.close()
        if peer_socket in self._unconnected:
            self._unconnected.discard(peer_socket)
            self._accepted.leave()

    def _connection_ended(self, connection: FrameConnection) -> None:
        """Stop counting a connection that has ended."""
        self._connections.discard(connection)
        self._accepted.leave()

    async def _expect_tls(self, peer_socket: socket.socket) -> None:
        """Wait for the peer's first byte; raise OSError if it is not the first byte of TLS."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(peer_socket, readable.set)
        try:
            async with asyncio.timeout(_TLS_HANDSHAKE_SECONDS):
                await readable.wait()
        except TimeoutError:
            raise OSError(f"no TLS handshake within {_TLS_HANDSHAKE_SECONDS:g} s") from None
        finally:
            loop.remove_reader(peer_socket)
        first = peer_socket.recv(1, socket.MSG_PEEK)
        # If ``first`` is empty, the peer has closed the connection: the TLS handshake reports that.
        if first and first != _TLS_HANDSHAKE_TYPE:
            raise OSError("the peer speaks plaintext, but this listener is set to TLS")


def _bind(host: str | None, port: int) -> socket.socket:
    """Return a listening socket that does not block. Raises OSError.

    If ``host`` is None, the socket listens at all addresses of IPv4, and of IPv6 if the system can
    listen for both with one socket.
    """
    if host is None and socket.has_dualstack_ipv6():
        bound = socket.create_server(
            ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
        )
    else:
        family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
        bound = socket.create_server((host or "", port), family=family, backlog=_BACKLOG)
    bound.setblocking(False)
    return bound
