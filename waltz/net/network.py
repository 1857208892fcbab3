"""The interface by which a process opens and accepts connections. Touches the network.

Every production process uses the implementation `TcpNetwork`. `waltz.testing` has an implementation
in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from waltz.net.accepted import AcceptedConnections
from waltz.net.connection import FrameConnection
from waltz.net.dialer import dial
from waltz.net.frame_handler import FrameHandler
from waltz.net.listener import Listener
from waltz.net.tls import TlsConfig
from waltz.protocol import ProtocolSpec

NewHandler = Callable[[], FrameHandler]
"""Returns a new handler for one accepted connection."""


class ListeningPort(Protocol):
    """A port that accepts connections of one protocol."""

    port: int
    """The number of the port, after `start`."""

    def start(self, host: str | None, port: int) -> None:
        """Listen at ``host`` (None: all addresses). Port 0 makes the system choose a port.

        Raises ListenFailed.
        """

    async def close(self) -> None:
        """Stop listening and close all accepted connections."""


class Network(Protocol):
    """Opens and accepts the connections of a process."""

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """Open a connection to ``host:port``. For the errors, see `waltz.net.dialer.dial`."""

    def listener(
        self,
        spec: ProtocolSpec,
        new_handler: NewHandler,
        tls: TlsConfig,
        accepted: AcceptedConnections | None = None,
    ) -> ListeningPort:
        """Return a port that does not listen until its ``start``. Raises TlsConfigError.

        ``accepted`` counts and bounds the connections; None: the default bounds.
        """


class TcpNetwork:
    """TCP of the operating system, with TLS if the settings enable it. Implements `Network`."""

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """See `Network.dial`."""
        return await dial(host, port, spec, handler, tls)

    def listener(
        self,
        spec: ProtocolSpec,
        new_handler: NewHandler,
        tls: TlsConfig,
        accepted: AcceptedConnections | None = None,
    ) -> ListeningPort:
        """See `Network.listener`."""
        return Listener(spec, new_handler, tls, accepted)


TCP = TcpNetwork()


@dataclass(frozen=True, slots=True)
class Dialer:
    """Opens the connections of one process to its peers of one protocol.

    ``spec`` has the protocol versions that the process offers.
    """

    tls: TlsConfig
    spec: ProtocolSpec
    network: Network = TCP

    async def dial(self, endpoint: tuple[str, int], handler: FrameHandler) -> FrameConnection:
        """Open a connection to the host and port of ``endpoint``; see `Network.dial`."""
        return await self.network.dial(*endpoint, self.spec, handler, self.tls)
