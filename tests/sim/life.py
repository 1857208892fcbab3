"""One life of a cluster, from a seed: appends, faults, and at the end the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.sim.checker import Checker, Violation
from tests.sim.client_node import Appender, Reader
from tests.sim.clock import Clock
from tests.sim.metadata import SESSION_SECONDS, Metadata
from tests.sim.network import Network
from tests.sim.server_node import ServerNode, settings
from tests.sim.storage_node import StorageNode
from waltz.metadata.formats import UNRESOLVED
from waltz.protocol import Record
from waltz_server.recovery import Case

APPENDS = 1000
FAULTS = 6
DEADLINE_SECONDS = 600.0
FINISH_SECONDS = 300.0

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
    """What a life came to."""

    seed: int
    committed: int
    faults: int
    events: int
    seconds: float
    counters: Counter[str] = field(default_factory=Counter)


class Life:
    """A cluster with its storages, servers and clients."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.counters: Counter[str] = Counter()
        self.clock = Clock()
        self.network = Network(self.clock, self._stream(), self.counters)
        self.metadata = Metadata(self.clock, self._stream(), self.counters)
        copies = self.random.choice((3, 3, 5))
        self.storages = {
            name: StorageNode(name, self.clock, self._stream(), self.network, self.counters)
            for name in (f"storage{i}:1" for i in range(copies + 2))
        }
        self.checker = Checker(self.storages)
        world = (self.clock, self._stream(), self.network, self.metadata, self.checker)
        shape = settings(self.random)
        self.servers = {
            name: ServerNode(name, world, self.storages, self.counters, shape)
            for name in (f"server{i}" for i in range(self.random.choice((2, 3))))
        }
        for storage in self.storages.values():
            storage.start()
        for server in self.servers.values():
            server.start()
        self.metadata.assign(tuple(self.storages)[:copies])
        self._owner_starts = 0
        self._give("server0")
        self.appenders = [
            Appender(
                i,
                self.clock,
                self._stream(),
                self.servers,
                self.metadata,
                self.checker,
                self.counters,
            )
            for i in range(1, 4)
        ]
        self.reader = Reader(9, self.clock, self.servers, self.metadata, self.checker)
        self.faults = 0
        self._damaged: set[str] = set()
        self._snapshot_sessions: dict[str, int] = {}
        self._stopped = False

    def run(self) -> Result:
        """Live it; raises Violation."""
        self.clock.after(0.05, self._strike)
        self.clock.after(SESSION_SECONDS, self._watch_owner)
        try:
            busy = self.clock.run(
                lambda: self.checker.committed >= APPENDS and self.faults >= FAULTS,
                DEADLINE_SECONDS,
            )
            if not busy:
                raise Violation(f"only {self.checker.committed} committed: {self.state()}")
            self._heal()
            if not self.clock.run(self._is_quiet, self.clock.now + FINISH_SECONDS):
                raise Violation(f"it does not come to rest: {self.state()}")
            self.checker.at_rest(self._logs())
        except AssertionError as error:
            raise Violation(f"seed {self.seed}, at {self.clock.now:.4f} s: {error}") from error
        self._count_branches()
        return Result(
            self.seed,
            self.checker.committed,
            self.faults,
            self.clock.events,
            self.clock.now,
            self.counters,
        )

    def state(self) -> str:
        """Describe the cluster, for people."""
        parts = [f"owner {self.metadata.owner} generation {self.metadata.generation}"]
        parts.append(f"replicas {self.metadata.replicas} metadata {self.metadata.value}")
        parts += (f"{n} {'up' if s.up else 'down'}" for n, s in self.storages.items())
        parts += (
            f"{n} max {s.log.max_id}" if s.log else f"{n} closed" for n, s in self.storages.items()
        )
        parts += (f"{a.name} {a.open} open, {a.core.mount.phase}" for a in self.appenders)
        notes = sorted(note for server in self.servers.values() for note in server.notes)
        return "; ".join(parts) + "\n" + "\n".join(notes[-60:])

    def _stream(self) -> Random:
        """Return a source of its own for each part, so that parts do not disturb each other."""
        return Random(self.random.getrandbits(64))

    # ---- faults

    def _strike(self) -> None:
        if self._stopped:
            return
        choices = (
            self._kill_storage,
            self._kill_storage,
            self._power_loss,
            self._lose_disk,
            self._lose_disk,
            self._fail_flush,
            self._fill_disk,
            self._kill_server,
            self._depose,
            self.network.cut_one,
            self._wall,
            self._slow_network,
            self._silent_metadata,
            self._change_replicas,
            self._change_replicas,
        )
        before = sum(n for name, n in self.counters.items() if name.startswith("fault"))
        self.random.choice(choices)()
        after = sum(n for name, n in self.counters.items() if name.startswith("fault"))
        self.faults += after - before
        self.clock.after(self.random.expovariate(1 / 0.08), self._strike)

    def _some_storage(self) -> StorageNode | None:
        alive = [s for n, s in self.storages.items() if s.up and n in self.metadata.replicas]
        return self.random.choice(alive) if alive else None

    def _kill_storage(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.crash(power=False)
            self._restart_later(storage)

    def _power_loss(self) -> None:
        victims = self.random.choice((1, 1, len(self.storages)))
        for storage in self.random.sample(list(self.storages.values()), victims):
            if storage.up:
                storage.crash(power=True)
                self._restart_later(storage)

    def _lose_disk(self) -> None:
        """Empty or set back a disk, as long as a quorum of intact ones stays."""
        self._forgive()
        storage = self._some_storage()
        if storage is None or not self._may_damage(storage.name):
            return
        session = storage.session_id
        storage.crash(power=self.random.random() < 0.5)
        entry = self.metadata.value.replicas.get(storage.name)
        choice = self.random.random()
        taken = self._snapshot_sessions.get(storage.name)
        if choice < 0.5:
            storage.wipe()
            self._damaged.add(storage.name)
        elif taken is not None and entry is not None and taken < entry.session_id:
            storage.restore_snapshot()
            self._damaged.add(storage.name)
        else:
            storage.take_snapshot()
            self._snapshot_sessions[storage.name] = session
        self._restart_later(storage)

    def _may_damage(self, name: str) -> bool:
        damaged = self._damaged | {name}
        assigned = set(self.metadata.replicas)
        for group in (set(self.metadata.value.replicas), assigned):
            # Who is no longer assigned cannot help either.
            if group and len((group & assigned) - damaged) < len(group) // 2 + 1:
                return False
        return bool(self.metadata.value.replicas)

    def _forgive(self) -> None:
        """A damaged replica that took part in a later session is as good as any."""
        value = self.metadata.value
        for name in list(self._damaged):
            state = value.replicas.get(name)
            storage = self.storages[name]
            if state is None or (
                state.closing_mark == UNRESOLVED
                and state.session_id == value.session_id
                and storage.session_id == value.session_id
            ):
                self._damaged.discard(name)

    def _fail_flush(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.fail_a_flush()

    def _fill_disk(self) -> None:
        storage = self._some_storage()
        if storage is not None:
            storage.fill(self.random.expovariate(1 / 0.3))

    def _kill_server(self) -> None:
        server = self.servers[self.metadata.owner]
        if server.up:
            server.crash()
            self.clock.after(self.random.expovariate(1 / 0.3), server.start)

    def _depose(self) -> None:
        """The owner's session expires, but the owner lives on and does not know."""
        others = [n for n, s in self.servers.items() if s.up and n != self.metadata.owner]
        if others:
            self.counters["fault: owner deposed"] += 1
            self._give(self.random.choice(others))

    def _wall(self) -> None:
        a = self.random.choice(list(self.servers))
        b = self.random.choice(list(self.storages))
        self.network.wall(a, b, self.random.expovariate(1 / 0.5))

    def _slow_network(self) -> None:
        self.counters["fault: slow network"] += 1
        self.network.slow = self.random.choice((3.0, 20.0))
        self.clock.after(0.1, setattr, self.network, "slow", 1.0)

    def _silent_metadata(self) -> None:
        self.counters["fault: metadata without answers"] += 1
        self.metadata.failing = self.random.choice((0.3, 0.9))
        self.clock.after(self.random.expovariate(1 / 0.3), setattr, self.metadata, "failing", 0.0)

    def _change_replicas(self) -> None:
        """Add and remove one or several, keeping a quorum of every set that may matter."""
        self._forgive()
        now = set(self.metadata.replicas)
        last = set(self.metadata.value.replicas) or now
        spare = [name for name in self.storages if name not in now]
        added = set(self.random.sample(spare, self.random.randint(0, len(spare))))
        removed = set(self.random.sample(sorted(now), self.random.randint(0, 2)))
        new = (now | added) - removed
        if new == now or len(new) < 3:
            return
        for group in (now, last):
            if len((group & new) - self._damaged) < len(group) // 2 + 1:
                return
        for what, names in (("added", added), ("removed", removed)):
            if names:
                many = "one" if len(names) == 1 else "several"
                self.counters[f"fault: replicas {what}: {many}"] += 1
        ordered = [name for name in self.storages if name in new]
        self.metadata.assign(tuple(ordered))

    def _restart_later(self, storage: StorageNode) -> None:
        self.clock.after(self.random.expovariate(1 / 0.2), storage.start)

    def _watch_owner(self) -> None:
        """The session of an owner that died ends, even if it has been started again since."""
        owner = self.servers[self.metadata.owner]
        if not owner.up or owner.starts != self._owner_starts:
            alive = [name for name, server in self.servers.items() if server.up]
            if alive:
                self._give(self.random.choice(alive))
        self.clock.after(SESSION_SECONDS * (0.5 + self.random.random()), self._watch_owner)

    def _give(self, name: str) -> None:
        self._owner_starts = self.servers[name].starts
        self.metadata.give(name)

    # ---- the end

    def _heal(self) -> None:
        self._stopped = True
        for appender in self.appenders:
            appender.stopped = True
        self.network.heal()
        self.metadata.failing = 0.0
        for storage in self.storages.values():
            storage.heal()
        for server in self.servers.values():
            server.start()

    def _is_quiet(self) -> bool:
        if any(appender.open for appender in self.appenders):
            return False
        core = self.servers[self.metadata.owner].core
        if core is None or core.high_water_mark is None:
            return False
        if core.store.active_replicas != frozenset(self.metadata.replicas):
            return False
        mark = core.high_water_mark
        if any(node.position != mark for node in (self.reader,)):
            return False
        logs = [self.storages[name].log for name in self.metadata.replicas]
        return all(log is not None and log.max_id == mark for log in logs)

    def _logs(self) -> dict[str, list[Record]]:
        logs = {}
        for name in self.metadata.replicas:
            log = self.storages[name].log
            assert log is not None
            records: list[Record] = []
            while log.max_id >= len(records):
                records += log.read(len(records), 1000, 1 << 30)
            logs[name] = records
        return logs

    def _count_branches(self) -> None:
        """Count what the servers noted, and which branches their recoveries took."""
        for server in self.servers.values():
            for note in server.notes:
                for phrase, name in _NOTED.items():
                    self.counters[name] += note.count(phrase)
