"""A server: the real node, whose partitions report to the checks what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from typing_extensions import override

from tests.sim.checker import Checker
from tests.sim.cluster_view import ClusterView, PartitionView
from tests.sim.range_checks import OpenReads
from tests.sim.recorded_sessions import RecordedSessions
from tests.sim.run_environment import RunEnvironment
from tests.sim.short_logs import COPY_BYTES
from tests.sim.unreliable_store import AnswerLoss, UnreliableStore
from waltz.metadata.cluster import Cluster
from waltz.metadata.store import MetadataStore, SessionState
from waltz.metadata.zookeeper_access import ZooKeeperAccess
from waltz.net import FrameConnection
from waltz.protocol import CLIENT_SERVER, STORAGE, ProtocolSpec
from waltz.protocol import client_server as cs
from waltz.protocol import storage as st
from waltz.protocol.frames import HEAD_BYTES
from waltz.testing.nodes import InProcessServer, SharedEnvironment
from waltz.testing.zookeeper import MemoryStore
from waltz_server.core.effects import (
    DisconnectClient,
    Effect,
    SendToClient,
    SendToStorage,
    WriteLog,
)
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

_RANGE_ANSWERS = (24, 26, 32)
"""Types of the answers to reads of ranges."""
_DATA_CACHE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CheckedPartition:
    """One partition for all servers: its view in ZooKeeper, its settings, its checker."""

    view: PartitionView
    settings: PartitionSettings
    checker: Checker


@dataclass(frozen=True, slots=True)
class ServerChecks:
    """What all observed servers use."""

    environment: RunEnvironment
    partitions: Sequence[CheckedPartition]


class ObservedCore(Partition):
    """A partition that records the reads of ranges in ``reads``."""

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
        environment: RunEnvironment,
        checked: CheckedPartition,
        cluster: Cluster,
        links: StorageLinks,
        connections: Mapping[Peer, FrameConnection],
    ) -> None:
        self.name = name
        self._history = environment.history
        self._failure = environment.failure
        self._view, self._checker = checked.view, checked.checker
        self._checked_mark = -1
        """The newest high-water mark that was checked."""
        self._session_id = -1
        """The newest store session that has opened here."""
        self._session_replicas: tuple[str, ...] = ()
        self._session_generation: int | None = None
        self.open_reads = OpenReads(
            name, environment.clock, self._history.counters, lambda: self.core.high_water_mark
        )
        data = DataCache(_DATA_CACHE_BYTES)
        core = ObservedCore(checked.view.partition, checked.settings, data, self.open_reads)
        super().__init__(core, cluster, links, connections)
        self._sessions = RecordedSessions(core.store, self._history.counters)

    @override
    async def close(self) -> None:
        await super().close()
        try:
            self.open_reads.check_all_answered()
        except AssertionError as error:
            self._failure.stop_run(error)

    @override
    def storage_down(self, storage: str) -> None:
        self._sessions.lost(storage)
        super().storage_down(storage)

    @override
    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        self._sessions.answered(storage, request, response)
        super().answered(storage, request, response, elapsed_ms)

    @override
    def perform_effects(self) -> None:
        # Every input of the partition is followed by a call of this method.
        try:
            self._sessions.observe()
            self._check_session_and_mark()
            super().perform_effects()
        except Exception as error:
            # The product may handle an exception in a way that hides it: a run ends at once.
            self._failure.stop_run(error)
            raise

    @override
    def _perform(self, effect: Effect) -> None:
        self._sessions.performs(effect)
        match effect:
            case WriteLog(_, text):
                self._history.note(self.name, text)
            case DisconnectClient(_, reason):
                self._history.note(self.name, f"disconnects a client: {reason}")
            case SendToClient(peer, frames, data) if frames[HEAD_BYTES] in _RANGE_ANSWERS:
                self._check_range(peer, frames + data)
            case SendToStorage(
                storage,
                st.BoundedRecordListRequest(max_bytes=size)
                | st.StoredRecordListRequest(max_bytes=size),
            ) if (
                # The bounds of reads of single transactions, and of copies.
                size not in (READ_BYTES, COPY_BYTES)
            ):
                rpc = self._storages[storage]._link.connection
                older = rpc is not None and rpc.version < st.BOUNDED_LISTS_SINCE
                which = "an older storage" if older else "a storage"
                self._history.counters[f"server: a range read from {which}"] += 1
        super()._perform(effect)

    def _check_session_and_mark(self) -> None:
        """Check a store session that has opened, and a high-water mark that has advanced."""
        core, store = self.core, self.core.store
        mark = store.high_water_mark
        if mark is None:
            return
        session = store.session
        if session is not None and store.is_open and session.session_id != self._session_id:
            self._session_id = session.session_id
            self._session_replicas = session.replicas
            self._session_generation = core.generation
            self._checker.session_opened(self.name, self._session_id, mark)
        if mark > self._checked_mark:
            self._checked_mark = mark
            self._history.detail(
                self.name, "commits up to {} in session {}", mark, self._session_id
            )
            self._checker.server_committed(
                self.name, self._session_id, mark, self._session_replicas, self._view.metadata
            )

    def _check_range(self, peer: Peer, frames: bytes) -> None:
        answer = cs.decode(frames[HEAD_BYTES:], peer.version)
        assert isinstance(
            answer, cs.RecordsResponse | cs.StoredRecordsResponse | cs.HeadersResponse
        )
        session_opened = self.core.generation == self._session_generation
        self.open_reads.check_answer(peer, answer, session_opened=session_opened)


class ObservedNode(ServerNode):
    """A server whose partitions are observed."""

    def __init__(
        self,
        name: str,
        checks: ServerChecks,
        config: ServerConfig,
        environment: ServerEnvironment,
        versions: tuple[ProtocolSpec, ProtocolSpec],
    ) -> None:
        super().__init__(config, *versions, environment)
        self.name = name
        self.version = max(versions[0].versions)
        self._checks = checks

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
        return ObservedPartition(
            self.name,
            self._checks.environment,
            self._checks.partitions[partition],
            self._cluster,
            self._links,
            self._connections,
        )


class _Process(InProcessServer):
    """One process of a server, of the protocol version ``version``."""

    def __init__(
        self, number: int, shared: SharedEnvironment, version: int, server: SimServer
    ) -> None:
        super().__init__(number, shared)
        self.versions = (CLIENT_SERVER.limited_to(*range(version + 1)), STORAGE)
        self._server = server

    @override
    def new_node(self, config: ServerConfig, environment: ServerEnvironment) -> ServerNode:
        server = self._server
        return ObservedNode(server.name, server.checks, config, environment, self.versions)

    @override
    async def _open_store(
        self, address: str, timeout_ms: int, access: ZooKeeperAccess
    ) -> MetadataStore:
        await super()._open_store(address, timeout_ms, access)
        assert self.store is not None
        return self._server.unreliable(self.store)


class SimServer:
    """A server that is killed and started again, each time in a version chosen at random."""

    def __init__(
        self,
        number: int,
        shared: SharedEnvironment,
        checks: ServerChecks,
        random: Random,
        view: ClusterView,
        answer_loss: AnswerLoss,
    ) -> None:
        self.name = f"server-{number}"
        self.up = False
        """Whether a process runs whose start has ended."""
        self.checks = checks
        self._clock = checks.environment.clock
        self._history = checks.environment.history
        self._failure = checks.environment.failure
        self._number = number
        self._shared = shared
        self._random = random
        self._view = view
        self._answer_loss = answer_loss
        self._process: _Process | None = None
        """The last process, which may have ended."""
        self._starting = False
        self._ending: asyncio.Task[None] | None = None
        """The task that ends the process that was killed last."""

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

    def unreliable(self, store: MemoryStore) -> UnreliableStore:
        """Return the session of a new process, whose answers may be lost."""
        return UnreliableStore(
            store,
            self._shared.zookeeper,
            self._clock,
            self._history,
            self._random,
            self._view,
            self._answer_loss,
        )

    def start(self) -> None:
        """Start a new process, unless there is one."""
        if not self.up and not self._starting:
            self._starting = True
            self._failure.spawn(self._start())

    def crash(self) -> None:
        """End the process at once; its ZooKeeper session expires at once or a little later."""
        if self.up:
            self._history.fault(self.name, "server killed")
            self.up = False
            self._ending = self._failure.spawn(self._kill())

    def lag(self) -> None:
        """Let the process read an old state of ZooKeeper until `catch_up`."""
        store = self._connected_store
        if store is not None:
            self._shared.zookeeper.lag(store)

    def catch_up(self) -> None:
        """Let the process read the present state of ZooKeeper."""
        if self._process is not None and self._process.store is not None:
            self._shared.zookeeper.catch_up(self._process.store)

    def expire(self, seconds: float) -> None:
        """Let the ZooKeeper session expire; the process gets a new one after ``seconds``."""
        store = self._connected_store
        if store is not None:
            self._history.fault(self.name, "session expired")
            self._shared.zookeeper.expire(store)
            self._clock.after(seconds, self._resume, store)

    def suspend(self, seconds: float) -> None:
        """Cut the process off from ZooKeeper for ``seconds``; its session stays."""
        store = self._connected_store
        if store is not None:
            self._history.fault(self.name, "disconnected from ZooKeeper")
            self._shared.zookeeper.suspend(store)
            self._clock.after(seconds, self._resume, store)

    @property
    def _connected_store(self) -> MemoryStore | None:
        """The ZooKeeper session of the process, None while it is down or not connected."""
        store = self._process.store if self._process is not None and self.up else None
        if store is None or store.health.state is not SessionState.CONNECTED:
            return None
        return store

    def _resume(self, store: MemoryStore) -> None:
        if store.health.state in (SessionState.SUSPENDED, SessionState.LOST):
            self._shared.zookeeper.resume(store)

    async def _start(self) -> None:
        if self._ending is not None:
            # A process that was killed holds its address until its tasks have ended.
            await asyncio.wait([self._ending])
        version = self._random.choice((4, 5, 6, 7, 7))
        self._process = _Process(self._number, self._shared, version, self)
        self._history.note(self.name, f"starts, with version {version}")
        await self._process.start()
        self._starting = False
        self.up = True

    async def _kill(self) -> None:
        process = self._process
        assert process is not None
        assert process.node is not None
        assert process.store is not None
        session_id = process.store.health.session_id
        expire_now = self._random.random() < 0.5
        for hosted in process.node.partitions():
            assert isinstance(hosted, ObservedPartition)
            hosted.open_reads.killed()
        await process.kill(expire=expire_now)
        if not expire_now and session_id is not None:
            seconds = SESSION_SECONDS * (0.5 + self._random.random())
            self._clock.after(seconds, self._shared.zookeeper.end_session, session_id)
