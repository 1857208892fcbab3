"""Find out which certificate a process of a cluster presents. Touches the network."""

from __future__ import annotations

import asyncio

from waltz.net import ConnectionLost, DialFailed, FrameHandler, TlsConfig, TlsConfigError, dial
from waltz.protocol import ProtocolSpec


class _IgnoreMessages(FrameHandler):
    """The handler of a connection that is closed after the handshake."""

    def received(self, bodies: list[bytes]) -> None:
        """Ignore messages."""

    def lost(self, reason: str) -> None:
        """Ignore the end: `FrameConnection.handshake` reports it."""


async def presented_serial(
    host: str, port: int, spec: ProtocolSpec, tls: TlsConfig, seconds: float
) -> int | None:
    """Return the serial number of the certificate that a process presents at ``host:port``.

    The result is None if the process does not accept a connection within ``seconds``, or does not
    present a certificate that ``tls`` verifies. A whole handshake is done, because a process logs
    a warning about a connection that ends before.
    """
    try:
        async with asyncio.timeout(seconds):
            connection = await dial(host, port, spec, _IgnoreMessages(), tls, seconds)
            try:
                await connection.handshake()
                certificate = connection.peer_certificate or {}
            finally:
                connection.close()
    except (ConnectionLost, DialFailed, TimeoutError, TlsConfigError):
        return None
    serial = certificate.get("serialNumber")
    return None if serial is None else int(serial, 16)
