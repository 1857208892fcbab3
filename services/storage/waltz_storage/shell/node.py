"""Run one storage node: its directory, its engine and its ports.

Touches the disk, threads and the network, and ZooKeeper once, to read the cluster's key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from waltz.metadata.cluster import Cluster as ClusterMetadata
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.zookeeper_access import OpenStore
from waltz.net import TCP, AcceptedConnections, ListeningPort, Network
from waltz.protocol import ADMIN, STORAGE, ProtocolSpec
from waltz.runtime.http import serve_http
from waltz.runtime.metrics import ProcessMetrics
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.disk import Disk
from waltz_storage.core.engine.engine import Arrival, Engine
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.open_sessions import OpenSessions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.config import EngineKind, StorageConfig
from waltz_storage.shell.connections import AdminConnection, ClusterIdentity, ServerConnection
from waltz_storage.shell.engine_thread import EngineThread
from waltz_storage.shell.mailbox import Mailbox
from waltz_storage.shell.metrics import (
    OpenPartition,
    StorageSources,
    health,
    readiness,
    storage_metrics,
)
from waltz_storage.shell.outside_jobs import OutsideJobs
from waltz_storage.shell.peer_pull import PeerPulls
from waltz_storage.shell.posix_disk import PosixDisk
from waltz_storage.shell.scrubbing import Scrubbing
from waltz_storage.shell.wal_commits import DIRECT_BYTES
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

T = TypeVar("T")

log = logging.getLogger(__name__)

EXIT_DISK_FAILED = 70
"""The exit status after a failure of the disk or a bug of the storage, which ends it at once."""


def _disk_space(directory: Path) -> tuple[int, int]:
    """Return the free bytes of the disk of ``directory``, and its size without reserved space.

    Reserved space cannot be used by a storage. If it counted as part of the size, an almost empty
    disk with much reserved space would be reported as almost full.
    """
    usage = shutil.disk_usage(directory)
    return usage.free, usage.used + usage.free


def _now_ms() -> int:
    """Return the milliseconds since 1970."""
    return int(time.time() * 1000)


class EngineRunner(Protocol):
    """Runs an engine: `EngineThread` in a process, other implementations in simulations."""

    engine: Engine

    @property
    def flushes(self) -> int:
        """How many flushes of files the rounds of appends have begun so far."""

    def start(self) -> None:
        """Begin to run the engine."""

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        """Queue ``arrivals``; one step of the engine gets all of them.

        Their answers are delivered on the event loop of the engine.
        """

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the event loop of the engine, which serves the port for servers."""

    async def stop(self) -> None:
        """Finish all submitted jobs and close the directory cleanly."""


NewEngine = Callable[
    [StorageDirectory, Callable[[BaseException], None], Callable[[], float]], EngineRunner
]
"""Returns a new `EngineRunner`; its parameters are those of `EngineThread`."""


def _die(error: BaseException) -> None:
    """End the process: the content of the disk is unknown until recovery has opened the files."""
    log.critical("storage failed: %s; ending the process at once", error, exc_info=error)
    logging.shutdown()
    os._exit(EXIT_DISK_FAILED)


@dataclass(frozen=True, slots=True)
class StorageEnvironment:
    """What a storage uses from its environment; a simulation replaces the defaults.

    ``fail`` must end the node at once. ``disk_space`` returns the free bytes of the disk of a
    directory, and its size. ``clock`` returns seconds from any beginning, ``now_ms`` milliseconds
    since 1970. ``allocate_bytes`` is how many bytes at most a data file is allocated ahead.

    The engine ``wal`` makes checkpoints on a thread if ``checkpoint_thread`` is set, otherwise only
    when its log is full. It writes data of at least ``direct_bytes`` to their file and not to its
    log.
    """

    network: Network = TCP
    open_store: OpenStore = KazooStore.connect
    open_disk: Callable[[Path], Disk] = PosixDisk
    disk_space: Callable[[Path], tuple[int, int]] = _disk_space
    new_engine: NewEngine = EngineThread
    fail: Callable[[BaseException], None] = _die
    clock: Callable[[], float] = time.monotonic
    now_ms: Callable[[], int] = _now_ms
    allocate_bytes: int = 2 << 20
    checkpoint_thread: bool = True
    direct_bytes: int = DIRECT_BYTES


