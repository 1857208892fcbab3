"""Notice that the peer of a connection has left while the connection is not read. Touches sockets.

A process notices the end of a connection when it reads from the connection. A server does not read
from a client while a partition has too many open appends. If the partition has no quorum, that can
last for hours. Without this check, the connection of each client that leaves meanwhile would stay
open, and would count among the connections that the process accepts.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Protocol

CHECK_SECONDS = 1.0
"""How often the peer of a connection that is not read is checked."""

_PEER_CLOSED = getattr(select, "POLLRDHUP", 0)
"""The event of a peer that has closed its side, also if bytes before the end are still unread.

Only Linux has this event. On other systems, only a peer that has reset the connection is noticed:
`select.poll` always reports a reset."""


class Pollable(Protocol):
    """The one function of a socket that `has_left` needs."""

    def fileno(self) -> int:
        """See `socket.socket.fileno`."""


def has_left(peer_socket: Pollable) -> bool:
    """Return whether the peer has closed or reset the connection. This reads no bytes."""
    poll = select.poll()
    poll.register(peer_socket.fileno(), _PEER_CLOSED)
    return bool(poll.poll(0))


class PausedPeer:
    """Checks the peer of one connection while its transport is not read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, transport: asyncio.Transport, on_left: Callable[[], None]) -> None:
        """Check the peer of ``transport`` every second, until the transport is read again.

        The transport must not be read now. ``on_left`` is called if the peer has left, and must
        close the transport.

        The timer is not cancelled when reading resumes: a busy server pauses a hundred times in a
        second, and would cancel and start a timer each time. `_check` ends the checks when it finds
        that the transport is read.
        """
        if self._timer is None and transport.get_extra_info("socket") is not None:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check, transport, on_left)

    def _check(self, transport: asyncio.Transport, on_left: Callable[[], None]) -> None:
        self._timer = None
        if transport.is_closing() or transport.is_reading():
            return
        if has_left(transport.get_extra_info("socket")):
            on_left()
        else:
            self.watch(transport, on_left)
