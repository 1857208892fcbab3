"""Bound the connections of each client, and the bytes that it appends per second. Pure.

A connection beyond the limit of its client is refused. No append is refused: the caller stops
reading the connection of a client that appends too fast. TCP then makes the client wait, and its
mean rate falls to the limit. The caller passes the time ``now``, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.runtime.core.token_bucket import TokenBucket

BURST_SECONDS = 1.0
"""After a pause, a client may append at once what its rate allows in this many seconds."""

_CLIENTS_BEFORE_CLEANUP = 1000
"""If the state of this many clients or more is kept when a new client connects, `ClientQuotas`
forgets the idle clients, so that clients that never return do not fill the memory."""


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """The limits of each client; 0: no limit."""

    append_bytes_per_second: int = 0
    connections: int = 0

    @property
    def are_set(self) -> bool:
        """Whether there is a limit."""
        return bool(self.append_bytes_per_second or self.connections)


@dataclass(slots=True)
class _Client:
    """The state of one client: its ``bucket``, and the number of its open ``connections``.

    ``bucket`` is None if the rate has no limit.
    """

    bucket: TokenBucket | None
    connections: int = 0

    def is_idle(self, now: float) -> bool:
        """Return whether the client has no connection and could append as much as a new client."""
        return not self.connections and (self.bucket is None or self.bucket.is_full(now))


class ClientQuotas:
    """The connections and rates of all clients.

    The caller names each client by a text, such as the name in its certificate. The state of a
    client is kept after its last connection has ended, at least until its bucket is full. Otherwise
    a client could append faster by connecting again.
    """

    def __init__(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self._clients: dict[str, _Client] = {}

    def __len__(self) -> int:
        """Return the number of clients whose state is kept."""
        return len(self._clients)

    def enter(self, client: str, now: float) -> bool:
        """Count a new connection of ``client``, and return True.

        If the client has as many connections as the limit allows already, count nothing and return
        False: the caller must close the new connection.
        """
        if client not in self._clients:
            if len(self._clients) >= _CLIENTS_BEFORE_CLEANUP:
                self._forget_idle(now)
            self._clients[client] = _Client(self._new_bucket(now))
        state = self._clients[client]
        limit = self.limits.connections
        if limit and state.connections >= limit:
            return False
        state.connections += 1
        return True

    def leave(self, client: str) -> None:
        """Count the end of a connection for which `enter` has returned True."""
        state = self._clients[client]
        assert state.connections > 0, "more connections ended than began"
        state.connections -= 1

    def appended(self, client: str, size: int, now: float) -> float:
        """Count ``size`` bytes that a connected client has appended.

        Return for how many seconds the caller must not read the connection on which they arrived: 0
        if the client is within its rate.
        """
        bucket = self._clients[client].bucket
        if bucket is None:
            return 0.0
        bucket.take(size, now)
        return bucket.wait_seconds(now)

    def _new_bucket(self, now: float) -> TokenBucket | None:
        rate = self.limits.append_bytes_per_second
        return TokenBucket(rate, rate * BURST_SECONDS, now) if rate else None

    def _forget_idle(self, now: float) -> None:
        """Forget the clients whose state is that of a new client."""
        self._clients = {
            client: state for client, state in self._clients.items() if not state.is_idle(now)
        }
