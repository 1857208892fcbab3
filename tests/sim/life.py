"""One life of a cluster, from a seed: appends, faults, and at the end the truth."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.sim.checker import Checker
from tests.sim.client_node import Appender, Reader
from tests.sim.clock import Clock
from tests.sim.faults import Faults
from tests.sim.metadata import Metadata
from tests.sim.network import Network
from tests.sim.promises import Promise, Violation
from tests.sim.server_node import ServerNode, settings
from tests.sim.storage_node import StorageNode
from tests.sim.story import Story
from waltz.protocol import Record
from waltz_server.recovery import Case
from waltz_storage.errors import PartitionDamaged
from waltz_storage.log import PartitionLog

APPENDS = 1000
FAULTS = 6
DEADLINE_SECONDS = 300.0
FINISH_SECONDS = 120.0
SEGMENT_BYTES = (6_000, 24_000)

_NOTED = (
    {
        "ended: checkpoint": "server: checkpoint",
        "ended: the replica assignment changed": "server: replica assignment changed",
        "ended: to take": "server: a replica was taken back in",
        "did not open": "server: session did not open",
        "is over": "server: generation refused",
        "carried over": "server: appends were carried into the next session",
        "catches up": "server: a replica caught up by copying",
    }
    | {case.value: f"recovery: {case.value}" for case in Case}
    | {"undecidable": "recovery: the vote was undecidable for a while"}
)
"""What servers note, and the counter that a phrase of it raises."""


@dataclass(slots=True)
class Result:
    """What a life came to. ``promise`` is the one that it broke, and ``broken`` says how."""

    seed: int
    committed: int
    faults: int
    events: int
    seconds: float
    counters: Counter[str] = field(default_factory=Counter)
    promise: Promise | None = None
    broken: str | None = None


class Life:
    """A cluster with its storages, servers and clients."""

    def __init__(self, seed: int, *, rot: bool = False, detailed: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = Clock()
        self.story = Story(self.clock, detailed)
        self.network = Network(self.clock, self._stream(), self.story)
        self.metadata = Metadata(self.clock, self._stream(), self.story)
        copies = self.random.choice((3, 3, 5))
        self.storages = self._make_storages(copies + 2, self.random.choice(SEGMENT_BYTES))
        self.checker = Checker(self.storages, reads_replicas=not rot)
        self.shape = settings(self.random)
        self.servers = self._make_servers(self.random.choice((2, 3)))
        for storage in self.storages.values():
            storage.start()
        for server in self.servers.values():
            server.start()
        self.metadata.assign(tuple(self.storages)[:copies])
        cluster = (self.storages, self.servers, self.network, self.metadata)
        self.faults = Faults(self.clock, self._stream(), cluster, self.story, rot)
        self.faults.start()
        self.appenders = [
            Appender(
                i,
                self.clock,
                self._stream(),
                self.servers,
                self.metadata,
                self.checker,
                self.story,
            )
            for i in range(1, 4)
        ]
        self.reader = Reader(
            9, self.clock, self._stream(), self.servers, self.metadata, self.checker, self.story
        )

    def run(self) -> Result:
        """Live it; raises Violation."""
        try:
            self._live()
        except Violation as violation:
            where = f"seed {self.seed}, at {self.clock.now:.4f} s: {violation}"
            raise Violation(violation.promise, where) from violation
        except Exception as error:
            # The cores are strict: what they do not expect must not come to pass.
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise Violation(
                Promise.SOUND,
                f"seed {self.seed}, at {self.clock.now:.4f} s: {type(error).__name__} {error} in "
                f"{last.name}: {last.line}",
            ) from error
        self._count_branches()
        return Result(
            self.seed,
            self.checker.committed,
            self.story.faults,
            self.clock.events,
            self.clock.now,
            self.story.counters,
        )

    def state(self) -> str:
        """Describe the cluster, for people."""
        parts = [f"owner {self.metadata.owner} generation {self.metadata.generation}"]
        parts.append(f"replicas {', '.join(self.metadata.replicas)}")
        for name, storage in self.storages.items():
            state = f"ends at {storage.log.max_id}" if storage.log else "serves nothing"
            parts.append(f"{name} {state if storage.up else 'is down'}")
        for server in self.servers.values():
            if server.core is not None:
                store = server.core.store
                active = ", ".join(sorted(store.active_replicas)) or "nobody"
                parts.append(
                    f"{server.name} is at {server.core.high_water_mark}, session "
                    f"{store.session_id} with {active}"
                )
        parts += (f"{a.name} {a.open} open, {a.core.mount.phase.value}" for a in self.appenders)
        parts.append(f"{self.reader.name} at {self.reader.position}")
        return "; ".join(parts)

    def _live(self) -> None:
        if not self.clock.run(self._has_lived, DEADLINE_SECONDS):
            raise Violation(
                Promise.ALIVE, f"only {self.checker.committed} committed: {self.state()}"
            )
        self.story.tell("life", "faults and appends end")
        for appender in self.appenders:
            appender.stopped = True
        self.faults.stop()
        if not self.clock.run(self._is_quiet, self.clock.now + FINISH_SECONDS):
            raise Violation(Promise.ALIVE, f"it does not come to rest: {self.state()}")
        logs = self._logs()
        self.checker.at_rest(logs, [self._log(name).checksum() for name in logs])

    def _has_lived(self) -> bool:
        return self.checker.committed >= APPENDS and self.story.faults >= FAULTS

    def _stream(self) -> Random:
        """Return a source of its own for each part, so that parts do not disturb each other."""
        return Random(self.random.getrandbits(64))

    def _make_storages(self, number: int, segment_bytes: int) -> dict[str, StorageNode]:
        return {
            name: StorageNode(
                name, self.clock, self._stream(), self.network, self.story, segment_bytes
            )
            for name in (f"storage{i}:1" for i in range(number))
        }

    def _make_servers(self, number: int) -> dict[str, ServerNode]:
        world = (self.clock, self._stream(), self.network, self.metadata, self.checker)
        return {
            name: ServerNode(name, world, self.storages, self.story, self.shape)
            for name in (f"server{i}" for i in range(number))
        }

    # ---- the end

    def _is_quiet(self) -> bool:
        if any(appender.open for appender in self.appenders):
            return False
        core = self.servers[self.metadata.owner].core
        if core is None or core.high_water_mark is None:
            return False
        if core.store.active_replicas != frozenset(self.metadata.replicas):
            return False
        mark = core.high_water_mark
        if self.reader.position != mark:
            return False
        logs = [self.storages[name].log for name in self.metadata.replicas]
        return all(log is not None and log.max_id == mark for log in logs)

    def _log(self, name: str) -> PartitionLog:
        log = self.storages[name].log
        assert log is not None
        return log

    def _logs(self) -> dict[str, list[Record]]:
        logs = {}
        for name in self.metadata.replicas:
            log = self._log(name)
            records: list[Record] = []
            try:
                while log.max_id >= len(records):
                    records += log.read(len(records), 1000, 1 << 30)
            except PartitionDamaged as damaged:
                raise Violation(Promise.READABLE, f"{name}: {damaged}") from damaged
            logs[name] = records
        return logs

    def _count_branches(self) -> None:
        """Count what the servers noted, and which branches their recoveries took."""
        for note in self.story.notes(list(self.servers)):
            for phrase, name in _NOTED.items():
                self.story.counters[name] += note.count(phrase)


def live(seed: int, *, rot: bool = False) -> Result:
    """Live one seed; a violation is part of the result."""
    life = Life(seed, rot=rot)
    try:
        result = life.run()
        if rot:
            result.counters["rot: a life in which every promise was kept"] += 1
        return result
    except Violation as violation:
        broken = f"{violation} ({violation.promise.value})"
        if rot:
            life.story.counters[f"rot: a life that broke: {violation.promise.value}"] += 1
        return Result(
            seed,
            life.checker.committed,
            life.story.faults,
            life.clock.events,
            life.clock.now,
            life.story.counters,
            violation.promise,
            broken,
        )
