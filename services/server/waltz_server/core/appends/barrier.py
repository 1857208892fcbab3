"""A request that waits until no earlier append of its partition is open. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer

_REQ_ID_BYTES = 16


@dataclass(slots=True)
class Barrier:
    """A request that is answered once no earlier append is open: a flush or a mount.

    While it waits, a mount may be replaced, and a flush may get ``more`` (`MountedClients`).
    """

    peer: Peer
    request: cs.FlushRequest | cs.MountRequest
    more: bytearray = field(default_factory=bytearray)
    """The encoded ids of further flushes of the client, which are answered together with this one.

    They are encoded because they may be many."""

    def req_ids(self) -> Iterator[ReqId]:
        """Yield the ids of all requests to answer."""
        yield self.request.req_id
        for at in range(0, len(self.more), _REQ_ID_BYTES):
            yield ReqId.decode(bytes(self.more[at : at + _REQ_ID_BYTES]))
