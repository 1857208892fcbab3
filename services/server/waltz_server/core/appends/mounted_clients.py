"""Which connection each client of a partition has mounted on: the newest one. Pure.

A client that reconnects may have two connections for a while. Only the newest may append for it
(spec/behaviour.md section 8): an append that was still in the older one's buffers would otherwise
get into the log behind the client's newer appends, and the client takes it for failed by then.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer


@dataclass(frozen=True, slots=True)
class _Registration:
    peer: Peer
    generation: int
    seq_num: int


class MountedClients:
    """The mounted clients of one partition, by client id."""

    def __init__(self) -> None:
        self._clients: dict[int, _Registration] = {}

    def register(self, peer: Peer, mount: cs.MountRequest) -> bool:
        """Register ``peer`` for a client, unless a newer connection is; returns if it now is."""
        req_id = mount.req_id
        known = self._clients.get(req_id.client_id)
        if (
            known is None
            or known.peer is peer
            or req_id.generation > known.generation
            or (req_id.generation == known.generation and mount.seq_num > known.seq_num)
        ):
            self._clients[req_id.client_id] = _Registration(peer, req_id.generation, mount.seq_num)
            return True
        return False

    def is_current(self, peer: Peer, client_id: int) -> bool:
        """Whether ``peer`` is the client's connection."""
        registered = self._clients.get(client_id)
        return registered is not None and registered.peer is peer

    def lost(self, peer: Peer) -> None:
        """Remove the clients of a closed connection."""
        self._clients = {c: r for c, r in self._clients.items() if r.peer is not peer}
