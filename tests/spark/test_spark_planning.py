"""Which task reads what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.spark.options import OptionError, ReadOptions, parse_options
from waltz.spark.planning import Slice, choose_partitions, plan


def options(**given: str) -> ReadOptions:
    return parse_options({"zookeeper": "zk:2181"} | given)


def test_every_partition_is_read_to_its_end() -> None:
    assert plan(options(), {1: 4, 0: 0, 2: -1}) == [Slice(0, 0, 0), Slice(1, 0, 4)]


def test_a_long_range_is_cut_evenly() -> None:
    assert plan(options(rowsPerTask="4"), {0: 9}) == [
        Slice(0, 0, 2),
        Slice(0, 3, 5),
        Slice(0, 6, 9),
    ]


def test_positions() -> None:
    chosen = options(
        startingPositions='{"0": 3, "2": "latest"}', endingPositions='{"0": 5, "1": "earliest"}'
    )
    assert plan(chosen, {0: 9, 1: 9, 2: 9, 3: 0}) == [Slice(0, 3, 4), Slice(3, 0, 0)]


def test_a_position_just_after_the_end_is_an_empty_range() -> None:
    assert plan(options(startingPositions='{"0": 10}'), {0: 9}) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingPositions": '{"0": 11}'}, "startingPositions is 11 for partition 0"),
        ({"endingPositions": '{"0": 11}'}, "endingPositions is 11 for partition 0"),
        (
            {"startingPositions": '{"0": 5}', "endingPositions": '{"0": 4}'},
            "partition 0 is to be read from 5 until before 4",
        ),
    ],
)
def test_positions_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        plan(options(**given), {0: 9})


def test_partitions_chosen() -> None:
    assert choose_partitions(options(), 3) == (0, 1, 2)
    assert choose_partitions(options(partitions="2,0"), 3) == (0, 2)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"partitions": "1-3"}, "names 3, but the cluster has only partitions 0 to 2"),
        ({"startingPositions": '{"7": 0}'}, "names partition 7, which is not read: .* are 0-2"),
        (
            {"partitions": "0,2", "endingPositions": '{"1": 0}'},
            "names partition 1, which is not read: .* are 0,2",
        ),
    ],
)
def test_partitions_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        choose_partitions(options(**given), 3)


@given(
    st.dictionaries(st.integers(0, 5), st.integers(-1, 200), min_size=1),
    st.integers(1, 50),
    st.data(),
)
def test_slices_cover_the_range_once(marks: dict[int, int], rows: int, data: st.DataObject) -> None:
    first = {p: data.draw(st.integers(0, mark + 1)) for p, mark in marks.items()}
    end = {p: data.draw(st.integers(first[p], mark + 1)) for p, mark in marks.items()}
    chosen = options(
        rowsPerTask=str(rows),
        startingPositions=_json(first),
        endingPositions=_json(end),
    )
    slices = plan(chosen, marks)
    ids = [(s.partition, i) for s in slices for i in range(s.first, s.last + 1)]
    assert ids == [(p, i) for p in sorted(marks) for i in range(first[p], end[p])]
    assert all(0 < len(s) <= rows for s in slices)


def _json(positions: dict[int, int]) -> str:
    return "{" + ", ".join(f'"{p}": {at}' for p, at in positions.items()) + "}"
