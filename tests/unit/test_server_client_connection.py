"""Clients of a server over real sockets: messages in, answers out, nothing else disturbed.

The server is made of its own parts (connections, hosted partitions, storage links); only ZooKeeper
is in memory and the storage is a fake one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.eventually import eventually
from tests.fake_storage import IDENTITY, FakeStorage
from waltz.metadata.cluster import Cluster
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.memory import MemoryZooKeeper
from waltz.metadata.policy import PolicyError
from waltz.net import PLAINTEXT, FrameConnection, Listener, dial
from waltz.protocol import CLIENT_SERVER, ReqId, checksum
from waltz.protocol import client_server as cs
from waltz_server.client_connection import ClientConnection
from waltz_server.data_cache import DataCache
from waltz_server.effects import Peer
from waltz_server.hosting import HostedPartition
from waltz_server.partition import Partition, PartitionSettings
from waltz_server.storage_links import StorageLinks

PARTITIONS = 3
HERE = (0, 1)


class Host:
    """A server without ZooKeeper membership: partitions 0 and 1 of three."""

    num_partitions = PARTITIONS

    def __init__(self, cluster: Cluster, storage: FakeStorage) -> None:
        self.links = StorageLinks(PLAINTEXT, IDENTITY)
        self.connections: dict[Peer, FrameConnection] = {}
        self.preferred: set[int] = set()
        self.policy_error: str | None = None
        self.paused: list[FrameConnection] = []
        self.listener = Listener(CLIENT_SERVER, lambda: ClientConnection(self), PLAINTEXT)
        self._storage = storage
        self.hosted = {n: self._new_partition(n, cluster) for n in HERE}

    def _new_partition(self, number: int, cluster: Cluster) -> HostedPartition:
        core = Partition(number, PartitionSettings(), DataCache(1 << 20))
        hosted = HostedPartition(core, cluster, self.links, self._send, self._drop)
        core.set_replicas((self._storage.name,))
        core.set_generation(1)
        hosted.settle()
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

    def _send(self, peer: Peer, frames: bytes) -> None:
        if peer in self.connections:
            self.connections[peer].send(frames)

    def _drop(self, peer: Peer, reason: str) -> None:
        self.connections[peer].close(reason)

    async def close(self) -> None:
        await self.listener.close()
        for hosted in self.hosted.values():
            await hosted.close()
        await self.links.close()


class Client:
    """A client's end, with everything that it was told."""

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

    def writable(self) -> None:
        pass

    def say(self, *messages: cs.Message) -> None:
        """Send some messages in one chunk."""
        assert self.connection is not None
        version = self.connection.version
        self.connection.send(b"".join(cs.encode(m, version) for m in messages))

    async def told(self, count: int = 1) -> list[Any]:
        """Take the next messages."""
        await eventually(lambda: len(self.messages) >= count)
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken


@pytest.fixture
async def storage() -> AsyncIterator[FakeStorage]:
    storage = FakeStorage()
    storage.start()
    yield storage
    await storage.stop()


@pytest.fixture
async def host(storage: FakeStorage) -> AsyncIterator[Host]:
    store = MemoryZooKeeper().connect()
    await create_cluster(store, "/test", "test", PARTITIONS, key=IDENTITY.key)
    host = Host(Cluster(store, "/test"), storage)
    host.listener.start("127.0.0.1", 0)
    yield host
    await host.close()


async def connect(host: Host, *versions: int) -> Client:
    client = Client()
    spec = CLIENT_SERVER.limited_to(*versions) if versions else CLIENT_SERVER
    client.connection = await dial("127.0.0.1", host.listener.port, spec, client, PLAINTEXT)
    await eventually(lambda: client.is_ready)
    return client


@pytest.fixture
async def client(host: Host) -> AsyncIterator[Client]:
    client = await connect(host)
    yield client
    assert client.connection is not None
    client.connection.close()


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
    client.say(cs.MountRequest(req_id(0, partition, number), -1, 0))
    (answer,) = await client.told()
    assert answer == cs.MountResponse(req_id(0, partition, number), cs.MountState.READY)


@pytest.mark.parametrize("version", range(5))
async def test_append_feed_and_read_in_every_version(host: Host, version: int) -> None:
    client = await connect(host, version)
    await mount(client)
    client.say(cs.FeedRequest(req_id(), -1))
    client.say(new_append("first", 1), new_append("second", 2))
    assert await client.told(2) == [
        cs.FeedData(req_id(1), 0, 5),
        cs.FeedData(req_id(2), 1, 5),
    ]
    client.say(cs.TransactionDataRequest(req_id(3), 1), cs.HighWaterMarkRequest(req_id(4)))
    assert await client.told(2) == [
        cs.TransactionDataResponse(req_id(3), 1, b"second", checksum(b"second")),
        cs.HighWaterMarkResponse(req_id(4), 1),
    ]
    client.connection.close()  # type: ignore[union-attr]


async def test_appends_and_a_flush_in_one_chunk_keep_their_order(
    client: Client, storage: FakeStorage
) -> None:
    await mount(client)
    await mount(client, 1)
    client.say(
        new_append("a", 1),
        new_append("b", 2, partition=1),
        cs.FlushRequest(req_id(3)),
        new_append("c", 4),
        cs.FlushRequest(req_id(5, partition=1)),
    )
    told = await client.told(2)
    assert {m.req_id.seq: m.transaction_id >= 0 for m in told} == {3: True, 5: True}
    await eventually(lambda: storage.partitions[0].texts == ["a", "c"])
    assert storage.partitions[1].texts == ["b"]


