"""Set the TCP options by which a connection notices a vanished peer. Touches one socket.

A peer whose machine or network fails sends nothing that ends its connections. Without these
options an idle connection stays open forever. A connection with unacknowledged data stays open
until TCP gives up, which takes about 15 minutes on Linux.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Protocol

DEAD_PEER_SECONDS = 120
"""A connection ends if its peer acknowledges nothing for this time.

Because of TCP_USER_TIMEOUT, a connection also ends if the peer's process is alive, but reads
nothing for this time. So this time must be longer than usual pauses of a process. A peer that loses
its connection in this way connects again and loses no records."""

IDLE_SECONDS = 60
"""TCP probes a connection on which nothing has arrived for this time."""

PROBE_SECONDS = 15
"""The interval of the probes."""

_MS_PER_SECOND = 1000

_OPTIONS = (
    ("TCP_KEEPIDLE", IDLE_SECONDS),
    # The name of TCP_KEEPIDLE on macOS.
    ("TCP_KEEPALIVE", IDLE_SECONDS),
    ("TCP_KEEPINTVL", PROBE_SECONDS),
    ("TCP_KEEPCNT", (DEAD_PEER_SECONDS - IDLE_SECONDS) // PROBE_SECONDS),
    ("TCP_USER_TIMEOUT", DEAD_PEER_SECONDS * _MS_PER_SECOND),
)
"""The options of the level TCP. Each platform lacks some of them."""


class OptionSocket(Protocol):
    """The one function of a socket that `set_keep_alive` needs."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """See `socket.socket.setsockopt`."""


def set_keep_alive(tcp_socket: OptionSocket) -> None:
    """Let TCP end the connection after `DEAD_PEER_SECONDS` without a sign of the peer."""
    # If the peer has already closed the connection, setting options may fail. That does no harm.
    with contextlib.suppress(OSError, ValueError):
        tcp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS:
            if hasattr(socket, name):
                tcp_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
