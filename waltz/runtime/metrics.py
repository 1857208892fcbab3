"""Metrics of a process, in the two JSON forms that tools of 0.13.2 expect. Touches nothing.

What is measured keeps plain counters; a `Registry` knows where to read them and turns them into
gauges, counters, meters and timers when somebody asks (spec/behaviour.md sections 12 and 13,
spec/wire.md section 7), or into plain readings for other forms. The clock is given from outside, in
seconds.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Number = int | float
Clock = Callable[[], float]

BUCKETS_SECONDS = (
    *(0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
"""What durations are sorted by: each bucket has those up to its bound, one more has the longer."""

_WINDOWS_SECONDS = {"1": 60.0, "5": 300.0, "15": 900.0}
_RECENT_DURATIONS = 1028
_QUANTILES = {"50": 0.50, "75": 0.75, "95": 0.95, "98": 0.98, "99": 0.99, "999": 0.999}


@dataclass(frozen=True, slots=True)
class Level:
    """What is so now: a number, or whatever fits into JSON."""

    value: Any


@dataclass(frozen=True, slots=True)
class Count:
    """How many events there were."""

    value: int


@dataclass(frozen=True, slots=True)
class Durations:
    """How long events took: how many in each of `BUCKETS_SECONDS`, and how long together."""

    buckets: tuple[int, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric as it is now."""

    group: str
    name: str
    value: Level | Count | Durations


class Timer:
    """Counts events and remembers the durations of the most recent ones, in seconds."""

    __slots__ = ("_buckets", "_recent", "_seconds", "count")

    def __init__(self) -> None:
        self.count = 0
        self._seconds = 0.0
        self._buckets = [0] * (len(BUCKETS_SECONDS) + 1)
        self._recent: deque[float] = deque(maxlen=_RECENT_DURATIONS)

    def add(self, seconds: float, events: int = 1) -> None:
        """Count ``events`` that took ``seconds`` each."""
        self.count += events
        self._seconds += events * seconds
        self._buckets[bisect_left(BUCKETS_SECONDS, seconds)] += events
        self._recent.append(seconds)

    def durations(self) -> Durations:
        """Return how long all events took; `add` may go on in another thread."""
        return Durations(tuple(self._buckets), self._seconds)

    def ordered(self) -> list[float]:
        """Return the remembered durations, shortest first; `add` may go on in another thread."""
        # Copied in one step: a deque that grows under an iterator makes it fail.
        return sorted(self._recent.copy())


