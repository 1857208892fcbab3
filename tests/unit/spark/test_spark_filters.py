"""Filters select the same rows that Spark selects after reading everything."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from waltz.spark.core.filters import PUSHED_COLUMNS, ColumnBounds, RowFilter, narrow

NUMBERS = st.integers(-3, 6)
COMPARED: dict[type, Any] = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}
COLUMNS = st.sampled_from(sorted(PUSHED_COLUMNS)).map(lambda name: (name,))
FILTERS = st.one_of(
    st.builds(lambda kind, *of: kind(*of), st.sampled_from(list(COMPARED)), COLUMNS, NUMBERS),
    st.builds(In, COLUMNS, st.lists(st.one_of(NUMBERS, st.none()), max_size=3).map(tuple)),
    st.builds(IsNotNull, COLUMNS),
)


def holds(pushed: Any, row: dict[str, int]) -> bool:
    value = row[pushed.attribute[0]]
    if isinstance(pushed, IsNotNull):
        return True
    if isinstance(pushed, In):
        return value in pushed.value
    return bool(COMPARED[type(pushed)](value, pushed.value))


ROWS = [
    {"partition": p, "transaction_id": t, "header": h}
    for p in range(3)
    for t in range(4)
    for h in (-2, 0, 3)
]


@given(st.lists(FILTERS, max_size=4))
@example([In(("header",), (-2, 0)), In(("header",), (0, 3))])
@example([In(("header",), (-2, 0, 3)), GreaterThan(("header",), -1)])
@example([In(("header",), (-2, 3)), LessThan(("header",), 4)])
@example([LessThan(("transaction_id",), 2), In(("transaction_id",), (0, 3))])
def test_filters_keep_the_rows_that_spark_keeps(filters: list[Filter]) -> None:
    wanted, left = narrow(RowFilter(), filters)
    assert left == []
    ids = wanted.bounds_of("transaction_id")
    planned = [
        row
        for row in ROWS
        if row["partition"] in wanted.bounds_of("partition")
        and ids.low <= row["transaction_id"] <= ids.high
    ]
    schema = pa.schema(
        [("partition", pa.int32()), ("transaction_id", pa.int64()), ("header", pa.int32())]
    )
    found = wanted.rows(pa.RecordBatch.from_pylist(planned, schema=schema)).to_pylist()
    assert found == [row for row in ROWS if all(holds(pushed, row) for pushed in filters)]


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("seq",), 3),
        EqualTo(("header", "x"), 3),
        EqualTo(("header",), "3"),
        EqualTo(("header",), True),
        GreaterThan(("header",), None),
        In(("header",), (1, 2.5)),
        IsNull(("header",)),
        Not(EqualTo(("header",), 3)),
    ],
)
def test_filters_that_are_not_supported_are_left_to_spark(pushed: Filter) -> None:
    assert narrow(RowFilter(), [pushed]) == (RowFilter(), [pushed])


def test_filters_with_empty_list_of_values_allow_no_row() -> None:
    nothing = ColumnBounds().intersect(among=frozenset())
    assert nothing.low > nothing.high
    assert 0 not in nothing
