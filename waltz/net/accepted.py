"""Bound the connections that a port accepts, and the memory of incomplete and unread messages.

Any process that reaches a port can open connections and begin long messages. Without these bounds,
such a process could use up the file handles or the memory of the listening process. Touches the
event loop's clock and the log.
"""

from __future__ import annotations

import asyncio
import logging

from waltz.net.core.log_interval import LogInterval
from waltz.net.slow_readers import MAX_UNSENT_BYTES, SlowReaders
from waltz.protocol.frames import MAX_FRAME_BYTES

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 10_000
"""The default bound of the open connections."""

MAX_INCOMPLETE_BYTES = 2 * MAX_FRAME_BYTES
"""The default bound of the memory of incomplete messages: room for two of the longest messages."""


class AcceptedConnections:
    """The connections of one port, or of several ports that share the bounds."""

    def __init__(
        self,
        limit: int = MAX_CONNECTIONS,
        max_incomplete_bytes: int = MAX_INCOMPLETE_BYTES,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
    ) -> None:
        self.limit = limit
        """The most connections that may be open at the same time."""
        self.max_incomplete_bytes = max_incomplete_bytes
        """The most bytes of incomplete messages that the connections may hold together."""
        self.open = 0
        """The number of open connections."""
        self.refused = 0
        """The number of connections that were closed at once, because ``limit`` were open."""
        self.incomplete_bytes = 0
        """The number of bytes that have arrived of messages that are not complete."""
        self.slow_readers = SlowReaders(max_unsent_bytes)
        """Bounds the bytes that the peers of these connections have not read."""
        self._log_interval = LogInterval()

    def enter(self, protocol: str, peer: str) -> bool:
        """Count a new connection from ``peer`` (``host:port``); return whether it may stay open.

        The caller must close a connection that may not, and must not call `leave` for it.
        """
        if self.open < self.limit:
            self.open += 1
            return True
        self.refused += 1
        if self._log_interval.is_due(asyncio.get_running_loop().time()):
            log.warning(
                "refused a %s connection from %s: limit of %d open connections reached (%d "
                "refused so far); increase maxConnections if this load is expected",
                protocol,
                peer,
                self.open,
                self.refused,
            )
        return False

    def leave(self) -> None:
        """Count the end of a connection for which `enter` returned true."""
        assert self.open > 0, "more connections ended than began"
        self.open -= 1

    def change_incomplete_bytes(self, change: int) -> bool:
        """Add ``change``, which may be negative, to the bytes of incomplete messages.

        Return whether the sum is within ``max_incomplete_bytes``. If it is not, the caller closes
        the connection whose message has grown, and subtracts that connection's bytes.
        """
        self.incomplete_bytes += change
        assert self.incomplete_bytes >= 0, "more bytes were subtracted than added"
        return self.incomplete_bytes <= self.max_incomplete_bytes
