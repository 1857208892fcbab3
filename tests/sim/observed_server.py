"""A server: the real node, whose partitions report to the checks what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from typing_extensions import override

from tests.sim.alarm import Alarm
from tests.sim.checker import Checker
from tests.sim.cluster_view import ClusterView, PartitionView
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.range_checks import OpenReads
from tests.sim.unreliable_store import Trouble, UnreliableStore
from waltz.metadata.cluster import Cluster
from waltz.metadata.store import MetadataStore, SessionState
from waltz.metadata.zookeeper_access import ZooKeeperAccess
from waltz.net import FrameConnection
from waltz.net.core.backoff import Backoff
from waltz.protocol import CLIENT_SERVER, STORAGE, ProtocolSpec
from waltz.protocol import client_server as cs
from waltz.protocol import storage as st
from waltz.protocol.frames import HEAD_BYTES
from waltz.testing.nodes import InProcessServer, SharedEnvironment
from waltz_server.core.effects import (
    DisconnectClient,
    Effect,
    SendToClient,
    SendToStorage,
    WriteLog,
)
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.partition import Partition, PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.data_cache import DataCache
from waltz_server.core.reads.data_reads import READ_BYTES
from waltz_server.core.reads.read_purposes import RangeRequest
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.node import ServerEnvironment, ServerNode
from waltz_server.shell.storage_links import StorageLinks

SESSION_SECONDS = 1.0
"""About how long the ZooKeeper session of a killed server lasts."""

_RANGE_ANSWERS = (24, 26)
"""Types of the answers to reads of ranges."""
_DATA_CACHE_BYTES = 1 << 20


def short_log_settings(random: Random) -> PartitionSettings:
    """Return settings that make rare events frequent in a log of some hundred transactions."""
    return PartitionSettings(
        lock_table_size=random.choice((50, 500, 5000)),
        min_fetch=random.choice((3, 10)),
        realtime_threshold=random.choice((12, 40)),
        feed_cache_bytes=random.choice((1, 10_000)),
        recent_bytes=random.choice((1, 2_000, 1 << 20)),
        replication=ReplicationLimits(
            batch_records=random.choice((3, 10, 100)),
            batches_in_flight=random.choice((1, 2, 4)),
            tail_bytes=random.choice((1, 2000, 1 << 20)),
            copy_records=random.choice((5, 20, 100)),
            checkpoint_interval=random.choice((15, 50, 100_000)),
        ),
        retry=Backoff(0.02, 1.0),
    )


class Sight:
    """What the checks see of one partition: its view in ZooKeeper, its settings, its checker."""

    def __init__(self, view: PartitionView, settings: PartitionSettings, checker: Checker) -> None:
        self.view = view
        self.settings = settings
        self.checker = checker


class Surveillance:
    """What all observed servers use."""

    def __init__(
        self, clock: LoopClock, history: History, alarm: Alarm, sights: Sequence[Sight]
    ) -> None:
        self.clock = clock
        self.history = history
        self.alarm = alarm
        self.sights = sights


class ObservedCore(Partition):
    """A partition that reports the reads of ranges."""

    def __init__(
        self, partition: int, settings: PartitionSettings, data: DataCache, reads: OpenReads
    ) -> None:
        super().__init__(partition, settings, data)
        self._open_reads = reads

    @override
    def read_range(self, peer: Peer, request: RangeRequest) -> None:
        self._open_reads.record_request(peer, request)
        super().read_range(peer, request)

    @override
    def lost(self, peer: Peer) -> None:
        self._open_reads.lost(peer)
        super().lost(peer)


class ObservedPartition(HostedPartition):
    """A hosted partition whose marks, sessions and answers are checked."""

    def __init__(
        self,
        name: str,
        surveillance: Surveillance,
        sight: Sight,
        cluster: Cluster,
        links: StorageLinks,
        connections: Mapping[Peer, FrameConnection],
    ) -> None:
        self.name = name
        self._history = surveillance.history
        self._alarm = surveillance.alarm
        self._view, self._checker = sight.view, sight.checker
        self._mark = -1
        self._session_id = -1
        self._session_replicas: tuple[str, ...] = ()
        self._confirmed: int | None = None
        self.open_reads = OpenReads(
            name, surveillance.clock, self._history.counters, lambda: self.core.high_water_mark
        )
        data = DataCache(_DATA_CACHE_BYTES)
        core = ObservedCore(sight.view.partition, sight.settings, data, self.open_reads)
        super().__init__(core, cluster, links, connections)

    @override
    async def close(self) -> None:
        await super().close()
        try:
            self.open_reads.ended()
        except AssertionError as error:
            self._alarm.ring(error)

    @override
    def perform_effects(self) -> None:
        try:
            self._check_mark()
            super().perform_effects()
        except Exception as error:
            # The product may handle an exception in a way that hides it: a run ends at once.
            self._alarm.ring(error)
            raise

    @override
    def _perform(self, effect: Effect) -> None:
        match effect:
            case WriteLog(_, text):
                self._history.note(self.name, text)
            case DisconnectClient(_, reason):
                self._history.note(self.name, f"disconnects a client: {reason}")
            case SendToClient(peer, frames) if frames[HEAD_BYTES] in _RANGE_ANSWERS:
                self._check_range(peer, frames)
            case SendToStorage(storage, st.BoundedRecordListRequest(max_bytes=size)) if (
                size != READ_BYTES  # reads of single transactions have this bound
            ):
                rpc = self._storages[storage]._link.connection
                older = rpc is not None and rpc.version < st.BOUNDED_LISTS_SINCE
                which = "an older storage" if older else "a storage"
                self._history.counters[f"server: a range read from {which}"] += 1
        super()._perform(effect)

    def _check_mark(self) -> None:
        core, store = self.core, self.core.store
        mark = store.high_water_mark
        if mark is None:
            return
        session = store.session
        if session is not None and store.is_open and session.session_id != self._session_id:
            self._session_id = session.session_id
            self._session_replicas = session.replicas
            self._confirmed = core.generation
            self._checker.session_opened(self.name, self._session_id, mark)
        if mark > self._mark:
            self._mark = mark
            self._history.detail(
                self.name, "commits up to {} in session {}", mark, self._session_id
            )
            self._checker.server_committed(
                self.name, self._session_id, mark, self._session_replicas, self._view.value
            )

    def _check_range(self, peer: Peer, frames: bytes) -> None:
        answer = cs.decode(frames[HEAD_BYTES:], peer.version)
        assert isinstance(answer, cs.RecordsResponse | cs.HeadersResponse)
        confirmed = self.core.generation == self._confirmed
        self.open_reads.answered(peer, answer, confirmed=confirmed)


class ObservedNode(ServerNode):
    """A server whose partitions are observed."""

    def __init__(
        self,
        name: str,
        surveillance: Surveillance,
        config: ServerConfig,
        environment: ServerEnvironment,
        versions: tuple[ProtocolSpec, ProtocolSpec],
    ) -> None:
        super().__init__(config, *versions, environment)
        self.name = name
        self.version = max(versions[0].versions)
        self._surveillance = surveillance

    def observed(self, partition: int) -> ObservedPartition | None:
        """Return a partition that this server owns, None if it does not own it."""
        hosted = self.partition(partition)
        assert hosted is None or isinstance(hosted, ObservedPartition)
        return hosted

    def assigned(self, partition: int) -> tuple[str, ...]:
        """Return the storages of a partition by the assignment that this server has read last."""
        return tuple(self._assignments.storages_of(partition))

    @override
    def _new_partition(self, partition: int) -> HostedPartition:
        assert self._cluster is not None
        assert self._links is not None
        watch = self._surveillance
        return ObservedPartition(
            self.name,
            watch,
            watch.sights[partition],
            self._cluster,
            self._links,
            self._connections,
        )


class _Process(InProcessServer):
    """One process of a server."""

    def __init__(
        self, number: int, world: SharedEnvironment, version: int, server: SimServer
    ) -> None:
        super().__init__(number, world)
        self.versions = (CLIENT_SERVER.limited_to(*range(version + 1)), STORAGE)
        self._server = server

    @override
    def new_node(self, config: ServerConfig, environment: ServerEnvironment) -> ServerNode:
        server = self._server
        return ObservedNode(server.name, server.surveillance, config, environment, self.versions)

    @override
    async def _open_store(
        self, address: str, timeout_ms: int, access: ZooKeeperAccess
    ) -> MetadataStore:
        await super()._open_store(address, timeout_ms, access)
        assert self.store is not None
        return self._server.unreliable(self.store)


class SimServer:
    """A server that is killed and started again, each time in another version."""

    def __init__(
        self,
        number: int,
        world: SharedEnvironment,
        surveillance: Surveillance,
        random: Random,
        view: ClusterView,
        trouble: Trouble,
    ) -> None:
        self.name = f"server-{number}"
        self.up = False
        self.surveillance = surveillance
        self._number = number
        self._world = world
        self._random = random
        self._view = view
        self._trouble = trouble
        self._process: _Process | None = None
        self._starting = False
        self._ending: asyncio.Task[None] | None = None

    @property
    def node(self) -> ObservedNode | None:
        """The node, None while the process is down."""
        node = self._process.node if self._process is not None and self.up else None
        assert node is None or isinstance(node, ObservedNode)
        return node

    @property
    def server_id(self) -> int:
        """The id in the cluster, 0 while the process is down."""
        return self.node.server_id if self.node is not None else 0

    def unreliable(self, store: Any) -> UnreliableStore:
        """Return the session of a new process."""
        watch = self.surveillance
        environment = (watch.clock, self._random, self._view, watch.history)
        return UnreliableStore(store, self._world.zookeeper, environment, self._trouble)

    def start(self) -> None:
        """Start a new process, unless there is one."""
        if not self.up and not self._starting:
            self._starting = True
            self.surveillance.alarm.spawn(self._start())

    def crash(self) -> None:
        """End the process at once; its ZooKeeper session expires at once or a little later."""
        if self.up:
            self.surveillance.history.fault(self.name, "server killed")
            self.up = False
            self._ending = self.surveillance.alarm.spawn(self._kill())

    def lag(self) -> None:
        """Let the process read an old state of ZooKeeper until `catch_up`."""
        if self._connected():
            assert self._process is not None
            assert self._process.store is not None
            self._world.zookeeper.lag(self._process.store)

    def catch_up(self) -> None:
        """Let the process read the present state of ZooKeeper."""
        if self._process is not None and self._process.store is not None:
            self._world.zookeeper.catch_up(self._process.store)

    def expire(self, seconds: float) -> None:
        """Let the ZooKeeper session expire; the process gets a new one after ``seconds``."""
        if not self._connected():
            return
        assert self._process is not None
        store = self._process.store
        assert store is not None
        self.surveillance.history.fault(self.name, "session expired")
        self._world.zookeeper.expire(store)
        self.surveillance.clock.after(seconds, self._resume, store)

    def suspend(self, seconds: float) -> None:
        """Cut the process off from ZooKeeper for ``seconds``; its session stays."""
        if not self._connected():
            return
        assert self._process is not None
        store = self._process.store
        assert store is not None
        self.surveillance.history.fault(self.name, "disconnected from ZooKeeper")
        self._world.zookeeper.suspend(store)
        self.surveillance.clock.after(seconds, self._resume, store)

    def _connected(self) -> bool:
        store = self._process.store if self._process is not None and self.up else None
        return store is not None and store.health.state is SessionState.CONNECTED

    def _resume(self, store: Any) -> None:
        if store.health.state in (SessionState.SUSPENDED, SessionState.LOST):
            self._world.zookeeper.resume(store)

    async def _start(self) -> None:
        if self._ending is not None:
            # A process that was killed holds its address until its tasks have ended.
            await asyncio.wait([self._ending])
        version = self._random.choice((4, 5, 5, 5))
        self._process = _Process(self._number, self._world, version, self)
        self.surveillance.history.note(self.name, f"starts, with version {version}")
        await self._process.start()
        self._starting = False
        self.up = True

    async def _kill(self) -> None:
        process = self._process
        assert process is not None
        assert process.node is not None
        assert process.store is not None
        session_id = process.store.health.session_id
        expire = self._random.random() < 0.5
        for hosted in process.node.partitions():
            assert isinstance(hosted, ObservedPartition)
            hosted.open_reads.clear()
        await process.kill(expire=expire)
        if not expire and session_id is not None:
            seconds = SESSION_SECONDS * (0.5 + self._random.random())
            end = self._world.zookeeper.end_session
            self.surveillance.clock.after(seconds, end, session_id)
