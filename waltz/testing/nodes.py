"""The servers and storages of a cluster in one process: real nodes in an environment in memory.

A node is what the process of a server or storage runs. Here each start makes a new node, as the
start of a process does. Touches the event loop, and nothing outside of this process.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from waltz.metadata.store import MetadataStore
from waltz.metadata.zookeeper_access import ZooKeeperAccess
from waltz.net import PLAINTEXT, RpcConnection
from waltz.protocol import ADMIN, CLIENT_SERVER, STORAGE, ProtocolSpec, admin
from waltz.runtime.configuration import TlsSettings
from waltz.testing.disk import MemoryDisk
from waltz.testing.engine import EventLoopEngine
from waltz.testing.network import MemoryNetwork
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.node import ServerEnvironment, ServerNode
from waltz_storage.core.errors import DiskFailed
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.config import StorageConfig
from waltz_storage.shell.environment import StorageEnvironment, learn_cluster
from waltz_storage.shell.node import StorageNode

log = logging.getLogger(__name__)

ROOT = "/waltz"
"""The znode of the cluster."""
SERVER_PORT = 55180
STORAGE_PORT = 55280
ADMIN_PORT = 55281
SESSION_MS = 10_000
"""The timeout of the nodes' sessions with ZooKeeper, in milliseconds."""

_ZOOKEEPER = "zookeeper:2181"
_ALLOCATED_BYTES = 16 << 10
"""How many bytes a segment file is allocated ahead.

With the default of a storage, writing zeros to memory would take longer than all other work.
"""


@dataclass(slots=True)
class SharedEnvironment:
    """What all nodes of one cluster use.

    ``random`` decides to which servers partitions are assigned, and what a disk loses with the
    power. ``failures`` are the errors that ended a node, and unexpected errors in callbacks.
    Failures of a storage's disk are not included: tests cause them, and the cluster tolerates them.
    """

    network: MemoryNetwork
    zookeeper: MemoryZooKeeper
    random: random.Random
    failures: list[BaseException] = field(default_factory=list)

    async def open_store(self, timeout_ms: int) -> MemoryStore:
        """Open a session with the cluster's ZooKeeper.

        An operation fails if it has no answer after ``timeout_ms`` milliseconds.
        """
        store = self.zookeeper.connect(clock=asyncio.get_running_loop().time)
        store.operation_timeout = timeout_ms / 1000
        return store


class InProcessServer:
    """A server that can be killed and started again."""

    def __init__(self, number: int, shared: SharedEnvironment) -> None:
        self.host = f"server-{number}"
        self.node: ServerNode | None = None
        """The node of the running process, None while none runs."""
        self.store: MemoryStore | None = None
        """The session with ZooKeeper of the last process."""
        self.versions: tuple[ProtocolSpec, ProtocolSpec] = (CLIENT_SERVER, STORAGE)
        """The protocol versions that the next `start` offers to clients and to storages: all
        versions, or fewer to act as an older server."""
        self._shared = shared
        self._watching: asyncio.Task[None] | None = None
        """The task of `_watch`, None while no node runs."""

    async def start(self) -> None:
        """Start a new process of this server. Raises the errors of `ServerNode.start`."""
        assert self.node is None, f"{self.host} runs already"
        self._shared.network.bring_up(self.host)
        config = ServerConfig(
            zookeeper=_ZOOKEEPER,
            session_timeout_ms=SESSION_MS,
            cluster_root=ROOT,
            port=SERVER_PORT,
            advertised=self.host,
            tls_settings=TlsSettings(enabled=False),
        )
        environment = ServerEnvironment(
            self._shared.network.host(self.host), self._open_store, self._shared.random.shuffle
        )
        self.node = self.new_node(config, environment)
        try:
            await self.node.start()
        except BaseException:
            # Nothing of the node may be left, also after a cancellation, so that `start` can be
            # called again.
            await self.stop()
            raise
        self._watching = asyncio.create_task(self._watch(self.node))

    def new_node(self, config: ServerConfig, environment: ServerEnvironment) -> ServerNode:
        """Return the node of a new process. Tests override this method to observe the node."""
        return ServerNode(config, *self.versions, environment)

    async def kill(self, *, expire: bool) -> None:
        """End the process without closing its connections and its session.

        With ``expire``, the session expires at once; without it, the session stays.
        """
        assert self.store is not None
        self._shared.network.take_down(self.host)
        self._shared.zookeeper.abandon(self.store, expire=expire)
        # The node stops in good order, but the other nodes do not notice that: from here on it
        # reaches neither them nor ZooKeeper.
        await self.stop()

    async def stop(self) -> None:
        """Stop the process as SIGTERM does."""
        node, self.node = self.node, None
        if node is None:
            return
        # If `start` has failed, the node is not watched yet.
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            self._watching = None
        await node.stop()

    async def _open_store(
        self, address: str, timeout_ms: int, access: ZooKeeperAccess
    ) -> MetadataStore:
        self.store = await self._shared.open_store(timeout_ms)
        return self.store

    async def _watch(self, node: ServerNode) -> None:
        """Record the error that ends the node."""
        try:
            await node.wait_for_failure()
        except Exception as error:
            log.exception("%s: failed; the cluster reports the error when it is closed", self.host)
            self._shared.failures.append(error)


