"""Run a server in the test's process, and clients that connect to it over sockets.

Only ZooKeeper is in memory, and the storage is a fake one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.eventually import eventually
from tests.support.fake_storage import IDENTITY, FakeStorage
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.policy import PolicyError
from waltz.metadata.lifecycle import create_cluster
from waltz.net import PLAINTEXT, FrameConnection, FrameHandler, Listener, dial
from waltz.protocol import CLIENT_SERVER, ReqId, checksum
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedAppend
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.shell.client_connection import ClientConnection
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.storage_links import StorageLinks

PARTITIONS = 3
HERE = (0, 1)


class Host:
    """A server without ZooKeeper membership: partitions 0 and 1 of three."""

    num_partitions = PARTITIONS

    def __init__(self, cluster: Cluster, storage: FakeStorage, settings: PartitionSettings) -> None:
        self._settings = settings
        self.links = StorageLinks(PLAINTEXT, IDENTITY)
        self.connections: dict[Peer, FrameConnection] = {}
        self.preferred: set[int] = set()
        self.policy_error: str | None = None
        self.paused: list[FrameConnection] = []
        self.listener = Listener(CLIENT_SERVER, lambda: ClientConnection(self), PLAINTEXT)
        self._storage = storage
        self.hosted = {n: self._new_partition(n, cluster) for n in HERE}

    def _new_partition(self, number: int, cluster: Cluster) -> HostedPartition:
        core = Partition(number, self._settings, DataCache(1 << 20))
        hosted = HostedPartition(core, cluster, self.links, self.connections)
        core.set_replicas((self._storage.name,))
        core.set_generation(1)
        hosted.perform_effects()
        return hosted

    def partition(self, partition: int) -> HostedPartition | None:
        return self.hosted.get(partition)

    def partitions(self) -> list[HostedPartition]:
        return list(self.hosted.values())

    def connected(self, peer: Peer, connection: FrameConnection) -> None:
        self.connections[peer] = connection

    def disconnected(self, peer: Peer) -> None:
        self.connections.pop(peer, None)

    def overloaded(self, connection: FrameConnection) -> None:
        self.paused.append(connection)

    async def check_storages(self) -> dict[str, bool]:
        return await self.links.check(frozenset({self._storage.name, "127.0.0.1:1"}))

    async def prefer(self, partitions: tuple[int, ...], preferred: bool) -> None:
        if self.policy_error is not None:
            raise PolicyError(self.policy_error)
        self.preferred = (self.preferred | set(partitions)) - (
            set() if preferred else set(partitions)
        )

    async def close(self) -> None:
        await self.listener.close()
        for hosted in self.hosted.values():
            await hosted.close()
        await self.links.close()


@asynccontextmanager
async def serving(
    storage: FakeStorage, settings: PartitionSettings | None = None
) -> AsyncIterator[Host]:
    """Have a server on ``storage`` while the context lasts."""
    store = MemoryZooKeeper().connect()
    await create_cluster(store, "/test", "test", PARTITIONS, key=IDENTITY.key)
    host = Host(Cluster(store, "/test"), storage, settings or PartitionSettings())
    host.listener.start("127.0.0.1", 0)
    yield host
    await host.close()


class Client(FrameHandler):
    """A client's end, with every message that it received."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.is_ready = False
        self.lost_because: str | None = None
        self.connection: FrameConnection | None = None

    def ready(self, connection: FrameConnection) -> None:
        self.is_ready = True

    def received(self, bodies: list[bytes]) -> None:
        assert self.connection is not None
        self.messages += [cs.decode(body, self.connection.version) for body in bodies]

    def lost(self, reason: str) -> None:
        self.lost_because = reason

    def send_messages(self, *messages: cs.Message) -> None:
        """Send some messages in one chunk."""
        assert self.connection is not None
        version = self.connection.version
        self.connection.send(b"".join(cs.encode(m, version) for m in messages))

    async def take(self, count: int = 1) -> list[Any]:
        """Take the next messages."""
        await eventually(lambda: len(self.messages) >= count)
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken


async def connect(host: Host, *versions: int) -> Client:
    client = Client()
    spec = CLIENT_SERVER.limited_to(*versions) if versions else CLIENT_SERVER
    client.connection = await dial("127.0.0.1", host.listener.port, spec, client, PLAINTEXT)
    await eventually(lambda: client.is_ready)
    return client


def req_id(seq: int = 0, partition: int = 0, client: int = 1) -> ReqId:
    return ReqId(client, 1, partition, seq)


def new_append(
    text: str,
    seq: int = 0,
    partition: int = 0,
    client: int = 1,
    locks: tuple[int, ...] = (),
    mark: int = -1,
) -> cs.AppendRequest:
    data = text.encode()
    rid = req_id(seq, partition, client)
    return cs.AppendRequest(rid, mark, locks, (), (), 5, data, checksum(data))


async def mount(client: Client, partition: int = 0, number: int = 1) -> None:
    client.send_messages(cs.MountRequest(req_id(0, partition, number), -1, 0))
    (answer,) = await client.take()
    assert answer == cs.MountResponse(req_id(0, partition, number), cs.MountState.READY)


def batched(text: str, locks: tuple[int, ...] = ()) -> BatchedAppend:
    """Return an append as it is in a batch."""
    data = text.encode()
    return BatchedAppend(locks, (), (), 5, data, checksum(data))
