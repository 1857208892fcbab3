"""Run one cluster of real nodes from a seed: appends, faults, and checks at the end."""

from __future__ import annotations

import asyncio
import logging
import signal
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from random import Random

from tests.sim.alarm import Alarm
from tests.sim.checker import Checker
from tests.sim.client_wire import ClientWire
from tests.sim.cluster_run import NOTED, Result
from tests.sim.cluster_view import ClusterView
from tests.sim.faulty_network import FaultyNetwork
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.node_faults import Faults
from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_server import Sight, SimServer, Surveillance, short_log_settings
from tests.sim.observed_storage import SimStorage
from tests.sim.real_clients import ClientWorld
from tests.sim.unreliable_store import Trouble, UnreliableStore
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import ReplicaChange, assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.testing.clock import VirtualTimeLoop
from waltz.testing.interceptors import DialedConnection
from waltz.testing.network import MemoryNetwork
from waltz.testing.nodes import ADMIN_PORT, ROOT, SERVER_PORT, SESSION_MS, World
from waltz.testing.zookeeper import MemoryZooKeeper

APPENDS = 100
FAULTS = 100
DEADLINE_SECONDS = 300.0
FINISH_SECONDS = 120.0
STUCK_EVENT_SECONDS = 120
"""Of real time; a run takes about a second. Beyond it, one event never ends."""

SEGMENT_BYTES = (2_000, 8_000)
_LOOK_SECONDS = 0.05


