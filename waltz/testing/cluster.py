"""A whole cluster in one process, for the tests of applications and of Waltz itself. Event loop."""

from __future__ import annotations

import asyncio
import random
import uuid
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

from waltz.client import (
    Client,
    ClientOptions,
    LogClient,
    PartitionUnknown,
    Serializer,
    Transaction,
)
from waltz.client.opening import Opening
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.net import PLAINTEXT
from waltz.protocol.records import NO_TRANSACTION
from waltz.testing.network import MemoryNetwork
from waltz.testing.nodes import (
    ADMIN_PORT,
    ROOT,
    SESSION_MS,
    InProcessServer,
    InProcessStorage,
    World,
)
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_storage.core.partitions.partition import StoragePartition

T = TypeVar("T")

_READY_SECONDS = 30.0
_READY_POLL_SECONDS = 0.001
_LONG_WAIT_SECONDS = 0.1
_READ_RECORDS = 10_000


class ConnectOptions(TypedDict, total=False):
    """The options that `InProcessCluster.connect` takes; see `waltz.ClientOptions`."""

    append_timeout: float | None
    answer_timeout: float | None
    max_in_flight: int
    stream_buffer: int


class InProcessCluster:
    """A cluster of real servers and storages, with network, disks and ZooKeeper in memory.

    Enter it with ``async with``. It runs on the event loop that has entered it; its clients may be
    on other event loops and threads. On a `VirtualTimeLoop` the same ``seed`` gives the same run.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        servers: int = 1,
        storages: int = 3,
        seed: int = 0,
        name: str = "testing",
    ) -> None:
        if partitions < 1:
            raise ValueError(f"{partitions} partitions: a cluster has at least one")
        if servers < 1 or storages < 1:
            raise ValueError(f"{servers} servers, {storages} storages: a cluster has one of each")
        self.num_partitions = partitions
        self.name = name
        self.network = MemoryNetwork(seed)
        self.zookeeper = MemoryZooKeeper()
        source = random.Random(f"{seed}/cluster")
        self._key = uuid.UUID(int=source.getrandbits(128), version=4)
        self._world = World(self.network, self.zookeeper, source)
        self.servers = [InProcessServer(number, self._world) for number in range(servers)]
        self.storages = [InProcessStorage(number, self._world) for number in range(storages)]
        self._marks = [NO_TRANSACTION] * partitions

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
        if error is None and self._world.failures:
            raise self._world.failures[0]

    async def start(self) -> None:
        """Create the cluster, start all nodes, and wait until every partition takes appends."""
        store = await self._world.open_store(SESSION_MS)
        groups = {storage.address: group for group, storage in enumerate(self.storages)}
        admin_ports = dict.fromkeys(groups, ADMIN_PORT)
        maps = assign_everything(groups, admin_ports, self.num_partitions)
        await create_cluster(
            store, ROOT, self.name, self.num_partitions, key=self._key, storages=maps
        )
        await store.close()
        for storage in self.storages:
            await storage.start()
            await storage.add_partitions((self._key, self.num_partitions))
        for server in self.servers:
            await server.start()
        await self.ready()

    async def ready(self, seconds: float = _READY_SECONDS) -> None:
        """Wait until every partition takes appends; raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not self._all_open():
                self._raise_failure()
                await asyncio.sleep(_READY_POLL_SECONDS)

    async def close(self) -> None:
        """Stop all nodes."""
        for server in self.servers:
            await server.stop()
        for storage in self.storages:
            await storage.stop()

    @overload
    def connect(
        self, *, serializer: Serializer[T], **options: Unpack[ConnectOptions]
    ) -> Opening[LogClient[T]]: ...

    @overload
    def connect(
        self, *, serializer: None = None, **options: Unpack[ConnectOptions]
    ) -> Opening[LogClient[bytes]]: ...

    def connect(
        self, *, serializer: Serializer[Any] | None = None, **options: Unpack[ConnectOptions]
    ) -> Opening[LogClient[Any]]:
        """Open a client, on any event loop. Await the result, or enter it, as of `waltz.connect`.

        The client is a `waltz.Client`, except that it looks up an append without outcome after a
        tenth of a second.
        """
        chosen = ClientOptions(
            serializer=serializer,
            tls=PLAINTEXT,
            long_wait_seconds=_LONG_WAIT_SECONDS,
            **options,
        )
        return Opening(lambda: self._open_client(chosen))

    def transactions(self, partition: int) -> list[Transaction[bytes]]:
        """Return all committed transactions of a partition, with their data as bytes."""
        self._check(partition)
        last = self._mark(partition)
        found: list[Transaction[bytes]] = []
        while len(found) <= last:
            replica = self._complete_replica(partition, last)
            batch = replica.records(len(found), min(_READ_RECORDS, last + 1 - len(found)))
            found += (
                Transaction(partition, r.transaction_id, r.req_id, r.header, r.data) for r in batch
            )
        return found

    async def _open_client(self, options: ClientOptions) -> Client[Any]:
        store = await self._world.open_store(options.session_timeout_ms)
        try:
            return await Client.over(
                Cluster(store, ROOT),
                options,
                owns_store=True,
                network=self.network.host("client"),
            )
        except BaseException:
            await store.close()
            raise

    def _mark(self, partition: int) -> int:
        """Return the last transaction that a server has counted as committed."""
        for server in self.servers:
            hosted = server.node.partition(partition) if server.node is not None else None
            mark = hosted.core.high_water_mark if hosted is not None else None
            if mark is not None:
                self._marks[partition] = max(self._marks[partition], mark)
        return self._marks[partition]

    def _complete_replica(self, partition: int, last: int) -> StoragePartition:
        """Return a replica that has every transaction up to ``last``.

        It is one of the last store session: others may have records that were never committed.
        """
        nodes = [storage.node for storage in self.storages if storage.node is not None]
        replicas = [node.directory.partition(partition) for node in nodes]
        complete = [replica for replica in replicas if replica.log.max_id >= last]
        if not complete:
            raise RuntimeError(f"partition {partition}: no running storage has transaction {last}")
        return max(complete, key=lambda replica: replica.info.session_id)

    def _all_open(self) -> bool:
        nodes = [server.node for server in self.servers if server.node is not None]
        opened = {h.core.id for node in nodes for h in node.partitions() if h.core.store.is_open}
        return len(opened) == self.num_partitions

    def _raise_failure(self) -> None:
        if self._world.failures:
            raise self._world.failures[0]

    def _check(self, partition: int) -> None:
        if not 0 <= partition < self.num_partitions:
            raise PartitionUnknown(partition, self.num_partitions)
