"""A simulated cluster of real nodes, with its clients: what every kind of run has."""

from __future__ import annotations

import asyncio
import logging
import signal
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from random import Random

from tests.sim.checker import Checker
from tests.sim.client_wire import ClientWire
from tests.sim.cluster_view import ClusterView
from tests.sim.faulty_network import FaultyNetwork
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.nodes_partition import NodesPartition
from tests.sim.observed_server import CheckedPartition, ServerChecks, SimServer
from tests.sim.observed_storage import SimStorage
from tests.sim.real_clients import ClientEnvironment
from tests.sim.run_environment import RunEnvironment
from tests.sim.run_failure import RunFailure
from tests.sim.short_logs import short_log_settings
from tests.sim.storage_process import SimEngine
from tests.sim.unreliable_store import AnswerLoss, UnreliableStore
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import ReplicaChange, assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.testing.clock import VirtualTimeLoop
from waltz.testing.interceptors import DialedConnection, Interceptor, Unchanged
from waltz.testing.network import MemoryNetwork
from waltz.testing.nodes import ADMIN_PORT, ROOT, SERVER_PORT, SESSION_MS, SharedEnvironment
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_server.core.replication.replica_roles import RecoveryCase

STUCK_EVENT_SECONDS = 120
"""The limit of a run in seconds of CPU time, which do not depend on what else the machine does. A
run takes about a second, so one that reaches the limit does not get on: an event never ends."""

_POLL_SECONDS = 0.05
_PROGRESS_SECONDS = 60.0
"""How long appends may take."""

COUNTED_PHRASES = (
    {
        "ended: checkpoint": "server: checkpoint",
        "ended: the replica assignment changed": "server: replica assignment changed",
        "ended: to readmit": "server: a replica rejoined a session",
        "did not open": "server: session did not open",
        "is over": "server: generation refused",
        "appends in doubt": "server: appends were in doubt until the next session",
        "catches up": "server: a replica caught up by copying",
    }
    | {case.value: f"recovery: {case.value}" for case in RecoveryCase}
    | {
        "undecidable": "recovery: the vote was undecidable for a while",
        "below a committed id": "recovery: the vote was below a committed id for a while",
    }
)
"""Phrases in the log lines of servers, and the counter that each one raises."""


