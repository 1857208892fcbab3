"""What the console remembers of earlier samples: the timeline, and the rate of the cluster. Pure.

The memory is bounded, and begins when the console begins to watch. Times are seconds since 1970.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from waltz.admin.core.sample import Sample, rate
from waltz.console.core.changes import Change, changes

_MOST_ENTRIES = 300
_MOST_RATES = 180
_MOST_SECONDS_OF_RATE = 30.0
"""A rate between samples that are further apart is no present rate."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A change, which happened after ``after`` and at ``at`` at the latest."""

    number: int
    after: float
    at: float
    change: Change


@dataclass(frozen=True, slots=True)
class RatePoint:
    """The transactions per second of the whole cluster; None if a partition's rate is unknown."""

    at: float
    transactions_per_second: float | None


class History:
    """Compares each sample with the one before it."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self.rates: deque[RatePoint] = deque(maxlen=_MOST_RATES)
        self.peaks: dict[tuple[str, int], int] = {}
        """The most damaged records of a replica since it last had none (`work.DamagePeaks`)."""
        self.since: float | None = None
        """The time of the first sample."""
        self.last: Sample | None = None
        self.last_at: float | None = None
        self._count = 0

    def add(self, sample: Sample, at: float) -> Sample | None:
        """Take in a sample; return the earlier one for the computation of rates, None without one.

        A sample that is too old for a present rate is not returned, and still compared.
        """
        before, before_at = self.last, self.last_at
        self.last, self.last_at = sample, at
        self._note_damage(sample)
        if before is None or before_at is None:
            self.since = at
            return None
        if before.num_partitions == sample.num_partitions:
            for change in changes(before, sample):
                self._count += 1
                self.entries.append(Entry(self._count, before_at, at, change))
        # `Sample.at` is of a monotonic clock, which has no jumps.
        recent = before if sample.at - before.at <= _MOST_SECONDS_OF_RATE else None
        self.rates.append(RatePoint(at, _total_rate(recent, sample)))
        return recent

    def _note_damage(self, sample: Sample) -> None:
        for storage, report in sample.storages.items():
            if report.problem is not None:
                continue
            for partition in report.held:
                count = sample.damaged_records(partition, storage)
                key = storage, partition
                if count:
                    self.peaks[key] = max(self.peaks.get(key, 0), count)
                else:
                    self.peaks.pop(key, None)


def _total_rate(before: Sample | None, now: Sample) -> float | None:
    total = 0.0
    for partition in range(now.num_partitions):
        each = rate(before, now, partition)
        if each is None:
            return None
        total += each
    return total
