"""One partition of a cluster of real nodes: its clients, its replicas, the checks of its log."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.sim.checker import Checker
from tests.sim.cluster_view import PartitionView
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.observed_server import ObservedPartition, SimServer
from tests.sim.observed_storage import SimStorage
from tests.sim.real_clients import Appender, ClientEnvironment
from tests.sim.real_readers import RangeReader, Reader
from waltz.protocol import Record
from waltz.protocol.client_numbers import APPEND_BATCH_SINCE, RANGES_SINCE
from waltz_server.core.partition import PartitionSettings
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.partition_log import PartitionLog


class NodesPartition:
    """The clients of one partition, its replicas and its server."""

    def __init__(
        self,
        view: PartitionView,
        checker: Checker,
        settings: PartitionSettings,
        servers: Mapping[str, SimServer],
        storages: Mapping[str, SimStorage],
    ) -> None:
        self.partition = view.partition
        self.view = view
        self.checker = checker
        self.settings = settings
        self.servers = servers
        self.replicas = {name: s.replicas[self.partition] for name, s in storages.items()}
        self.appenders: list[Appender] = []
        self.readers: list[Reader] = []
        self.range_readers: list[RangeReader] = []

    def add_clients(
        self, environment: ClientEnvironment, random: Random, appenders: int, first_appends: int
    ) -> None:
        """Open ``appenders`` clients that append and two clients that read; begin their work.

        One appender that supports batches appends the first ``first_appends`` transactions.
        """
        first = 10 * self.partition
        p, checker = self.partition, self.checker
        for number in range(1, appenders + 1):
            own_random = _new_random(random)
            self.appenders.append(Appender(first + number, p, environment, checker, own_random))
        self.readers.append(Reader(first + 9, p, environment, checker, _new_random(random)))
        range_reader = RangeReader(first + 8, p, environment, checker, _new_random(random))
        self.range_readers.append(range_reader)
        with_batches = [each for each in self.appenders if each.version >= APPEND_BATCH_SINCE]
        if with_batches:
            with_batches[0].first_appends = first_appends
        for client in (*self.appenders, *self.readers, *self.range_readers):
            client.start()

    @property
    def owner(self) -> SimServer | None:
        """The server that owns the partition by ZooKeeper, None if its process has ended."""
        owner_id = self.view.owner_id
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
        return [set(each) for each in (*known, *self.view.formerly_assigned)]

    def stop(self) -> None:
        """Begin no further append. Readers only follow the log to its end."""
        for client in (*self.appenders, *self.readers, *self.range_readers):
            client.stopped = True

    def is_quiet(self) -> bool:
        """Whether no work is left: no open append, and all replicas and readers at the mark."""
        hosted, owner = self.hosted, self.owner
        if hosted is None or owner is None or owner.node is None:
            return False
        core = hosted.core
        mark = core.high_water_mark
        if any(appender.num_open for appender in self.appenders) or hosted.open_reads.due:
            return False
        if mark is None or core.generation != self.view.generation:
            return False
        if core.store.active_replicas != frozenset(self.view.assigned):
            return False
        # An older server does not answer readers of ranges.
        range_readers = self.range_readers if owner.node.version >= RANGES_SINCE else []
        if any(reader.position != mark for reader in (*self.readers, *range_readers)):
            return False
        logs = [self.replicas[name].log for name in self.view.assigned]
        return all(log is not None and log.max_id == mark for log in logs)

    def check_at_rest(self) -> None:
        """Compare all replicas with each other and with all answers; raises Violation."""
        logs = {name: self._log(name) for name in self.view.assigned}
        self.checker.check_at_rest(
            {name: _read_all(name, log) for name, log in logs.items()},
            [log.checksum() for log in logs.values()],
        )

    def state(self) -> str:
        """Describe the state of the partition in one line, for the report of a violation."""
        parts = [
            f"partition {self.partition}: owner {self.view.owner_id} "
            f"generation {self.view.generation}",
            f"replicas {', '.join(self.view.assigned)}",
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
        parts += (f"{a.name} {a.num_open} open" for a in self.appenders)
        parts += (f"{r.name} at {r.position}" for r in (*self.readers, *self.range_readers))
        return "; ".join(parts)

    def _log(self, name: str) -> PartitionLog:
        log = self.replicas[name].log
        assert log is not None
        return log


def _read_all(name: str, log: PartitionLog) -> list[Record]:
    """Return all records of a replica; raises Violation if it cannot be read."""
    records: list[Record] = []
    try:
        while log.max_id >= len(records):
            records += log.read_batch(len(records), 1000, 1 << 30)
    except PartitionDamaged as damaged:
        raise Violation(Guarantee.READABLE, f"{name}: {damaged}") from damaged
    return records


def _new_random(random: Random) -> Random:
    """Return a separate source for each part, so that a change in one does not alter others."""
    return Random(random.getrandbits(64))
