"""Test that the numbers on docs/choosing.md are those of bench/RESULTS.md, rounded."""

from __future__ import annotations

import re

import pytest

from docs.reference import HERE

_ROW = re.compile(r"^\| ([\d,]+) [x×] ([\d,]+) \| (.*) \|$", re.MULTILINE)
"""A row of a table whose first column is a shape: clients × open appends."""
_SYSTEMS = ("Waltz", "NATS JetStream", "PostgreSQL")

Rows = dict[tuple[str, str], list[list[str]]]
"""The cells after the first column, of each row with a shape."""


def rows(text: str) -> Rows:
    found: Rows = {}
    for clients, appends, cells in _ROW.findall(text):
        found.setdefault((clients.replace(",", ""), appends), []).append(cells.split(" | "))
    return found


def measured(title: str) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Return each system's rate and median latency in a section of bench/RESULTS.md, by shape."""
    results = (HERE.parent / "bench/RESULTS.md").read_text()
    _, _, section = results.partition(f"\n## {title}\n")
    numbers = {}
    for shape, (rates, *details) in rows(section.partition("\n## ")[0]).items():
        latencies = {system: float(median) for system, median, *_ in details}
        numbers[shape] = {
            system: (float(rate.replace(",", "")), latencies[system])
            for system, rate in zip(_SYSTEMS, rates, strict=True)
        }
    return numbers


def shown(cell: str) -> list[float]:
    """Return the rate of a cell of the page, and the latency if the cell has one."""
    values = cell.strip("*").replace(",", "").replace("/s", "").replace(" ms", "").split()
    return [float(value) for value in values]


def check(cell: str, rate: float, latency: float) -> None:
    """Rates are rounded to three digits, latencies to tenths, or from 10 ms on to milliseconds."""
    rounded_rate, *rounded_latency = shown(cell)
    assert rounded_rate == pytest.approx(rate, abs=5 * 10 ** (len(str(int(rate))) - 4))
    for value in rounded_latency:
        assert value == pytest.approx(latency, abs=0.501 if value >= 10 else 0.0501)


def test_numbers_on_the_choosing_page_are_those_of_the_benchmark() -> None:
    plain, locked = measured("Appends without a lock"), measured("Each append under one lock")
    page = rows((HERE / "choosing.md").read_text())
    assert page.keys() == plain.keys() == locked.keys()
    for shape, [[waltz, with_lock, nats, postgresql]] in page.items():
        for cell, system in zip((waltz, nats, postgresql), _SYSTEMS, strict=True):
            check(cell, *plain[shape][system])
        check(with_lock, *locked[shape]["Waltz"])
