"""Interceptors: they see and change the chunks of a connection in memory. Touches nothing.

A chunk is the bytes of one call of the transport's ``write``. The dialing side is the client of a
connection, the listening side its server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Interceptor(Protocol):
    """Changes the chunks of one connection to a listener.

    Each chunk has whole frames, except the last chunk of a connection that is cut, and chunks that
    are torn (`MemoryNetwork.torn`). The methods are called on the event loop of the dialing side.
    """

    def to_listener(self, data: bytes) -> bytes:
        """Return what is sent in place of ``data``, which the dialing side has written."""

    def to_dialer(self, data: bytes) -> bytes:
        """Return what the dialing side gets in place of ``data``."""


@dataclass(frozen=True, slots=True)
class DialedConnection:
    """A connection as an `Interceptor` sees it."""

    dialer: str
    """The dialing host."""

    inject: Callable[[bytes], None]
    """Lets bytes arrive at the dialing side, as if the listening side had written them."""

    is_closed: Callable[[], bool]
    """Returns whether the dialing side has closed or lost the connection."""


NewInterceptor = Callable[[DialedConnection], Interceptor]
"""Makes the interceptor of a new connection."""


class Unchanged:
    """An interceptor that changes nothing."""

    def to_listener(self, data: bytes) -> bytes:
        """See Interceptor."""
        return data

    def to_dialer(self, data: bytes) -> bytes:
        """See Interceptor."""
        return data
