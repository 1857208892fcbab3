"""A whole cluster in one process, for the tests of applications and of Waltz itself.

`nodes` has its servers and storages, `network`, `disk` and `zookeeper` their environment in memory,
`append_faults` the faults. Touches the event loop.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload
from weakref import WeakValueDictionary

from waltz.client import (
    Client,
    ClientOptions,
    PartitionUnknown,
    Serializer,
    Transaction,
)
from waltz.client.core.deserializing import Unreadable
from waltz.client.core.values import DataT
from waltz.client.opening import Opening
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.net import PLAINTEXT
from waltz.protocol import CLIENT_SERVER, ProtocolSpec
from waltz.protocol.records import NO_TRANSACTION, ReqId
from waltz.testing.append_faults import AppendFaults
from waltz.testing.faults import AppendDelivery, Faults
from waltz.testing.network import MemoryNetwork
from waltz.testing.nodes import (
    ADMIN_PORT,
    ROOT,
    SERVER_PORT,
    SESSION_MS,
    InProcessServer,
    InProcessStorage,
    SharedEnvironment,
)
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_storage.core.partitions.partition import StoragePartition

T = TypeVar("T")

_READY_SECONDS = 30.0
"""How long a cluster may take until every partition takes appends."""
_READY_POLL_SECONDS = 0.001
"""The time between two checks whether every partition takes appends."""
_LONG_WAIT_SECONDS = 0.1
"""If an append has no answer after this time, its client looks in the log for it.

