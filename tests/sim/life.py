"""One life of a cluster, from a seed: appends, faults, and at the end the truth."""

from __future__ import annotations

import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from tests.sim.clock import Clock
from tests.sim.faults import Faults
from tests.sim.network import Network
from tests.sim.partition_life import PartitionLife
from tests.sim.promises import Promise, Violation
from tests.sim.storage_node import StorageNode
from tests.sim.story import Story
from waltz_server.core.replication.replica_roles import RecoveryCase

APPENDS = 1000
FAULTS = 6
DEADLINE_SECONDS = 300.0
FINISH_SECONDS = 120.0
PATIENCE_SECONDS = 120
"""Of real time, for a life of less than a second: beyond it, one event never ends."""

SEGMENT_BYTES = (6_000, 24_000)

_NOTED = (
    {
        "ended: checkpoint": "server: checkpoint",
        "ended: the replica assignment changed": "server: replica assignment changed",
        "ended: to take": "server: a replica was taken back in",
        "did not open": "server: session did not open",
        "is over": "server: generation refused",
        "appends in doubt": "server: appends were in doubt until the next session",
        "catches up": "server: a replica caught up by copying",
    }
    | {case.value: f"recovery: {case.value}" for case in RecoveryCase}
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
    """A cluster: storages, and one or two partitions with servers and clients of their own."""

    def __init__(self, seed: int, *, rot: bool = False, detailed: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = Clock()
        self.story = Story(self.clock, detailed)
        self.network = Network(self.clock, self._stream(), self.story)
        copies = self.random.choice((3, 3, 5))
        numbers = range(self.random.choice((1, 1, 2)))
        self.storages = self._make_storages(copies + 2, len(numbers))
        self.partitions = [
            PartitionLife(
                number,
                self.clock,
                self._stream(),
                self.network,
                self.storages,
                self.story,
                reads_replicas=not rot,
            )
            for number in numbers
        ]
        self.faults = Faults(
            self.clock,
            self._stream(),
            self.network,
            self.storages,
            self.partitions,
            self.story,
            rot=rot,
        )
        for storage in self.storages.values():
            storage.start()
        for partition in self.partitions:
            names = tuple(self.storages)[partition.partition :][:copies]
            partition.metadata.assign(names)
        self.faults.start()

    @property
    def committed(self) -> int:
        """How many appends were committed, as far as their clients know."""
        return sum(partition.checker.committed for partition in self.partitions)

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
            self.committed,
            self.story.faults,
            self.clock.events,
            self.clock.now,
            self.story.counters,
        )

    def state(self) -> str:
        """Describe the cluster, for people."""
        down = [name for name, storage in self.storages.items() if not storage.up]
        parts = [f"down: {', '.join(down)}"] if down else []
        return "\n".join(parts + [partition.state() for partition in self.partitions])

    def _live(self) -> None:
        if not self.clock.run(self._has_lived, DEADLINE_SECONDS):
            raise Violation(Promise.ALIVE, f"only {self.committed} committed: {self.state()}")
        self.story.tell("life", "faults and appends end")
        for partition in self.partitions:
            partition.stop()
        self.faults.stop()
        if not self.clock.run(self._is_quiet, self.clock.now + FINISH_SECONDS):
            raise Violation(Promise.ALIVE, f"it does not come to rest: {self.state()}")
        for partition in self.partitions:
            partition.check_at_rest()

    def _has_lived(self) -> bool:
        return self.committed >= APPENDS and self.story.faults >= FAULTS

    def _stream(self) -> Random:
        """Return a source of its own for each part, so that parts do not disturb each other."""
        return Random(self.random.getrandbits(64))

    def _make_storages(self, number: int, partitions: int) -> dict[str, StorageNode]:
        segment_bytes = self.random.choice(SEGMENT_BYTES)
        return {
            name: StorageNode(
                name,
                self.clock,
                self._stream(),
                self.network,
                self.story,
                segment_bytes,
                partitions,
            )
            for name in (f"storage{i}:1" for i in range(number))
        }

    def _is_quiet(self) -> bool:
        return all(partition.is_quiet() for partition in self.partitions)

    def _count_branches(self) -> None:
        """Count what the servers noted, and which branches their recoveries took."""
        servers = [name for partition in self.partitions for name in partition.servers]
        for note in self.story.notes(servers):
            for phrase, name in _NOTED.items():
                self.story.counters[name] += note.count(phrase)


def live(seed: int, *, rot: bool = False) -> Result:
    """Live one seed, in a process's main thread; a violation is part of the result."""
    life = Life(seed, rot=rot)
    try:
        with _bounded():
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
            life.committed,
            life.story.faults,
            life.clock.events,
            life.clock.now,
            life.story.counters,
            violation.promise,
            broken,
        )


@contextmanager
def _bounded() -> Iterator[None]:
    """End a life in which time stands still."""

    def end(*_: object) -> None:
        raise Violation(Promise.ALIVE, f"still at one event after {PATIENCE_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, end)
    signal.alarm(PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
