"""Keep the newest connection on which each client has mounted a partition. Pure.

A client that reconnects may have two connections for a while. The server accepts its appends only
from the newest connection (spec/behaviour.md section 3). Otherwise an old append, which was still
in the buffers of the older connection, could get into the log after newer appends of the client.
The client would not expect that: it regards an append as failed when a newer one is committed
(section 8).

A mount or a flush waits, as a `Barrier`, for the appends before it. Clients repeat both while they
wait, so a repetition joins the barrier that waits already.
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
    mount_barrier: Barrier | None = None
    """The client's last mount; None once it is answered, or the client has appended after it."""
    flush_barrier: Barrier | None = None
    """The client's last flush; None once it is answered, or the client has appended or mounted
    after it."""


class MountedClients:
    """The clients that have mounted one partition, by client id."""

    def __init__(self) -> None:
        self._clients: dict[int, _Registration] = {}

    def register(self, peer: Peer, mount: cs.MountRequest) -> Barrier | None:
        """Register ``peer`` as the newest connection of the client that sent ``mount``.

        Return a new barrier for ``mount``, or None in two cases:

        * Another connection of the client is newer or as new. It stays registered, and ``mount``
          gets no answer.
        * An earlier mount on ``peer`` waits. Then ``mount`` replaces it in its barrier, because the
          client would ignore the answer to the earlier mount.

        While a partition has no session, a client repeats its mount every few seconds, perhaps for
        hours. The memory must not fill with its mounts
        (``test_mounts_that_are_repeated_on_one_connection_are_one_barrier``).
        """
        client_id, generation = mount.req_id.client_id, mount.req_id.generation
        waiting: Barrier | None = None
        known = self._clients.get(client_id)
        if known is not None and known.peer is peer:
            waiting = known.mount_barrier
        elif known is not None:
            is_newer = (generation, mount.seq_num) > (known.generation, known.seq_num)
            if not is_newer:
                return None
        if waiting is not None:
            waiting.request = mount
        barrier = waiting or Barrier(peer, mount)
        self._clients[client_id] = _Registration(peer, generation, mount.seq_num, barrier)
        return barrier if waiting is None else None

    def flush(self, peer: Peer, request: cs.FlushRequest) -> Barrier | None:
        """Return a new barrier for ``request``.

        Return None if an earlier flush of the client waits for the same appends of the client: then
        both are answered together. A client with an append in doubt repeats its flush every few
        seconds (``test_flushes_that_are_repeated_are_one_barrier_and_are_all_answered``).
        """
        client_id = request.req_id.client_id
        if not self.is_current(peer, client_id):
            # A connection that is not registered has no earlier flush here that this could join.
            return Barrier(peer, request)
        registered = self._clients[client_id]
        if registered.flush_barrier is not None:
            registered.flush_barrier.more_flushes += request.req_id.encode()
            return None
        registered.flush_barrier = barrier = Barrier(peer, request)
        return barrier

    def note_append(self, peer: Peer, client_id: int) -> bool:
        """Note that appends of a client have arrived on ``peer``; return `is_current`.

        If ``peer`` is current, the client's next mount or flush gets a new barrier, because it must
        wait for these appends, too.
        """
        if not self.is_current(peer, client_id):
            return False
        registered = self._clients[client_id]
        registered.mount_barrier = registered.flush_barrier = None
        return True

    def barrier_passed(self, barrier: Barrier) -> bool:
        """Note that ``barrier`` has passed; return `is_current` for its connection and client."""
        client_id = barrier.request.req_id.client_id
        if not self.is_current(barrier.peer, client_id):
            return False
        registered = self._clients[client_id]
        if registered.mount_barrier is barrier:
            registered.mount_barrier = None
        if registered.flush_barrier is barrier:
            registered.flush_barrier = None
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
