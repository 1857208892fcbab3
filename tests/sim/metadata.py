"""ZooKeeper in the simulation: partition metadata with compare-and-set, replicas, and ownership.

Answers take time, may fail to come although the write was done, and news reaches servers late, so
that a server may believe for a while that it still owns what it has lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from tests.sim.clock import Clock
from waltz.metadata.formats import NEW_PARTITION, PartitionMetadata

SESSION_SECONDS = 1.0

OnOwner = Callable[[str, int], None]
OnReplicas = Callable[[tuple[str, ...]], None]


class Metadata:
    """The znodes of one partition."""

    def __init__(self, clock: Clock, random: Random, counters: Counter[str]) -> None:
        self.value: PartitionMetadata = NEW_PARTITION
        self.version = 0
        self.owner = ""
        self.generation = 0
        self.replicas: tuple[str, ...] = ()
        self.failing = 0.0
        """Share of the operations that get no answer."""
        self._clock = clock
        self._random = random
        self._counters = counters
        self._on_owner: list[OnOwner] = []
        self._on_replicas: list[OnReplicas] = []

    def watch(self, on_owner: OnOwner | None, on_replicas: OnReplicas | None) -> None:
        """Have changes told, late."""
        if on_owner is not None:
            self._on_owner.append(on_owner)
        if on_replicas is not None:
            self._on_replicas.append(on_replicas)

    def read(
        self,
        done: Callable[[PartitionMetadata, int], None],
        failed: Callable[[str], None],
    ) -> None:
        """Read the partition's metadata."""

        def act() -> None:
            if self._no_answer():
                self._reply(failed, "no answer")
            else:
                self._reply(done, self.value, self.version)

        self._clock.after(self._delay(), act)

    def write(
        self,
        new: PartitionMetadata,
        version: int,
        done: Callable[[int], None],
        failed: Callable[[str], None],
    ) -> None:
        """Compare and set."""

        def act() -> None:
            silent = self._no_answer()
            if silent and self._random.random() < 0.5:
                self._reply(failed, "no answer, nothing done")
                return
            if version != self.version:
                self._reply(failed, "version conflict")
                return
            assert new.session_id >= self.value.session_id, "session ids only grow"
            self.value = new
            self.version += 1
            if silent:
                self._counters["fault: metadata written, answer lost"] += 1
                self._reply(failed, "no answer, but it was done")
            else:
                self._reply(done, self.version)

        self._clock.after(self._delay(), act)

    def give(self, owner: str) -> None:
        """Make ``owner`` the partition's server, in a new generation."""
        self.owner = owner
        self.generation += 1
        for tell in self._on_owner:
            # A watch only says that something changed: what is read then is the latest.
            self._clock.after(
                self._news_delay(), lambda tell=tell: tell(self.owner, self.generation)
            )

    def assign(self, replicas: tuple[str, ...]) -> None:
        """Change the partition's replicas."""
        self.replicas = replicas
        for tell in self._on_replicas:
            self._clock.after(self._news_delay(), lambda tell=tell: tell(self.replicas))

    def _no_answer(self) -> bool:
        return self._random.random() < self.failing

    def _reply(self, call: Callable[..., None], *arguments: object) -> None:
        self._clock.after(self._delay(), call, *arguments)

    def _delay(self) -> float:
        return 0.001 + self._random.expovariate(1 / 0.002)

    def _news_delay(self) -> float:
        return self._random.choice((0.002, 0.02, 0.3)) * (0.5 + self._random.random())
