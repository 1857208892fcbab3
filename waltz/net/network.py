"""The network of a process: how it opens and accepts connections. Touches the network.

`TcpNetwork` is the network of every production process. `waltz.testing` has one in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from waltz.net.connection import FrameConnection, FrameHandler
from waltz.net.dialer import dial
from waltz.net.listener import Listener
from waltz.net.tls import TlsConfig
from waltz.protocol import ProtocolSpec

NewHandler = Callable[[], FrameHandler]
"""Makes the handler of one accepted connection."""


class ListeningPort(Protocol):
    """A port that accepts connections of one protocol."""

    port: int
    """The number of the port, after `start`."""

    def start(self, host: str | None, port: int) -> None:
        """Listen at ``host`` (None: all addresses); port 0 chooses a free one.

        Raises ListenFailed.
        """

    async def close(self) -> None:
        """Stop listening and close all accepted connections."""


class Network(Protocol):
    """How a process opens and accepts connections."""

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """Open a connection to ``host:port``; see `waltz.net.dialer.dial`. Raises DialFailed."""

    def listener(
        self, spec: ProtocolSpec, new_handler: NewHandler, tls: TlsConfig
    ) -> ListeningPort:
        """Return a port that does not listen yet. Raises TlsConfigError."""


class TcpNetwork:
    """TCP of the operating system, with TLS where it is configured."""

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """See Network."""
        return await dial(host, port, spec, handler, tls)

    def listener(
        self, spec: ProtocolSpec, new_handler: NewHandler, tls: TlsConfig
    ) -> ListeningPort:
        """See Network."""
        return Listener(spec, new_handler, tls)


TCP = TcpNetwork()


@dataclass(frozen=True, slots=True)
class Dialer:
    """How one process dials the peers of one protocol.

    ``spec`` has the protocol versions that it offers to them.
    """

    tls: TlsConfig
    spec: ProtocolSpec
    network: Network = TCP

    async def dial(self, endpoint: tuple[str, int], handler: FrameHandler) -> FrameConnection:
        """Open a connection to the host and port of ``endpoint``. Raises DialFailed."""
        return await self.network.dial(*endpoint, self.spec, handler, self.tls)
