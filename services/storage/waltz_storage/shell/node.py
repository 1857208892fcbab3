"""Run one storage node: its directory, its engine and its ports.

`main` reads the cluster's key from ZooKeeper and starts the node. The node connects the other
modules of `shell`. It touches the disk, threads and the network. For repairs and comparisons, it
reads from ZooKeeper which other storages have its partitions.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from waltz.net import AcceptedConnections, ListeningPort
from waltz.protocol import ADMIN, STORAGE, ProtocolSpec
from waltz.runtime.http import serve_http
from waltz.runtime.metrics import ProcessMetrics
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE
from waltz_storage.core.disk import Disk
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.open_sessions import OpenSessions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.differences import Differences
from waltz_storage.core.scrub.findings import Findings
from waltz_storage.core.scrub.scrubber import Scrubber
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.config import EngineKind, StorageConfig
from waltz_storage.shell.connections import AdminConnection, ClusterIdentity, ServerConnection
from waltz_storage.shell.environment import (
    PROCESS,
    EngineRunner,
    StorageEnvironment,
    open_metadata,
)
from waltz_storage.shell.mailbox import Mailbox
from waltz_storage.shell.metrics import (
    OpenPartition,
    StorageSources,
    health,
    readiness,
    storage_metrics,
)
from waltz_storage.shell.outside_jobs import OutsideJobs
from waltz_storage.shell.peer_comparison import PeerComparison
from waltz_storage.shell.peer_pull import PeerPulls
from waltz_storage.shell.peers import Peers
from waltz_storage.shell.scrubbing import Scrubbing, note_openings
from waltz_storage.shell.self_repair import SelfRepair
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

log = logging.getLogger(__name__)


class StorageNode:
    """One storage node. Call `start`, then `stop`, also if `start` fails or is cancelled.

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
        self._opening: asyncio.Task[StorageDirectory] | None = None
        """The opening of the directory, while it runs, and after a `start` that was cancelled."""
        self._directory: StorageDirectory | None = None
        self._engine: EngineRunner | None = None
        self._metrics: ProcessMetrics[StorageSources, OpenPartition] | None = None
        self._scrubber: Scrubber | None = None
        self._differences = Differences()
        self._open_sessions = OpenSessions()
        self._background: tuple[asyncio.Task[None], ...] = ()
        """The tasks of the scrubber and of the repairs, if these are switched on."""
        self._pulls: PeerPulls | None = None

    async def start(self, cluster: ClusterIdentity) -> None:
        """Open the storage directory, start the engine, listen on both ports, and begin to scrub.

        Raises DirectoryRefused, NoSpace, DiskFailed, ListenFailed, TlsConfigError.
        """
        config, environment = self.config, self._environment
        clock, network = environment.clock, environment.network
        directory = self._directory = await self._opened_directory(cluster)
        _report_problems(directory)
        engine = self._engine = environment.new_engine(directory, environment.fail, clock)
        mailbox = Mailbox(asyncio.get_running_loop().call_soon_threadsafe)
        outside = OutsideJobs(engine.submit, mailbox)
        # Each port bounds its own connections.
        new_bounds = partial(
            AcceptedConnections, config.max_connections, max_unsent_bytes=config.max_unsent_bytes
        )
        accepted = new_bounds()
        scrubber = self._scrubber = Scrubber(
            config.scrub_bytes_per_second, clock(), environment.pass_seconds
        )
        repairs_itself = scrubber.enabled and config.scrub_repair
        note_openings(scrubber.findings, directory, repairs_itself=repairs_itself)
        sources = StorageSources(
            directory,
            queued=engine.engine.queued,
            flushes=lambda: engine.flushes,
            disk_free=lambda: environment.disk_space(config.directory)[0],
            disk_size=lambda: environment.disk_space(config.directory)[1],
            certificate_days_left=config.tls.certificate_days_left,
            accepted=accepted,
            scrubber=scrubber,
            differences=self._differences,
        )
        metrics = self._metrics = storage_metrics(sources, clock)
        pulls = self._pulls = PeerPulls(
            (cluster.key, cluster.num_partitions),
            # Not `outside.submit`, which takes no appends: `PeerPulls` posts the answers itself.
            engine.submit,
            mailbox.post,
            network,
            config.tls,
            clock,
        )
        handler = AdminHandler(directory, outside.submit, mailbox.post, scrubber)
        engine.start()
        connect = partial(ServerConnection, cluster, engine.submit, clock, config.allowed_servers)
        self.listener = network.listener(
            self._servers,
            lambda: connect(self._open_sessions, _noting_truncations(scrubber.findings, mailbox)),
            config.tls,
            accepted,
        )
        self.admin_listener = network.listener(
            self._administrators,
            lambda: AdminConnection(
                cluster,
                handler,
                metrics=lambda: json.dumps(metrics.json.bean_form()),
                pull=pulls.handle,
                allowed=config.allowed_administrators,
            ),
            config.tls,
            # An administrator must reach a storage whose port for servers is full.
            new_bounds(),
        )
        await engine.run(_listen(self.listener, config.bind_host, config.port))
        self.admin_listener.start(config.bind_host, config.admin_port)
        if scrubber.enabled:
            self._begin_scrubbing(scrubber, directory, handler, outside)

    @property
    def directory(self) -> StorageDirectory:
        """The open storage directory, after `start`; its module has the rules for threads."""
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
            health=lambda: health(directory, scrubber),
            readiness=lambda: readiness(directory, scrubber, self._open_sessions),
        ) as port:
            yield port

    async def stop(self) -> None:
        """Close the ports, finish all requests, and close all files cleanly.

        The engine stops last, because all the others submit jobs to it. If `start` was cancelled
        while it opened the directory, raises DirectoryRefused, NoSpace, DiskFailed.
        """
        if self._engine is not None and self.listener is not None:
            await self._engine.run(self.listener.close())
        if self.admin_listener is not None:
            await self.admin_listener.close()
        if self._pulls is not None:
            await self._pulls.stop()
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        if self._engine is not None:
            await self._engine.stop()
        elif self._opening is not None:
            await self._close_after_opening(self._opening)

    async def _opened_directory(self, cluster: ClusterIdentity) -> StorageDirectory:
        """Open the storage directory on a thread; raises DirectoryRefused, NoSpace, DiskFailed."""
        opening = self._opening = asyncio.create_task(
            asyncio.to_thread(_open_directory, self.config, cluster, self._environment)
        )
        # A cancellation cannot end the thread. `wait` leaves the task to `stop` then: nothing else
        # would get the open directory and close it.
        await asyncio.wait([opening])
        self._opening = None
        return opening.result()

    async def _close_after_opening(self, opening: asyncio.Task[StorageDirectory]) -> None:
        """Wait until ``opening`` has opened the directory, then close all files cleanly.

        With the engine ``wal``, the opening replays the log. It is not interrupted: the directory
        would still need its log after a stop that counts as clean. The rest of the opening takes a
        bounded time, unless the disk hangs. If the process is killed meanwhile, the next start does
        the same again. Raises DirectoryRefused, NoSpace, DiskFailed.
        """
        if not opening.done():
            log.info("stopping as soon as the storage directory %s is open", self.config.directory)
        self._opening = None
        directory = await opening
        # The opening has written new flushed marks, so the next one would not find their lack.
        _report_problems(directory)
        await asyncio.to_thread(directory.close)

    def _begin_scrubbing(
        self,
        scrubber: Scrubber,
        directory: StorageDirectory,
        handler: AdminHandler,
        outside: OutsideJobs,
    ) -> None:
        """Begin to search for damaged records, to repair them, and to compare the replicas."""
        config, environment = self.config, self._environment
        clock = environment.clock
        open_cluster = partial(open_metadata, config, environment)
        peers = Peers(open_cluster, config.tls, environment.network)
        on_damage, after_pass, coroutines = None, None, []
        if config.scrub_repair:
            repairs = SelfRepair(scrubber, directory, handler, peers, environment.repair_times)
            on_damage = repairs.damage_found
            if scrubber.findings.ranges:  # The opening of the logs has found damage.
                on_damage()
            coroutines.append(repairs.run())
        if config.scrub_compare:
            comparison = PeerComparison(
                self._differences,
                directory,
                peers,
                config.scrub_bytes_per_second,
                clock,
                # Storages that are started together count their passes from different numbers: the
                # last digits of a time in milliseconds are as good as random.
                pass_offset=environment.now_ms(),
            )
            after_pass = comparison.compare
        scrubbing = Scrubbing(scrubber, directory, outside.submit, clock, on_damage, after_pass)
        coroutines.append(scrubbing.run())
        self._background = tuple(asyncio.create_task(coroutine) for coroutine in coroutines)
        for task in self._background:
            task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        """End the node if a task ended by an error, which is a bug of the program."""
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._environment.fail(error)


