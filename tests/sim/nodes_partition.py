"""Run one partition of a cluster of real nodes: its clients, and the checks of its log."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.sim.checker import Checker
from tests.sim.cluster_view import PartitionView
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.observed_server import ObservedPartition, SimServer
from tests.sim.observed_storage import SimStorage
from tests.sim.real_clients import RANGES_SINCE, Appender, ClientWorld
from tests.sim.real_readers import RangeReader, Reader
from waltz.protocol import Record
from waltz_server.core.partition import PartitionSettings
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.partition_log import PartitionLog


class NodesPartition:
    """The clients of one partition, its replicas and its server."""

    def __init__(
        self,
        view: PartitionView,
        checker: Checker,
        shape: PartitionSettings,
        servers: Mapping[str, SimServer],
        storages: Mapping[str, SimStorage],
    ) -> None:
        self.partition = view.partition
        self.metadata = view
        self.checker = checker
        self.shape = shape
        self.servers = servers
        self.replicas = {name: s.replicas[self.partition] for name, s in storages.items()}
        self.appenders: list[Appender] = []
        self.readers: list[Reader] = []
        self.range_readers: list[RangeReader] = []

    def add_clients(
        self, world: ClientWorld, random: Random, appenders: int, first_appends: int
    ) -> None:
        """Open the clients, ``appenders`` of them append, and begin their work.

        One appender that supports batches appends the first ``first_appends`` transactions.
        """
        first = 10 * self.partition
        for number in range(1, appenders + 1):
            environment = (world, self.checker, _stream(random))
            self.appenders.append(Appender(first + number, self.partition, environment))
        environment = (world, self.checker, _stream(random))
        self.readers.append(Reader(first + 9, self.partition, environment))
        environment = (world, self.checker, _stream(random))
        self.range_readers.append(RangeReader(first + 8, self.partition, environment))
        able = [appender for appender in self.appenders if appender.version >= RANGES_SINCE]
        if able:
            able[0].first_appends = first_appends
        for client in (*self.appenders, *self.readers, *self.range_readers):
            client.start()

    @property
    def owner(self) -> SimServer | None:
        """The server that owns the partition by ZooKeeper, None if its process has ended."""
        owner_id = self.metadata.owner_id
        for server in self.servers.values():
            if owner_id and server.server_id == owner_id:
                return server
        return None

    @property
    def hosted(self) -> ObservedPartition | None:
        """The partition on its server, None while that server does not act for it."""
        owner = self.owner
        node = owner.node if owner is not None else None
        return node.observed(self.partition) if node is not None else None

    def known_assignments(self) -> list[set[str]]:
        """Return the assigned replicas by which a server may still begin a session."""
        nodes = (server.node for server in self.servers.values())
        known = (node.assigned(self.partition) for node in nodes if node is not None)
        return [set(each) for each in (*known, *self.metadata.former_replicas)]

    def stop(self) -> None:
        """Begin no further append. Readers only follow the log to its end."""
        for client in (*self.appenders, *self.readers, *self.range_readers):
            client.stopped = True

    def is_quiet(self) -> bool:
        """Whether no work is left."""
        hosted, owner = self.hosted, self.owner
        if hosted is None or owner is None or owner.node is None:
            return False
        core = hosted.core
        mark = core.high_water_mark
        if any(appender.open for appender in self.appenders) or hosted.open_reads.due:
            return False
        if mark is None or core.generation != self.metadata.generation:
            return False
        if core.store.active_replicas != frozenset(self.metadata.replicas):
            return False
        readers = [*self.readers]
        ranges = self.range_readers if owner.node.version >= RANGES_SINCE else []
        if any(reader.position != mark for reader in (*readers, *ranges)):
            return False
        logs = [self.replicas[name].log for name in self.metadata.replicas]
        return all(log is not None and log.max_id == mark for log in logs)

    def check_at_rest(self) -> None:
        """Compare all replicas with each other and with all answers; raises Violation."""
        logs = {name: self._log(name) for name in self.metadata.replicas}
        self.checker.at_rest(
            {name: _read(name, log) for name, log in logs.items()},
            [log.checksum() for log in logs.values()],
        )

    def state(self) -> str:
        """Describe its state, for the reader of a failure."""
        parts = [
            f"partition {self.partition}: owner {self.metadata.owner_id} "
            f"generation {self.metadata.generation}",
            f"replicas {', '.join(self.metadata.replicas)}",
        ]
        parts += (f"{name} {replica.state()}" for name, replica in self.replicas.items())
        for server in self.servers.values():
            hosted = server.node.observed(self.partition) if server.node is not None else None
            if hosted is not None:
                store = hosted.core.store
                active = ", ".join(sorted(store.active_replicas)) or "no replica"
                parts.append(
                    f"{server.name} (id {server.server_id}) is at {hosted.core.high_water_mark}, "
                    f"generation {hosted.core.generation}, session {store.session_id} with {active}"
                )
            else:
                parts.append(f"{server.name} (id {server.server_id}) up: {server.up}")
        parts += (f"{a.name} {a.open} open" for a in self.appenders)
        parts += (f"{r.name} at {r.position}" for r in (*self.readers, *self.range_readers))
        return "; ".join(parts)

    def _log(self, name: str) -> PartitionLog:
        log = self.replicas[name].log
        assert log is not None
        return log


def _read(name: str, log: PartitionLog) -> list[Record]:
    """Return all records of a replica; raises Violation if it cannot be read."""
    records: list[Record] = []
    try:
        while log.max_id >= len(records):
            records += log.read_batch(len(records), 1000, 1 << 30)
    except PartitionDamaged as damaged:
        raise Violation(Guarantee.READABLE, f"{name}: {damaged}") from damaged
    return records


def _stream(random: Random) -> Random:
    """Return a separate source for each part, so that a change in one does not alter others."""
    return Random(random.getrandbits(64))