PROCESS = StorageEnvironment()


class StorageNode:
    """One storage node. Call `start`, then `stop`.

    ``servers`` and ``administrators`` are the protocol versions that the node offers on the two
    ports: all versions, or fewer to act as an older node.
    """

    def __init__(
        self,
        config: StorageConfig,
        servers: ProtocolSpec = STORAGE,
        administrators: ProtocolSpec = ADMIN,
        environment: StorageEnvironment = PROCESS,
    ) -> None:
        self.config = config
        self._environment = environment
        self._servers = servers
        self._administrators = administrators
        self.listener: ListeningPort | None = None
        self.admin_listener: ListeningPort | None = None
        self._directory: StorageDirectory | None = None
        self._engine: EngineRunner | None = None
        self._metrics: ProcessMetrics[StorageSources, OpenPartition] | None = None
        self._scrubber: Scrubber | None = None
        self._open_sessions = OpenSessions()
        self._scrubbing: asyncio.Task[None] | None = None
        self._pulls: PeerPulls | None = None

    async def start(self, cluster: ClusterIdentity) -> None:
        """Open the storage directory, start the engine and listen.

        Raises DirectoryRefused, NoSpace, DiskFailed, ListenFailed, TlsConfigError.
        """
        config, environment = self.config, self._environment
        clock, network = environment.clock, environment.network
        directory = await asyncio.to_thread(_open_directory, config, cluster, environment)
        self._directory = directory
        _report_problems(directory)
        engine = self._engine = environment.new_engine(directory, environment.fail, clock)
        mailbox = Mailbox(asyncio.get_running_loop().call_soon_threadsafe)
        outside = OutsideJobs(engine.submit, mailbox)
        accepted = AcceptedConnections(config.max_connections)
        scrubber = self._scrubber = Scrubber(config.scrub_bytes_per_second, clock())
        sources = StorageSources(
            directory,
            queued=engine.engine.queued,
            flushes=lambda: engine.flushes,
            disk_free=lambda: environment.disk_space(config.directory)[0],
            disk_size=lambda: environment.disk_space(config.directory)[1],
            certificate_days_left=config.tls.certificate_days_left,
            accepted=accepted,
            scrubber=scrubber,
        )
        metrics = self._metrics = storage_metrics(sources, clock)
        scrub_loop = Scrubbing(scrubber, directory, outside.submit, clock)
        pulls = self._pulls = PeerPulls(
            (cluster.key, cluster.num_partitions),
            engine.submit,
            mailbox.post,
            network,
            config.tls,
            clock,
        )
        handler = AdminHandler(directory, outside.submit, mailbox.post, scrubber)
        engine.start()
        self.listener = network.listener(
            self._servers,
            lambda: ServerConnection(
                cluster, engine.submit, clock, config.allowed_servers, self._open_sessions
            ),
            config.tls,
            accepted,
        )
        self.admin_listener = network.listener(
            self._administrators,
            lambda: AdminConnection(
                cluster,
                handler,
                lambda: json.dumps(metrics.json.bean_form()),
                pulls.handle,
                config.allowed_administrators,
            ),
            config.tls,
            # An administrator must reach a storage whose port for servers is full.
            AcceptedConnections(config.max_connections),
        )
        await engine.run(_listen(self.listener, config.bind_host, config.port))
        self.admin_listener.start(config.bind_host, config.admin_port)
        if scrubber.enabled:
            self._scrubbing = asyncio.create_task(scrub_loop.run(), name="scrubber")
            self._scrubbing.add_done_callback(self._scrubbing_ended)

    @property
    def directory(self) -> StorageDirectory:
        """The open storage directory, after `start`; see its rules for threads."""
        assert self._directory is not None
        return self._directory

    def ports(self) -> dict[str, int | None]:
        """Return the ports in use, after `start`."""
        listeners = {"port": self.listener, "admin": self.admin_listener}
        return {name: listener.port for name, listener in listeners.items() if listener}

    @asynccontextmanager
    async def http(self) -> AsyncIterator[int | None]:
        """Serve the HTTP port while the context is open; yield the port, None if it is off."""
        metrics, directory, scrubber = self._metrics, self._directory, self._scrubber
        assert metrics is not None
        assert directory is not None
        assert scrubber is not None
        config = self.config
        async with serve_http(
            "waltz-storage",
            config.bind_host,
            config.http_port,
            metrics,
            lambda: health(directory, scrubber),
            lambda: readiness(directory, scrubber, self._open_sessions),
        ) as port:
            yield port

    async def stop(self) -> None:
        """Close the ports, finish all requests, and close all files cleanly."""
        if self._engine is not None and self.listener is not None:
            await self._engine.run(self.listener.close())
        if self.admin_listener is not None:
            await self.admin_listener.close()
        if self._pulls is not None:
            await self._pulls.stop()
        if self._scrubbing is not None:
            self._scrubbing.cancel()
            await asyncio.wait((self._scrubbing,))
        if self._engine is not None:
            await self._engine.stop()

    def _scrubbing_ended(self, task: asyncio.Task[None]) -> None:
        """End the node if the scrubber ended by an error, which is a bug of the program."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._environment.fail(error)


def _report_problems(directory: StorageDirectory) -> None:
    """Log which partitions the directory refuses, and which have no flushed marks.

    The flushed mark of a partition is how far its log was flushed. At a start, an invalid record
    above the mark is removed as an interrupted write; one up to the mark is damage.
    """
    for refused in directory.refused.values():
        log.error("%s", refused)
    if directory.unmarked:
        log.warning(
            "partitions %s: no valid flushed marks (Waltz 0.13.2 used this directory, or %s was "
            "lost); new marks are written. If a log ended with an invalid record, it was removed "
            "as an interrupted write, although it may have been damage: check the replicas with "
            "waltz storage compare",
            ", ".join(map(str, directory.unmarked)),
            FLUSHED_FILE,
        )


async def _listen(listener: ListeningPort, host: str | None, port: int) -> None:
    """Start ``listener`` on the event loop that runs this coroutine."""
    listener.start(host, port)


async def learn_cluster(
    config: StorageConfig, environment: StorageEnvironment = PROCESS
) -> ClusterIdentity:
    """Read the cluster's identity from ZooKeeper.

    Raises BadRoot, NoCluster, MalformedMetadata, StoreError.
    """
    store = await environment.open_store(
        config.zookeeper, config.session_timeout_ms, config.zookeeper_access
    )
    try:
        params = await ClusterMetadata(store, config.cluster_root).store_params()
    finally:
        await store.close()
    return ClusterIdentity(params.key, params.num_partitions)


def _open_directory(
    config: StorageConfig, cluster: ClusterIdentity, environment: StorageEnvironment
) -> StorageDirectory:
    """Open the storage directory of ``config``; raises DirectoryRefused, NoSpace, DiskFailed."""
    options = LogOptions(
        now_ms=environment.now_ms,
        segment_threshold=config.segment_threshold,
        open_segments=config.open_segments,
        allocate_bytes=environment.allocate_bytes,
    )
    open_disk = environment.open_disk
    disk, meta = open_disk(config.directory), None
    if config.meta_directory is not None:
        meta = _separate_disk(config.meta_directory, "storage.metaDirectory", config, open_disk)
    wal = None
    if config.engine == EngineKind.WAL:
        home = None
        if config.wal_directory is not None:
            home = _separate_disk(config.wal_directory, "storage.wal.directory", config, open_disk)
        wal = WalEngine(
            WalOptions(
                config.wal_bytes,
                environment.clock,
                # Without ``fail``, the engine makes checkpoints on no thread.
                fail=environment.fail if environment.checkpoint_thread else None,
                direct_bytes=environment.direct_bytes,
                directory=home,
            )
        )
    return StorageDirectory(disk, cluster.key, cluster.num_partitions, options, meta, wal)


def _separate_disk(
    path: Path, setting: str, config: StorageConfig, open_disk: Callable[[Path], Disk]
) -> Disk:
    """Open the directory of ``setting``; raises DirectoryRefused if it is the storage directory."""
    disk = open_disk(path)
    if path.samefile(config.directory):
        raise DirectoryRefused(
            f"{setting} is storage.directory ({path}): set it to another directory, or "
            "remove the setting to keep everything in one directory"
        )
    return disk
