"""Keep the connections of clients that are not read for a while. Touches the event loop's clock.

A connection that is not read makes its client wait. There are three reasons: a partition to which
the client appends has too many open appends, the client has a long queue of reads, or the client
appends faster than its quota. A connection is paused only for reasons of its own. For example, a
partition without a quorum may have too many open appends for hours, and must not stop clients of
other partitions (``test_overloaded_partition_does_not_hold_connections_of_others``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from waltz.net import FrameConnection
from waltz_server.core.peer import Peer

_CHECK_SECONDS = 0.01
"""How often the server checks whether a connection that it does not read may be read again."""


class PausedConnections:
    """The connections of one server that are not read now.

    ``connections`` has all open connections of the server. ``is_overloaded`` says whether a
    partition of this server has too many open appends. It must be false for a partition that the
    server has released: otherwise the connections that were paused for it would stay paused.
    ``clock`` is the clock of `Peer.unread_until`.
    """

    def __init__(
        self,
        connections: Mapping[Peer, FrameConnection],
        is_overloaded: Callable[[int], bool],
        clock: Callable[[], float],
    ) -> None:
        self._connections = connections
        self._is_overloaded = is_overloaded
        self._clock = clock
        self._paused: dict[FrameConnection, set[int]] = {}
        """The paused connections, each with the overloaded partitions to which its client appended.

        The set is empty if the connection is paused only for the other reasons."""
        self._timer: asyncio.TimerHandle | None = None
        """The timer of the next `_check`, None if the last one left no connection paused."""

    def __contains__(self, connection: FrameConnection) -> bool:
        """Whether ``connection`` is paused."""
        return connection in self._paused

    def __len__(self) -> int:
        """Return the number of paused connections."""
        return len(self._paused)

    def pause(self, connection: FrameConnection, overloaded: int | None) -> None:
        """Stop reading from ``connection`` until `_check` finds no reason any more.

        ``overloaded`` is the partition that has too many open appends, None for another reason.
        """
        if connection not in self._paused:
            connection.pause_reading()
            self._paused[connection] = set()
        if overloaded is not None:
            self._paused[connection].add(overloaded)
        # Start only one timer. `_check` starts its timer again while any connection is paused, so a
        # second timer would never end, and all connections would be checked more often.
        if self._timer is None:
            self._check()

    def forget(self, connection: FrameConnection) -> None:
        """Remove a closed connection."""
        self._paused.pop(connection, None)

    def stop(self) -> None:
        """Resume no connection any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._paused.clear()

    def _check(self) -> None:
        """Resume the connections that have no reason any more; check the others again later."""
        now, paused = self._clock(), self._paused
        blocked = {
            connection
            for peer, connection in self._connections.items()
            if peer.has_long_queue or peer.unread_until > now
        }
        self._paused = {
            connection: partitions
            for connection, partitions in paused.items()
            if connection in blocked or any(map(self._is_overloaded, partitions))
        }
        self._timer = None
        if self._paused:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)
        resumed = [connection for connection in paused if connection not in self._paused]
        for connection in resumed:
            connection.resume_reading()
