"""How long the storage engine's flushes and tasks take in the simulation: never no time at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from tests.sim.story import Story
from waltz_storage.core.durability import RoundPart, T

FLUSH_SECONDS = 0.001
TASK_SECONDS = 0.0002

Later = Callable[[float, Callable[[], None]], None]


class LateFlushes:
    """Implements `Durability`: the machine may die between a write and its flush.

    A real one returns when all is durable, and its thread does nothing else meanwhile: ``busy``
    says that this one would not have returned yet.
    """

    def __init__(self, later: Later, story: Story) -> None:
        self._later = later
        self._story = story
        self._flushing = 0

    @property
    def busy(self) -> bool:
        """Whether a part of the last round is not durable yet."""
        return self._flushing > 0

    def commit(
        self, parts: Sequence[RoundPart[T]], settled: Callable[[RoundPart[T]], None]
    ) -> None:
        """Write all parts; each one's flush comes later, in any order."""
        if len(parts) > 1:
            self._story.counters["storage: a round of several partitions"] += 1
        for part in parts:
            part.log.write(part.staged)
            self._flushing += 1
            self._later(FLUSH_SECONDS, partial(self._flush, part, settled))

    def _flush(self, part: RoundPart[T], settled: Callable[[RoundPart[T]], None]) -> None:
        part.log.flush(part.staged)
        self._flushing -= 1
        settled(part)


class LateTasks(Executor):
    """Does a task a little later, as a thread would."""

    def __init__(self, later: Later) -> None:
        self._later = later

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it later; nobody looks at the future."""
        self._later(TASK_SECONDS, partial(fn, *args, **kwargs))
        return Future()
