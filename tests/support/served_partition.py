"""A partition for tests of clients: the real core of a server, on a storage in memory.

Messages arrive in the server's real `ClientConnection`, but no network takes part: a test delivers
each message itself. Between two messages the test can hold the storage's requests and the feeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from waltz.client.core.codec import parse
from waltz.net import FrameConnection
from waltz.protocol import CLIENT_SERVER, FrameDecoder, Record, ReqId, checksum
from waltz.protocol.client_server import AppendRequest, MountRequest, encode
from waltz.protocol.frames import HEAD_BYTES
from waltz_server.core.effects import DisconnectClient, SendToClient
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.shell.client_connection import ClientConnection
from waltz_server.shell.hosted_partition import HostedPartition

FETCH = 5
"""Transactions per FeedRequest beyond what the log already has."""

_STORAGE = "a"
_OTHER_CLIENT = 9999
_DATA_BYTES = 8
_SETTINGS = PartitionSettings(
    min_fetch=FETCH, replication=ReplicationLimits(batch_records=1, batches_in_flight=1000)
)
"""Each append is a request of its own to the storage: a test decides them one by one."""


class ServedPartition:
    """Partition 0 on the server that owns it, in generation 1 at first, with one replica.

    ``handled`` are the messages of clients that have arrived. While ``is_hosted`` is False, the
    server does not have the partition.
    """

    num_partitions = 1

    def __init__(self) -> None:
        self.generation = 1
        self.is_hosted = True
        self.handled: list[Any] = []
        self.core = Partition(0, _SETTINGS, DataCache(1 << 20))
        self._connections: dict[Peer, MemoryConnection] = {}
        self._others = 0
        self._is_free = True
        self._storage = MemoryStorage(_STORAGE)
        self._world = World.of_partition(self.core, [self._storage])
        self.core.set_replicas((_STORAGE,))
        self.core.set_generation(self.generation)
        self._world.settle()
        self._world.connect()

    @property
    def records(self) -> list[Record]:
        """What the storage holds."""
        return self._storage.records

    @property
    def mark(self) -> int:
        """The last transaction that the storage holds."""
        return self._storage.last

    def ids(self) -> list[ReqId]:
        """Return the request ids of what the storage holds."""
        return [record.req_id for record in self.records]

    # ---- actions of a test

    def connect(self, deliver: Callable[[bytes], None], version: int) -> MemoryConnection:
        """Open a connection; ``deliver`` gets the body of each message for its client."""
        return MemoryConnection(self, deliver, version)

    def fill(self, count: int, write_locks: tuple[int, ...] = ()) -> None:
        """Append ``count`` transactions of another client."""
        client = _OTHER_CLIENT + self._others
        self._others += 1
        version = max(CLIENT_SERVER.versions)
        connection = self.connect(lambda body: None, version)
        before = self.core.high_water_mark
        assert before is not None, "a session is open"
        mount = MountRequest(ReqId(client, self.generation, 0, 0), before, 0)
        connection.receive([encode(mount, version)[HEAD_BYTES:]])
        for number in range(1, count + 1):
            req_id = ReqId(client, self.generation, 0, number)
            data = b"%0*d" % (_DATA_BYTES, before + number)
            append = AppendRequest(
                req_id, before, write_locks, (), (), number, data, checksum(data)
            )
            connection.receive([encode(append, version)[HEAD_BYTES:]])
        connection.lose()
        self.handled = [each for each in self.handled if each.req_id.client_id != client]

    def stop(self) -> None:
        """Hold the requests to the storage, and the feeds."""
        self._is_free = False
        self._world.hold(_STORAGE)
        for connection in self._connections.values():
            connection.handler.congested()

    def go(self) -> None:
        """End `stop`."""
        self._is_free = True
        self._world.release(_STORAGE)
        self.perform_effects()
        self.feed()

    def decide(self, count: int | None = None) -> None:
        """Let the storage do its oldest ``count`` requests, all by default."""
        while self._world.waiting(_STORAGE) and count != 0:
            self._world.let_one(_STORAGE)
            count = None if count is None else count - 1
        self.perform_effects()

    def feed(self) -> None:
        """Let the feeds go on to the end of the log."""
        for connection in list(self._connections.values()):
            connection.handler.writable()
            if not self._is_free:
                connection.handler.congested()

    def lose_requests(self) -> None:
        """Lose the connection to the storage, and its requests; open the next session."""
        self._world.cut(_STORAGE)
        self._world.held.clear()
        self._world.connect()
        while not self.core.store.is_open:
            self._world.wake(type(self._world.wakes[0].timer))
        if not self._is_free:
            self._world.hold(_STORAGE)
        self.perform_effects()

    def move(self) -> None:
        """Assign the partition anew, in the next generation; lose the requests to the storage."""
        self.generation += 1
        self.core.set_generation(self.generation)
        self.lose_requests()

    # ---- what the connections need of their server

    def partition(self, partition: int) -> HostedPartition | None:
        """Return this partition, None if the server does not have it."""
        return cast(HostedPartition, self) if partition == 0 and self.is_hosted else None

    def partitions(self) -> list[HostedPartition]:
        """Return the partitions of the server."""
        return [cast(HostedPartition, self)] if self.is_hosted else []

    def connected(self, peer: Peer, connection: FrameConnection) -> None:
        """Add a connection."""
        self._connections[peer] = cast(MemoryConnection, connection)

    def disconnected(self, peer: Peer) -> None:
        """Remove a connection, also from a partition that the server does not have now."""
        del self._connections[peer]
        if not self.is_hosted:
            self.core.lost(peer)

    def pause_client(self, connection: FrameConnection, overloaded: int | None = None) -> None:
        """Ignore it: no test sends that much."""

    async def check_storages(self) -> dict[str, bool]:
        """Fail: no test asks for it."""
        raise NotImplementedError

    async def prefer(self, partitions: tuple[int, ...], *, preferred: bool) -> None:
        """Fail: no test asks for it."""
        raise NotImplementedError

    def perform_effects(self) -> None:
        """Perform the effects of the core; deliver what it sends to clients."""
        self._world.settle()
        while self._world.turn():
            pass
        for event in self._world.take_events():
            match event:
                case SendToClient(peer, frames, data) if peer in self._connections:
                    self._connections[peer].send(frames + data)
                case DisconnectClient(peer, reason):
                    raise AssertionError(f"the server closes the connection of {peer}: {reason}")


class MemoryConnection:
    """The server's end of a client's connection."""

    peer = "client"
    peer_certificate: Mapping[str, Any] | None = None
    closed = False

    def __init__(
        self, server: ServedPartition, deliver: Callable[[bytes], None], version: int
    ) -> None:
        self.version = version
        self.handler = ClientConnection(server)
        self._server = server
        self._deliver = deliver
        spec = CLIENT_SERVER.limited_to(version)
        self._decoder = FrameDecoder(spec)
        self._decoder.feed(spec.hello(dialer=False))
        self.handler.ready(cast(FrameConnection, self))

    def receive(self, bodies: list[bytes]) -> None:
        """Let the server take messages."""
        self._server.handled += parse(bodies, self.version)
        self.handler.received(bodies)

    def lose(self) -> None:
        """End the connection."""
        self.closed = True
        self.handler.lost("lost")

    def send(self, *frames: bytes) -> None:
        """Deliver what the server sends."""
        for body in self._decoder.feed(b"".join(frames)):
            self._deliver(body)
