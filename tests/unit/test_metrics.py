"""Metrics: counts are exact, rates follow them, and every form is JSON."""

from __future__ import annotations

import json
import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.runtime.metrics import Registry, Timer


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_values_are_read_when_somebody_asks() -> None:
    registry, values = Registry(Clock()), {"n": 1}
    registry.gauge("g.p-0", "now", lambda: values["n"])
    registry.counter("g.p-0", "total", lambda: values["n"] * 10)
    assert registry.http_form()["gauges"] == {"g.p-0.now": {"value": 1}}
    values["n"] = 2
    assert registry.http_form()["gauges"] == {"g.p-0.now": {"value": 2}}
    assert registry.http_form()["counters"] == {"g.p-0.total": {"count": 20}}
    bean = registry.bean_form()
    assert bean["metrics"] == {"g.p-0.now": {"value": 2}, "g.p-0.total": {"count": 20}}
    assert bean["ids"] == [
        {"group": "g.p-0", "name": "now", "fullName": "g.p-0.now"},
        {"group": "g.p-0", "name": "total", "fullName": "g.p-0.total"},
    ]


def test_a_removed_group_is_gone_and_may_come_back() -> None:
    registry = Registry(Clock())
    registry.gauge("a", "x", lambda: 1)
    registry.gauge("ab", "x", lambda: 2)
    registry.remove("a")
    registry.remove("never there")
    assert registry.http_form()["gauges"] == {"ab.x": {"value": 2}}
    registry.gauge("a", "x", lambda: 3)
    assert registry.http_form()["gauges"]["a.x"] == {"value": 3}


def test_names_come_in_order() -> None:
    registry = Registry(Clock())
    for group in ("b", "a", "c"):
        registry.gauge(group, "x", lambda: 0)
    assert list(registry.http_form()["gauges"]) == ["a.x", "b.x", "c.x"]


def test_a_steady_rate_is_approached_and_decays_when_it_stops() -> None:
    clock, total = Clock(), 0
    registry = Registry(clock)
    registry.meter("g", "m", lambda: total)
    for _ in range(600):
        clock.now += 1.0
        total += 50
        shown = registry.http_form()["meters"]["g.m"]
    assert shown["count"] == 30_000
    assert shown["m1_rate"] == pytest.approx(50, rel=0.001)
    assert shown["mean_rate"] == pytest.approx(50)
    assert shown["m1_rate"] > shown["m5_rate"] > shown["m15_rate"] > 20
    clock.now += 60.0
    stopped = registry.http_form()["meters"]["g.m"]
    assert stopped["m1_rate"] == pytest.approx(50 / math.e, rel=0.01)
    assert stopped["count"] == 30_000


@given(st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 10**6)), max_size=20))
def test_rates_stay_between_nothing_and_the_highest(steps: list[tuple[float, int]]) -> None:
    clock, total, highest = Clock(), 0, 0.0
    registry = Registry(clock)
    registry.meter("g", "m", lambda: total)
    for seconds, count in steps:
        before = clock.now
        clock.now += seconds
        elapsed = clock.now - before
        total += count if elapsed else 0
        highest = max(highest, count / elapsed if elapsed else 0.0)
        shown = registry.http_form()["meters"]["g.m"]
        for window in ("m1_rate", "m5_rate", "m15_rate", "mean_rate"):
            assert -1e-6 <= shown[window] <= highest * 1.000001
        assert shown["count"] == total


def test_reading_twice_at_one_time_changes_nothing() -> None:
    clock = Clock()
    registry, timer = Registry(clock), Timer()
    registry.timer("g", "t", timer)
    timer.add(0.25)
    clock.now += 1
    assert registry.http_form() == registry.http_form()
    assert registry.bean_form() == registry.bean_form()


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_a_timers_quantiles_are_durations_it_saw(durations: list[float]) -> None:
    registry, timer = Registry(Clock()), Timer()
    registry.timer("g", "t", timer)
    for seconds in durations:
        timer.add(seconds, 3)
    shown = registry.http_form()["timers"]["g.t"]
    quantiles = [shown[f"p{q}"] for q in ("50", "75", "95", "98", "99", "999")]
    assert shown["count"] == 3 * len(durations)
    assert (shown["min"], shown["max"]) == (min(durations), max(durations))
    assert quantiles == sorted(quantiles)
    assert set(quantiles) <= set(durations)
    assert shown["min"] <= shown["p50"] <= shown["max"]
    snapshot = registry.bean_form()["timers"]["g.t"]["snapshot"]
    assert snapshot["max"] == int(max(durations) * 1e9)
    assert snapshot["999thPercentile"] == pytest.approx(shown["p999"] * 1e9)


def test_only_recent_durations_count_for_quantiles_but_all_for_the_count() -> None:
    timer = Timer()
    timer.add(99.0)
    for _ in range(5000):
        timer.add(1.0)
    registry = Registry(Clock())
    registry.timer("g", "t", timer)
    shown = registry.http_form()["timers"]["g.t"]
    assert (shown["count"], shown["max"]) == (5001, 1.0)


class _Interrupted(float):
    """A duration; while it is converted, another thread adds one more."""

    timer: Timer

    def __mul__(self, factor: float) -> float:
        writer = threading.Thread(target=self.timer.add, args=(2.0,))
        writer.start()
        writer.join()
        return float(self) * factor


def test_a_timer_is_read_while_another_thread_adds_to_it() -> None:
    registry, timer = Registry(Clock()), Timer()
    registry.timer("g", "t", timer)
    for seconds in (3.0, 1.0):
        interrupted = _Interrupted(seconds)
        interrupted.timer = timer
        timer.add(interrupted)
    shown = registry.bean_form()["timers"]["g.t"]["snapshot"]
    assert shown["values"] == [10**9, 3 * 10**9]


def test_a_timer_without_events_and_both_forms_are_json() -> None:
    registry = Registry(Clock())
    registry.timer("g", "t", Timer())
    registry.gauge("g", "none", lambda: None)
    registry.gauge("g", "map", lambda: {"0": ["a:1"]})
    for form in (registry.http_form(), registry.bean_form()):
        assert json.loads(json.dumps(form, allow_nan=False)) == form
