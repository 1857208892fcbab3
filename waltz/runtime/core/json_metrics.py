"""Metrics in the two JSON forms of Waltz 0.13.2: the HTTP form, and the bean form. Pure.

The HTTP port answers with the HTTP form. The admin port of a storage answers with the bean form,
which is named after Java's metric beans. Each metric has a function that returns its value.
`JsonMetrics` calls this function whenever one of the forms is requested. A timer is an exception:
its function is called once, when the metric is added, and returns a `Timer` that is then read for
each form. Source: spec/behaviour.md sections 12 and 13, spec/wire.md section 7.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from waltz.runtime.core.timer import Timer

Clock = Callable[[], float]
"""Returns a time in seconds that never goes back, such as time.monotonic."""


class JsonKind(StrEnum):
    """The kinds of metrics in JSON. Each value is the key of the map that has these metrics."""

    GAUGE = "gauges"
    """A current value, of any type that JSON has."""
    COUNTER = "counters"
    """A count."""
    METER = "meters"
    """A count with its rates."""
    TIMER = "timers"
    """A count with its rates and the durations of the most recent events."""


_FORMAT_VERSION = "4.0.0"
"""The value of ``version`` in the HTTP form: the version of the form, not of this software."""

_KINDS = ("gauges", "counters", "histograms", "meters", "timers")
"""The maps that both forms have: one for each `JsonKind`, and that of histograms, always empty."""

# The keys are minutes. The HTTP form has them in its names, for example m15_rate.
_WINDOWS_SECONDS = {"1": 60.0, "5": 300.0, "15": 900.0}
# The keys are the digits in the names of both forms: 999 is the 99.9th percentile.
_QUANTILES = {"50": 0.50, "75": 0.75, "95": 0.95, "98": 0.98, "99": 0.99, "999": 0.999}


class _Meter:
    """The rates of a growing count, averaged over 1, 5 and 15 minutes.

    The averages are exponentially weighted. They change only when `read` is called, for a
    request for the metrics: nothing else runs from time to time to update them.
    """

    def __init__(self, read: Callable[[], int], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._begun_at = self._updated_at = clock()
        self._updated_count = 0
        """The count at the time ``_updated_at``, when the averages were last updated."""
        self._rates = dict.fromkeys(_WINDOWS_SECONDS, 0.0)

    def read(self) -> tuple[int, float, dict[str, float]]:
        """Return the count, the mean rate since the metric was added, and the averaged rates.

        All rates are events per second. The keys of the averaged rates are those of
        `_WINDOWS_SECONDS`.
        """
        now, count = self._clock(), self._read()
        elapsed = now - self._updated_at
        if elapsed > 0:
            rate = (count - self._updated_count) / elapsed
            for name, window in _WINDOWS_SECONDS.items():
                old = self._rates[name]
                self._rates[name] = old + (1 - math.exp(-elapsed / window)) * (rate - old)
            self._updated_at, self._updated_count = now, count
        age = now - self._begun_at
        return count, (count / age if age > 0 else 0.0), self._rates


@dataclass(frozen=True, slots=True)
class _Metric:
    """One metric. ``meter`` has the rates, and is None for a gauge or a counter.

    ``timer`` is None unless the metric is a timer.
    """

    group: str
    name: str
    kind: JsonKind
    read: Callable[[], Any]
    meter: _Meter | None
    timer: Timer | None


class JsonMetrics:
    """Named metrics in groups. A group has the metrics of a process, a client or a partition."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[str, _Metric]] = {}

    def add(self, group: str, name: str, kind: JsonKind, read: Callable[[], Any]) -> None:
        """Add a metric whose value ``read`` returns.

        ``read`` returns, for a timer, a `Timer`, always the same one; for a counter or a meter, a
        growing count; for a gauge, a value of any type that JSON has.
        """
        timer = read() if kind is JsonKind.TIMER else None
        read_count = (lambda: timer.count) if timer is not None else read
        has_rates = kind in (JsonKind.METER, JsonKind.TIMER)
        meter = _Meter(read_count, self._clock) if has_rates else None
        members = self._groups.setdefault(group, {})
        assert name not in members, f"{group}.{name} was added already"
        members[name] = _Metric(group, name, kind, read, meter, timer)

    def remove(self, group: str) -> None:
        """Remove a group and its metrics. Do nothing if there is no such group."""
        self._groups.pop(group, None)

    def http_form(self) -> dict[str, Any]:
        """Return the answer to ``GET /metrics``."""
        form: dict[str, Any] = {"version": _FORMAT_VERSION} | {kind: {} for kind in _KINDS}
        for full_name, metric in self._all():
            form[metric.kind][full_name] = _http_value(metric)
        return form

    def bean_form(self) -> dict[str, Any]:
        """Return the answer to the metrics request of the storage admin port."""
        form: dict[str, Any] = {"metrics": {}, "ids": []} | {kind: {} for kind in _KINDS}
        for full_name, metric in self._all():
            form[metric.kind][full_name] = form["metrics"][full_name] = _bean_value(metric)
            metric_id = {"group": metric.group, "name": metric.name, "fullName": full_name}
            form["ids"].append(metric_id)
        return form

    def _all(self) -> list[tuple[str, _Metric]]:
        """Return all metrics with their full names, ``group.name``, in the order of these names."""
        metrics = (metric for members in self._groups.values() for metric in members.values())
        named = ((f"{metric.group}.{metric.name}", metric) for metric in metrics)
        return sorted(named, key=lambda pair: pair[0])


