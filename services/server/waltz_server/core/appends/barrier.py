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

    `append_queue` defines when an append is open. While the request waits, `MountedClients` may
    replace a mount by a later one, and may add ``more_flushes`` to a flush.
    """

    peer: Peer
    request: cs.FlushRequest | cs.MountRequest
    more_flushes: bytearray = field(default_factory=bytearray)
    """The request ids of further flushes of the client, which are answered together with this one.

    There may be many. So they stay encoded, one after the other, which takes less memory."""

    def req_ids(self) -> Iterator[ReqId]:
        """Yield the ids of all requests to answer."""
        yield self.request.req_id
        for at in range(0, len(self.more_flushes), _REQ_ID_BYTES):
            yield ReqId.decode(bytes(self.more_flushes[at : at + _REQ_ID_BYTES]))
