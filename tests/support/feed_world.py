"""Define a partition that feeds clients, and clients that record what they receive.

The partition works only when a test lets it: `run` gives the feeds their turns, one after the
other, and `Client.take` collects what was sent to a client since the last call.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World, append
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import FrameDecoder, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.core.effects import SendToClient
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache

NAMES = ("a", "b", "c")
SMALL = PartitionSettings(min_fetch=10, realtime_threshold=200, feed_cache_bytes=1)
"""Settings for short logs. The feed cache has its smallest size: two blocks of 64 records."""


@dataclass
class Client:
    """A client of the partition, with the client id ``number``."""

    number: int
    version: int = 4
    """The version of the protocol that its connection uses."""
    congested: InitVar[bool] = False
    got: list[int] = field(default_factory=list)
    """The ids of the transactions that it has received from its feed, in order."""
    messages: list[Any] = field(default_factory=list)
    """The other messages that it has received, in order."""

    def __post_init__(self, congested: bool) -> None:
        self.peer = Peer(self.version)
        self.peer.congested = congested

    def congest(self) -> None:
        """Read no more from the connection, so that the server must stop sending."""
        self.peer.congested = True

    def drain(self, world: World) -> None:
        """Read from the connection again."""
        self.peer.congested = False
        world.core.writable(self.peer)
        world.settle()

    @property
    def req_id(self) -> ReqId:
        """The request id of a mount or a feed request of this client."""
        return ReqId(self.number, 1, 0, 0)

    def take(self, world: World) -> None:
        """Take what was sent to this client out of the world's events, and record it."""
        decoder = FrameDecoder(CLIENT_SERVER)
        decoder.version = self.version
        mine = [e for e in world.events if isinstance(e, SendToClient) and e.peer is self.peer]
        world.events = [e for e in world.events if not any(e is m for m in mine)]
        for body in decoder.feed(b"".join(e.frames + e.data for e in mine)):
            message = cs.decode(body, self.version)
            if isinstance(message, cs.FeedData):
                self.got.append(message.transaction_id)
            else:
                self.messages.append(message)


def world_with(last: int, settings: PartitionSettings = SMALL) -> World:
    """Return an open partition whose log ends at ``last``."""
    core = Partition(0, settings, DataCache(1 << 20))
    world = World.of_partition(
        core, [MemoryStorage(n, last, 0 if last >= 0 else -1) for n in NAMES]
    )
    if last >= 0:
        states = dict.fromkeys(NAMES, ReplicaState(0, UNRESOLVED))
        world.metadata = PartitionMetadata(0, 0, states)
    core.set_replicas(NAMES)
    core.set_generation(1)
    world.settle()
    world.connect()
    world.take_events()
    return world


def mount(world: World, client: Client, mark: int) -> None:
    """Mount the partition as ``client``, which has seen the log up to ``mark``."""
    world.core.mount(client.peer, cs.MountRequest(client.req_id, mark, 0))
    world.settle()


def feed(world: World, client: Client, mark: int) -> None:
    """Request a feed of the transactions after ``mark``."""
    world.core.feed(client.peer, cs.FeedRequest(client.req_id, mark))
    world.settle()


def run(world: World, *clients: Client) -> None:
    """Give the feeds turns until they request no more; then let ``clients`` take their messages."""
    for _ in range(10_000):
        if not world.turn():
            break
    else:
        raise AssertionError("the feeds request turns without end")
    for client in clients:
        client.take(world)


def put(world: World, client: Client, count: int) -> None:
    """Append ``count`` transactions of ``client``, and commit them."""
    world.core.append(client.peer, [append("x", client=client.number) for _ in range(count)])
    world.settle()


def is_ready(message: Any) -> bool:
    """Whether ``message`` is the answer READY to a mount."""
    return isinstance(message, cs.MountResponse) and message.state is cs.MountState.READY
