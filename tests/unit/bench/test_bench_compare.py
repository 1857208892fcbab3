"""The comparison of two commits tells a real change from noise."""

from __future__ import annotations

from bench.compare.statistics import Run, compare, history_line, last_commit, ratio


def runs(*cpu: float) -> list[Run]:
    return [Run(rate=1e6 / each, cpu_us=each, p50_ms=1.0) for each in cpu]


def test_ratio_of_equal_runs_is_one() -> None:
    found = ratio([10.0, 10.0, 10.0], [10.0, 10.0, 10.0])
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_ratio_has_its_value_within_its_interval() -> None:
    found = ratio([10.0, 11.0, 9.0, 10.5, 9.5], [20.0, 21.0, 19.0, 22.0, 18.0])
    assert found.value == 2.0
    assert 1.6 < found.low < 2.0 < found.high < 2.5


def test_comparison_of_the_same_runs_gives_the_same_interval() -> None:
    base, new = runs(10, 12, 11), runs(13, 12, 14)
    assert compare("8x5", base, new) == compare("8x5", base, new)


def test_certain_rise_of_the_cpu_time_is_reported() -> None:
    assert compare("8x5", runs(10, 10.1, 9.9, 10, 10), runs(13, 13.1, 12.9, 13, 13)).has_risen(15)


def test_rise_below_the_limit_is_not_reported() -> None:
    assert not compare("8x5", runs(10, 10, 10), runs(11, 11, 11)).has_risen(15)


def test_rise_that_may_be_noise_is_not_reported() -> None:
    noisy = compare("8x5", runs(10, 14, 9, 15, 12), runs(12, 9, 18, 16, 15))
    assert noisy.cpu.value > 1.15
    assert not noisy.has_risen(15)


def test_history_line_has_the_medians_of_the_new_commit() -> None:
    line = history_line("abc", "2026-01-02", compare("8x5", runs(10, 10, 10), runs(20, 25, 30)))
    assert line == {
        "commit": "abc",
        "date": "2026-01-02",
        "shape": "8x5",
        "rate": 40_000.0,
        "cpu_us": 25.0,
        "p50_ms": 1.0,
    }


def test_last_commit_is_that_of_the_last_line_of_the_history() -> None:
    assert last_commit('{"commit": "a"}\n{"commit": "b", "shape": "8x5"}\n') == "b"
