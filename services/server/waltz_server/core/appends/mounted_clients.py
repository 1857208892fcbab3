"""Keep the newest connection on which each client has mounted a partition. Pure.

A client that reconnects may have two connections for a while. The server accepts its appends only
from the newest connection (spec/behaviour.md section 3). Otherwise an append from the buffers of
the older connection could get into the log after newer appends of the client, although the client
already regards that append as failed (section 8).
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol import client_server as cs
from waltz_server.core.appends.barrier import Barrier
from waltz_server.core.peer import Peer


@dataclass(slots=True)
class _Registration:
    """The newest connection of a client.

    ``generation`` and ``seq_num`` are those of the MountRequest that registered the connection. Of
    two mounts, the one with the higher pair (``generation``, ``seq_num``) is newer.
    """

    peer: Peer
    generation: int
    seq_num: int
    waiting: Barrier | None = None
    """The client's last mount, if it is not answered yet, and no append of the client follows."""
    flush: Barrier | None = None
    """The client's last flush, if it is not answered yet, and no append or mount follows."""


class MountedClients:
    """The clients that have mounted one partition, by client id."""

    def __init__(self) -> None:
        self._clients: dict[int, _Registration] = {}

    def register(self, peer: Peer, mount: cs.MountRequest) -> Barrier | None:
        """Register ``peer`` for its client, unless another connection is newer or as new.

        Return the barrier that ``mount`` has to wait for. Return None if ``peer`` is not the
        client's connection now, or if an earlier mount on it waits: then ``mount`` replaces that
        mount, whose answer the client would ignore. While a partition has no session, a client
        mounts again every few seconds, for hours perhaps: the memory must not fill with its mounts
        (``test_mounts_that_are_repeated_on_one_connection_are_one_barrier``).
        """
        client_id, generation = mount.req_id.client_id, mount.req_id.generation
        known = self._clients.get(client_id)
        is_newer = known is None or (generation, mount.seq_num) > (known.generation, known.seq_num)
        if known is not None and known.peer is not peer and not is_newer:
            return None
        waiting = known.waiting if known is not None and known.peer is peer else None
        if waiting is not None:
            waiting.request = mount
        barrier = waiting or Barrier(peer, mount)
        self._clients[client_id] = _Registration(peer, generation, mount.seq_num, barrier)
        return barrier if waiting is None else None

    def flush(self, peer: Peer, request: cs.FlushRequest) -> Barrier | None:
        """Return the barrier that ``request`` has to wait for.

        Return None if an earlier flush of the client waits for the same appends of the client: then
        both are answered together. A client with an append in doubt repeats its flush every few
        seconds (``test_flushes_that_are_repeated_are_one_barrier_and_are_all_answered``).
        """
        client_id = request.req_id.client_id
        if not self.is_current(peer, client_id):
            return Barrier(peer, request)
        registered = self._clients[client_id]
        if registered.flush is not None:
            registered.flush.more += request.req_id.encode()
            return None
        registered.flush = barrier = Barrier(peer, request)
        return barrier

    def appends(self, peer: Peer, client_id: int) -> bool:
        """Return `is_current`; a later mount or flush of the client waits for its append."""
        if not self.is_current(peer, client_id):
            return False
        registered = self._clients[client_id]
        registered.waiting = registered.flush = None
        return True

    def waits_no_more(self, barrier: Barrier) -> bool:
        """Note that ``barrier`` has passed; return `is_current` for its connection and client."""
        client_id = barrier.request.req_id.client_id
        if not self.is_current(barrier.peer, client_id):
            return False
        registered = self._clients[client_id]
        if registered.waiting is barrier:
            registered.waiting = None
        if registered.flush is barrier:
            registered.flush = None
        return True

    def is_current(self, peer: Peer, client_id: int) -> bool:
        """Whether ``peer`` is the newest connection of the client."""
        registered = self._clients.get(client_id)
        return registered is not None and registered.peer is peer

    def lost(self, peer: Peer) -> None:
        """Remove the clients whose connection is ``peer``, because ``peer`` is closed."""
        self._clients = {
            client_id: registered
            for client_id, registered in self._clients.items()
            if registered.peer is not peer
        }
