"""Run one server: its membership in the cluster, its partitions and its clients.

A *membership* is the presence of the server in ZooKeeper, by which it takes part in the assignment
of partitions (`waltz.metadata.membership`). Touches ZooKeeper (membership, replica assignments,
access rules) and the network (clients, storages).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from waltz.metadata.access import follow_access_rules, read_access_rules
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ReplicaAssignments
from waltz.metadata.core.policy import Shuffle
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.membership import ServerMembership
from waltz.metadata.store import MetadataStore, StoreError
from waltz.metadata.zookeeper_access import OpenStore
from waltz.net import TCP, AcceptedConnections, FrameConnection, Network
from waltz.protocol import CLIENT_SERVER, STORAGE, ProtocolSpec
from waltz.runtime.process import fail_stop_on_error
from waltz_server.core.partition import Partition
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.shell.access_control import AccessControl, close_without_right
from waltz_server.shell.client_connection import ClientConnection
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.paused_connections import PausedConnections
from waltz_server.shell.storage_links import ExpectedCluster, StorageLinks

log = logging.getLogger(__name__)

_RECENT_SHARE = 0.5
"""Share of ``server.transactionDataCacheSize`` for the partitions (`core.reads.recent_records`).

The rest is for the `DataCache`."""
_FINISH_SECONDS = 3.0
"""How long a server that stops waits for its open appends."""
_FINISH_CHECK_SECONDS = 0.005  # The pause between two checks in `_finish_appends`.
_METADATA_ERRORS = (MalformedMetadata, NoCluster, StoreError)
"""Errors of following the metadata after which the server stops in good order."""

OnAcquired = Callable[[HostedPartition], None]
OnReleased = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ServerEnvironment:
    """What a server uses from its environment; a simulation replaces the defaults.

    ``shuffle`` is the randomness of the assignment of partitions (`waltz.metadata.core.policy`).
    """

    network: Network = TCP
    open_store: OpenStore = KazooStore.connect
    shuffle: Shuffle = random.shuffle


PROCESS = ServerEnvironment()
"""The environment of a server that is a process of its own: the network, ZooKeeper, random."""


class ServerNode:
    """One server. Call `start`, then `stop`. Implements `client_connection.PartitionHost`.

    ``client_spec`` and ``storage_spec`` have the protocol versions that the server offers to
    clients and to storages: all versions, or fewer to act as an older server.
    """

    def __init__(
        self,
        config: ServerConfig,
        client_spec: ProtocolSpec = CLIENT_SERVER,
        storage_spec: ProtocolSpec = STORAGE,
        environment: ServerEnvironment = PROCESS,
    ) -> None:
        self.config = config
        self._environment = environment
        self._storage_spec = storage_spec
        self.num_partitions = 0
        self.cluster_name = ""
        self._metadata_store: MetadataStore | None = None
        self._cluster: Cluster | None = None
        self._links: StorageLinks | None = None
        self._membership: ServerMembership | None = None
        self._hosted: dict[int, HostedPartition] = {}
        """The partitions that this server owns."""
        self._closing: set[asyncio.Task[None]] = set()
        """The tasks that close released partitions."""
        self._feed_misses_of_released = 0
        """`Partition.feed_cache_misses` of all released partitions together."""
        self._data_misses_of_released = 0
        """`Partition.data_cache_misses` of all released partitions together."""
        self._assignments = ReplicaAssignments({})
        """The storages of each partition, as ZooKeeper has them."""
        self._connections: dict[Peer, FrameConnection] = {}
        """The open connections of clients."""
        self.paused = PausedConnections(
            self._connections,
            self._is_overloaded,
            # A lambda, because `control` is created below.
            clock=lambda: self.control.clock(),
        )
        """The connections of clients that are not read now."""
        self._preference_change = asyncio.Lock()
        """Held during `prefer`, so that each change starts from the result of the one before."""
        self._metadata_tasks: list[asyncio.Task[None]] = []
        """The tasks that follow replica assignments, access rules and membership in ZooKeeper."""
        self._leaving = False
        """Whether `stop` was called."""
        self._on_acquired: OnAcquired = lambda hosted: None
        self._on_released: OnReleased = lambda partition: None
        self._data_cache = DataCache(int(config.data_cache_bytes * (1 - _RECENT_SHARE)))
        self._settings = config.partition
        self.accepted = AcceptedConnections(
            config.max_connections, max_unsent_bytes=config.max_unsent_bytes
        )
        """The connections on the port for clients."""
        self.control = AccessControl(
            clock=lambda: asyncio.get_running_loop().time(),
            required=config.access_required,
            limits=config.quota_limits,
        )
        """The access rules of the cluster, and the quotas of the clients."""
        self.listener = environment.network.listener(
            client_spec,
            lambda: ClientConnection(self, control=self.control),
            config.tls,
            self.accepted,
        )

    @property
    def server_id(self) -> int:
        """This server's id in the cluster, 0 before it has taken one from ZooKeeper."""
        return self._membership.server_id if self._membership is not None else 0

    @property
    def has_joined(self) -> bool:
        """Whether the cluster has assigned partitions, possibly none, to this server."""
        return self._membership is not None and self._membership.has_joined

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port that clients connect to."""
        config = self.config
        return config.advertised_host, config.advertised_port or self.listener.port

    @property
    def store(self) -> MetadataStore:
        """The metadata store; only after `start`."""
        assert self._metadata_store is not None
        return self._metadata_store

    @property
    def feed_cache_misses(self) -> int:
        """Number of times that a feed needed a read of a replica, also in released partitions."""
        return self._feed_misses_of_released + sum(
            hosted.core.feed_cache_misses for hosted in self.partitions()
        )

    @property
    def data_cache_misses(self) -> int:
        """Number of times that a request for transaction data waited for a read of a replica.

        The requests to released partitions are included.
        """
        return self._data_misses_of_released + sum(
            hosted.core.data_cache_misses for hosted in self.partitions()
        )

    async def start(self) -> None:
        """Call `listen` and `join`; raises their errors."""
        await self.listen()
        await self.join()

    async def listen(self) -> None:
        """Connect to ZooKeeper and listen for clients; the server gets partitions after `join`.

        Raises ListenFailed, NoCluster, and the errors of reading the metadata.
        """
        config = self.config
        self._metadata_store = await self._environment.open_store(
            config.zookeeper, config.session_timeout_ms, config.zookeeper_access
        )
        self._cluster = cluster = Cluster(self._metadata_store, config.cluster_root)
        params, store_params = await cluster.params(), await cluster.store_params()
        self.cluster_name = params.name
        self.num_partitions = params.num_partitions
        # One share more than partitions: a partition that is acquired again while its old object
        # closes has two objects.
        shares = params.num_partitions + 1
        self._settings = replace(
            config.partition,
            feed_cache_bytes=config.feed_cache_bytes // shares,
            recent_bytes=int(config.data_cache_bytes * _RECENT_SHARE) // shares,
        )
        identity = ExpectedCluster(store_params.key, store_params.num_partitions)
        self._links = StorageLinks(
            config.tls, identity, self._storage_spec, self._environment.network
        )
        self._assignments = (await cluster.usable_replica_assignments()).value
        # Before the first client connects: until then the server must know what clients may do.
        access = await read_access_rules(cluster)
        self.control.replace(None if access is None else access.value)
        self.listener.start(config.bind_host, config.port)
        self._begin_to_follow(self._follow_assignments())
        self._begin_to_follow(self._follow_access_rules())
        shuffle, uses_tls = self._environment.shuffle, config.tls.enabled
        self._membership = ServerMembership(
            cluster, self.endpoint, self._set_owned, shuffle=shuffle, uses_tls=uses_tls
        )

    async def join(self) -> None:
        """Join the cluster, which then assigns partitions; raises as `ServerMembership.join`."""
        assert self._membership is not None
        await self._membership.join()
        self._begin_to_follow(self._membership.finished())

    async def stop(self) -> None:
        """Leave the cluster, finish open appends, and close everything.

        The server leaves first, so that other servers take over its partitions at once.
        """
        self._leaving = True
        self.paused.stop()
        # Requests that arrive from now on stay unread: the clients send them to the new owners, to
        # which they change when this server has left ZooKeeper.
        for connection in self._connections.values():
            connection.pause_reading()
        if self._membership is not None:
            await self._membership.leave()
        await self._finish_appends()
        for task in self._metadata_tasks:
            task.cancel()
        await self.listener.close()
        await asyncio.gather(*(hosted.close() for hosted in self._hosted.values()))
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._links is not None:
            await self._links.close()
        if self._metadata_store is not None:
            await self._metadata_store.close()

    async def wait_for_failure(self) -> None:
        """Wait until the server can no longer take part in the cluster; raise the error, if any."""
        ended, _ = await asyncio.wait(self._metadata_tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()

    def observe_partitions(self, acquired: OnAcquired, released: OnReleased) -> None:
        """Set the callbacks for each partition that this server acquires or releases.

        ``acquired`` is also called now for each partition that this server already has.
        """
        self._on_acquired, self._on_released = acquired, released
        for hosted in self._hosted.values():
            acquired(hosted)

    def replicas(self) -> dict[str, list[str]]:
        """Return the storages of each partition on this server."""
        return {str(p): list(self._assignments.storages_of(p)) for p in sorted(self._hosted)}

    # ---- for connections (`PartitionHost`)

    def partition(self, partition: int) -> HostedPartition | None:
        """Return a partition, None if this server does not own it."""
        return self._hosted.get(partition)

    def partitions(self) -> list[HostedPartition]:
        """Return all partitions that this server owns."""
        return list(self._hosted.values())

    def connected(self, peer: Peer, connection: FrameConnection) -> None:
        """Register a client's connection after its handshake."""
        self._connections[peer] = connection
        if self._leaving:
            connection.pause_reading()

    def disconnected(self, peer: Peer) -> None:
        """Forget a client's connection, which is closed."""
        connection = self._connections.pop(peer, None)
        if connection is not None:
            self.paused.forget(connection)

    def pause_client(self, connection: FrameConnection, overloaded: int | None = None) -> None:
        """See `PartitionHost`; a server that stops reads no connection any more."""
        if not self._leaving:
            self.paused.pause(connection, overloaded)

    async def check_storages(self) -> dict[str, bool]:
        """Dial every storage that has partitions assigned; return for each whether it answered."""
        assert self._links is not None
        used = frozenset(name for name, held in self._assignments.partitions.items() if held)
        return await self._links.check(used)

    async def prefer(self, partitions: tuple[int, ...], *, preferred: bool) -> None:
        """Add ``partitions`` to those that this server prefers to own, or remove them.

        Raises PolicyError if no assignment can be computed now; the preference is kept. Raises
        StoreError, NoCluster and MalformedMetadata; the preference is not changed.
        """
        assert self._membership is not None
        async with self._preference_change:
            before, named = self._membership.preferred, frozenset(partitions)
            await self._membership.prefer(sorted(before | named if preferred else before - named))

    # ---- changes in the cluster

    def _begin_to_follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that follows metadata in ZooKeeper.

        An unexpected error in it ends the process: it shows a broken invariant, by which a stop in
        good order could write to the log.
        """
        task = fail_stop_on_error(asyncio.create_task(work), _METADATA_ERRORS)
        self._metadata_tasks.append(task)

    def _set_owned(self, owned: Mapping[int, int]) -> None:
        """Acquire and release partitions, so that this server has exactly those in ``owned``.

        ``owned`` maps each partition to its generation.
        """
        for partition in self._hosted.keys() - owned.keys():
            log.info("partition %d: released", partition)
            self._on_released(partition)
            released = self._hosted.pop(partition)
            self._feed_misses_of_released += released.core.feed_cache_misses
            self._data_misses_of_released += released.core.data_cache_misses
            task = asyncio.create_task(released.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        for partition, generation in sorted(owned.items()):
            hosted = self._hosted.get(partition)
            if hosted is None:
                log.info("partition %d: acquired (generation %d)", partition, generation)
                hosted = self._hosted[partition] = self._new_partition(partition)
                self._on_acquired(hosted)
                hosted.core.set_replicas(self._assignments.storages_of(partition))
            hosted.core.set_generation(generation)
            hosted.perform_effects()

    def _new_partition(self, partition: int) -> HostedPartition:
        assert self._cluster is not None
        assert self._links is not None
        core = Partition(partition, self._settings, self._data_cache)
        return HostedPartition(core, self._cluster, self._links, self._connections)

    async def _follow_assignments(self) -> None:
        """Replicate each partition to the storages that ZooKeeper assigns to it, from now on."""
        assert self._cluster is not None
        async for assignments in self._cluster.follow_replica_assignments():
            self._assignments = assignments
            for partition, hosted in self._hosted.items():
                hosted.core.set_replicas(assignments.storages_of(partition))
                hosted.perform_effects()

    async def _follow_access_rules(self) -> None:
        """Apply the access rules in ZooKeeper from now on."""
        assert self._cluster is not None
        async for rules in follow_access_rules(self._cluster):
            before = self.control.rules
            if self.control.replace(rules):
                connections = list(self._connections.values())
                close_without_right(connections, before, self.control.rules, self._hosted)

    async def _finish_appends(self) -> None:
        """Wait until open appends are resolved, so that their clients get the outcomes.

        This server has left the cluster, so other servers own its partitions. Do not wait for a
        partition without an open session: a new session, which its appends would need, would end
        the session of the new owner.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _FINISH_SECONDS
        while unfinished := sum(
            h.core.open_appends for h in self.partitions() if h.core.store.is_open
        ):
            if loop.time() > deadline:
                log.warning(
                    "stopping: %d appends have no outcome after %g s, not waiting any longer; "
                    "their clients look for them in the partition's log",
                    unfinished,
                    _FINISH_SECONDS,
                )
                return
            await asyncio.sleep(_FINISH_CHECK_SECONDS)

    def _is_overloaded(self, partition: int) -> bool:
        """Whether ``partition`` is on this server and has too many open appends."""
        hosted = self._hosted.get(partition)
        return hosted is not None and hosted.core.overloaded
