"""A storage process: its directory, its engine, its ports.

Touches the disk, threads and the network, and ZooKeeper once, to read the cluster's key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from waltz.metadata.cluster import Cluster as ClusterMetadata
from waltz.metadata.kazoo_store import KazooStore
from waltz.net import Listener
from waltz.protocol import ADMIN, STORAGE, ProtocolSpec
from waltz.runtime.http import serve_http
from waltz.runtime.metrics import ProcessMetrics
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.config import StorageConfig
from waltz_storage.shell.connections import AdminConnection, ClusterIdentity, ServerConnection
from waltz_storage.shell.engine_thread import EngineThread, Mailbox
from waltz_storage.shell.metrics import OpenPartition, StorageSources, health, storage_metrics
from waltz_storage.shell.posix_disk import PosixDisk

log = logging.getLogger(__name__)

EXIT_DISK_FAILED = 70
"""The exit status after a disk failure: the process ends at once, without further writes."""


class StorageNode:
    """One running storage node. `start`, then `stop`.

    ``servers`` and ``administrators`` are the protocol versions it offers on its ports; fewer than
    all make it behave like an older node.
    """

    def __init__(
        self,
        config: StorageConfig,
        servers: ProtocolSpec = STORAGE,
        administrators: ProtocolSpec = ADMIN,
    ) -> None:
        self.config = config
        self._servers = servers
        self._administrators = administrators
        self.listener: Listener | None = None
        self.admin_listener: Listener | None = None
        self._directory: StorageDirectory | None = None
        self._engine: EngineThread | None = None
        self._metrics: ProcessMetrics[StorageSources, OpenPartition] | None = None

    async def start(self, cluster: ClusterIdentity) -> None:
        """Open the directory, listen. Raises DirectoryRefused, ListenFailed, TlsConfigError."""
        config = self.config
        options = LogOptions(
            now_ms=lambda: int(time.time() * 1000),
            segment_threshold=config.segment_threshold,
            open_segments=config.open_segments,
        )
        directory = await asyncio.to_thread(_open, config, cluster, options)
        self._directory = directory
        for refused in directory.refused.values():
            log.error("%s", refused)
        mailbox = Mailbox(asyncio.get_running_loop().call_soon_threadsafe)
        engine = self._engine = EngineThread(directory, mailbox, _die, time.monotonic)
        sources = StorageSources(
            directory,
            queued=engine.engine.queued,
            flushes=lambda: engine.flushes,
            disk_free=lambda: shutil.disk_usage(config.directory).free,
            disk_size=lambda: shutil.disk_usage(config.directory).total,
            certificate_days_left=config.tls.certificate_days_left,
        )
        metrics = self._metrics = storage_metrics(sources, time.monotonic)
        handler = AdminHandler(directory, engine.submit, mailbox.post)
        engine.start()
        self.listener = Listener(
            self._servers, lambda: ServerConnection(cluster, engine.submit), config.tls
        )
        self.admin_listener = Listener(
            self._administrators,
            lambda: AdminConnection(cluster, handler, lambda: json.dumps(metrics.json.bean_form())),
            config.tls,
        )
        self.listener.start(config.bind_host, config.port)
        self.admin_listener.start(config.bind_host, config.admin_port)

    def ports(self) -> dict[str, int | None]:
        """Return the ports in use, after `start`."""
        listeners = {"port": self.listener, "admin": self.admin_listener}
        return {name: listener.port for name, listener in listeners.items() if listener}

    @asynccontextmanager
    async def http(self) -> AsyncIterator[int | None]:
        """Serve the HTTP port while the context is open; yield the port, None if it is off."""
        metrics, directory = self._metrics, self._directory
        assert metrics is not None
        assert directory is not None
        config = self.config
        async with serve_http(
            "waltz-storage",
            config.bind_host,
            config.http_port,
            metrics,
            lambda: health(directory),
        ) as port:
            yield port

    async def stop(self) -> None:
        """Close the ports, finish all requests, leave the files as a clean stop does."""
        for listener in (self.listener, self.admin_listener):
            if listener is not None:
                await listener.close()
        if self._engine is not None:
            await asyncio.to_thread(self._engine.stop)


async def learn_cluster(config: StorageConfig) -> ClusterIdentity:
    """Read the cluster's identity from ZooKeeper; raises the errors of `ClusterMetadata`."""
    store = await KazooStore.connect(config.zookeeper, config.session_timeout_ms)
    try:
        params = await ClusterMetadata(store, config.cluster_root).store_params()
    finally:
        await store.close()
    return ClusterIdentity(params.key, params.num_partitions)


def _open(config: StorageConfig, cluster: ClusterIdentity, options: LogOptions) -> StorageDirectory:
    disk = PosixDisk(config.directory)
    meta = None if config.meta_directory is None else _meta_disk(config.meta_directory, config)
    return StorageDirectory(disk, cluster.key, cluster.num_partitions, options, meta)


def _meta_disk(path: Path, config: StorageConfig) -> PosixDisk:
    disk = PosixDisk(path)
    if path.samefile(config.directory):
        raise DirectoryRefused(
            f"storage.metaDirectory is storage.directory ({path}): set it to another directory, or "
            "remove the setting to keep everything in one"
        )
    return disk


def _die(error: BaseException) -> None:
    """End the process: the content of the disk is unknown until recovery has opened the files."""
    log.critical("storage failed: %s; ending the process at once", error, exc_info=error)
    logging.shutdown()
    os._exit(EXIT_DISK_FAILED)
