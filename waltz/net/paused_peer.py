"""Notice that the peer of a connection has left while the connection is not read. Touches sockets.

The end of a connection shows when it is read. A server does not read a client while a partition
has too many open appends, which without a quorum can take hours. Without this check, each client
that leaves meanwhile would keep its connection, and its place among those that a process accepts.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Protocol

CHECK_SECONDS = 1.0
"""How often the peer of a connection that is not read is checked."""

_PEER_CLOSED = getattr(select, "POLLRDHUP", 0)
"""The event of a peer that has closed its side, also if unread bytes precede the end.

Without this event, which only Linux has, a peer counts as gone after a reset."""


class Pollable(Protocol):
    """The one function of a socket that `has_left` needs."""

    def fileno(self) -> int:
        """See `socket.socket.fileno`."""


def has_left(peer_socket: Pollable) -> bool:
    """Return whether the peer has closed or reset the connection; reads nothing."""
    poll = select.poll()
    poll.register(peer_socket.fileno(), _PEER_CLOSED)
    return bool(poll.poll(0))


class PausedPeer:
    """Checks the peer of one connection while its transport is not read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, transport: asyncio.Transport, left: Callable[[], None]) -> None:
        """Check the peer of ``transport``, which is not read now, until it is read again.

        ``left`` is called if the peer has left; it closes the transport. The timer outlasts short
        pauses, which a busy server makes a hundred times in a second.
        """
        if self._timer is None and transport.get_extra_info("socket") is not None:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check, transport, left)

    def _check(self, transport: asyncio.Transport, left: Callable[[], None]) -> None:
        self._timer = None
        if transport.is_closing() or transport.is_reading():
            return
        if has_left(transport.get_extra_info("socket")):
            left()
        else:
            self.watch(transport, left)