def _report_problems(directory: StorageDirectory) -> None:
    """Log which partitions the directory refuses, and which have no flushed marks.

    The flushed mark of a partition is how far its log was flushed. At a start, an invalid record
    after the mark is removed as an interrupted write; an invalid record up to the mark is damaged.
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


def _noting_truncations(findings: Findings, mailbox: Mailbox) -> Callable[[int, int], None]:
    """Return a function that notes a truncation of a partition to a last id, from any thread.

    Connections of servers call it on the thread of the engine, but only the thread of the main
    event loop may use ``findings``: ``mailbox`` is that of this loop. The scrubber's checks pass
    through the same mailbox. A check from before the truncation is noted before it. Otherwise the
    removed records would be noted as damaged until the next pass.
    """

    def note(partition: int, last_id: int) -> None:
        mailbox.post([(partial(findings.note_truncation, partition), last_id)])

    return note


async def _listen(listener: ListeningPort, host: str | None, port: int) -> None:
    """Start ``listener`` on the event loop that runs this coroutine and will serve the port.

    For the port for servers this is the event loop of the engine (`shell.engine_thread`).
    """
    listener.start(host, port)


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
                # Without ``fail``, the engine starts no thread for its checkpoints.
                fail=environment.fail if environment.checkpoint_thread else None,
                direct_bytes=environment.direct_bytes,
                directory=home,
            )
        )
    try:
        return StorageDirectory(disk, cluster.key, cluster.num_partitions, options, meta, wal)
    except DirectoryRefused as refused:
        # The pure core knows no path.
        raise DirectoryRefused(
            f"the storage directory {config.directory} cannot be used: {refused}"
        ) from refused


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
