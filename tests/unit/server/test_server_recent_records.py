"""The end of the log in memory: in order, without a gap, within the bounds."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.memory_storages import record
from waltz.protocol import RecordBatch
from waltz.protocol.records import WIRE_OVERHEAD_BYTES
from waltz_server.core.reads.recent_records import (
    BATCH_OVERHEAD_BYTES,
    Bounds,
    RecentRecords,
    records_within,
)

PLENTY = Bounds(1 << 20, 1 << 30)


def batch(first_id: int, *sizes: int) -> RecordBatch:
    return RecordBatch.of(record(first_id + i, "x" * size) for i, size in enumerate(sizes))


def ids(records: RecordBatch | None) -> list[int]:
    return [] if records is None else [r.transaction_id for r in records]


_BATCHES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=5), max_size=12)


@given(
    _BATCHES,
    st.integers(0, 2000),
    st.integers(0, 30),
    st.integers(1, 12),
    st.integers(1, 700),
)
@example([[0], [0, 60], [0]], 2000, 0, 9, 3 * WIRE_OVERHEAD_BYTES)
def test_range_has_no_gap_and_ends_at_its_bounds(
    batches: list[list[int]], capacity: int, wanted: int, max_records: int, max_bytes: int
) -> None:
    recent, sizes, kept = RecentRecords(capacity), list[int](), list[tuple[int, int]]()
    for each in batches:
        size = sum(each) + len(each) * WIRE_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
        kept.append((len(sizes), size))
        recent.put(len(sizes), batch(len(sizes), *each))
        sizes += each
        while sum(each for _, each in kept) > capacity:
            kept.pop(0)
        assert recent.used_bytes == sum(each for _, each in kept)
    found = recent.get(wanted, Bounds(max_records, max_bytes))
    if not kept or not kept[0][0] <= wanted < len(sizes):
        assert found is None
        return
    expected, used = [wanted], sizes[wanted] + WIRE_OVERHEAD_BYTES
    for transaction_id in range(wanted + 1, len(sizes)):
        used += sizes[transaction_id] + WIRE_OVERHEAD_BYTES
        if used > max_bytes or len(expected) == max_records:
            break
        expected.append(transaction_id)
    assert ids(found) == expected


def test_whole_batch_is_returned_without_a_copy() -> None:
    recent, only = RecentRecords(1 << 20), batch(5, 10, 20, 30)
    recent.put(5, only)
    assert recent.get(5, PLENTY) is only


def test_batch_after_a_gap_replaces_all_others() -> None:
    recent = RecentRecords(1 << 20)
    recent.put(0, batch(0, 1, 1))
    recent.put(5, batch(5, 1))
    assert recent.get(0, PLENTY) is None
    assert ids(recent.get(5, PLENTY)) == [5]
    assert recent.used_bytes == 1 + WIRE_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES


def test_thousands_of_batches_keep_within_the_bound() -> None:
    recent = RecentRecords(50 * (WIRE_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES))
    for transaction_id in range(5000):
        recent.put(transaction_id, batch(transaction_id, 0))
    assert recent.get(4949, PLENTY) is None
    assert ids(recent.get(4950, PLENTY)) == list(range(4950, 5000))
    assert recent.get(5000, PLENTY) is None


@pytest.mark.parametrize(("at_least_one", "expected"), [(True, [7]), (False, [])])
def test_record_longer_than_the_bound_is_returned_alone(
    at_least_one: bool, expected: list[int]
) -> None:
    found = records_within(batch(6, 5, 500, 5), 1, Bounds(9, 100), at_least_one=at_least_one)
    assert ids(found) == expected
