"""How long the storage engine's flushes and tasks take in the simulation: never no time at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tests.sim.story import Story
from waltz_storage.core.engine.rounds import RoundPart

FLUSH_SECONDS = 0.001
TASK_SECONDS = 0.0002

Later = Callable[[float, Callable[[], None]], None]


class LateFlushes:
    """Implements `RoundWriter`: the machine may die between a write and its flush.

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

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        """Write all parts; each one's flush comes later, in any order."""
        if len(parts) > 1:
            self._story.counters["storage: a round of several partitions"] += 1
        for part in parts:
            part.log.write(part.staged)
            self._flushing += 1
            self._later(FLUSH_SECONDS, partial(self._flush, part, durable))

    def _flush(self, part: RoundPart, durable: Callable[[RoundPart], None]) -> None:
        part.log.flush(part.staged)
        self._flushing -= 1
        durable(part)