async def test_a_lock_failure_is_answered(client: Client) -> None:
    await mount(client)
    client.say(new_append("a", 1, locks=(7,)), cs.FlushRequest(req_id(2)))
    await client.told()
    client.say(new_append("b", 3, locks=(7,)))
    assert await client.told() == [cs.LockFailure(req_id(3), 0)]


async def test_partitions_that_are_elsewhere(client: Client) -> None:
    there = 2
    client.say(
        new_append("lost", 1, there),
        cs.FeedRequest(req_id(2, there), -1),
        cs.FlushRequest(req_id(3, there)),
        cs.HighWaterMarkRequest(req_id(4, there)),
        cs.MountRequest(req_id(5, there), -1, 0),
        cs.TransactionDataRequest(req_id(6, there), 0),
    )
    assert await client.told(2) == [
        cs.MountResponse(req_id(5, there), cs.MountState.NOT_READY),
        cs.TransactionDataResponse(req_id(6, there), 0, None, error="partition not ready"),
    ]
    assert client.messages == []


async def test_questions_about_the_server(client: Client, storage: FakeStorage) -> None:
    await mount(client)
    await mount(client, 1)
    client.say(
        cs.ServerPartitionsAssignmentRequest(req_id(1)),
        cs.ServerPartitionsHealthStatRequest(req_id(2)),
        cs.CheckStorageConnectivityRequest(req_id(3)),
    )
    assert await client.told(3) == [
        cs.ServerPartitionsAssignmentResponse(req_id(1), HERE),
        cs.ServerPartitionsHealthStatResponse(req_id(2), dict.fromkeys(HERE, True)),
        cs.CheckStorageConnectivityResponse(req_id(3), {storage.name: True, "127.0.0.1:1": False}),
    ]


async def test_preferences(client: Client, host: Host) -> None:
    add, remove = cs.AddPreferredPartitionRequest, cs.RemovePreferredPartitionRequest
    added, removed = cs.AddPreferredPartitionResponse, cs.RemovePreferredPartitionResponse
    client.say(add(req_id(1), (0, 2)))
    assert await client.told() == [added(req_id(1), True)]
    client.say(remove(req_id(2), (0,)))
    assert await client.told() == [removed(req_id(2), True)]
    assert host.preferred == {2}
    client.say(add(req_id(3), (0, PARTITIONS)), remove(req_id(4), (-1,)))
    assert await client.told(2) == [added(req_id(3), False), removed(req_id(4), False)]
    assert host.preferred == {2}
    host.policy_error = "two servers prefer 0"
    client.say(add(req_id(5), (0,)))
    assert await client.told() == [added(req_id(5), True)]
    client.say(add(req_id(6), ()))
    await eventually(lambda: client.lost_because is not None)


async def test_a_connection_that_ends_frees_its_client_number(host: Host, client: Client) -> None:
    client.say(cs.MountRequest(req_id(), -1, 9))
    await client.told()
    client.connection.close()  # type: ignore[union-attr]
    await eventually(lambda: not host.connections)
    other = await connect(host)
    await mount(other)
    other.connection.close()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x63", id="unknown type"),
        pytest.param(b"\x02\x00\x00", id="half an append"),
        pytest.param(cs.encode(cs.FeedSuspended(req_id()), 4)[7:], id="a message for clients"),
        pytest.param(cs.encode(new_append("x"), 4)[7:-1] + b"?", id="a wrong checksum"),
    ],
)
async def test_a_malformed_message_closes_only_its_own_connection(
    host: Host, client: Client, body: bytes
) -> None:
    bad = await connect(host)
    assert bad.connection is not None
    bad.connection.send(cs.frame(body, 4))
    await eventually(lambda: bad.lost_because is not None)
    await eventually(lambda: len(host.connections) == 1)
    await mount(client)


async def test_a_feed_request_beyond_the_log_closes_the_connection(client: Client) -> None:
    await mount(client)
    client.say(cs.FeedRequest(req_id(), 7))
    await eventually(lambda: client.lost_because is not None)


async def test_a_client_that_does_not_read_does_not_hold_up_others(
    host: Host, client: Client
) -> None:
    await mount(client)
    text = "x" * 100_000
    client.say(*(new_append(text, seq) for seq in range(50)), cs.FlushRequest(req_id(99)))
    await client.told()
    slow = socket.create_connection(("127.0.0.1", host.listener.port))
    slow.setblocking(False)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(slow, CLIENT_SERVER.hello(True))
    wanted = [cs.TransactionDataRequest(req_id(n, client=2), n % 50) for n in range(500)]
    await loop.sock_sendall(slow, b"".join(cs.encode(m, 4) for m in wanted))
    await eventually(lambda: any(c.congested for c in host.connections.values()))
    client.say(new_append("quick", 100), cs.FlushRequest(req_id(101)))
    assert await client.told() == [cs.FlushResponse(req_id(101), 50)]
    slow.close()


async def test_latency_is_measured_from_arrival_to_commit(host: Host, client: Client) -> None:
    await mount(client)
    client.say(*(new_append("x", seq) for seq in range(10)), cs.FlushRequest(req_id(99)))
    await client.told()
    latency = host.hosted[0].latency
    assert latency.count == 10
    shown = latency.ordered()
    assert 0 < shown[0] <= shown[-1] < 10
