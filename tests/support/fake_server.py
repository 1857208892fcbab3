"""Run fake servers on loopback for client tests, with metadata in memory.

The servers are real listeners with a `FakePartition` for each partition. A test assigns partitions
to servers, and switches faults on.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support.fake_partition import FakeLog, FakePartition
from waltz.client import Client, ClientOptions
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import OwnedPartition, PartitionAssignment, ServerDescriptor
from waltz.metadata.lifecycle import create_cluster
from waltz.net import PLAINTEXT, FrameConnection, FrameHandler, Listener, TlsConfig
from waltz.protocol import CLIENT_SERVER, RecordBatch, client_server
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper

ROOT = "/test/cluster"


class FakeServer:
    """One server: a listener and the partitions it has now."""

    def __init__(self, server_id: int, versions: tuple[int, ...], tls: TlsConfig) -> None:
        self.server_id = server_id
        self.partitions: dict[int, FakePartition] = {}
        self.connections: set[_Connection] = set()
        self.accepted = 0
        self.on_message: Callable[[Any], bool] | None = None
        """Sees every message first; returning false cuts the connection instead of handling it."""
        self._spec = CLIENT_SERVER.limited_to(*versions)
        self._tls = tls
        self.port = 0
        self._listener: Listener | None = None

    def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._listener = Listener(self._spec, lambda: _Connection(self), self._tls)
        self._listener.start("127.0.0.1", self.port)
        self.port = self._listener.port

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    def cut(self) -> None:
        """Lose every connection, with all that is on the way."""
        for connection in list(self.connections):
            connection.abort()

    def own(self, partition: int, log: FakeLog, generation: int) -> None:
        """Have a partition at a generation."""
        self.partitions[partition] = FakePartition(log, generation, _Connection.send_message)

    def disown(self, partition: int) -> None:
        """No longer have it; what was not decided never will be."""
        self.partitions.pop(partition, None)


class _Connection(FrameHandler):
    """A client's connection: the handler of its frames, and the key of its registrations."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server
        self._frames: FrameConnection | None = None

    def ready(self, connection: FrameConnection) -> None:
        self._frames = connection
        self._server.connections.add(self)
        self._server.accepted += 1

    def received(self, bodies: list[bytes]) -> None:
        assert self._frames is not None
        for body in bodies:
            message = client_server.decode(body, self._frames.version)
            hook = self._server.on_message
            if hook is not None and not hook(message):
                self.abort()
                return
            self._handle(message)

    def _handle(self, message: Any) -> None:
        partition = self._server.partitions.get(message.req_id.partition)
        if partition is not None:
            partition.handle(self, message)
            return
        match message:
            case client_server.MountRequest(req_id):
                state = client_server.MountState.NOT_READY
                self.send_message(client_server.MountResponse(req_id, state))
            case client_server.TransactionDataRequest(req_id, wanted):
                error = "partition not ready"
                self.send_message(
                    client_server.TransactionDataResponse(req_id, wanted, None, error=error)
                )
            case client_server.RecordsRequest(req_id):
                error, empty = "partition not here", RecordBatch.of([])
                self.send_message(client_server.RecordsResponse(req_id, error, -(2**63), empty))
            case client_server.AppendBatchRequest(req_id, _, appends):
                outcomes = (BatchedOutcome(OutcomeKind.ABSENT),) * len(appends)
                self.send_message(client_server.AppendBatchResponse(req_id, outcomes))

    def send_message(self, message: Any) -> None:
        assert self._frames is not None
        if not self._frames.closed:
            self._frames.send(client_server.encode(message, self._frames.version))

    def abort(self) -> None:
        assert self._frames is not None
        self._frames.abort("cut by the test")

    def lost(self, reason: str) -> None:
        self._server.connections.discard(self)
        for partition in self._server.partitions.values():
            partition.lost(self)


class FakeCluster:
    """Metadata in memory, logs that outlive servers, and servers to place partitions on."""

    def __init__(self, zookeeper: MemoryZooKeeper, store: MemoryStore, num_partitions: int) -> None:
        self.zookeeper = zookeeper
        self.logs = [FakeLog(partition) for partition in range(num_partitions)]
        self.servers: list[FakeServer] = []
        self.clients: list[Client] = []
        self._cluster = Cluster(store, ROOT)
        self._placed: dict[int, tuple[FakeServer, int]] = {}
        self._nodes: dict[FakeServer, str] = {}

    async def start_server(
        self,
        *partitions: int,
        versions: tuple[int, ...] = CLIENT_SERVER.versions,
        tls: TlsConfig = PLAINTEXT,
    ) -> FakeServer:
        """Start a server that has ``partitions``."""
        server = FakeServer(len(self.servers) + 1, versions, tls)
        server.start()
        self.servers.append(server)
        descriptor = ServerDescriptor(server.server_id, "127.0.0.1", server.port)
        self._nodes[server] = await self._cluster.store.create(
            self._cluster.paths.new_server_descriptor, descriptor.encode(), sequence=True
        )
        await self.place(dict.fromkeys(partitions, server))
        return server

    async def remove_server(self, server: FakeServer) -> None:
        """Stop a server for good; its partitions have no server."""
        await server.stop()
        await self._cluster.store.delete(self._nodes.pop(server))
        self._placed = {p: placed for p, placed in self._placed.items() if placed[0] is not server}
        await self._write()

    async def place(self, partitions: Mapping[int, FakeServer], *, announce: bool = True) -> None:
        """Move partitions, each with a new generation; clients hear of it if ``announce``."""
        for partition, server in partitions.items():
            old, generation = self._placed.get(partition, (None, 0))
            if old is not None:
                old.disown(partition)
            self._placed[partition] = (server, generation + 1)
            server.own(partition, self.logs[partition], generation + 1)
        if announce:
            await self._write()

    async def client(self, **options: Any) -> Client:
        """Open a client with a metadata session of its own."""
        cluster = Cluster(self.zookeeper.connect(), ROOT)
        chosen = ClientOptions(**{"tls": PLAINTEXT, **options})
        client = await Client.over(cluster, chosen, owns_store=True)
        self.clients.append(client)
        return client

    def partition(self, number: int) -> FakePartition:
        """The partition where it is now."""
        return self._placed[number][0].partitions[number]

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for server in self.servers:
            await server.stop()

    async def _write(self) -> None:
        owned: dict[int, tuple[OwnedPartition, ...]] = {s.server_id: () for s in self._nodes}
        for partition, (server, generation) in self._placed.items():
            owned[server.server_id] += (OwnedPartition(partition, generation),)
        view = await self._cluster.membership()
        assignment = PartitionAssignment(view.cversion, len(self.logs), owned)
        await self._cluster.write_partition_assignment(assignment, view.version)


@asynccontextmanager
async def fake_cluster(num_partitions: int = 1) -> AsyncIterator[FakeCluster]:
    """A cluster without servers yet; it and its clients are closed at the end."""
    zookeeper = MemoryZooKeeper()
    store = zookeeper.connect()
    await create_cluster(store, ROOT, "fake", num_partitions, key=uuid.UUID(int=1))
    cluster = FakeCluster(zookeeper, store, num_partitions)
    try:
        yield cluster
    finally:
        await cluster.close()
        await store.close()