Shorter than by default, so that a test of lost appends does not wait for seconds."""
_READ_RECORDS = 10_000
"""How many records `InProcessCluster.transactions` reads from a replica at once."""
_CLIENT_HOST = "client"
"""The name of the host on which all clients are."""


class InProcessOptions(TypedDict, total=False):
    """The options that `InProcessCluster.connect` takes; see `waltz.ClientOptions`."""

    append_timeout: float | None
    answer_timeout: float | None
    max_in_flight: int
    stream_buffer: int
    unreadable: Unreadable


class InProcessClient(Client[DataT]):
    """A `waltz.Client` that can be made to give an append up."""

    def give_up(self, req_id: ReqId) -> None:
        """Let the call of an append raise AppendUncertain, as the end of its timeout would."""
        self._appender.give_up(req_id)


class InProcessCluster:
    """A cluster of real servers and storages, with network, disks and ZooKeeper in memory.

    Enter it with ``async with``. It runs on the event loop on which it is entered. Its clients may
    be on other event loops and threads.

    Args:
        partitions: The number of partitions.
        servers: The number of servers.
        storages: The number of storages. Each holds a replica of every partition.
        seed: Decides all random choices. On a `VirtualTimeLoop`, the same seed gives the same run.
        name: The name of the cluster.
        faults: The faults of random appends and messages. None: no faults.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        servers: int = 1,
        storages: int = 3,
        seed: int = 0,
        name: str = "testing",
        faults: Faults | None = None,
    ) -> None:
        if partitions < 1:
            raise ValueError(f"{partitions} partitions: a cluster has at least one")
        if servers < 1 or storages < 1:
            raise ValueError(
                f"{servers} servers, {storages} storages: a cluster has at least one of each"
            )
        self.num_partitions = partitions
        self.name = name
        self.network = MemoryNetwork(seed)
        self.zookeeper = MemoryZooKeeper()
        node_random = random.Random(f"{seed}/cluster")
        self._key = uuid.UUID(int=node_random.getrandbits(128), version=4)
        self._shared = SharedEnvironment(self.network, self.zookeeper, node_random)
        self.servers = [InProcessServer(number, self._shared) for number in range(servers)]
        self.storages = [InProcessStorage(number, self._shared) for number in range(storages)]
        self._high_water_marks = [NO_TRANSACTION] * partitions
        """The highest mark of each partition that `_high_water_mark` has found so far."""
        self._handler_before: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], Any] | None
        """The exception handler of the event loop before `start`, which sets this attribute."""
        self._clients: WeakValueDictionary[int, InProcessClient[Any]] = WeakValueDictionary()
        self._appends = AppendFaults(
            partitions, seed, give_up=self._give_up, log_mark=self._high_water_mark
        )
        for server in self.servers:
            self.network.intercept(server.host, SERVER_PORT, self._appends.intercept)
        self.faults = faults or Faults()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # Without an entered context, `__aexit__` is not called.
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
        if error is None:
            self._raise_failure()

    @property
    def faults(self) -> Faults:
        """The faults of random appends and messages; they may be changed at any time."""
        return self._appends.rates

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._appends.rates = faults
        self.network.host_delay_seconds[_CLIENT_HOST] = faults.delay_seconds

    async def start(self) -> None:
        """Create the cluster, start all nodes, and wait until every partition takes appends.

        After an error, the nodes that have started run until `close`.
        """
        loop = asyncio.get_running_loop()
        self._handler_before = loop.get_exception_handler()
        loop.set_exception_handler(self._note_exception)
        store = await self._shared.open_store(SESSION_MS)
        groups = {storage.address: group for group, storage in enumerate(self.storages)}
        admin_ports = dict.fromkeys(groups, ADMIN_PORT)
        maps = assign_everything(groups, admin_ports, self.num_partitions)
        try:
            await create_cluster(
                store, ROOT, self.name, self.num_partitions, key=self._key, storages=maps
            )
        finally:
            await store.close()
        for storage in self.storages:
            await storage.start()
            await storage.add_partitions((self._key, self.num_partitions))
        for server in self.servers:
            await server.start()
        await self.ready()

    async def ready(self, seconds: float = _READY_SECONDS) -> None:
        """Wait until every partition takes appends; raises TimeoutError after ``seconds``."""
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
        asyncio.get_running_loop().set_exception_handler(self._handler_before)

    @overload
    def connect(
        self,
        *,
        serializer: Serializer[T],
        spec: ProtocolSpec = CLIENT_SERVER,
        **options: Unpack[InProcessOptions],
    ) -> Opening[InProcessClient[T]]: ...

    @overload
    def connect(
        self,
        *,
        serializer: None = None,
        spec: ProtocolSpec = CLIENT_SERVER,
        **options: Unpack[InProcessOptions],
    ) -> Opening[InProcessClient[bytes]]: ...

    def connect(
        self,
        *,
        serializer: Serializer[Any] | None = None,
        spec: ProtocolSpec = CLIENT_SERVER,
        **options: Unpack[InProcessOptions],
    ) -> Opening[InProcessClient[Any]]:
        """Return a client to open, on any event loop.

        Await the result or enter it, like the result of `waltz.connect`. The client is a
        `waltz.Client`, but it looks for an append in the log after `_LONG_WAIT_SECONDS` already.
        ``serializer`` and ``options`` are those of `waltz.connect`. ``spec`` has the protocol
        versions that the client offers to servers. With fewer versions it behaves like an older
        client.
        """
        chosen = ClientOptions(
            serializer=serializer,
            tls=PLAINTEXT,
            long_wait_seconds=_LONG_WAIT_SECONDS,
            **options,
        )
        return Opening(lambda: self._open_client(chosen, spec))

    def transactions(self, partition: int) -> list[Transaction[bytes]]:
        """Return all committed transactions of ``partition``, with their data as bytes."""
        self._check_exists(partition)
        last = self._high_water_mark(partition)
        transactions: list[Transaction[bytes]] = []
        while len(transactions) <= last:
            next_id = len(transactions)  # Ids begin at 0 and have no gap.
            replica = self._complete_replica(partition, last)
            batch = replica.records(next_id, min(_READ_RECORDS, last + 1 - next_id))
            transactions += (
                Transaction(
                    partition, record.transaction_id, record.req_id, record.header, record.data
                )
                for record in batch
            )
        return transactions

    def fail_next_append(self, partition: int, *, committed: bool) -> None:
        """Let the next append to ``partition`` raise AppendUncertain.

        Each call affects one more append. ``committed`` decides whether the append is in the log.
        """
        self._check_exists(partition)
        uncertain = (
            AppendDelivery.UNCERTAIN_COMMITTED if committed else AppendDelivery.UNCERTAIN_ABSENT
        )
        self._appends.set_next(partition, uncertain)

    def fail_next_lock(self, partition: int) -> None:
        """Let the next append to ``partition`` with write or read locks raise LockFailed.

        Each call affects one more append.
        """
        self._check_exists(partition)
        self._appends.set_next(partition, AppendDelivery.CONFLICT)

    def suspend_feed(self, partition: int) -> None:
        """Stop the feed of ``partition``: streams and ranges show no new transactions.

        Appends are committed, but their answers are held up, so they wait.
        """
        self._check_exists(partition)
        self._appends.suspend_feed(partition, self._high_water_mark(partition))

    def resume_feed(self, partition: int) -> None:
        """Continue the feed of ``partition``; what was held up arrives."""
        self._check_exists(partition)
        self._appends.resume_feed(partition)

    def cut_clients(self) -> int:
        """Cut all connections of clients, which then connect again; return their number."""
        return self.network.cut(_CLIENT_HOST)

    async def kill_server(self, number: int = 0, *, expire: bool = True) -> None:
        """End the server ``number``, counted from 0, as the death of its process does.

        With ``expire``, its ZooKeeper session expires at once, and other servers take over its
        partitions. Without ``expire``, the session stays, so these partitions have no server.
        """
        await self.servers[number].kill(expire=expire)

    async def start_server(self, number: int = 0) -> None:
        """Start the server ``number``, which was killed."""
        await self.servers[number].start()

    async def kill_storage(self, number: int = 0, *, power_loss: bool = False) -> None:
        """End the storage ``number``, counted from 0, at once.

        With ``power_loss`` its disk loses what was not flushed.
        """
        self.storages[number].kill(power_loss=power_loss)

    async def start_storage(self, number: int = 0) -> None:
        """Start the storage ``number``, which was killed, on its disk."""
        await self.storages[number].start()

    async def _open_client(
        self, options: ClientOptions, spec: ProtocolSpec
    ) -> InProcessClient[Any]:
        """Open a client on the running event loop; see `connect`."""
        store = await self._shared.open_store(options.session_timeout_ms)
        try:
            client = await InProcessClient.over(
                Cluster(store, ROOT),
                options,
                owns_store=True,
                spec=spec,
                network=self.network.host(_CLIENT_HOST),
            )
        except BaseException:
            await store.close()
            raise
        self._clients[client.client_id] = client
        return client

    def _give_up(self, req_id: ReqId) -> None:
        """Let the client of an append give the append up, if the client still exists."""
        client = self._clients.get(req_id.client_id)
        if client is not None:
            client.give_up(req_id)

    def _note_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception that would end the process of a node; see `waltz.runtime.process`.

        An OSError would not end it: it reports a failure outside of the process, such as a lost
        connection.
        """
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError):
            self._shared.failures.append(error)
        if self._handler_before is None:
            loop.default_exception_handler(context)
        else:
            self._handler_before(loop, context)

    def _high_water_mark(self, partition: int) -> int:
        """Return the last transaction that a server has counted as committed.

        While the partition has no server, the highest mark so far is returned.
        """
        for server in self.servers:
            hosted = server.node.partition(partition) if server.node is not None else None
            mark = hosted.core.high_water_mark if hosted is not None else None
            if mark is not None:
                self._high_water_marks[partition] = max(self._high_water_marks[partition], mark)
        return self._high_water_marks[partition]

    def _complete_replica(self, partition: int, last: int) -> StoragePartition:
        """Return a replica that has every transaction up to ``last``, one of the newest session.

        A replica of an older store session may have records that were never committed. Raises
        RuntimeError if no running storage has such a replica.
        """
        nodes = [storage.node for storage in self.storages if storage.node is not None]
        replicas = [node.directory.partitions.get(partition) for node in nodes]
        complete = [replica for replica in replicas if replica and replica.log.max_id >= last]
        if not complete:
            raise RuntimeError(f"partition {partition}: no running storage has transaction {last}")
        return max(complete, key=lambda replica: replica.info.session_id)

    def _all_open(self) -> bool:
        """Return whether every partition takes appends."""
        nodes = [server.node for server in self.servers if server.node is not None]
        hosted = [partition for node in nodes for partition in node.partitions()]
        opened = {partition.core.id for partition in hosted if partition.core.store.is_open}
        return len(opened) == self.num_partitions

    def _raise_failure(self) -> None:
        """Raise the first error that has ended a node, if there is one."""
        if self._shared.failures:
            raise self._shared.failures[0]

    def _check_exists(self, partition: int) -> None:
        """Raise PartitionUnknown if the cluster has no such partition."""
        if not 0 <= partition < self.num_partitions:
            raise PartitionUnknown(partition, self.num_partitions)
