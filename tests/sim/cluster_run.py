"""Run one simulated cluster from a seed: appends, faults, and checks at the end."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from tests.sim.clock import Clock
from tests.sim.faults import Faults
from tests.sim.guarantees import Guarantee, Violation
from tests.sim.history import History
from tests.sim.network import Network
from tests.sim.partition_run import PartitionRun
from tests.sim.sim_cluster import NOTED, Result
from tests.sim.storage_node import StorageNode

APPENDS = 1000
FAULTS = 6
DEADLINE_SECONDS = 300.0
FINISH_SECONDS = 120.0
STUCK_EVENT_SECONDS = 120
"""Of real time; a run takes less than a second. Beyond it, one event never ends."""

SEGMENT_BYTES = (6_000, 24_000)


class ClusterRun:
    """A cluster: storages, and one or two partitions with servers and clients of their own."""

    def __init__(self, seed: int, *, rot: bool = False, detailed: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = Clock()
        self.history = History(self.clock, detailed)
        self.network = Network(self.clock, self._stream(), self.history)
        copies = self.random.choice((3, 3, 5))
        numbers = range(self.random.choice((1, 1, 2)))
        self.storages = self._make_storages(copies + 2, len(numbers))
        self.partitions = [
            PartitionRun(
                number,
                self.clock,
                self._stream(),
                self.network,
                self.storages,
                self.history,
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
            self.history,
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
        """How many appends their clients have received as committed."""
        return sum(partition.checker.committed for partition in self.partitions)

    def run(self) -> Result:
        """Run to the end; raises Violation."""
        try:
            self._run_phases()
        except Violation as violation:
            where = f"seed {self.seed}, at {self.clock.now:.4f} s: {violation}"
            raise Violation(violation.guarantee, where) from violation
        except Exception as error:
            # The cores assert what they expect: any exception is a bug.
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise Violation(
                Guarantee.SOUND,
                f"seed {self.seed}, at {self.clock.now:.4f} s: {type(error).__name__} {error} in "
                f"{last.name}: {last.line}",
            ) from error
        self._count_branches()
        return Result(
            self.seed,
            self.committed,
            self.history.faults,
            self.clock.now,
            self.history.counters,
        )

    def state(self) -> str:
        """Describe the state of the cluster, for the reader of a failure."""
        down = [name for name, storage in self.storages.items() if not storage.up]
        parts = [f"down: {', '.join(down)}"] if down else []
        return "\n".join(parts + [partition.state() for partition in self.partitions])

    def _run_phases(self) -> None:
        if not self.clock.run(self._has_enough, DEADLINE_SECONDS):
            raise Violation(Guarantee.ALIVE, f"only {self.committed} committed: {self.state()}")
        self.history.note("run", "faults and appends end")
        for partition in self.partitions:
            partition.stop()
        self.faults.stop()
        if not self.clock.run(self._is_quiet, self.clock.now + FINISH_SECONDS):
            raise Violation(Guarantee.ALIVE, f"activity does not end: {self.state()}")
        for partition in self.partitions:
            partition.check_at_rest()

    def _has_enough(self) -> bool:
        return self.committed >= APPENDS and self.history.faults >= FAULTS

    def _stream(self) -> Random:
        """Return a separate source for each part, so that a change in one does not alter others."""
        return Random(self.random.getrandbits(64))

    def _make_storages(self, number: int, partitions: int) -> dict[str, StorageNode]:
        segment_bytes = self.random.choice(SEGMENT_BYTES)
        return {
            name: StorageNode(
                name,
                self.clock,
                self._stream(),
                self.network,
                self.history,
                segment_bytes,
                partitions,
            )
            for name in (f"storage{i}:1" for i in range(number))
        }

    def _is_quiet(self) -> bool:
        return all(partition.is_quiet() for partition in self.partitions)

    def _count_branches(self) -> None:
        """Count log lines of servers, and the branches that their recoveries took."""
        servers = [name for partition in self.partitions for name in partition.servers]
        for note in self.history.notes(servers):
            for phrase, name in NOTED.items():
                self.history.counters[name] += note.count(phrase)


def run_seed(seed: int, *, rot: bool = False) -> Result:
    """Run one seed, in a process's main thread; a violation is part of the result."""
    run = ClusterRun(seed, rot=rot)
    try:
        with _bounded():
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
            run.clock.now,
            run.history.counters,
            violation.guarantee,
            broken,
        )


@contextmanager
def _bounded() -> Iterator[None]:
    """End a run whose virtual time no longer advances."""

    def end(*_: object) -> None:
        raise Violation(Guarantee.ALIVE, f"still at one event after {STUCK_EVENT_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, end)
    signal.alarm(STUCK_EVENT_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