class NodesRun:
    """A cluster of real nodes: servers and storages, and one or two partitions with clients."""

    def __init__(self, seed: int, *, rot: bool = False, detailed: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.history: History
        self.partitions: list[NodesPartition] = []
        self.storages: dict[str, SimStorage] = {}
        self.servers: dict[str, SimServer] = {}
        self._rot = rot
        self._detailed = detailed
        self._events = 0

    @property
    def committed(self) -> int:
        """How many appends their clients have received as committed."""
        return sum(partition.checker.committed for partition in self.partitions)

    def run(self) -> Result:
        """Run to the end; raises Violation."""
        with _quiet_logs(self._detailed), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            self._prepare(runner.get_loop())
            try:
                runner.run(self._main())
            except BaseException as error:
                found = self.alarm.error or error
                if isinstance(found, Violation):
                    where = f"seed {self.seed}, at {self.clock.now:.4f} s: {found}"
                    raise Violation(found.guarantee, where) from found
                if not isinstance(found, Exception):
                    raise
                # The cores assert what they expect: any exception is a bug.
                last = traceback.extract_tb(found.__traceback__)[-1]
                raise Violation(
                    Guarantee.SOUND,
                    f"seed {self.seed}, at {self.clock.now:.4f} s: {type(found).__name__} {found} "
                    f"in {last.name}: {last.line}",
                ) from found
        self._count_branches()
        return Result(
            self.seed,
            self.committed,
            self.history.faults,
            self._events,
            self.clock.now,
            self.history.counters,
        )

    def state(self) -> str:
        """Describe the state of the cluster, for the reader of a failure."""
        down = [name for name, storage in self.storages.items() if not storage.up]
        parts = [f"down: {', '.join(down)}"] if down else []
        return "\n".join(parts + [partition.state() for partition in self.partitions])

    def _prepare(self, loop: asyncio.AbstractEventLoop) -> None:
        async def prepare() -> None:
            self.clock = LoopClock()
            self.alarm = Alarm()
            self.history = History(self.clock, self._detailed)
            self._build()

        loop.run_until_complete(prepare())

    def _build(self) -> None:
        self._copies = self.random.choice((3, 3, 5))
        numbers = range(self.random.choice((1, 1, 2)))
        self.memory = MemoryNetwork(self.random.getrandbits(32))
        self.network = FaultyNetwork(self.memory, self.clock, self._stream(), self.history)
        self.world = World(self.memory, MemoryZooKeeper(), self._stream())
        self.trouble = Trouble()
        segment_bytes = self.random.choice(SEGMENT_BYTES)
        for number in range(self._copies + 2):
            environment = (self.clock, self._stream(), self.history, self.alarm)
            storage = SimStorage(number, self.world, environment, segment_bytes, len(numbers))
            self.storages[storage.name] = storage
        self.view = ClusterView(ROOT, len(numbers), self.history)
        sights = []
        for view in self.view.partitions:
            shape = short_log_settings(self._stream())
            checker = Checker(
                {name: s.replicas[view.partition] for name, s in self.storages.items()},
                self.history.counters,
                partial(attrgetter("generation"), view),
                shape.lock_table_size,
                reads_replicas=not self._rot,
            )
            sights.append(Sight(view, shape, checker))
            self.partitions.append(
                NodesPartition(view, checker, shape, self.servers, self.storages)
            )
        surveillance = Surveillance(self.clock, self.history, self.alarm, sights)
        for number in range(self.random.choice((2, 3))):
            server = SimServer(
                number, self.world, surveillance, self._stream(), self.view, self.trouble
            )
            self.servers[server.name] = server
        self.clients = ClientWorld(
            self.clock, self.memory, self.history, self.alarm, self._open_store
        )
        self._store_random = self._stream()
        for name in self.servers:
            self.memory.intercept(name, SERVER_PORT, self._intercept)

    def _intercept(self, connection: DialedConnection) -> ClientWire:
        wire = ClientWire(self.clients.sights[connection.dialer], connection, self.alarm)
        self.network.wires.append(wire)
        return wire

    async def _open_store(self) -> UnreliableStore:
        """Open the session of a client or of an administrator: no answer is lost."""
        store = await self.world.open_store(SESSION_MS)
        environment = (self.clock, self._store_random, self.view, self.history)
        return UnreliableStore(store, self.world.zookeeper, environment, Trouble())

    async def _main(self) -> None:
        cluster = Cluster(await self._open_store(), ROOT)
        await self._create(cluster)
        for storage in self.storages.values():
            storage.start()
        for server in self.servers.values():
            server.start()
        for partition in self.partitions:
            partition.add_clients(self.clients, self._stream())
        hosts = [storage.host for storage in self.storages.values()]
        self.network.connect(list(self.servers), [*hosts, *self.clients.sights])
        faults = Faults(
            (self.clock, self._stream(), self.history, self.alarm),
            self.network,
            self.storages,
            self.servers,
            self.partitions,
            self.trouble,
            cluster,
            rot=self._rot,
        )
        faults.start()
        if not await self._until(self._has_enough, DEADLINE_SECONDS):
            raise Violation(Guarantee.ALIVE, f"only {self.committed} committed: {self.state()}")
        self.history.note("run", "faults and appends end")
        for partition in self.partitions:
            partition.stop()
        faults.stop()
        if not await self._until(self._is_quiet, self.clock.now + FINISH_SECONDS):
            raise Violation(Guarantee.ALIVE, f"activity does not end: {self.state()}")
        for partition in self.partitions:
            partition.check_at_rest()

    async def _create(self, cluster: Cluster) -> None:
        """Create the cluster; each partition is on as many storages as it has copies."""
        groups = {name: group for group, name in enumerate(self.storages)}
        count = len(self.partitions)
        maps = assign_everything(groups, dict.fromkeys(groups, ADMIN_PORT), count)
        key = uuid.UUID(int=self.random.getrandbits(128), version=4)
        await create_cluster(cluster.store, ROOT, "sim", count, key=key, storages=maps)
        changes = []
        for partition in self.partitions:
            wanted = tuple(self.storages)[partition.partition :][: self._copies]
            changes.append(
                ReplicaChange(partition.partition, frozenset(self.storages), frozenset(wanted))
            )
            partition.metadata.replicas = wanted
        await cluster.change_replicas(changes)

    async def _until(self, condition: object, deadline: float) -> bool:
        assert callable(condition)
        while not condition():
            if self.clock.now > deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    def _has_enough(self) -> bool:
        return self.committed >= APPENDS and self.history.faults >= FAULTS

    def _is_quiet(self) -> bool:
        return all(partition.is_quiet() for partition in self.partitions)

    def _stream(self) -> Random:
        """Return a separate source for each part, so that a change in one does not alter others."""
        return Random(self.random.getrandbits(64))

    def _count_branches(self) -> None:
        """Count log lines of servers, and the branches that their recoveries took."""
        for note in self.history.notes(list(self.servers)):
            for phrase, name in NOTED.items():
                self.history.counters[name] += note.count(phrase)


def run_nodes_seed(seed: int, *, rot: bool = False) -> Result:
    """Run one seed, in a process's main thread; a violation is part of the result."""
    run = NodesRun(seed, rot=rot)
    try:
        with _bounded(run):
            result = run.run()
        if rot:
            result.counters["rot: all guarantees held"] += 1
        return result
    except Violation as violation:
        broken = f"{violation} ({violation.guarantee.value})"
        if rot:
            run.history.counters[f"rot: guarantee violated: {violation.guarantee.value}"] += 1
        return Result(
            seed,
            run.committed,
            run.history.faults,
            0,
            run.clock.now,
            run.history.counters,
            violation.guarantee,
            broken,
        )


@contextmanager
def _bounded(run: NodesRun) -> Iterator[None]:
    """End a run whose virtual time no longer advances."""

    def end(*_: object) -> None:
        stuck = Violation(Guarantee.ALIVE, f"still at one event after {STUCK_EVENT_SECONDS} s")
        run.alarm.ring(stuck)
        raise stuck

    previous = signal.signal(signal.SIGALRM, end)
    signal.alarm(STUCK_EVENT_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def _quiet_logs(detailed: bool) -> Iterator[None]:
    """Suppress the log lines of the product, which the history has already."""
    before = logging.root.manager.disable
    if not detailed:
        logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
