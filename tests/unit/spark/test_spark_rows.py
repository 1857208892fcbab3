"""The conversion of rows to appends."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from waltz.protocol.locks import Lock
from waltz.spark.core.rows import Columns, RowRefused

LOCKS = pa.list_(pa.struct([("name", pa.string()), ("id", pa.int64())]))


def locks_of_row(locks: list[dict[str, Any] | None] | None) -> tuple[Lock, ...]:
    batch = pa.RecordBatch.from_pydict({"data": [b"x"], "locks": pa.array([locks], LOCKS)})
    ((_, row),) = Columns(("data", "locks")).rows(batch, task=0, num_partitions=1)
    return row.locks


def test_row_without_locks_has_none() -> None:
    assert locks_of_row(None) == locks_of_row([]) == ()
    assert locks_of_row([{"name": "a", "id": 1}]) == (Lock("a", 1),)


@pytest.mark.parametrize("lock", [None, {"name": None, "id": 1}, {"name": "a", "id": None}])
def test_row_with_null_in_locks_is_refused(lock: dict[str, Any] | None) -> None:
    with pytest.raises(RowRefused, match="null in locks"):
        locks_of_row([{"name": "a", "id": 1}, lock])
