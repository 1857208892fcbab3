"""The weights of requests, by which a storage bounds those that are under way."""

from __future__ import annotations

from typing import Any

import pytest

from waltz.protocol import storage
from waltz.protocol.records import RecordBatch
from waltz_storage.core.engine.request_weights import LEAST_READ_BYTES, RequestWeights
from waltz_storage.core.partitions.partition import BULK_LIMIT_BYTES, READ_LIMIT_BYTES

MESSAGE_BYTES = 40
PARTITION = 3


def bounded(max_bytes: int) -> storage.BoundedRecordListRequest:
    return storage.BoundedRecordListRequest(1, 0, PARTITION, 0, 500, max_bytes)


def committed(max_bytes: int) -> storage.CommittedRecordListRequest:
    return storage.CommittedRecordListRequest(1, 0, PARTITION, 0, 9, 500, max_bytes)


def stored(max_bytes: int) -> storage.StoredRecordListRequest:
    return storage.StoredRecordListRequest(1, 0, PARTITION, 0, 9, 500, max_bytes)


def unbounded(count: int, partition: int = PARTITION) -> storage.RecordListRequest:
    return storage.RecordListRequest(1, 0, partition, 0, count)


@pytest.mark.parametrize("request_of", [bounded, committed, stored])
@pytest.mark.parametrize(
    ("max_bytes", "weight"),
    [
        (256 << 10, 256 << 10),
        (1, LEAST_READ_BYTES),
        (-5, LEAST_READ_BYTES),
        (1 << 30, BULK_LIMIT_BYTES),
    ],
)
def test_weight_of_a_bounded_list_is_its_bound(
    request_of: Any, max_bytes: int, weight: int
) -> None:
    assert RequestWeights().of(request_of(max_bytes), MESSAGE_BYTES) == weight


def test_weight_of_a_list_without_bound_follows_the_size_of_the_records() -> None:
    weights = RequestWeights()
    assert weights.of(unbounded(100), MESSAGE_BYTES) == READ_LIMIT_BYTES, "nothing is measured yet"
    for _ in range(3):
        weights.learn(storage.RecordListResponse(1, 0, PARTITION, RecordBatch(10, bytes(10_000))))
    weights.learn(storage.SuccessResponse(1, 0, PARTITION))
    assert weights.of(unbounded(100), MESSAGE_BYTES) == 100_000
    assert weights.of(unbounded(100, partition=0), MESSAGE_BYTES) == READ_LIMIT_BYTES
    assert weights.of(unbounded(1 << 30), MESSAGE_BYTES) == READ_LIMIT_BYTES
    assert weights.of(unbounded(-1), MESSAGE_BYTES) == LEAST_READ_BYTES
    weights.learn(storage.RecordListResponse(1, 0, PARTITION, RecordBatch(1, bytes(9_000))))
    assert weights.of(unbounded(100), MESSAGE_BYTES) == 900_000, "larger records count at once"
    weights.learn(storage.RecordListResponse(1, 0, PARTITION, RecordBatch(1, bytes(1_000))))
    assert weights.of(unbounded(100), MESSAGE_BYTES) == 800_000, "smaller records count slowly"


def test_weight_of_header_and_mark_requests_follows_their_bound() -> None:
    weights = RequestWeights()
    single = storage.RecordRequest(1, 0, PARTITION, 7)
    header = storage.RecordHeaderRequest(1, 0, PARTITION, 7)
    headers = storage.RecordHeaderListRequest(1, 0, PARTITION, 0, 512)
    many = storage.RecordHeaderListRequest(1, 0, PARTITION, 0, 1 << 30)
    last = storage.MaxTransactionIdRequest(1, 0, PARTITION)
    found = [weights.of(r, MESSAGE_BYTES) for r in (single, header, headers, many, last)]
    assert found == [LEAST_READ_BYTES, LEAST_READ_BYTES, 512 * 256, 4 << 20, MESSAGE_BYTES]
