"""Compare runs of two commits: medians and confidence intervals. Pure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

_RESAMPLES = 2_000
"""How many ratios are computed from randomly chosen runs (`ratio`)."""
_SEED = 1
"""The seed of the random choice of runs. It is fixed, so that the same runs give the same interval.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a shape, or the medians of several.

    ``rate`` is in records per second. ``cpu_us`` is the CPU time of all processes for one record,
    in microseconds. ``p50_ms`` is the median latency in milliseconds.
    """

    rate: float
    cpu_us: float
    p50_ms: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians, new to base, with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one shape."""

    shape: str
    base: Run
    """The medians of the base."""
    new: Run
    """The medians of the new commit."""
    rate: Ratio
    cpu: Ratio

    def has_risen(self, percent: float) -> bool:
        """Whether the CPU time per record has certainly risen by more than ``percent``.

        The rise is certain if even the low end of the interval is above ``percent``.
        """
        return self.cpu.low > 1 + percent / 100


def compare(shape: str, base: Sequence[Run], new: Sequence[Run]) -> Comparison:
    """Compare runs of one shape, which were made in turns."""
    return Comparison(
        shape,
        _medians(base),
        _medians(new),
        ratio([run.rate for run in base], [run.rate for run in new]),
        ratio([run.cpu_us for run in base], [run.cpu_us for run in new]),
    )


def ratio(base: Sequence[float], new: Sequence[float]) -> Ratio:
    """Return the ratio of the medians, with a confidence interval by the bootstrap method.

    Each of `_RESAMPLES` ratios is that of runs chosen at random, with repetition, from ``base`` and
    from ``new``. The interval leaves out 2.5 % of these ratios at each end.
    """
    random = Random(_SEED)
    resampled = sorted(
        statistics.median(random.choices(new, k=len(new)))
        / statistics.median(random.choices(base, k=len(base)))
        for _ in range(_RESAMPLES)
    )
    tail = _RESAMPLES // 40  # 2.5 %
    value = statistics.median(new) / statistics.median(base)
    return Ratio(value, resampled[tail], resampled[-tail - 1])


def history_line(commit: str, date: str, comparison: Comparison) -> dict[str, Any]:
    """Return the line of `bench/history.jsonl` for a shape, as a JSON object."""
    return {"commit": commit, "date": date, "shape": comparison.shape, **asdict(comparison.new)}


def last_commit(history: str) -> str:
    """Return the commit of the last line of `bench/history.jsonl`, whose text is ``history``."""
    commit: str = json.loads(history.splitlines()[-1])["commit"]
    return commit


def _medians(runs: Sequence[Run]) -> Run:
    """Return the median of each figure."""

    def median(figure: Callable[[Run], float]) -> float:
        return statistics.median(map(figure, runs))

    return Run(median(lambda r: r.rate), median(lambda r: r.cpu_us), median(lambda r: r.p50_ms))
