"""Find out which certificate a process of a cluster presents. Touches the network."""

from __future__ import annotations

import asyncio
import contextlib

from waltz.net import ConnectionLost, DialFailed, FrameHandler, TlsConfig, TlsConfigError, dial
from waltz.protocol import ProtocolSpec


class _IgnoreMessages(FrameHandler):
    """The handler of a connection that is closed after its handshake."""

    def received(self, bodies: list[bytes]) -> None:
        """Ignore messages."""

    def lost(self, reason: str) -> None:
        """Ignore the end: the certificate was presented before."""


async def presented_serial(
    host: str, port: int, spec: ProtocolSpec, tls: TlsConfig, seconds: float
) -> int | None:
    """Return the serial number of the certificate that a process presents at ``host:port``.

    The result is None in three cases: the process does not accept a connection within ``seconds``;
    it presents no certificate that ``tls`` verifies; the files of ``tls`` cannot be used.

    The TLS handshake shows the certificate. The handshake of the protocol ``spec`` follows, because
    a process may log a warning about a connection that ends before it. The second handshake may
    fail: a server beyond its quota of clients closes the connection. By then the certificate is
    known.
    """
    try:
        async with asyncio.timeout(seconds):
            connection = await dial(host, port, spec, _IgnoreMessages(), tls, seconds)
            try:
                certificate = connection.peer_certificate or {}
                with contextlib.suppress(ConnectionLost):
                    await connection.handshake()
            finally:
                connection.close()
    except (DialFailed, TimeoutError, TlsConfigError):
        return None
    serial = certificate.get("serialNumber")
    return None if serial is None else int(serial, 16)
