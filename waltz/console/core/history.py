"""What the console remembers of earlier samples. Pure.

These are the timeline, the rate of the cluster, and the largest numbers of damaged records, of
which the progress of repairs is shown.
The memory is bounded, and begins when the console begins to watch. Times are seconds since 1970.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from waltz.admin.core.sample import Sample, rate
from waltz.console.core.changes import Change, changes

_MOST_ENTRIES = 300
"""How many changes the timeline keeps."""
_MOST_RATES = 180
"""How many rates of the cluster are kept."""
MOST_SECONDS_OF_RATE = 30.0
"""By default, the longest time between two samples from which a rate is computed.

From older samples, the rate would be an average over the past, and not that of the present.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A change that happened between the times ``after`` and ``at``.

    ``number`` counts the changes, from 1 on.
    """

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
    """Compares each sample with the one before it.

    ``most_seconds_of_rate`` is the longest time between two samples from which a rate is computed.
    """

    def __init__(self, most_seconds_of_rate: float = MOST_SECONDS_OF_RATE) -> None:
        self._most_seconds_of_rate = most_seconds_of_rate
        self.entries: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self.rates: deque[RatePoint] = deque(maxlen=_MOST_RATES)
        self.peaks: dict[tuple[str, int], int] = {}
        """The largest number of damaged records since all were last repaired, by storage and
        partition: `DamagePeaks` of `waltz.console.core.work`. `_note_damage` updates it."""
        self.since: float | None = None
        """The time of the first sample."""
        self.last: Sample | None = None
        """The newest sample."""
        self.last_at: float | None = None
        """The time of the newest sample."""
        self._count = 0
        """The number of the newest entry."""

    def add(self, sample: Sample, at: float) -> Sample | None:
        """Add a sample that was taken at ``at``; return the sample before it, to compute rates.

        Return None if ``sample`` is the first one, or if the sample before it is too old for a
        rate. In the second case the changes since that sample are recorded nevertheless.
        """
        before, before_at = self.last, self.last_at
        self.last, self.last_at = sample, at
        self._note_damage(sample)
        if before is None or before_at is None:
            self.since = at
            return None
        # If the numbers of partitions differ, another cluster has been created at the same path. A
        # comparison would then report changes that did not happen.
        if before.num_partitions == sample.num_partitions:
            for change in changes(before, sample):
                self._count += 1
                self.entries.append(Entry(self._count, before_at, at, change))
        # The age is computed from `Sample.at`, the time of a monotonic clock. ``at`` is the time of
        # day, which jumps when the clock is set.
        recent = before if sample.at - before.at <= self._most_seconds_of_rate else None
        self.rates.append(RatePoint(at, _total_rate(recent, sample)))
        return recent

    def _note_damage(self, sample: Sample) -> None:
        """Update ``peaks`` from the storages that answered; keep the peaks of the others."""
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
    """Return the sum of the rates of all partitions, None if one of them is unknown."""
    total = 0.0
    for partition in range(now.num_partitions):
        partition_rate = rate(before, now, partition)
        if partition_rate is None:
            return None
        total += partition_rate
    return total
