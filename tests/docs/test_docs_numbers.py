"""Test that the numbers on docs/choosing.md are those of bench/RESULTS.md, rounded."""

from __future__ import annotations

import re

import pytest

from docs.reference import HERE

_ROW = re.compile(r"^\| ([\d,]+) [x×] ([\d,]+) \| (.*) \|$", re.MULTILINE)
"""A row of a table whose first column is a shape: clients × open appends."""
_HEAD = re.compile(r"^\| Clients × [^|]+ \| (.*) \|$", re.MULTILINE)
"""The first row of such a table."""

Rows = dict[tuple[str, str], list[list[str]]]
"""The cells after the first column, of each row with a shape."""


def rows(text: str) -> Rows:
    found: Rows = {}
    for clients, appends, cells in _ROW.findall(text):
        found.setdefault((clients.replace(",", ""), appends), []).append(cells.split(" | "))
    return found


def columns(text: str) -> list[str]:
    """Return the names of the columns after the first one, of the first table of shapes."""
    head = _HEAD.search(text)
    assert head is not None
    return head[1].split(" | ")


def measured(title: str) -> dict[tuple[str, str], dict[str, tuple[float, float]]]:
    """Return each system's rate and median latency in a section of bench/RESULTS.md, by shape."""
    results = (HERE.parent / "bench/RESULTS.md").read_text()
    _, _, section = results.partition(f"\n## {title}\n")
    section = section.partition("\n## ")[0]
    systems = [name.removesuffix(", records/s") for name in columns(section)]
    numbers = {}
    for shape, (rates, *details) in rows(section).items():
        latencies = {system: float(median) for system, median, *_ in details}
        numbers[shape] = {
            system: (float(rate.replace(",", "")), latencies[system])
            for system, rate in zip(systems, rates, strict=True)
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
    page = (HERE / "choosing.md").read_text()
    names = columns(page)
    assert names[:2] == ["Waltz, no lock", "Waltz, one lock each"]
    others = [name.removesuffix(", no lock") for name in names[2:]]
    shapes = rows(page)
    assert shapes.keys() == plain.keys() == locked.keys()
    for shape, [[waltz, with_lock, *cells]] in shapes.items():
        assert {"Waltz", *others} == plain[shape].keys()
        for cell, system in zip([waltz, *cells], ["Waltz", *others], strict=True):
            check(cell, *plain[shape][system])
        check(with_lock, *locked[shape]["Waltz"])
