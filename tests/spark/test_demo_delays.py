"""Test the demo's Spark job on small generated logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from demo import delays, plot
from demo.checks import Findings
from demo.flights import Totals

pytestmark = pytest.mark.slow

NOON = datetime(2013, 5, 1, 12, tzinfo=UTC)
COLUMNS = """
    partition INT, transaction_id BIGINT, aircraft INT, departure TIMESTAMP, carrier STRING,
    flight INT, origin STRING, dep_delay INT, arr_delay INT, air_time INT, distance INT,
    previous BIGINT
"""


def row(transaction_id: int, hours: float, previous: int | None, **other: Any) -> dict[str, Any]:
    return {
        "partition": 1,
        "transaction_id": transaction_id,
        "aircraft": 7,
        "departure": NOON + timedelta(hours=hours),
        "carrier": "UA",
        "flight": transaction_id,
        "origin": "EWR",
        "dep_delay": 10,
        "arr_delay": -5,
        "air_time": 60,
        "distance": 1000,
        "previous": previous,
    } | other


GOOD = [row(0, 0, None), row(1, 5, 0), row(2, 4, None, aircraft=8), row(3, 9, 1)]
TOTALS = Totals(flights=4, aircraft=2, distance=4000, dep_delay=40, arr_delay=-20)


def examine(spark: Any, rows: list[dict[str, Any]]) -> Findings:
    return delays.examine(spark.createDataFrame(rows, COLUMNS), order_minutes=120)


def test_checks_of_a_correct_log_pass(spark: Any) -> None:
    assert examine(spark, GOOD) == Findings(TOTALS, 0, 0, 0, 0)


def test_checks_flights_without_aircraft_are_not_chained(spark: Any) -> None:
    rows = [row(0, 4, None, aircraft=0), row(1, 0, None, aircraft=0)]
    found = examine(spark, rows)
    assert found.totals.aircraft == 0
    assert (found.broken_links, found.disorder) == (0, 0)


@pytest.mark.parametrize(
    ("index", "changed", "expected"),
    [
        (3, {"transaction_id": 5, "flight": 3}, Findings(TOTALS, 2, 0, 0, 0)),
        (3, {"departure": NOON, "flight": 0}, Findings(TOTALS, 0, 1, 0, 1)),
        (3, {"previous": 0}, Findings(TOTALS, 0, 0, 1, 0)),
        (0, {"previous": 2}, Findings(TOTALS, 0, 0, 1, 0)),
        (3, {"departure": NOON + timedelta(hours=2.9)}, Findings(TOTALS, 0, 0, 0, 1)),
        (3, {"departure": NOON + timedelta(hours=3)}, Findings(TOTALS, 0, 0, 0, 0)),
    ],
)
def test_each_fault_fails_the_checks(
    spark: Any, index: int, changed: dict[str, Any], expected: Findings
) -> None:
    rows = [r | changed if i == index else r for i, r in enumerate(GOOD)]
    assert examine(spark, rows) == expected


def test_delays_answer_of_too_few_flights_is_none(spark: Any) -> None:
    assert delays.answer(spark.createDataFrame(GOOD, COLUMNS)) is None


def test_delays_answer_equals_the_generated_propagation(spark: Any, tmp_path: Path) -> None:
    """Aircraft fly twice, 4.5 hours apart, an hour each way, and hand on twice their delay."""
    rows = []
    for aircraft in range(1, 1201):
        delay = aircraft % 60
        first = {"aircraft": aircraft, "arr_delay": delay}
        second = {"aircraft": aircraft, "dep_delay": 2 * delay, "arr_delay": None}
        cancelled = {"aircraft": aircraft, "dep_delay": None, "arr_delay": None}
        rows += [
            row(0, 0, None, **first),
            row(1, 4, None, **cancelled),
            row(2, 4.5, None, **second),
        ]
    answer = delays.answer(spark.createDataFrame(rows, COLUMNS))
    assert answer is not None
    assert answer.pairs == 1200
    assert answer.overall == pytest.approx(2)
    assert answer.carriers == {"UA": pytest.approx(2)}
    assert answer.curves == {1: [(7.5, 14), (22.5, 44), (37.5, 74), (52.5, 104)]}
    plot.draw(answer, {"UA": "United"}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
