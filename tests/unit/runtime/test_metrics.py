"""Metrics in JSON: counts are exact, rates follow them, and every form is JSON."""

from __future__ import annotations

import json
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.runtime.core.json_metrics import JsonKind, JsonMetrics
from waltz.runtime.core.timer import Timer


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_metric_values_are_read_at_each_request_of_the_json_forms() -> None:
    metrics, values = JsonMetrics(Clock()), {"n": 1}
    metrics.add("g.p-0", "now", JsonKind.GAUGE, lambda: values["n"])
    metrics.add("g.p-0", "total", JsonKind.COUNTER, lambda: values["n"] * 10)
    assert metrics.http_form()["gauges"] == {"g.p-0.now": {"value": 1}}
    values["n"] = 2
    assert metrics.http_form()["gauges"] == {"g.p-0.now": {"value": 2}}
    assert metrics.http_form()["counters"] == {"g.p-0.total": {"count": 20}}
    bean = metrics.bean_form()
    assert bean["metrics"] == {"g.p-0.now": {"value": 2}, "g.p-0.total": {"count": 20}}
    assert bean["ids"] == [
        {"group": "g.p-0", "name": "now", "fullName": "g.p-0.now"},
        {"group": "g.p-0", "name": "total", "fullName": "g.p-0.total"},
    ]


def test_removed_group_is_gone_and_can_be_added_again() -> None:
    metrics = JsonMetrics(Clock())
    metrics.add("a", "x", JsonKind.GAUGE, lambda: 1)
    metrics.add("ab", "x", JsonKind.GAUGE, lambda: 2)
    metrics.remove("a")
    metrics.remove("never there")
    assert metrics.http_form()["gauges"] == {"ab.x": {"value": 2}}
    metrics.add("a", "x", JsonKind.GAUGE, lambda: 3)
    assert metrics.http_form()["gauges"]["a.x"] == {"value": 3}


def test_metrics_http_form_is_sorted_by_name() -> None:
    metrics = JsonMetrics(Clock())
    for group in ("b", "a", "c"):
        metrics.add(group, "x", JsonKind.GAUGE, lambda: 0)
    assert list(metrics.http_form()["gauges"]) == ["a.x", "b.x", "c.x"]


def test_meter_rate_approaches_a_steady_rate_and_decays_afterwards() -> None:
    clock, total = Clock(), 0
    metrics = JsonMetrics(clock)
    metrics.add("g", "m", JsonKind.METER, lambda: total)
    for _ in range(600):
        clock.now += 1.0
        total += 50
        shown = metrics.http_form()["meters"]["g.m"]
    assert shown["count"] == 30_000
    assert shown["m1_rate"] == pytest.approx(50, rel=0.001)
    assert shown["mean_rate"] == pytest.approx(50)
    assert shown["m1_rate"] > shown["m5_rate"] > shown["m15_rate"] > 20
    clock.now += 60.0
    stopped = metrics.http_form()["meters"]["g.m"]
    assert stopped["m1_rate"] == pytest.approx(50 / math.e, rel=0.01)
    assert stopped["count"] == 30_000


@given(st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 10**6)), max_size=20))
def test_meter_rates_stay_between_zero_and_the_highest_rate(steps: list[tuple[float, int]]) -> None:
    clock, total, highest = Clock(), 0, 0.0
    metrics = JsonMetrics(clock)
    metrics.add("g", "m", JsonKind.METER, lambda: total)
    for seconds, count in steps:
        before = clock.now
        clock.now += seconds
        elapsed = clock.now - before
        total += count if elapsed else 0
        highest = max(highest, count / elapsed if elapsed else 0.0)
        shown = metrics.http_form()["meters"]["g.m"]
        for window in ("m1_rate", "m5_rate", "m15_rate", "mean_rate"):
            assert -1e-6 <= shown[window] <= highest * 1.000001
        assert shown["count"] == total


def test_forms_read_twice_at_one_time_are_equal() -> None:
    clock = Clock()
    metrics, timer = JsonMetrics(clock), Timer()
    metrics.add("g", "t", JsonKind.TIMER, lambda: timer)
    timer.add(0.25)
    clock.now += 1
    assert metrics.http_form() == metrics.http_form()
    assert metrics.bean_form() == metrics.bean_form()


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_timer_quantiles_are_durations_that_were_added(durations: list[float]) -> None:
    metrics, timer = JsonMetrics(Clock()), Timer()
    metrics.add("g", "t", JsonKind.TIMER, lambda: timer)
    for seconds in durations:
        timer.add(seconds, 3)
    shown = metrics.http_form()["timers"]["g.t"]
    quantiles = [shown[f"p{q}"] for q in ("50", "75", "95", "98", "99", "999")]
    assert shown["count"] == 3 * len(durations)
    assert (shown["min"], shown["max"]) == (min(durations), max(durations))
    assert quantiles == sorted(quantiles)
    assert set(quantiles) <= set(durations)
    assert shown["min"] <= shown["p50"] <= shown["max"]
    snapshot = metrics.bean_form()["timers"]["g.t"]["snapshot"]
    assert snapshot["max"] == int(max(durations) * 1e9)
    assert snapshot["999thPercentile"] == pytest.approx(shown["p999"] * 1e9)


def test_timer_keeps_recent_durations_and_counts_all_events() -> None:
    timer = Timer()
    timer.add(99.0)
    for _ in range(5000):
        timer.add(1.0)
    metrics = JsonMetrics(Clock())
    metrics.add("g", "t", JsonKind.TIMER, lambda: timer)
    shown = metrics.http_form()["timers"]["g.t"]
    assert (shown["count"], shown["max"]) == (5001, 1.0)


class _Interrupted(float):
    """A duration; while it is converted, another thread adds one more."""

    timer: Timer

    def __mul__(self, factor: float) -> float:
        writer = threading.Thread(target=self.timer.add, args=(2.0,))
        writer.start()
        writer.join()
        return float(self) * factor


def test_timer_can_be_read_while_another_thread_adds() -> None:
    metrics, timer = JsonMetrics(Clock()), Timer()
    metrics.add("g", "t", JsonKind.TIMER, lambda: timer)
    for seconds in (3.0, 1.0):
        interrupted = _Interrupted(seconds)
        interrupted.timer = timer
        timer.add(interrupted)
    shown = metrics.bean_form()["timers"]["g.t"]["snapshot"]
    assert shown["values"] == [10**9, 3 * 10**9]


def test_both_forms_of_empty_metrics_are_json() -> None:
    metrics = JsonMetrics(Clock())
    metrics.add("g", "t", JsonKind.TIMER, Timer)
    metrics.add("g", "none", JsonKind.GAUGE, lambda: None)
    metrics.add("g", "map", JsonKind.GAUGE, lambda: {"0": ["a:1"]})
    for form in (metrics.http_form(), metrics.bean_form()):
        assert json.loads(json.dumps(form, allow_nan=False)) == form
