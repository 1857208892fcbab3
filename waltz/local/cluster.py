"""Run a cluster as child processes on the loopback address. Disk, processes, network, ZooKeeper.

All files are below one directory, so that the cluster starts again with its data and its ports.
`core.plan` has its processes and settings; this module starts, watches and stops them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import yaml

from waltz.admin import OrderExecutor, Synchronization, carry_out, inspect, verify
from waltz.local.child import ChildProcess, ProcessFailed
from waltz.local.core.plan import (
    CLUSTER_NAME,
    ROOT,
    ZOOKEEPER,
    ClusterPlan,
    Layout,
    PlanError,
    Shape,
    describe,
    server_settings,
    storage_settings,
)
from waltz.local.ports import choose_ports
from waltz.local.zookeeper import ZooKeeperProcess
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import assign_everything
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.lifecycle import create_cluster
from waltz.net import ConnectionLost, DialFailed, RemoteFailure, TlsConfig

_READY_TIMEOUT_S = 60.0
_HEALTHY_TIMEOUT_S = 60.0
_HEALTHY_POLL_S = 0.1
_TOOL_SESSION_MS = 10_000

OnProgress = Callable[[str], None]


class ClusterRunning(RuntimeError):
    """Another process runs the cluster of this directory."""


class ClusterUnhealthy(RuntimeError):
    """All processes run, but the cluster does not become healthy; the text says why."""


class UnknownProcess(LookupError):
    """The cluster has no process of that name."""


class LocalCluster:
    """One local cluster. Its processes end with `stop`, which is also the end of ``async with``.

    ``shape`` is for a directory that is new; later it must be the same, or None. Without
    ``directory``'s being new everything it held is there again. ``session_timeout_ms`` is how long
    ZooKeeper waits for a dead server before others may take over. The methods may be called from
    several event loops, one after the other. ``server_settings`` override those of every server.
    ``programs`` are those that run as the processes of these names instead of the installed ones;
    they are looked up at each start, so that a change of versions can be rehearsed.
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
        self.layout = Layout(directory.absolute())
        self.control: str | None = None
        self._session_timeout_ms = session_timeout_ms
        self._server_settings = server_settings
        self._programs = programs
        self._on_progress = on_progress
        self._shape = shape
        self._plan: ClusterPlan | None = None
        self._lock: IO[str] | None = None
        self._zookeeper: ZooKeeperProcess | None = None
        self._children: dict[str, ChildProcess] = {}

    @property
    def plan(self) -> ClusterPlan:
        """Shape and ports; known once the cluster was started."""
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
        """How connections to this cluster are secured."""
        return TlsConfig(enabled=self.plan.shape.tls)

    async def __aenter__(self) -> LocalCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and return when it is healthy; then ``cluster.json`` is there.

        Raises PlanError, NoFreePorts, ClusterRunning, ZooKeeperNotStarted, ProcessFailed,
        ClusterUnhealthy; what had been started by then is stopped.
        """
        self._occupy()
        try:
            self._prepare()
            await self._start_all()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything in good order."""
        servers = [c for name, c in self._children.items() if name.startswith("server/")]
        storages = [c for name, c in self._children.items() if name.startswith("storage/")]
        # Servers first: they leave the cluster and the storages get no more to do.
        await asyncio.gather(*(child.stop() for child in servers))
        await asyncio.gather(*(child.stop() for child in storages))
        if self._zookeeper is not None:
            await asyncio.to_thread(self._zookeeper.stop)
        if self._lock is not None:
            self.layout.description.unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    async def start_one(self, name: str) -> None:
        """Start one process, if it does not run, and return when it serves.

        Whether the cluster is healthy then is another question: see `healthy`. Raises
        UnknownProcess, ProcessFailed, ZooKeeperNotStarted.
        """
        if name == ZOOKEEPER:
            assert self._zookeeper is not None
            await _to_the_end(self._zookeeper.start)
        else:
            child = self._child(name)
            child.start(self._programs.get(name))
            await child.ready(_READY_TIMEOUT_S)
        self.describe()

    async def stop_one(self, name: str) -> None:
        """Stop one process in good order. Raises UnknownProcess."""
        if name == ZOOKEEPER:
            assert self._zookeeper is not None
            await asyncio.to_thread(self._zookeeper.stop)
        else:
            await self._child(name).stop()
        self.describe()

    def kill(self, name: str) -> None:
        """End one process at once, as a crash would. Raises UnknownProcess."""
        if name == ZOOKEEPER:
            assert self._zookeeper is not None
            self._zookeeper.kill()
        else:
            self._child(name).kill()
        self.describe()

    def pids(self) -> dict[str, int | None]:
        """Return the process ids by name, None for what does not run."""
        pids: dict[str, int | None] = {
            ZOOKEEPER: None if self._zookeeper is None else self._zookeeper.pid
        }
        return pids | {name: child.pid for name, child in self._children.items()}

    def last_words(self, name: str) -> str:
        """Return how a storage or server ended, and the end of its log."""
        return self._child(name).last_words()

    def describe(self) -> None:
        """Write ``cluster.json`` anew: something in it has changed."""
        if self._lock is None:
            return
        pids = {**self.pids(), "supervisor": os.getpid()}
        description = describe(self.plan, self.layout, pids, self.control)
        path = self.layout.description
        part = path.with_suffix(".part")
        part.write_text(json.dumps(description, indent=2) + "\n")
        part.replace(path)

    async def healthy(self, timeout_s: float = _HEALTHY_TIMEOUT_S) -> None:
        """Return when every check of `waltz.admin.verify` passes.

        Raises ClusterUnhealthy after ``timeout_s``, ProcessFailed if a process has ended.
        """
        deadline = time.monotonic() + timeout_s
        async with self.metadata() as cluster:
            while problem := await self._first_problem(cluster):
                self._check_alive()
                if time.monotonic() > deadline:
                    raise ClusterUnhealthy(
                        f"the cluster is not healthy after {timeout_s:g} s: {problem}"
                    )
                await asyncio.sleep(_HEALTHY_POLL_S)

    async def sync(self, name: str) -> None:
        """Make a storage hold the partitions that ZooKeeper assigns to it.

        Raises DialFailed, RemoteFailure, ConnectionLost.
        """
        async with self.metadata() as cluster:
            await self._sync(cluster, self.plan.storage_names.index(name))

    @contextlib.asynccontextmanager
    async def metadata(self) -> AsyncIterator[Cluster]:
        """Give access to what the cluster keeps in ZooKeeper."""
        store = await KazooStore.connect(self.zookeeper, _TOOL_SESSION_MS)
        try:
            yield Cluster(store, ROOT)
        finally:
            await store.close()

    def _occupy(self) -> None:
        """Lock the directory, so that no other process runs its cluster."""
        self.layout.directory.mkdir(parents=True, exist_ok=True)
        lock = self.layout.lock.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            lock.close()
            raise ClusterRunning(
                f"the cluster in {self.layout.directory} is running already; stop it with "
                f"waltz local down --dir {self.layout.directory}"
            ) from problem
        self._lock = lock

    def _prepare(self) -> None:
        for folder in self.layout.folders():
            folder.mkdir(parents=True, exist_ok=True)
        plan = self._plan = self._planned()
        for index, name in enumerate(plan.storage_names):
            self.layout.data(name).mkdir(parents=True, exist_ok=True)
            settings = storage_settings(plan, self.layout, index, self._session_timeout_ms)
            self._new_child(name, "waltz-storage", settings)
        for index, name in enumerate(plan.server_names):
            settings = server_settings(plan, self.layout, index, self._session_timeout_ms)
            self._new_child(name, "waltz-server", settings | dict(self._server_settings))
        self._zookeeper = ZooKeeperProcess(self.layout.zookeeper, plan.zookeeper_port)

    def _planned(self) -> ClusterPlan:
        path, directory = self.layout.plan, self.layout.directory
        plan = _read_plan(path)
        if plan is None:
            shape = self._shape or Shape()
            plan = ClusterPlan.of(shape, choose_ports(shape.num_ports))
            part = path.with_suffix(".part")
            part.write_text(plan.to_json())
            part.replace(path)
        elif self._shape is not None and self._shape != plan.shape:
            raise PlanError(
                f"{directory} holds a cluster of {plan.shape}, not of {self._shape}; leave the "
                "numbers out to start it, or choose another directory"
            )
        return plan

    def _new_child(self, name: str, script: str, settings: dict[str, object]) -> None:
        layout = self.layout
        config = layout.config(name)
        config.write_text(yaml.safe_dump(settings, sort_keys=False))
        ports_file, log = layout.ports_file(name), layout.log(name)
        self._children[name] = ChildProcess(name, script, config, ports_file, log)

    async def _start_all(self) -> None:
        plan = self.plan
        assert self._zookeeper is not None
        self._on_progress(f"starting ZooKeeper on {plan.zookeeper}")
        await _to_the_end(self._zookeeper.start)
        async with self.metadata() as cluster:
            if await cluster.store.get(ROOT) is None:
                self._on_progress(f"creating the cluster at {ROOT}")
                await self._create(cluster)
            self._on_progress(f"starting {_number(len(plan.storages), 'storage')}")
            await self._start_children(plan.storage_names)
            await asyncio.gather(*(self._sync(cluster, i) for i in range(len(plan.storages))))
        self._on_progress(f"starting {_number(len(plan.servers), 'server')}")
        await self._start_children(plan.server_names)
        self._on_progress("waiting until every partition has recovered on every storage")
        await self.healthy()
        self.describe()

    async def _create(self, cluster: Cluster) -> None:
        plan = self.plan
        # A group of its own for each storage: every one holds a copy of every partition.
        groups = {storage.address: group for group, storage in enumerate(plan.storages)}
        admin_ports = {storage.address: storage.admin for storage in plan.storages}
        partitions = plan.shape.partitions
        await create_cluster(
            cluster.store,
            ROOT,
            CLUSTER_NAME,
            partitions,
            key=uuid.uuid4(),
            storages=assign_everything(groups, admin_ports, partitions),
        )

    async def _start_children(self, names: tuple[str, ...]) -> None:
        children = [self._child(name) for name in names]
        for child in children:
            child.start(self._programs.get(child.name))
        await asyncio.gather(*(child.ready(_READY_TIMEOUT_S) for child in children))

    async def _sync(self, cluster: Cluster, index: int) -> None:
        executor = OrderExecutor(cluster, self.tls)
        await carry_out(Synchronization(self.plan.storages[index].address), executor)

    async def _first_problem(self, cluster: Cluster) -> str | None:
        try:
            found = await inspect(cluster, self.tls)
        except (DialFailed, RemoteFailure, ConnectionLost) as problem:
            return str(problem)
        failed = (finding for finding in verify(found) if finding.problem is not None)
        first = next(failed, None)
        return None if first is None else f"partition {first.partition}: {first.problem}"

    def _check_alive(self) -> None:
        for name, child in self._children.items():
            if child.pid is None:
                raise ProcessFailed(f"{name} has ended: {child.last_words()}")

    def _child(self, name: str) -> ChildProcess:
        try:
            return self._children[name]
        except KeyError:
            known = ", ".join((ZOOKEEPER, *self._children))
            raise UnknownProcess(f"there is no process {name}; there are {known}") from None


def wanted_shape(directory: Path, given: Mapping[str, Any]) -> Shape:
    """Return the shape of the cluster in ``directory``, or of a new one, changed by ``given``.

    Raises PlanError.
    """
    plan = _read_plan(Layout(directory.absolute()).plan)
    return replace(Shape() if plan is None else plan.shape, **given)


def _read_plan(path: Path) -> ClusterPlan | None:
    """Return the plan, None if there is none. Raises PlanError."""
    try:
        return ClusterPlan.from_json(path.read_text())
    except FileNotFoundError:
        return None
    except PlanError as problem:
        raise PlanError(
            f"{path} is not the plan of a local cluster: {problem}; choose another directory"
        ) from problem


async def _to_the_end(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread; a cancellation waits for its end, after which it can be undone."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"
