"""Keep the newest connection on which each client has mounted a partition. Pure.

A client that reconnects may have two connections for a while. The server accepts its appends only
from the newest connection (spec/behaviour.md section 3). Otherwise an append from the buffers of
the older connection could get into the log after newer appends of the client, although the client
already regards that append as failed (section 8).
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer


@dataclass(frozen=True, slots=True)
class _Registration:
    """The newest connection of a client.

    ``generation`` and ``seq_num`` are those of the MountRequest that registered the connection. Of
    two mounts, the one with the higher pair (``generation``, ``seq_num``) is newer.
    """

    peer: Peer
    generation: int
    seq_num: int


class MountedClients:
    """The clients that have mounted one partition, by client id."""

    def __init__(self) -> None:
        self._clients: dict[int, _Registration] = {}

    def register(self, peer: Peer, mount: cs.MountRequest) -> bool:
        """Register ``peer`` for its client, unless another connection is newer or as new.

        Return whether ``peer`` is the client's connection now.
        """
        client_id, generation = mount.req_id.client_id, mount.req_id.generation
        known = self._clients.get(client_id)
        if (
            known is None
            or known.peer is peer
            or (generation, mount.seq_num) > (known.generation, known.seq_num)
        ):
            self._clients[client_id] = _Registration(peer, generation, mount.seq_num)
            return True
        return False

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
