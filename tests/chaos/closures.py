"""Measure how long each partition took no appends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.checker import Guarantee, Violation
from tests.chaos.history import Append, Event, Outcome

CLOSED_AFTER_SECONDS = 1.0
"""A partition without an acknowledgement for this long counts as closed."""


@dataclass(frozen=True, slots=True)
class Closure:
    partition: int
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def acknowledged_at(events: Iterable[Event], partition: int) -> list[float]:
    """Return when the appends of a partition were acknowledged, in order."""
    return sorted(
        event.completed
        for event in events
        if isinstance(event, Append)
        and event.partition == partition
        and event.outcome is Outcome.ACKNOWLEDGED
    )


def closures(times: Sequence[float], partition: int, end: float) -> list[Closure]:
    """Return the times without acknowledgements between 0 and ``end``."""
    moments = [0.0, *times, end]
    return [
        Closure(partition, before, after)
        for before, after in pairwise(moments)
        if after - before >= CLOSED_AFTER_SECONDS
    ]


def late_openings(
    found: Iterable[Closure], faults_ended: float, allowed_seconds: float
) -> list[Violation]:
    """Return the closures that lasted too long after all faults had ended."""
    return [
        Violation(
            Guarantee.AVAILABILITY,
            closure.partition,
            f"no append was acknowledged from {closure.began:.1f} to {closure.ended:.1f}, "
            f"although all faults had ended at {faults_ended:.1f}",
        )
        for closure in found
        if closure.ended - max(closure.began, faults_ended) > allowed_seconds
    ]
