"""Test requests to storages of older versions of the protocol."""

from __future__ import annotations

import pytest

from tests.support.memory_storages import record
from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz_server.core.replication.storage_versions import RequestConverter

BOUNDED = st.BoundedRecordListRequest(7, -2, 3, 100, 5000, 64 << 10)


def batch(size: int, count: int = 10) -> RecordBatch:
    """Records of about ``size`` bytes."""
    return RecordBatch.of(record(i, "x" * (size - 40)) for i in range(count))


def requested_count(converter: RequestConverter) -> int:
    request = converter.convert(BOUNDED, 0)
    assert isinstance(request, st.RecordListRequest)
    assert (request.session_id, request.partition, request.first_id) == (7, 3, 100)
    return request.max_records


def test_byte_bound_is_sent_when_supported() -> None:
    assert RequestConverter().convert(BOUNDED, 1) is BOUNDED


@pytest.mark.parametrize("version", [0, 1])
def test_other_requests_are_sent_unchanged(version: int) -> None:
    request = st.MaxTransactionIdRequest(7, -2, 3)
    assert RequestConverter().convert(request, version) is request


def test_record_count_follows_the_mean_record_size_of_the_partition() -> None:
    converter = RequestConverter()
    assert 1 <= requested_count(converter) <= 16, (
        "the size of records is unknown, so few are requested"
    )
    converter.learn_sizes(3, batch(1024))
    assert requested_count(converter) == 64
    converter.learn_sizes(4, batch(10_000))
    assert requested_count(converter) == 64, "another partition's"
    for _ in range(50):
        converter.learn_sizes(3, batch(128))
    assert 500 <= requested_count(converter) <= 550
    converter.learn_sizes(3, RecordBatch(0, b""))
    assert requested_count(converter) >= 500


def test_record_count_is_at_least_one_and_at_most_the_requested_count() -> None:
    converter = RequestConverter()
    converter.learn_sizes(3, batch(1 << 20, count=1))
    assert requested_count(converter) == 1
    for _ in range(200):
        converter.learn_sizes(3, batch(40))
    few = st.BoundedRecordListRequest(7, -2, 3, 100, 20, 64 << 10)
    assert converter.convert(few, 0) == st.RecordListRequest(7, -2, 3, 100, 20)


def test_records_in_disk_form_are_requested_in_wire_form_from_older_storages() -> None:
    request = st.StoredRecordListRequest(7, -2, 3, 100, 119, 20, 64 << 10)
    converter = RequestConverter()
    assert converter.convert(request, 2) is request
    bounded = st.BoundedRecordListRequest(7, -2, 3, 100, 20, 64 << 10)
    assert converter.convert(request, 1) == bounded
    converter.learn_sizes(3, batch(6554))
    assert converter.convert(request, 0) == st.RecordListRequest(7, -2, 3, 100, 10)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_truncation_below_mark_is_a_plain_one_for_older_storages(version: int) -> None:
    request = st.TruncateBelowMarkRequest(7, -2, 3, 10, 20)
    converter = RequestConverter()
    assert converter.convert(request, version) == st.TruncateRequest(7, -2, 3, 10)
    assert converter.convert(request, 3) is request
