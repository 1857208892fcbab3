"""What a storage uses from its environment: the network, ZooKeeper, disks, clocks, its engine.

A simulation replaces parts of this environment. Touches the disk and ZooKeeper.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.zookeeper_access import OpenStore
from waltz.net import TCP, Network
from waltz_storage.core.disk import Disk
from waltz_storage.core.engine.engine import Arrival, Engine
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.scrubber import PASS_SECONDS
from waltz_storage.shell.config import StorageConfig
from waltz_storage.shell.connections import ClusterIdentity
from waltz_storage.shell.engine_thread import EngineThread
from waltz_storage.shell.posix_disk import PosixDisk
from waltz_storage.shell.self_repair import RepairTimes
from waltz_storage.shell.wal_commits import DIRECT_BYTES

T = TypeVar("T")

log = logging.getLogger(__name__)

EXIT_DISK_FAILED = 70
"""The exit status of a process that a failed disk, or a bug of the storage, has ended at once."""


def _disk_space(directory: Path) -> tuple[int, int]:
    """Return the free bytes of the disk of ``directory``, and its size in bytes.

    The size does not include reserved space, which a storage cannot use. Otherwise an almost empty
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
    """End the process at once: the content of the disk is unknown until the next start recovers."""
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

    ``pass_seconds`` and ``repair_times`` say how often the scrubber reads the logs, and when
    repairs of damaged records are tried.
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
    pass_seconds: float = PASS_SECONDS
    repair_times: RepairTimes = field(default_factory=RepairTimes)


PROCESS = StorageEnvironment()
"""The environment of a storage that is a process of its own."""


async def learn_cluster(
    config: StorageConfig, environment: StorageEnvironment = PROCESS
) -> ClusterIdentity:
    """Read the cluster's identity from ZooKeeper.

    Raises BadRoot, NoCluster, MalformedMetadata, StoreError.
    """
    async with open_metadata(config, environment) as cluster:
        params = await cluster.store_params()
    return ClusterIdentity(params.key, params.num_partitions)


@asynccontextmanager
async def open_metadata(
    config: StorageConfig, environment: StorageEnvironment
) -> AsyncIterator[Cluster]:
    """Open the metadata of the cluster while the context is open; raises BadRoot, StoreError."""
    store = await environment.open_store(
        config.zookeeper, config.session_timeout_ms, config.zookeeper_access
    )
    try:
        yield Cluster(store, config.cluster_root)
    finally:
        await store.close()
