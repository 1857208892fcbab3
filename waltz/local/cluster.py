"""Run a cluster as child processes. Touches disk, processes, the network and ZooKeeper.

`core.plan` decides the processes and their settings. Later starts use the same data and ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from waltz.admin import OrderExecutor, Synchronization, carry_out, inspect, verify
from waltz.local.child import ChildProcess, ProcessFailed
from waltz.local.core.plan import (
    CLUSTER_NAME,
    ROOT,
    ZOOKEEPER,
    LocalClusterPlan,
    Shape,
    server_settings,
    storage_settings,
)
from waltz.local.directory import ClusterDirectory
from waltz.local.plan_file import read_or_create_plan
from waltz.local.ports import PortReservations
from waltz.local.zookeeper import ZooKeeperProcess
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.lifecycle import create_cluster
from waltz.net import ConnectionLost, DialFailed, RemoteFailure, TlsConfig

_READY_TIMEOUT_S = 60.0
"""How long a process may take until it is ready."""
_HEALTHY_TIMEOUT_S = 60.0
"""How long the cluster may take until it is healthy, after all its processes are ready."""
_HEALTHY_POLL_S = 0.1
_ZOOKEEPER_SESSION_MS = 10_000
"""The timeout of the sessions of this process with ZooKeeper."""

OnProgress = Callable[[str], None]
"""Called with a line of text about what happens now."""


class ClusterUnhealthy(RuntimeError):
    """All processes run, but the cluster did not become healthy in time; the text says why."""


class UnknownProcess(LookupError):
    """The cluster has no process of that name."""


class LocalCluster:
    """One local cluster. Its processes run until `stop`, which ``async with`` calls at its end.

    Args:
        directory: The directory of all files. If it has a cluster already, that cluster is started.
        shape: The numbers of processes and partitions. None: those of the existing cluster, which
            cannot be changed, or the defaults for a new cluster.
        session_timeout_ms: After this time without a sign of a server, other servers take its
            partitions.
        server_settings: Settings of every server that override the settings of the plan.
        programs: Python files to run instead of the installed programs, by process name. Each start
            of a process reads this mapping, so that a test can change the version of a process.
        on_progress: Called with a line of text at each step of `start`.

    The methods may be called from several event loops, one after the other.
    """

    def __init__(
        self,
        directory: Path,
        shape: Shape | None = None,
        *,
        session_timeout_ms: int = 6000,
        server_settings: Mapping[str, Any] = MappingProxyType({}),
        programs: Mapping[str, Path] = MappingProxyType({}),
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self.directory = directory.absolute()
        """The directory as messages name it; `layout` has its resolved path."""
        self.control: str | None = None
        """The path of the supervisor's socket, None while there is none; `supervisor` sets it."""
        self._session_timeout_ms = session_timeout_ms
        self._server_settings = server_settings
        self._programs = programs
        self._on_progress = on_progress
        self._shape = shape
        self._plan: LocalClusterPlan | None = None
        self._reservations = PortReservations()
        self._directory = ClusterDirectory(self.directory)
        """Locked from the start until the cluster is stopped."""
        self.layout = self._directory.layout
        self._zookeeper: ZooKeeperProcess | None = None
        self._children: dict[str, ChildProcess] = {}

    @property
    def plan(self) -> LocalClusterPlan:
        """The shape and the ports; raises RuntimeError before the first start."""
        if self._plan is None:
            raise RuntimeError("a local cluster has no ports before its first start")
        return self._plan

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's connect string."""
        return self.plan.zookeeper

    @property
    def root(self) -> str:
        """The cluster's znode."""
        return ROOT

    @property
    def tls(self) -> TlsConfig:
        """The TLS settings for connections to this cluster."""
        return TlsConfig(enabled=self.plan.shape.tls)

    async def __aenter__(self) -> LocalCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all processes, and wait until the cluster is healthy.

        Meanwhile ``cluster.json`` has the processes that have been launched.

        Raises the errors of `ClusterDirectory.lock`; then nothing was started or stopped. Also
        raises PlanError, NoFreePorts, ZooKeeperNotStarted, ProcessFailed, ClusterUnhealthy and the
        errors of `sync`; then all processes have been stopped.
        """
        # This call is outside the `try`. If it fails, another process runs the cluster, or
        # processes of it are left over, and these must not be stopped.
        self._directory.lock()
        try:
            self._prepare()
            await self._start_all()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all processes: servers, then storages, then ZooKeeper."""
        # Servers stop first, because they need the storages to finish the appends in flight.
        for kind in ("server/", "storage/"):
            names = [name for name in self._children if name.startswith(kind)]
            await asyncio.gather(*(self._children[name].stop() for name in names))
        if self._zookeeper is not None:
            await asyncio.to_thread(self._zookeeper.stop)
        self._directory.unlock()
        self._reservations.release()

    async def start_one(self, name: str) -> None:
        """Start one process, if it does not run, and return when it is ready.

        The cluster may not be healthy yet: call `wait_until_healthy`. Raises UnknownProcess,
        ProcessFailed, ZooKeeperNotStarted.
        """
        try:
            if name == ZOOKEEPER:
                await self._start_zookeeper()
            else:
                child = self._child(name)
                child.start(self._programs.get(name))
                await child.wait_until_ready(_READY_TIMEOUT_S)
        finally:
            # Also after an error: a process that was not ready in time may still run.
            self.write_description()

    async def stop_one(self, name: str) -> None:
        """Terminate one process and wait for its exit. Raises UnknownProcess."""
        if name == ZOOKEEPER:
            assert self._zookeeper is not None
            await asyncio.to_thread(self._zookeeper.stop)
        else:
            await self._child(name).stop()
        self.write_description()

    def kill(self, name: str) -> None:
        """Kill one process, which has the effect of a crash. Raises UnknownProcess."""
        if name == ZOOKEEPER:
            assert self._zookeeper is not None
            self._zookeeper.kill()
        else:
            self._child(name).kill()
        self.write_description()

    def pids(self) -> dict[str, int | None]:
        """Return the process ids by name, None for a process that does not run."""
        zookeeper = None if self._zookeeper is None else self._zookeeper.pid
        return {ZOOKEEPER: zookeeper, **{name: c.pid for name, c in self._children.items()}}

    def exit_report(self, name: str) -> str:
        """Return how a storage or server ended, and the last lines of its log."""
        return self._child(name).exit_report()

    def write_description(self) -> None:
        """Write ``cluster.json``, unless the cluster is stopped.

        Call this after each start and each end of a process.
        """
        if self._directory.is_locked:
            self._directory.describe(self.plan, self.pids(), self.control)

    async def wait_until_healthy(self, timeout_s: float = _HEALTHY_TIMEOUT_S) -> None:
        """Wait until every check of `waltz.admin.verify` passes.

        Raises ClusterUnhealthy after ``timeout_s``, also if ZooKeeper has not answered by then;
        ProcessFailed if a process has exited; StoreError if ZooKeeper refuses the connection.
        """
        # The text of ClusterUnhealthy has the last problem.
        problem: str | None = "ZooKeeper does not answer"
        try:
            async with asyncio.timeout(timeout_s), self.metadata() as cluster:
                while True:
                    problem = await self._first_problem(cluster)
                    if problem is None:
                        return
                    self._check_alive()
                    await asyncio.sleep(_HEALTHY_POLL_S)
        except TimeoutError:
            raise ClusterUnhealthy(
                f"the cluster is not healthy after {timeout_s:g} s: {problem}"
            ) from None

    async def sync(self, name: str) -> None:
        """Make the storage ``name`` hold the partitions that ZooKeeper assigns to it.

        Raises the errors of `carry_out`, and StoreError if ZooKeeper does not answer.
        """
        async with self.metadata() as cluster:
            await self._sync_storage(cluster, self.plan.storage_names.index(name))

    @contextlib.asynccontextmanager
    async def metadata(self) -> AsyncIterator[Cluster]:
        """Open the cluster's metadata in ZooKeeper while the context is open. Raises StoreError."""
        store = await KazooStore.connect(self.zookeeper, _ZOOKEEPER_SESSION_MS)
        try:
            yield Cluster(store, ROOT)
        finally:
            await store.close()

    def _prepare(self) -> None:
        """Make the folders, the settings files and the objects of all processes."""
        for folder in self.layout.folders():
            folder.mkdir(parents=True, exist_ok=True)
        plan = self._plan = read_or_create_plan(self.directory, self._shape, self._reservations)
        for index, name in enumerate(plan.storage_names):
            self.layout.data(name).mkdir(parents=True, exist_ok=True)
            settings = storage_settings(plan, self.layout, index, self._session_timeout_ms)
            self._new_child(name, "waltz-storage", settings)
        for index, name in enumerate(plan.server_names):
            settings = server_settings(plan, self.layout, index, self._session_timeout_ms)
            self._new_child(name, "waltz-server", settings | dict(self._server_settings))
        port, host = plan.zookeeper_port, plan.shape.host
        self._zookeeper = ZooKeeperProcess(self.layout.zookeeper, port, host=host)

    def _new_child(self, name: str, script: str, settings: dict[str, object]) -> None:
        """Write the settings file of a process, and make its `ChildProcess` without starting it."""
        config = self.layout.config(name)
        config.write_text(yaml.safe_dump(settings, sort_keys=False))
        ports_file, log = self.layout.ports_file(name), self.layout.log(name)
        self._children[name] = ChildProcess(name, script, config, ports_file, log)

    async def _start_all(self) -> None:
        """Start ZooKeeper, create the cluster if ZooKeeper has none, and start all other processes.

        The servers start last, because they open store sessions. By then, each storage must hold
        the replicas that ZooKeeper assigns to it.
        """
        plan = self.plan
        # From here on, `waltz local down` finds the cluster by its description. This is written
        # again whenever processes have been launched. So if the supervisor dies, the description
        # has the ids of the processes that are left over.
        self.write_description()
        self._on_progress(f"starting ZooKeeper on {plan.zookeeper}")
        await self._start_zookeeper()
        async with self.metadata() as cluster:
            if await cluster.store.get(ROOT) is None:
                self._on_progress(f"creating the cluster at {ROOT}")
                await self._create(cluster)
            self._on_progress(f"starting {_counted(len(plan.storages), 'storage')}")
            await self._start_children(plan.storage_names)
            await asyncio.gather(
                *(self._sync_storage(cluster, index) for index in range(len(plan.storages)))
            )
        self._on_progress(f"starting {_counted(len(plan.servers), 'server')}")
        await self._start_children(plan.server_names)
        self._on_progress("waiting until every partition has recovered on every storage")
        await self.wait_until_healthy()

    async def _start_zookeeper(self) -> None:
        """Start ZooKeeper, and write ``cluster.json`` with its process id before it is ready."""
        assert self._zookeeper is not None
        start, loop = self._zookeeper.start, asyncio.get_running_loop()

        def describe() -> None:
            """Make the loop write the file: two threads must not write it at the same time."""
            loop.call_soon_threadsafe(self.write_description)

        await _run_to_completion(lambda: start(describe))

    async def _create(self, cluster: Cluster) -> None:
        """Create the metadata of the cluster in ZooKeeper."""
        storages, partitions = self.plan.storages, self.plan.shape.partitions
        # One group per storage, so that every storage has a replica of every partition.
        groups = {storage.address: group for group, storage in enumerate(storages)}
        admin_ports = {storage.address: storage.admin for storage in storages}
        await create_cluster(
            cluster.store,
            ROOT,
            CLUSTER_NAME,
            partitions,
            key=uuid.uuid4(),
            storages=assign_everything(groups, admin_ports, partitions),
        )

    async def _start_children(self, names: tuple[str, ...]) -> None:
        """Start these processes and wait until all of them are ready."""
        children = [self._child(name) for name in names]
        for name, child in zip(names, children, strict=True):
            child.start(self._programs.get(name))
        self.write_description()
        await asyncio.gather(*(child.wait_until_ready(_READY_TIMEOUT_S) for child in children))

    async def _sync_storage(self, cluster: Cluster, index: int) -> None:
        """Do what `sync` does, for ``storage/index``."""
        order = Synchronization(self.plan.storages[index].address)
        await carry_out(order, OrderExecutor(cluster, self.tls))

    async def _first_problem(self, cluster: Cluster) -> str | None:
        """Return a problem that keeps the cluster from being healthy, None if there is none."""
        try:
            facts = await inspect(cluster, self.tls)
        except (DialFailed, RemoteFailure, ConnectionLost) as problem:
            return str(problem)
        for finding in verify(facts):
            if finding.problem is not None:
                return f"partition {finding.partition}: {finding.problem}"
        return None

    def _check_alive(self) -> None:
        """Raise ProcessFailed if a storage or a server has ended."""
        for name, child in self._children.items():
            if child.pid is None:
                raise ProcessFailed(f"{name} has ended: {child.exit_report()}")

    def _child(self, name: str) -> ChildProcess:
        """Return the process of this name; raises UnknownProcess if there is none."""
        if name in self._children:
            return self._children[name]
        known = ", ".join((ZOOKEEPER, *self._children))
        raise UnknownProcess(f"there is no process {name}; there are {known}")


async def _run_to_completion(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread and wait for its end, even if this task is cancelled.

    Otherwise the thread could start a process after the caller has stopped all of them.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


def _counted(count: int, what: str) -> str:
    """Return ``1 server`` or ``2 servers``."""
    return f"{count} {what}{'s' if count > 1 else ''}"
