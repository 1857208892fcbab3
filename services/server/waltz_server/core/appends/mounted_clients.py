"""Which connection speaks for a client: the last to mount (spec/behaviour.md section 8). Pure."""

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
        """Have ``peer`` speak for a client, unless a newer connection does; returns if it does."""
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

    def speaks(self, peer: Peer, client_id: int) -> bool:
        """Whether ``peer`` speaks for the client."""
        registered = self._clients.get(client_id)
        return registered is not None and registered.peer is peer

    def lost(self, peer: Peer) -> None:
        """A connection is gone."""
        self._clients = {c: r for c, r in self._clients.items() if r.peer is not peer}
