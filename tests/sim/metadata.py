"""Simulate ZooKeeper: partition metadata with compare-and-set, replicas, and ownership.

Answers take time and may be lost although the write was done. Notifications reach servers late, so
that a server may act for a while as the owner of a partition that it has lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.sim.clock import Clock
from tests.sim.history import History
from waltz.metadata.core.formats import NEW_PARTITION, UNRESOLVED, PartitionMetadata

SESSION_SECONDS = 1.0
_WITHOUT_NEWS_SECONDS = 0.02

OnOwner = Callable[[str, int], None]
OnReplicas = Callable[[tuple[str, ...]], None]


class Metadata:
    """The znodes of one partition."""

    def __init__(self, partition: int, clock: Clock, random: Random, history: History) -> None:
        self.name = f"metadata{partition}"
        self.value: PartitionMetadata = NEW_PARTITION
        self.version = 0
        self.owner = ""
        self.generation = 0
        self.replicas: tuple[str, ...] = ()
        self.failing = 0.0
        """Share of the operations whose answer is lost."""
        self._clock = clock
        self._random = random
        self._history = history
        self.without_news: set[str] = set()
        """Servers that get no notifications at present."""
        self._on_owner: list[tuple[str, OnOwner]] = []
        self._on_replicas: list[OnReplicas] = []

    def watch_owner(self, who: str, on_owner: OnOwner) -> None:
        """Call ``on_owner`` after changes of the partition's server, late."""
        self._on_owner.append((who, on_owner))

    def watch_replicas(self, on_replicas: OnReplicas) -> None:
        """Call ``on_replicas`` after changes of the partition's replicas, late."""
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
        """Compare and set the partition's metadata."""

        def act() -> None:
            silent = self._no_answer()
            if silent and self._random.random() < 0.5:
                self._reply(failed, "no answer; the operation was not done")
                return
            if version != self.version:
                self._reply(failed, "version conflict")
                return
            assert new.session_id >= self.value.session_id, "session ids only grow"
            self.value = new
            self.version += 1
            self._history.note(self.name, f"written: {_brief(new)}")
            if silent:
                self._history.fault(self.name, "metadata written, answer lost")
                self._reply(failed, "no answer; the operation was done")
            else:
                self._reply(done, self.version)

        self._clock.after(self._delay(), act)

    def give(self, owner: str) -> None:
        """Make ``owner`` the partition's server, in a new generation."""
        self.owner = owner
        self.generation += 1
        self._history.note(self.name, f"{owner} owns the partition, generation {self.generation}")
        for who, notify in self._on_owner:
            self._clock.after(self._news_delay(), self._notify_owner, who, notify)

    def assign(self, replicas: tuple[str, ...]) -> None:
        """Change the partition's replicas."""
        self.replicas = replicas
        self._history.note(self.name, f"replicas are {', '.join(replicas)}")
        for notify in self._on_replicas:
            self._clock.after(self._news_delay(), self._notify_replicas, notify)

    def _notify_owner(self, who: str, notify: OnOwner) -> None:
        """Pass the latest value: a watch only shows that something has changed."""
        if who in self.without_news:
            self._clock.after(_WITHOUT_NEWS_SECONDS, self._notify_owner, who, notify)
        else:
            notify(self.owner, self.generation)

    def _notify_replicas(self, notify: OnReplicas) -> None:
        notify(self.replicas)

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
