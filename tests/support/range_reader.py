"""Define a client that reads ranges of a partition's log, for tests of such reads."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

from tests.support.partition_world import mounted, opened, put, take_messages
from tests.support.replication_world import World, append
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.partition import PartitionSettings
from waltz_server.core.peer import Peer

FORGETFUL = PartitionSettings(recent_bytes=0)
"""The partition keeps no recent records in memory, so every read asks a storage."""


@dataclass
class Reader:
    """A client that reads ranges, in version 5 of the protocol by default. It has not mounted."""

    congested: InitVar[bool] = False
    version: InitVar[int] = 5
    peer: Peer = field(init=False)

    def __post_init__(self, congested: bool, version: int) -> None:
        self.peer = Peer(version)
        self.peer.congested = congested

    def records(
        self,
        world: World,
        first_id: int,
        most: int = 100,
        size: int = 1 << 20,
        wait_ms: int = 0,
        *,
        stored: bool = False,
    ) -> None:
        """Request records from ``first_id`` on: at most ``most``, with ``size`` bytes together.

        At the end of the log, the server waits ``wait_ms`` for new records. With ``stored``, the
        records may be in their form on disk.
        """
        req_id = ReqId(-1, 0, 0, first_id)
        request = cs.RecordsRequest(req_id, first_id, most, size, wait_ms, stored)
        world.core.read_range(self.peer, request)
        world.settle()

    def headers(self, world: World, first_id: int, most: int = 100) -> None:
        """Request the headers of at most ``most`` records from ``first_id`` on."""
        req_id = ReqId(-1, 0, 0, first_id)
        world.core.read_range(self.peer, cs.HeadersRequest(req_id, first_id, most))
        world.settle()

    def drain(self, world: World) -> None:
        """Read from the connection again, after it was congested."""
        self.peer.congested = False
        world.core.writable(self.peer)
        world.settle()

    def take_answers(self, world: World) -> list[Any]:
        """Return the answers since the last call."""
        return take_messages(world, self.peer)


def ids(answer: cs.RecordsResponse) -> list[int]:
    """Return the ids of the records in an answer."""
    return [r.transaction_id for r in answer.records]


def texts(answer: cs.RecordsResponse) -> list[str]:
    """Return the data of the records in an answer."""
    return [r.data.decode() for r in answer.records]


def written(count: int, settings: PartitionSettings | None = None) -> World:
    """Return an open partition with ``count`` records; record n has data n and header 3 n."""
    world = opened(settings)
    peer = mounted(world, 1)
    for n in range(count):
        put(world, peer, append(f"{n}", seq=n, header=n * 3))
    world.calls.clear()
    return world


def storage_requests(world: World) -> list[Any]:
    """Return the requests that storages have answered since ``world.calls`` was cleared."""
    return [request for _, request, _ in world.calls]
