"""ZooKeeper in the simulation: partition metadata with compare-and-set, replicas, and ownership.

Answers take time, may fail to come although the write was done, and news reaches servers late, so
that a server may believe for a while that it still owns what it has lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.sim.clock import Clock
from tests.sim.story import Story
from waltz.metadata.core.formats import NEW_PARTITION, UNRESOLVED, PartitionMetadata

SESSION_SECONDS = 1.0
_DEAF_SECONDS = 0.02

OnOwner = Callable[[str, int], None]
OnReplicas = Callable[[tuple[str, ...]], None]


class Metadata:
    """The znodes of one partition."""

    def __init__(self, partition: int, clock: Clock, random: Random, story: Story) -> None:
        self.name = f"metadata{partition}"
        self.value: PartitionMetadata = NEW_PARTITION
        self.version = 0
        self.owner = ""
        self.generation = 0
        self.replicas: tuple[str, ...] = ()
        self.failing = 0.0
        """Share of the operations that get no answer."""
        self._clock = clock
        self._random = random
        self._story = story
        self.deaf: set[str] = set()
        """Whom no news reaches for now."""
        self._on_owner: list[tuple[str, OnOwner]] = []
        self._on_replicas: list[OnReplicas] = []

    def watch_owner(self, who: str, on_owner: OnOwner) -> None:
        """Have changes of the partition's server told, late."""
        self._on_owner.append((who, on_owner))

    def watch_replicas(self, on_replicas: OnReplicas) -> None:
        """Have changes of the partition's replicas told, late."""
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
            self._story.tell(self.name, f"written: {_brief(new)}")
            if silent:
                self._story.fault(self.name, "metadata written, answer lost")
                self._reply(failed, "no answer, but it was done")
            else:
                self._reply(done, self.version)

        self._clock.after(self._delay(), act)

    def give(self, owner: str) -> None:
        """Make ``owner`` the partition's server, in a new generation."""
        self.owner = owner
        self.generation += 1
        self._story.tell(self.name, f"{owner} owns the partition, generation {self.generation}")
        for who, tell in self._on_owner:
            self._clock.after(self._news_delay(), self._tell_owner, who, tell)

    def assign(self, replicas: tuple[str, ...]) -> None:
        """Change the partition's replicas."""
        self.replicas = replicas
        self._story.tell(self.name, f"replicas are {', '.join(replicas)}")
        for tell in self._on_replicas:
            self._clock.after(self._news_delay(), self._tell_replicas, tell)

    def _tell_owner(self, who: str, tell: OnOwner) -> None:
        """Tell the latest: a watch only says that something has changed."""
        if who in self.deaf:
            self._clock.after(_DEAF_SECONDS, self._tell_owner, who, tell)
        else:
            tell(self.owner, self.generation)

    def _tell_replicas(self, tell: OnReplicas) -> None:
        tell(self.replicas)

    def _no_answer(self) -> bool:
        return self._random.random() < self.failing

    def _reply(self, call: Callable[..., None], *arguments: object) -> None:
        self._clock.after(self._delay(), call, *arguments)

    def _delay(self) -> float:
        return 0.001 + self._random.expovariate(1 / 0.002)

    def _news_delay(self) -> float:
        return self._random.choice((0.002, 0.02, 0.3)) * (0.5 + self._random.random())


def _brief(value: PartitionMetadata) -> str:
    states = ", ".join(
        f"{name} in {state.session_id}"
        + ("" if state.closing_mark == UNRESOLVED else f" closed at {state.closing_mark}")
        for name, state in value.replicas.items()
    )
    return f"generation {value.generation}, session {value.session_id}: {states}"
