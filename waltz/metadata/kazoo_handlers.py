"""The threads and sockets of kazoo, with shorter waits and with TLS by this project's settings.

Touches the network from kazoo's threads.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from waltz.net.tls import TlsConfig

_WAITS_PER_SESSION = 4
"""The longest wait for one server of ZooKeeper is the session timeout divided by this number.

So kazoo can try other servers before the session expires."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is not typed
    """The threads and sockets of kazoo, which waits for a server at most `_longest_wait_s`.

    By itself, kazoo waits for a connection, and for the answer to its first request, as long as the
    whole session timeout. A host that is down does not refuse a connection, and a ZooKeeper that is
    starting may accept a connection and never answer. After one such attempt, the session would
    have expired.
    """

    def __init__(self, session_timeout_s: float) -> None:
        super().__init__()
        self._longest_wait_s = session_timeout_s / _WAITS_PER_SESSION

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **options: Any
    ) -> socket.socket:
        """Connect to ``address`` by plain TCP. Raises OSError, or kazoo's error for a timeout."""
        connection: socket.socket = super().create_connection(
            address, hostname, self._bounded(timeout), **options
        )
        return connection

    def select(
        self,
        readable: Sequence[Any],
        writable: Sequence[Any],
        failed: Sequence[Any],
        timeout: float,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the ready sockets; three empty lists if none is ready in time.

        kazoo waits for every answer by this method, so also for the answer to its first request.
        """
        ready: tuple[list[Any], list[Any], list[Any]] = super().select(
            readable, writable, failed, self._bounded(timeout)
        )
        return ready

    def _bounded(self, timeout: float) -> float:
        return min(timeout, self._longest_wait_s)


class TlsHandler(Handler):
    """The threads and sockets of kazoo, with TLS connections by the settings in ``tls``.

    kazoo's own TLS accepts certificates of the system's public authorities, not only those of the
    CA. It verifies a certificate only for the host in the connect string, not for the server name
    of the settings. It does not tell why a handshake failed: here ``problem`` has the reason, for
    the error of `KazooStore.connect`.
    """

    def __init__(self, session_timeout_s: float, tls: TlsConfig) -> None:
        super().__init__(session_timeout_s)
        self._tls = tls
        self.problem = ""
        """The reason of the last failed TLS handshake, "" if none has failed."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: Any
    ) -> ssl.SSLSocket:
        """Connect to ``address`` by TLS. Raises OSError.

        The certificate must be valid for the server name in the settings; without this setting, for
        ``hostname``.
        """
        context = self._tls.dialing_context()
        assert context is not None, "the handler is for TLS"
        plain = socket.create_connection(address, self._bounded(timeout))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = self._tls.server_name or hostname
            return context.wrap_socket(plain, server_hostname=name)
        except OSError as error:
            plain.close()
            # Keep only the errors of TLS, for which there is a remedy. Others may be temporary.
            if isinstance(error, ssl.SSLError):
                self.problem = self._tls.explain(error, hostname)
            raise
