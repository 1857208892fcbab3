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


@dataclass
class Reader:
    """A client of version 5 that has not mounted."""

    congested: InitVar[bool] = False
    peer: Peer = field(init=False)

    def __post_init__(self, congested: bool) -> None:
        self.peer = Peer(5)
        self.peer.congested = congested

    def records(
        self, world: World, first_id: int, most: int = 100, size: int = 1 << 20, wait_ms: int = 0
    ) -> None:
        req_id = ReqId(-1, 0, 0, first_id)
        request = cs.RecordsRequest(req_id, first_id, most, size, wait_ms)
        world.core.read_range(self.peer, request)
        world.settle()

    def headers(self, world: World, first_id: int, most: int = 100) -> None:
        req_id = ReqId(-1, 0, 0, first_id)
        world.core.read_range(self.peer, cs.HeadersRequest(req_id, first_id, most))
        world.settle()

    def drain(self, world: World) -> None:
        self.peer.congested = False
        world.core.writable(self.peer)
        world.settle()

    def take_answers(self, world: World) -> list[Any]:
        return take_messages(world, self.peer)


def ids(answer: cs.RecordsResponse) -> list[int]:
    return [r.transaction_id for r in answer.records]


def texts(answer: cs.RecordsResponse) -> list[str]:
    return [r.data.decode() for r in answer.records]


def written(count: int, settings: PartitionSettings | None = None) -> World:
    world = opened(settings)
    peer = mounted(world, 1)
    for n in range(count):
        put(world, peer, append(f"{n}", seq=n, header=n * 3))
    world.calls.clear()
    return world


def storage_requests(world: World) -> list[Any]:
    return [request for _, request, _ in world.calls]
