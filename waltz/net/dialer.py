"""Open connections: resolve the name, connect, do the TLS handshake. Touches the network."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl

from waltz.net.connection import FrameConnection
from waltz.net.core.addresses import join_address
from waltz.net.frame_handler import FrameHandler
from waltz.net.sockets import connect_socket
from waltz.net.tls import TlsConfig
from waltz.protocol import ProtocolSpec


class DialFailed(ConnectionError):
    """A connection could not be opened. The text names the peer and the reason."""


class DialRefused(DialFailed):
    """The host refused the connection: no process listens on the port."""


class TlsMismatch(DialFailed):
    """This side uses TLS, and the peer seems to use plaintext."""


def split_address(address: str) -> tuple[str, int]:
    """Return the host and the port of ``address`` (``host:port``). Raises DialFailed.

    If the host is an IPv6 address in brackets, it is returned without the brackets.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not (port.isascii() and port.isdecimal() and len(port) <= 5):
        raise DialFailed(f"cannot reach {address!r}: it is not an address of the form host:port")
    return host, int(port)


def connect_problem(error: OSError) -> str:
    """Return why a connection could not be opened, from the exception that asyncio has raised."""
    # The number of a gaierror is not one of the operating system, but its text has the reason.
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    # asyncio's text for other errors repeats the address and omits the reason.
    return os.strerror(error.errno)


async def dial(
    host: str,
    port: int,
    spec: ProtocolSpec,
    handler: FrameHandler,
    tls: TlsConfig,
    timeout_seconds: float = 10.0,
) -> FrameConnection:
    """Open a connection to ``host:port``, at any of the host's addresses. Raises DialFailed.

    Also raises TlsConfigError if the TLS files cannot be used and were never loaded before.
    When this returns, the peer's Hello may not have arrived yet. Await `FrameConnection.handshake`
    before sending.
    """
    loop = asyncio.get_running_loop()
    address = join_address(host, port)
    context = tls.dialing_context()
    try:
        async with asyncio.timeout(timeout_seconds):
            tcp_socket = await connect_socket(host, port)
            _, connection = await loop.create_connection(
                lambda: FrameConnection(spec, handler, dialer=True),
                sock=tcp_socket,
                ssl=context,
                server_hostname=(tls.server_name or host) if context else None,
            )
    except TimeoutError as error:
        if error.errno is None:  # `asyncio.timeout` ended the attempt.
            reason = f"no answer within {timeout_seconds:g} s"
        else:  # The operating system ended the attempt, because its own time limit was shorter.
            reason = connect_problem(error)
        raise DialFailed(f"cannot reach {address}: {reason}") from error
    except ssl.SSLError as error:
        why = tls.explain(error, host)
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            raise TlsMismatch(
                f"TLS handshake with {address} failed: {why} (the peer seems to speak "
                "plaintext: turn TLS off on this side, or on at the peer)"
            ) from error
        raise DialFailed(f"TLS handshake with {address} failed: {why}") from error
    except OSError as error:
        error_class = DialRefused if error.errno == errno.ECONNREFUSED else DialFailed
        raise error_class(f"cannot reach {address}: {connect_problem(error)}") from error
    except (OverflowError, ValueError) as error:
        # The host is not a valid name, or the port is not a valid port number.
        raise DialFailed(f"cannot reach {host!r}:{port}: not an address: {error}") from error
    return connection