class InProcessStorage:
    """A storage that can be killed, lose power, and start again on its disk."""

    def __init__(self, number: int, shared: SharedEnvironment) -> None:
        self.host = f"storage-{number}"
        self.address = f"{self.host}:{STORAGE_PORT}"
        self.disk = MemoryDisk()
        self.node: StorageNode | None = None
        """The node of the running process, None while none runs."""
        self.versions: tuple[ProtocolSpec, ProtocolSpec] = (STORAGE, ADMIN)
        """The protocol versions that the next `start` offers to servers and to administrators: all
        versions, or fewer to act as an older storage."""
        # Made only once, because parsing takes milliseconds. All processes of the storage have the
        # same settings.
        self._config = StorageConfig(
            zookeeper=_ZOOKEEPER,
            session_timeout_ms=SESSION_MS,
            cluster_root=ROOT,
            port=STORAGE_PORT,
            admin_port=ADMIN_PORT,
            directory=Path("/in-memory"),
            # No checks in the background: they would change the order of events for each seed.
            scrub_bytes_per_second=0,
            tls_settings=TlsSettings(enabled=False),
        )
        self._engine: EventLoopEngine | None = None
        """The engine of the last process."""
        self._shared = shared

    async def start(self) -> None:
        """Start a new process of this storage on its disk."""
        assert self.node is None, f"{self.host} runs already"
        self._shared.network.bring_up(self.host)
        config = self._config
        loop = asyncio.get_running_loop()
        environment = StorageEnvironment(
            network=self._shared.network.host(self.host),
            open_store=self._open_store,
            open_disk=lambda directory: self.disk,
            disk_space=lambda directory: (self.disk.free_bytes(), self.disk.space),
            new_engine=self._new_engine,
            fail=self._end_after,
            clock=loop.time,
            now_ms=lambda: int(loop.time() * 1000),
            allocate_bytes=_ALLOCATED_BYTES,
            # A thread would run on the time of the machine, not on that of the event loop.
            checkpoint_thread=False,
        )
        node = self.new_node(config, environment)
        try:
            await node.start(await learn_cluster(config, environment))
        except BaseException:
            # Nothing of the node may be left, as in `InProcessServer.start`. The node may still
            # hold the lock of its disk; the copy of the disk has no locks.
            await node.stop()
            self.disk = self.disk.restarted()
            raise
        self.node = node

    def new_node(self, config: StorageConfig, environment: StorageEnvironment) -> StorageNode:
        """Return the node of a new process. Tests override this to act as an older storage."""
        return StorageNode(config, *self.versions, environment)

    async def add_partitions(self, cluster: tuple[uuid.UUID, int]) -> None:
        """Create a replica of every partition of a new cluster at this storage, switched on.

        ``cluster`` is the key of the cluster and its number of partitions.
        """
        connection = await RpcConnection.open_admin(
            (self.host, ADMIN_PORT),
            PLAINTEXT,
            cluster,
            self._shared.network.host("administrator"),
        )
        _, num_partitions = cluster
        partitions = tuple(range(num_partitions))
        try:
            await connection.call(
                lambda seq: admin.PartitionAssignmentRequest(
                    seq, partitions, assigned=True, delete_files=False
                ),
                admin.AdminSuccessResponse,
            )
            await connection.call(
                lambda seq: admin.PartitionAvailableRequest(seq, partitions, available=True),
                admin.AdminSuccessResponse,
            )
        finally:
            connection.close()

    def kill(self, *, power_loss: bool) -> None:
        """End the process at once; with ``power_loss`` the disk loses what was not flushed."""
        assert self._engine is not None
        # The node itself is not stopped: that would close its files cleanly. Without the network,
        # and with an engine that does nothing more, it has no further effect.
        self._shared.network.take_down(self.host)
        self._engine.abandon()
        self.disk = self.disk.crashed(self._shared.random) if power_loss else self.disk.restarted()
        self.node = None

    async def stop(self) -> None:
        """Stop the process as SIGTERM does."""
        node, self.node = self.node, None
        if node is not None:
            await node.stop()
            self.disk = self.disk.restarted()

    async def _open_store(
        self, address: str, timeout_ms: int, access: ZooKeeperAccess
    ) -> MetadataStore:
        return await self._shared.open_store(timeout_ms)

    def _new_engine(
        self,
        directory: StorageDirectory,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float],
    ) -> EventLoopEngine:
        self._engine = EventLoopEngine(directory, fail, clock)
        return self._engine

    def _end_after(self, error: BaseException) -> None:
        """End the process because of ``error``, such as a failed flush."""
        log.error("%s: process ended by error: %s", self.host, error)
        if not _is_disk_failure(error):
            self._shared.failures.append(error)
        self.kill(power_loss=False)


def _is_disk_failure(error: BaseException) -> bool:
    """Whether ``error`` is a failure of a disk, not a bug.

    The write-ahead log converts all its errors to DiskFailed, even that of a broken invariant. So
    the cause of a DiskFailed decides.
    """
    if isinstance(error, DiskFailed):
        return error.__cause__ is None or _is_disk_failure(error.__cause__)
    return isinstance(error, OSError)
