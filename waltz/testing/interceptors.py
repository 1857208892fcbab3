"""Interceptors: they see and change the chunks of a connection in memory. Touches nothing.

A chunk is the bytes of one call of the transport's ``write``. The *dialer* is the end of a
connection that has opened it, the *listener* is the other end. `append_faults` has an interceptor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Interceptor(Protocol):
    """Changes the chunks of one connection to a listener.

    A chunk has whole frames, with three exceptions: the last chunk of a connection that is cut,
    chunks that are torn (`MemoryNetwork.torn`), and the parts of a frame that was written in parts
    (`waltz.testing.frames`). The methods are called on the dialer's event loop.
    """

    def to_listener(self, data: bytes) -> bytes:
        """Return what is sent in place of ``data``, which the dialer has written."""

    def to_dialer(self, data: bytes) -> bytes:
        """Return what the dialer gets in place of ``data``."""


@dataclass(frozen=True, slots=True)
class DialedConnection:
    """A connection as an `Interceptor` sees it."""

    dialer: str
    """The dialing host."""

    inject: Callable[[bytes], None]
    """Lets bytes arrive at the dialer, as if the listener had written them."""

    is_closed: Callable[[], bool]
    """Returns whether the dialer has closed or lost the connection."""


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