@dataclass(slots=True)
class Result:
    """The result of a run: the numbers of committed appends and of faults, the virtual seconds.

    ``violated`` is the first guarantee that was violated, and ``violation`` says how; both are None
    if all guarantees held.
    """

    seed: int
    committed: int
    faults: int
    seconds: float
    counters: Counter[str] = field(default_factory=Counter)
    violated: Guarantee | None = None
    violation: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The size of a cluster, each partition of which begins with ``replicas`` replicas.

    ``groups`` has the replica group of each storage. Groups matter only to an administrator, who
    keeps the replicas of a partition in different groups.
    """

    replicas: int
    partitions: int
    servers: int
    groups: tuple[int, ...]
    segment_bytes: int


class SimCluster:
    """Servers, storages, one or two partitions with their clients, and the checks of a run.

    A subclass is a kind of run: it implements `choose_shape` and `main`. With ``reads_replicas``,
    each commit is checked by reading the disks of its quorum. With ``detailed``, the history has
    each message.
    """

    def __init__(self, seed: int, *, reads_replicas: bool = True, detailed: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.history: History
        self.environment: RunEnvironment
        self.partitions: list[NodesPartition] = []
        self.storages: dict[str, SimStorage] = {}
        self.servers: dict[str, SimServer] = {}
        self._reads_replicas = reads_replicas
        self._detailed = detailed

    @property
    def committed(self) -> int:
        """The number of appends whose clients were answered: committed."""
        return sum(partition.checker.num_committed for partition in self.partitions)

    def run(self) -> Result:
        """Run to the end; raises Violation."""
        with _quiet_logs(self._detailed), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            self._prepare(runner.get_loop())
            try:
                with self._limit_cpu_time():
                    runner.run(self.main())
            except BaseException as error:
                # `RunFailure` stops the event loop, which raises another error here.
                first = self.failure.error or error
                when = f"seed {self.seed}, at {self.clock.now:.4f} s"
                if isinstance(first, Violation):
                    raise Violation(first.guarantee, f"{when}: {first}") from first
                if not isinstance(first, Exception):
                    raise
                # The cores assert what they expect: any exception is a bug.
                last = traceback.extract_tb(first.__traceback__)[-1]
                raise Violation(
                    Guarantee.SOUND,
                    f"{when}: {type(first).__name__} {first} in {last.name}: {last.line}",
                ) from first
        self._count_phrases()
        counters = self.history.counters
        return Result(self.seed, self.committed, self.history.faults, self.clock.now, counters)

    def result(self) -> Result:
        """Run to the end; a violation is part of the result."""
        try:
            return self.run()
        except Violation as violation:
            history = self.history
            return Result(
                self.seed,
                self.committed,
                history.faults,
                self.clock.now,
                history.counters,
                violation.guarantee,
                f"{violation} ({violation.guarantee.value})",
            )

    def state(self) -> str:
        """Describe the state of the cluster, for the report of a violation."""
        down = [name for name, storage in self.storages.items() if not storage.up]
        parts = [f"down: {', '.join(down)}"] if down else []
        return "\n".join(parts + [partition.state() for partition in self.partitions])

    # ---- what a kind of run implements

    def choose_shape(self) -> ClusterShape:
        """Return the size of the cluster."""
        raise NotImplementedError

    async def main(self) -> None:
        """Create the cluster, do the work of the run, check the end."""
        raise NotImplementedError

    # ---- what a kind of run uses

    async def create(self, *, follow_assignment: bool = False) -> Cluster:
        """Create the cluster and start its nodes; return an administrator's access to it.

        Each partition is assigned to `ClusterShape.replicas` of the storages. With
        ``follow_assignment``, writes to ZooKeeper decide which replicas the checks expect;
        otherwise the faults decide.
        """
        cluster = Cluster(await self.open_store(), ROOT)
        groups = dict(zip(self.storages, self._shape.groups, strict=True))
        count = len(self.partitions)
        maps = assign_everything(groups, dict.fromkeys(groups, ADMIN_PORT), count)
        key = uuid.UUID(int=self.random.getrandbits(128), version=4)
        await create_cluster(cluster.store, ROOT, "sim", count, key=key, storages=maps)
        changes = []
        for partition in self.partitions:
            wanted = tuple(self.storages)[partition.partition :][: self._shape.replicas]
            changes.append(
                ReplicaChange(partition.partition, frozenset(self.storages), frozenset(wanted))
            )
            partition.view.assigned = wanted
        await cluster.change_replicas(changes)
        self.view.follows_assignment = follow_assignment
        for storage in self.storages.values():
            storage.start()
        for server in self.servers.values():
            server.start()
        return cluster

    def add_clients(self, appenders: int = 3, first_appends: int = 0) -> None:
        """Open the clients of all partitions, ``appenders`` in each, and let them work.

        The first ``first_appends`` transactions of each log are appended in large batches.
        """
        for partition in self.partitions:
            partition.add_clients(self.clients, self.new_random(), appenders, first_appends)
        hosts = [storage.host for storage in self.storages.values()]
        self.network.set_nodes(list(self.servers), [*hosts, *self.clients.checked])

    async def open_store(self) -> UnreliableStore:
        """Open the session of a client or of an administrator: no answer is lost."""
        return UnreliableStore(
            await self.shared.open_store(SESSION_MS),
            self.shared.zookeeper,
            self.clock,
            self.history,
            self._store_random,
            self.view,
            AnswerLoss(),
        )

    async def wait_until(
        self, condition: Callable[[], bool], seconds: float, violation: str
    ) -> None:
        """Wait until ``condition()``. After ``seconds``, raise Violation with ``violation``."""
        deadline = self.clock.now + seconds
        while not condition():
            if self.clock.now > deadline:
                raise Violation(Guarantee.ALIVE, f"{violation}: {self.state()}")
            await asyncio.sleep(_POLL_SECONDS)

    async def wait_for_commits(self, count: int, when: str) -> None:
        """Wait until ``count`` more appends are committed in every partition."""
        wanted = {each: each.checker.num_committed + count for each in self.partitions}
        await self.wait_until(
            lambda: all(each.checker.num_committed >= number for each, number in wanted.items()),
            _PROGRESS_SECONDS,
            f"no appends are committed {when}",
        )

    def is_quiet(self) -> bool:
        """Whether no work is left."""
        if any(wire.has_open_batch for wire in self.network.client_wires):
            return False
        return all(partition.is_quiet() for partition in self.partitions)

    def new_random(self) -> Random:
        """Return a random source for one part, so that a change in one does not alter others."""
        return Random(self.random.getrandbits(64))

    # ---- construction

    def _prepare(self, loop: asyncio.AbstractEventLoop) -> None:
        """Build all parts on ``loop``, because some of them need the running event loop."""

        async def prepare() -> None:
            self.clock = LoopClock()
            self.failure = RunFailure()
            self.history = History(self.clock, self._detailed)
            self.environment = RunEnvironment(self.clock, self.history, self.failure)
            self._build()

        loop.run_until_complete(prepare())

    def _build(self) -> None:
        # The order of the calls of `new_random` decides what each seed does.
        self._shape = shape = self.choose_shape()
        self.memory = MemoryNetwork(self.random.getrandbits(32))
        self.network = FaultyNetwork(self.memory, self.clock, self.new_random(), self.history)
        self.shared = SharedEnvironment(self.memory, MemoryZooKeeper(), self.new_random())
        self.answer_loss = AnswerLoss()
        for number in range(len(shape.groups)):
            storage = SimStorage(
                number,
                self.shared,
                self.environment,
                self.new_random(),
                shape.segment_bytes,
                SimEngine.of_seed(self.seed),
                shape.partitions,
            )
            self.storages[storage.name] = storage
        self.view = ClusterView(ROOT, shape.partitions, self.environment)
        checks = ServerChecks(self.environment, self._build_partitions())
        for number in range(shape.servers):
            server = SimServer(
                number, self.shared, checks, self.new_random(), self.view, self.answer_loss
            )
            self.servers[server.name] = server
        self.clients = ClientEnvironment(self.environment, self.memory, self.open_store)
        self._store_random = self.new_random()
        for name in self.servers:
            self.memory.intercept(name, SERVER_PORT, self._intercept)

    def _build_partitions(self) -> list[CheckedPartition]:
        checked = []
        for view in self.view.partitions:
            settings = short_log_settings(self.new_random())
            checker = Checker(
                {name: s.replicas[view.partition] for name, s in self.storages.items()},
                self.history.counters,
                partial(attrgetter("generation"), view),
                settings.lock_table_size,
                reads_replicas=self._reads_replicas,
            )
            checked.append(CheckedPartition(view, settings, checker))
            self.partitions.append(
                NodesPartition(view, checker, settings, self.servers, self.storages)
            )
        return checked

    def _intercept(self, connection: DialedConnection) -> Interceptor:
        client = self.clients.checked.get(connection.dialer)
        if client is None:
            return Unchanged()  # An administrator's connection.
        wire = ClientWire(client, connection, self.failure)
        self.network.client_wires.append(wire)
        return wire

    def _count_phrases(self) -> None:
        """Count `COUNTED_PHRASES` in the log lines of servers."""
        for note in self.history.notes(list(self.servers)):
            for phrase, name in COUNTED_PHRASES.items():
                self.history.counters[name] += note.count(phrase)

    @contextmanager
    def _limit_cpu_time(self) -> Iterator[None]:
        """End a run whose virtual time no longer advances. Only for a process's main thread."""

        def end(*_: object) -> None:
            stuck = Violation(Guarantee.ALIVE, f"still at one event after {STUCK_EVENT_SECONDS} s")
            self.failure.stop_run(stuck)
            raise stuck

        previous = signal.signal(signal.SIGPROF, end)
        signal.setitimer(signal.ITIMER_PROF, STUCK_EVENT_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, previous)


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
