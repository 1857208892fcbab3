"""Test the offsets of a stream, and the rows that a micro-batch reads."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.spark.core.offsets import (
    admit_bytes,
    admit_rows,
    next_offset,
    offset_of,
    positions_of,
    readable_ends,
    spans_between,
)
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.slices import PositionMissing, Sample

KEY, OTHER_KEY = UUID(int=1), UUID(int=2)

BACKLOGS = st.dictionaries(
    st.integers(0, 30), st.tuples(st.integers(0, 2**62), st.integers(0, 10**6)), min_size=1
)


def test_offsets_round_trip_keeps_all_positions() -> None:
    positions = {10: 2**63 - 1, 9: 0}
    offset = offset_of(positions, KEY)
    assert offset == {"clusterKey": str(KEY), "9": "0", "10": "9223372036854775807"}
    assert positions_of(offset, [9, 10], KEY) == positions


def test_offsets_without_a_key_are_of_any_cluster() -> None:
    """Earlier versions have written them."""
    assert positions_of({"0": "3"}, [0], KEY) == {0: 3}


def test_offsets_of_another_cluster_are_refused() -> None:
    """Its transactions have other ids: rows would be skipped or read twice, without an error."""
    with pytest.raises(OptionError) as refused:
        positions_of(offset_of({0: 3}, OTHER_KEY), [0], KEY)
    text = str(refused.value)
    assert f"belongs to the cluster with the key {OTHER_KEY}" in text
    assert f"name the cluster with the key {KEY}" in text
    assert "use another checkpointLocation" in text


def test_offsets_of_another_cluster_with_other_partitions_name_the_cluster() -> None:
    with pytest.raises(OptionError, match="belongs to the cluster with the key"):
        positions_of(offset_of({0: 3, 1: 4}, OTHER_KEY), [0], KEY)


def test_next_offset_has_the_key_although_the_offset_before_has_none() -> None:
    assert next_offset({"0": "3"}, {0: 3}, {0: 4}, KEY) == offset_of({0: 4}, KEY)


def test_next_offset_without_new_transactions_keeps_the_text() -> None:
    """Spark runs a micro-batch whenever the text of the offset has changed."""
    for offset in ({"0": "3"}, {"0": "3", "clusterKey": str(KEY)}):
        assert list(next_offset(offset, {0: 3}, {0: 3}, KEY).items()) == list(offset.items())


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ({"0": "1"}, "belongs to a stream of partitions 0, but this stream reads 0-1"),
        ({"0": "1", "1": "1", "2": "1"}, "reads 0-1: set the option partitions to 0-2, or use"),
        ({"logOffset": "x"}, "is not an offset of the waltz source"),
        ({"clusterKey": "x", "0": "1", "1": "1"}, "is not an offset of the waltz source"),
        ({"clusterKey": None, "0": "1", "1": "1"}, "is not an offset of the waltz source"),
    ],
)
def test_offsets_of_another_query_are_refused(offset: dict[str, str | None], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        positions_of(offset, [0, 1], KEY)


def test_offsets_beyond_the_log_are_refused_or_skipped() -> None:
    with pytest.raises(
        PositionMissing, match=r"the stream's next position is transaction 7 of part"
    ):
        readable_ends({0: 7}, {0: 5}, skip_missing=False)
    assert readable_ends({0: 7}, {0: 5}, skip_missing=True) == {0: 6}
    assert readable_ends({0: 6}, {0: 5}, skip_missing=False) == {0: 6}


@given(BACKLOGS, st.integers(1, 10**6))
def test_admit_rows_uses_exactly_the_limit(
    backlogs: dict[int, tuple[int, int]], limit: int
) -> None:
    starts = {p: start for p, (start, _) in backlogs.items()}
    ends = {p: start + rows for p, (start, rows) in backlogs.items()}
    admitted = admit_rows(starts, ends, limit)
    assert all(starts[p] <= admitted[p] <= ends[p] for p in ends)
    taken = sum(admitted[p] - starts[p] for p in ends)
    assert taken == min(limit, sum(rows for _, rows in backlogs.values()))


def test_admit_rows_uses_no_budget_for_a_partition_whose_end_is_below_its_start() -> None:
    assert admit_rows({0: 10, 1: 0}, {0: 6, 1: 100}, 7) == {0: 6, 1: 7}


def test_admit_bytes_converts_the_limit_by_mean_row_size() -> None:
    starts, ends = {0: 0, 1: 5}, {0: 100, 1: 5}
    sample = Sample(rows=4, num_bytes=40)
    assert admit_bytes(starts, ends, 500, {0: sample}) == {0: 50, 1: 5}
    assert admit_bytes(starts, ends, 1000, {0: sample}) == {0: 100, 1: 5}
    assert admit_bytes(starts, ends, 1, {0: sample}) == {0: 1, 1: 5}


def test_spans_between_offsets_omit_empty_ranges() -> None:
    assert spans_between({0: 1, 1: 2, 2: 9}, {0: 4, 1: 2, 2: 7}) == {0: (1, 4)}