def _http_value(metric: _Metric) -> dict[str, Any]:
    """Return the present value of a metric in the HTTP form, with durations in seconds."""
    if metric.meter is None:
        return _plain_value(metric)
    count, mean, moving = metric.meter.read()
    moving_rates = {f"m{minutes}_rate": rate for minutes, rate in moving.items()}
    rates = {"count": count, "mean_rate": mean} | moving_rates
    if metric.timer is None:
        return rates | {"units": "events/second"}
    ordered = metric.timer.sorted_durations()
    durations = {
        "max": ordered[-1] if ordered else 0.0,
        "mean": statistics.fmean(ordered) if ordered else 0.0,
        "min": ordered[0] if ordered else 0.0,
        **{f"p{name}": _quantile(ordered, q) for name, q in _QUANTILES.items()},
        "stddev": statistics.pstdev(ordered) if ordered else 0.0,
    }
    return durations | rates | {"duration_units": "seconds", "rate_units": "calls/second"}


def _plain_value(metric: _Metric) -> dict[str, Any]:
    """Return the present value of a gauge or a counter, which both forms show in the same way."""
    key = "value" if metric.kind is JsonKind.GAUGE else "count"
    return {key: metric.read()}


def _bean_value(metric: _Metric) -> dict[str, Any]:
    """Return the present value of a metric in the bean form, with durations in nanoseconds."""
    if metric.meter is None:
        return _plain_value(metric)
    count, mean, moving = metric.meter.read()
    rates = {
        "count": count,
        "fifteenMinuteRate": moving["15"],
        "oneMinuteRate": moving["1"],
        "fiveMinuteRate": moving["5"],
        "meanRate": mean,
    }
    return rates if metric.timer is None else rates | {"snapshot": _bean_snapshot(metric.timer)}


def _bean_snapshot(timer: Timer) -> dict[str, Any]:
    """Return the durations of ``timer`` in nanoseconds, the unit of the bean form."""
    ordered = [seconds * 1e9 for seconds in timer.sorted_durations()]
    return {
        "values": [int(value) for value in ordered],
        "min": int(ordered[0]) if ordered else 0,
        "max": int(ordered[-1]) if ordered else 0,
        "mean": statistics.fmean(ordered) if ordered else 0.0,
        "stdDev": statistics.pstdev(ordered) if ordered else 0.0,
        "median": _quantile(ordered, 0.5),
        **{
            f"{digits}thPercentile": _quantile(ordered, _QUANTILES[digits])
            for digits in ("75", "95", "98", "99", "999")
        },
    }


def _quantile(ordered: list[float], q: float) -> float:
    """Return the value in ``ordered`` below which the share ``q`` (0 to 1) of all values lies.

    Return 0 if there are no values.
    """
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0.0
