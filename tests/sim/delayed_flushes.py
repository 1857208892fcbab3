"""Simulate the duration of the storage engine's flushes and tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tests.sim.history import History
from waltz_storage.core.engine.rounds import RoundPart

FLUSH_SECONDS = 0.001
TASK_SECONDS = 0.0002

Later = Callable[[float, Callable[[], None]], None]


class DelayedFlushes:
    """Implements `RoundWriter`: the machine may lose power between a write and its flush.

    A real `RoundWriter` blocks its thread until everything is durable. This one returns at once,
    and is ``busy`` until everything is durable.
    """

    flushes_once = False

    def __init__(self, later: Later, history: History) -> None:
        self._later = later
        self._history = history
        self._flushing = 0

    @property
    def busy(self) -> bool:
        """Whether a part of the last round is not durable yet."""
        return self._flushing > 0

    def commit(self, parts: Sequence[RoundPart], durable: Callable[[RoundPart], None]) -> None:
        """Write all parts now and flush each later, in any order; then call ``durable`` with it."""
        if len(parts) > 1:
            self._history.counters["storage: a round of several partitions"] += 1
        for part in parts:
            part.log.write(part.staged)
            self._flushing += 1
            self._later(FLUSH_SECONDS, partial(self._flush, part, durable))

    def _flush(self, part: RoundPart, durable: Callable[[RoundPart], None]) -> None:
        part.log.flush(part.staged)
        self._flushing -= 1
        durable(part)
