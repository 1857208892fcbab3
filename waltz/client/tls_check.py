"""Find out while a client is opened whether to use TLS. Touches sockets and ZooKeeper.

The client's settings say whether to use TLS, or otherwise what the servers have declared in
ZooKeeper (`with_tls_of_cluster`). Then servers are dialed, to check that they do the same
(`check_tls`).

Without this check, a client that uses TLS would wait in silence for servers that do not, or the
other way round: the links to servers retry without a limit, because a server may be down for a
while.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterable
from dataclasses import replace

from waltz.client.core.errors import ClusterUnreachable
from waltz.client.options import ClientOptions
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.membership_steps import Endpoint
from waltz.metadata.store import StoreError
from waltz.metadata.transport import tls_of_cluster
from waltz.net import (
    ConnectionLost,
    DialFailed,
    FrameHandler,
    TlsConfig,
    TlsMismatch,
    dial,
    join_address,
)
from waltz.protocol import CLIENT_SERVER

Name = Callable[[str, int], str]
"""Returns how the text of an error calls the server at a host and a port."""

_MOST_SECONDS = 3.0
"""How long the check may take. If no server has answered then, no mismatch is reported."""
_NEXT_SECONDS = 0.25
"""After this time without an answer, the next server is dialed, too.

Otherwise a server whose host drops packets would use all the time of the check. The servers are not
dialed all at once, because each of them would get a handshake from every client that is opened."""


class _IgnoreMessages(FrameHandler):
    """The handler of a connection that is closed after the handshake."""

    def received(self, bodies: list[bytes]) -> None:
        """Ignore messages."""

    def lost(self, reason: str) -> None:
        """Ignore the end: `FrameConnection.handshake` reports it."""


async def with_tls_of_cluster(cluster: Cluster, options: ClientOptions) -> ClientOptions:
    """Return the options with TLS settings: those of ``options``, or what the servers declared.

    Raises ClusterUnreachable if the declaration cannot be read or decoded.
    """
    try:
        return replace(options, tls=await tls_of_cluster(cluster, options.tls))
    except (MalformedMetadata, StoreError) as problem:
        raise ClusterUnreachable(str(problem)) from None


async def check_tls(servers: Iterable[Endpoint], tls: TlsConfig, name: Name = join_address) -> None:
    """Raise ClusterUnreachable if a server uses TLS and ``tls`` does not, or the other way round.

    Raise this error also if a server requires a certificate and ``tls`` has none. The first server
    that answers decides. Servers that cannot be reached say nothing about TLS.
    """
    checks: set[asyncio.Task[bool]] = set()
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            for endpoint in servers:
                checks.add(asyncio.create_task(_agrees(endpoint, tls, name)))
                if await _any_agrees(checks, _NEXT_SECONDS):
                    return
            while checks:
                if await _any_agrees(checks, seconds=None):
                    return
    except TimeoutError:
        return
    finally:
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)


async def _any_agrees(checks: set[asyncio.Task[bool]], seconds: float | None) -> bool:
    """Wait until one of ``checks`` ends, or ``seconds`` have passed (None: no limit).

    Removes the checks that have ended, and returns whether any of them returned true. Raises the
    ClusterUnreachable of a check.
    """
    ended, _ = await asyncio.wait(checks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    agreed = [check.result() for check in ended]
    checks.difference_update(ended)
    return any(agreed)


async def _agrees(endpoint: Endpoint, tls: TlsConfig, name: Name) -> bool:
    """Return whether a handshake with the server at ``endpoint`` succeeds.

    Raises ClusterUnreachable if it fails because of TLS: see `check_tls`.
    """
    host, port = endpoint
    try:
        connection = await dial(host, port, CLIENT_SERVER, _IgnoreMessages(), tls, _MOST_SECONDS)
        try:
            await connection.handshake()
        finally:
            connection.close()
    except TlsMismatch:
        raise ClusterUnreachable(
            f"server {name(host, port)} does not use TLS, and this client does: turn TLS "
            "off by tls=waltz.PLAINTEXT, WALTZ_TLS=off or --tls off, or turn it on at the server"
        ) from None
    except ConnectionLost:
        if not tls.enabled and await _speaks_tls(host, port):
            raise ClusterUnreachable(
                f"server {name(host, port)} uses TLS, and this client does not: turn TLS "
                "on by tls=waltz.TlsConfig(), WALTZ_TLS=on or --tls on"
            ) from None
        if tls.enabled and tls.certificate is None and await _requires_certificate(host, port):
            raise ClusterUnreachable(
                f"server {name(host, port)} requires a certificate of its CA, and this "
                "client has none: name certificate, key and ca, by tls=waltz.TlsConfig(...), or in "
                "a file by WALTZ_TLS or --tls"
            ) from None
        return False
    except DialFailed:
        return False
    return True


async def _speaks_tls(host: str, port: int) -> bool:
    """Whether the port uses TLS: it completes a TLS handshake, or ends it with an alert.

    A port that requires a certificate of its CA sends an alert, because this check shows none.
    """
    context = TlsConfig().dialing_context()
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    except ssl.SSLError as problem:
        return "ALERT" in (problem.reason or "")
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def _requires_certificate(host: str, port: int) -> bool:
    """Whether the port refuses a TLS handshake, because it requires a certificate.

    The handshake uses TLS 1.2: there the client waits until the server has verified the
    certificate, so the refusal ends its handshake with an error. With TLS 1.3, the handshake of the
    client is complete before that, and would succeed. If the server has stopped since the last
    connection, the new connection is refused: this OSError says nothing about certificates.
    """
    context = TlsConfig().dialing_context()
    assert context is not None
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    except (ConnectionResetError, ssl.SSLError):
        return True
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return False