class _Meter:
    """Moving rates of a growing count, brought up to date whenever they are read."""

    def __init__(self, read: Callable[[], int], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._begun = self._at = clock()
        self._seen = 0
        self._rates = dict.fromkeys(_WINDOWS_SECONDS, 0.0)

    def count(self) -> int:
        """Return the count alone."""
        return self._read()

    def read(self) -> tuple[int, float, dict[str, float]]:
        """Return the count, the mean rate, and the moving rates by minutes."""
        now, count = self._clock(), self._read()
        elapsed = now - self._at
        if elapsed > 0:
            rate = (count - self._seen) / elapsed
            for name, window in _WINDOWS_SECONDS.items():
                old = self._rates[name]
                self._rates[name] = old + (1 - math.exp(-elapsed / window)) * (rate - old)
            self._at, self._seen = now, count
        lifetime = now - self._begun
        return count, (count / lifetime if lifetime > 0 else 0.0), self._rates


@dataclass(frozen=True, slots=True)
class _Timed:
    timer: Timer
    meter: _Meter


@dataclass(frozen=True, slots=True)
class _Gauge:
    read: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class _Counter:
    read: Callable[[], int]


_Source = _Gauge | _Counter | _Meter | _Timed


class Registry:
    """Named metrics, in groups."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, _Source]] = {}

    def gauge(self, group: str, name: str, read: Callable[[], Any]) -> None:
        """Show whatever ``read`` returns, which must fit into JSON."""
        self._add(group, name, _Gauge(read))

    def counter(self, group: str, name: str, read: Callable[[], int]) -> None:
        """Show a count."""
        self._add(group, name, _Counter(read))

    def meter(self, group: str, name: str, read: Callable[[], int]) -> None:
        """Show a count and how fast it grows."""
        self._add(group, name, _Meter(read, self._clock))

    def timer(self, group: str, name: str, timer: Timer) -> None:
        """Show a count, how fast it grows, and how long its events take."""
        self._add(group, name, _Timed(timer, _Meter(lambda: timer.count, self._clock)))

    def remove(self, group: str) -> None:
        """Forget a group."""
        self._groups.pop(group, None)

    def readings(self) -> Iterator[Reading]:
        """Yield every metric as it is now."""
        for group, sources in self._groups.items():
            for name, source in sources.items():
                yield Reading(group, name, _value(source))

    def http_form(self) -> dict[str, Any]:
        """Return what ``GET /metrics`` answers."""
        form: dict[str, Any] = {"version": "4.0.0"}
        form |= {kind: {} for kind in ("gauges", "counters", "histograms", "meters", "timers")}
        for full_name, source in self._all():
            match source:
                case _Gauge(read):
                    form["gauges"][full_name] = {"value": read()}
                case _Counter(read):
                    form["counters"][full_name] = {"count": read()}
                case _Meter():
                    rates = _http_rates(source)
                    form["meters"][full_name] = rates | {"units": "events/second"}
                case _Timed(timer, meter):
                    units = {"duration_units": "seconds", "rate_units": "calls/second"}
                    durations = _http_durations(timer)
                    form["timers"][full_name] = durations | _http_rates(meter) | units
        return form

    def bean_form(self) -> dict[str, Any]:
        """Return what the storage admin port's metrics request answers."""
        form: dict[str, Any] = {"metrics": {}, "ids": []}
        form |= {kind: {} for kind in ("gauges", "counters", "histograms", "meters", "timers")}
        for full_name, source in self._all():
            match source:
                case _Gauge(read):
                    kind, value = "gauges", {"value": read()}
                case _Counter(read):
                    kind, value = "counters", {"count": read()}
                case _Meter():
                    kind, value = "meters", _bean_rates(source)
                case _Timed(timer, meter):
                    kind = "timers"
                    value = _bean_rates(meter) | {"snapshot": _bean_snapshot(timer)}
            form[kind][full_name] = form["metrics"][full_name] = value
            group, name = self._split(full_name)
            form["ids"].append({"group": group, "name": name, "fullName": full_name})
        return form

    def _add(self, group: str, name: str, source: _Source) -> None:
        assert name not in self._groups.setdefault(group, {}), f"{group}.{name} is there already"
        self._groups[group][name] = source

    def _all(self) -> list[tuple[str, _Source]]:
        return sorted(
            (
                (f"{group}.{name}", source)
                for group, sources in self._groups.items()
                for name, source in sources.items()
            ),
            key=lambda pair: pair[0],
        )

    def _split(self, full_name: str) -> tuple[str, str]:
        group, _, name = full_name.rpartition(".")
        return group, name


def _value(source: _Source) -> Level | Count | Durations:
    match source:
        case _Gauge(read):
            return Level(read())
        case _Counter(read):
            return Count(read())
        case _Meter():
            return Count(source.count())
        case _Timed(timer, _):
            return timer.durations()


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def _http_durations(timer: Timer) -> dict[str, Number]:
    ordered = timer.ordered()
    return {
        "count": timer.count,
        "max": ordered[-1] if ordered else 0.0,
        "mean": statistics.fmean(ordered) if ordered else 0.0,
        "min": ordered[0] if ordered else 0.0,
        **{f"p{name}": _quantile(ordered, q) for name, q in _QUANTILES.items()},
        "stddev": statistics.pstdev(ordered) if ordered else 0.0,
    }


def _http_rates(meter: _Meter) -> dict[str, Number]:
    count, mean, rates = meter.read()
    return {"count": count, "mean_rate": mean} | {f"m{m}_rate": r for m, r in rates.items()}


def _bean_rates(meter: _Meter) -> dict[str, Any]:
    count, mean, rates = meter.read()
    return {
        "count": count,
        "fifteenMinuteRate": rates["15"],
        "oneMinuteRate": rates["1"],
        "fiveMinuteRate": rates["5"],
        "meanRate": mean,
    }


def _bean_snapshot(timer: Timer) -> Mapping[str, Any]:
    """Durations in nanoseconds, as the bean form has them."""
    ordered = [seconds * 1e9 for seconds in timer.ordered()]
    return {
        "values": [int(value) for value in ordered],
        "min": int(ordered[0]) if ordered else 0,
        "max": int(ordered[-1]) if ordered else 0,
        "mean": statistics.fmean(ordered) if ordered else 0.0,
        "stdDev": statistics.pstdev(ordered) if ordered else 0.0,
        "median": _quantile(ordered, 0.5),
        **{f"{n}thPercentile": _quantile(ordered, _QUANTILES[n]) for n in ("75", "95", "98", "99")},
        "999thPercentile": _quantile(ordered, _QUANTILES["999"]),
    }
