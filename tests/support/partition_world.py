"""Define a partition over three storages in memory, and the messages of its clients.

A client is a `Peer`, its connection. `World.settle`, which most functions call, performs what the
partition requests until nothing is left.
"""

from __future__ import annotations

from typing import Any

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import FrameDecoder, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.core.appends.append import Append
from waltz_server.core.effects import SendToClient
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache

NAMES = ("a", "b", "c")


def new_world(
    settings: PartitionSettings | None = None, data_bytes: int = 1 << 20, last: int = -1
) -> World:
    """Return a partition that is not open yet, whose storages hold a log up to ``last``.

    ``data_bytes`` is the size of its data cache.
    """
    core = Partition(0, settings or PartitionSettings(), DataCache(data_bytes))
    session = -1 if last < 0 else 0
    world = World.of_partition(core, [MemoryStorage(name, last, session) for name in NAMES])
    if last >= 0:
        states = dict.fromkeys(NAMES, ReplicaState(0, UNRESOLVED))
        world.metadata = PartitionMetadata(0, 0, states)
    core.set_replicas(NAMES)
    core.set_generation(1)
    world.settle()
    return world


def opened(
    settings: PartitionSettings | None = None, data_bytes: int = 1 << 20, last: int = -1
) -> World:
    """Return an open partition: like `new_world`, and the storages have connected."""
    world = new_world(settings, data_bytes, last)
    world.connect()
    assert world.core.high_water_mark == last
    world.take_events()
    return world


def take_messages(world: World, peer: Peer) -> list[Any]:
    """Take what was sent to ``peer`` out of the world's events; return the messages."""
    spec = CLIENT_SERVER.limited_to(peer.version)
    decoder = FrameDecoder(spec)
    decoder.feed(spec.hello(dialer=False))
    mine = [e for e in world.events if isinstance(e, SendToClient) and e.peer is peer]
    world.events = [e for e in world.events if not any(e is m for m in mine)]
    bodies = decoder.feed(b"".join(e.frames + e.data for e in mine))
    return [cs.decode(body, peer.version) for body in bodies]


def mount(
    world: World,
    client: int,
    mark: int = -1,
    *,
    generation: int = 1,
    seq: int = 0,
    peer: Peer | None = None,
) -> Peer:
    """Send a mount of the client with the id ``client``, on ``peer`` or on a new connection."""
    peer = peer or Peer(4)
    world.core.mount(peer, cs.MountRequest(ReqId(client, generation, 0, 0), mark, seq))
    world.settle()
    return peer


def mounted(world: World, client: int, mark: int = -1, *, generation: int = 1) -> Peer:
    """Return a connection on which a client has mounted the partition."""
    peer = mount(world, client, mark, generation=generation)
    assert take_messages(world, peer)[-1].state is cs.MountState.READY
    return peer


def put(world: World, peer: Peer, *appends: Append) -> None:
    """Send appends, and let the storages answer."""
    world.core.append(peer, list(appends))
    world.settle()


def flush(world: World, peer: Peer, client: int, seq: int = 0, generation: int = 1) -> None:
    """Send a flush request of the client with the id ``client``."""
    world.core.flush(peer, cs.FlushRequest(ReqId(client, generation, 0, seq)))
    world.settle()


def log_of(world: World) -> list[str]:
    """Return the data of all records on one storage."""
    return world.storages["a"].texts
