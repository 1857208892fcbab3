"""Run one partition: its metadata, servers, clients, and the checks of its log."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.sim.appending_client import Appender
from tests.sim.checker import Checker
from tests.sim.clock import Clock
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.metadata import Metadata
from tests.sim.network import Network
from tests.sim.range_client import RANGES_SINCE, RangeReader
from tests.sim.reading_client import Reader
from tests.sim.server_node import ServerNode, settings
from tests.sim.storage_node import StorageNode
from waltz.protocol import Record
from waltz_storage.core.errors import PartitionDamaged
from waltz_storage.core.log.partition_log import PartitionLog

APPENDERS = 3


class PartitionRun:
    """All components of one partition. Only its storages are shared with other partitions.

    With ``reads_replicas``, each commit is checked by reading the disks of its quorum.
    """

    def __init__(
        self,
        partition: int,
        clock: Clock,
        random: Random,
        network: Network,
        storages: Mapping[str, StorageNode],
        history: History,
        *,
        reads_replicas: bool,
    ) -> None:
        self.partition = partition
        self.replicas = {name: s.replicas[partition] for name, s in storages.items()}
        self.metadata = Metadata(partition, clock, _stream(random), history)
        self.shape = settings(random)
        self.checker = Checker(
            self.replicas,
            history.counters,
            lambda: self.metadata.generation,
            self.shape.lock_table_size,
            reads_replicas=reads_replicas,
        )
        world = (clock, _stream(random), network, self.metadata, self.checker)
        first = 10 * partition
        self.servers = {
            name: ServerNode(name, partition, world, storages, history, self.shape)
            for name in (f"server{first + i}" for i in range(random.choice((2, 3))))
        }
        for server in self.servers.values():
            server.start()
        environment = (clock, self.servers, self.metadata, self.checker, history)
        self.appenders = [
            Appender(first + i, partition, _stream(random), environment)
            for i in range(1, APPENDERS + 1)
        ]
        self.reader = Reader(first + 9, partition, _stream(random), environment)
        self.range_reader = RangeReader(first + 8, partition, _stream(random), environment)

    def known_assignments(self) -> list[set[str]]:
        """Return the assigned replicas by which a server may still begin a session."""
        return []

    def stop(self) -> None:
        """Begin no further append."""
        for appender in self.appenders:
            appender.stopped = True

    def is_quiet(self) -> bool:
        """Whether no work is left."""
        if any(appender.open for appender in self.appenders):
            return False
        if any(appender.unanswered for appender in self.appenders):
            return False
        owner = self.servers[self.metadata.owner]
        if owner.open_reads.due:
            return False
        core = owner.core
        if core is None or core.high_water_mark is None:
            return False
        if core.store.active_replicas != frozenset(self.metadata.replicas):
            return False
        mark = core.high_water_mark
        if self.reader.position != mark:
            return False
        if owner.version >= RANGES_SINCE and self.range_reader.position != mark:
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
            f"partition {self.partition}: owner {self.metadata.owner} "
            f"generation {self.metadata.generation}",
            f"replicas {', '.join(self.metadata.replicas)}",
        ]
        parts += (f"{name} {replica.state()}" for name, replica in self.replicas.items())
        for server in self.servers.values():
            if server.core is not None:
                store = server.core.store
                active = ", ".join(sorted(store.active_replicas)) or "no replica"
                parts.append(
                    f"{server.name} is at {server.core.high_water_mark}, session "
                    f"{store.session_id} with {active}"
                )
        parts += (f"{a.name} {a.open} open, {a.core.mount.phase.value}" for a in self.appenders)
        parts += (f"{r.name} at {r.position}" for r in (self.reader, self.range_reader))
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
