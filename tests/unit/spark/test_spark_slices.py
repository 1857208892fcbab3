"""Test the ranges that the tasks of a read get."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.spark.core.filters import ColumnBounds, RowFilter
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import ReadOptions, parse_options
from waltz.spark.core.slices import (
    PositionMissing,
    Sample,
    Slice,
    choose_partitions,
    cut_into_slices,
    rows_of_size,
    starting_positions,
    wanted_spans,
)


def options(**given: str) -> ReadOptions:
    return parse_options({"zookeeper": "zk:2181"} | given)


def plan(chosen: ReadOptions, marks: dict[int, int]) -> list[Slice]:
    return cut_into_slices(wanted_spans(chosen, marks), dict.fromkeys(marks, chosen.rows_per_task))


def test_slices_read_every_partition_to_its_mark() -> None:
    assert plan(options(), {1: 4, 0: 0, 2: -1}) == [Slice(0, 0, 0), Slice(1, 0, 4)]


def test_slices_long_range_is_split_evenly() -> None:
    assert plan(options(rowsPerTask="4"), {0: 9}) == [
        Slice(0, 0, 2),
        Slice(0, 3, 5),
        Slice(0, 6, 9),
    ]


def test_slices_cover_starting_to_ending_positions() -> None:
    chosen = options(
        startingPositions='{"0": 3, "2": "latest"}', endingPositions='{"0": 5, "1": "earliest"}'
    )
    assert plan(chosen, {0: 9, 1: 9, 2: 9, 3: 0}) == [Slice(0, 3, 4), Slice(3, 0, 0)]


def test_slices_position_after_the_end_is_empty() -> None:
    assert plan(options(startingPositions='{"0": 10}'), {0: 9}) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"startingPositions": '{"0": 11}'},
            "startingPositions is transaction 11 of partition 0",
        ),
        ({"endingPositions": '{"0": 11}'}, "endingPositions is transaction 11 of partition 0"),
        (
            {"startingPositions": '{"0": 5}', "endingPositions": '{"0": 4}'},
            r"partition 0: startingPositions \(5\) is after endingPositions \(4\)",
        ),
    ],
)
def test_slices_invalid_positions_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        plan(options(**given), {0: 9})


def test_slices_missing_position_is_skipped_if_the_option_says_continue() -> None:
    chosen = options(startingPositions='{"0": 11}', missingPositions="continue")
    assert wanted_spans(chosen, {0: 9, 1: 0}) == {1: (0, 1)}
    assert starting_positions(chosen, {0: 9, 1: 0}) == {0: 10, 1: 0}


def test_slices_missing_position_raises_error_that_names_it() -> None:
    with pytest.raises(PositionMissing) as missing:
        starting_positions(options(startingPositions='{"0": 11}'), {0: 9})
    found = missing.value
    assert (found.partition, found.position, found.mark) == (0, 11, 9)


def test_slices_are_bounded_by_a_filter_of_transaction_ids() -> None:
    wanted = RowFilter({"transaction_id": ColumnBounds(3, 4)})
    assert wanted_spans(options(), {0: 9, 1: 3, 2: 2}, wanted) == {0: (3, 5), 1: (3, 4)}


def test_slices_rows_per_task_are_task_bytes_by_mean_row_size() -> None:
    sample = Sample(rows=10, num_bytes=100)
    assert rows_of_size(1000, sample) == 100
    assert rows_of_size(1, sample) == 1


def test_slices_default_to_all_partitions_and_keep_to_the_option() -> None:
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
def test_slices_unknown_partitions_are_refused(given: dict[str, str], text: str) -> None:
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
