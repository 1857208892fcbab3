"""Test requests to storages of older versions of the protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.memory_storages import record
from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz_server.core.replication.storage_versions import RequestConverter

BOUNDED = st.BoundedRecordListRequest(7, -2, 3, 100, 5000, 64 << 10)


def batch(size: int, count: int = 10) -> RecordBatch:
    """Records of about ``size`` bytes."""
    return RecordBatch.of(record(i, "x" * (size - 40)) for i in range(count))


def learn(converter: RequestConverter, partition: int, records: RecordBatch) -> None:
    """Let the converter see an answer with ``records``."""
    converter.answered(BOUNDED, st.RecordListResponse(7, 0, partition, records))


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
    learn(converter, 3, batch(1024))
    assert requested_count(converter) == 64
    learn(converter, 4, batch(10_000))
    assert requested_count(converter) == 64, "another partition's"
    for _ in range(50):
        learn(converter, 3, batch(128))
    assert 500 <= requested_count(converter) <= 550
    learn(converter, 3, RecordBatch(0, b""))
    assert requested_count(converter) >= 500


def test_record_count_is_at_least_one_and_at_most_the_requested_count() -> None:
    converter = RequestConverter()
    learn(converter, 3, batch(1 << 20, count=1))
    assert requested_count(converter) == 1
    for _ in range(200):
        learn(converter, 3, batch(40))
    few = st.BoundedRecordListRequest(7, -2, 3, 100, 20, 64 << 10)
    assert converter.convert(few, 0) == st.RecordListRequest(7, -2, 3, 100, 20)


def test_records_in_disk_form_are_requested_in_wire_form_from_older_storages() -> None:
    request = st.StoredRecordListRequest(7, -2, 3, 100, 119, 20, 64 << 10)
    converter = RequestConverter()
    assert converter.convert(request, 2) is request
    bounded = st.BoundedRecordListRequest(7, -2, 3, 100, 20, 64 << 10)
    assert converter.convert(request, 1) == bounded
    learn(converter, 3, batch(6554))
    assert converter.convert(request, 0) == st.RecordListRequest(7, -2, 3, 100, 10)


COPY = st.BoundedRecordListRequest(7, -2, 3, 100, 500, 16 << 20)
"""A copy in a recovery, whose answer version 0 does not bound."""


def copied(converter: RequestConverter, partition: int = 3) -> st.RecordListRequest:
    request = converter.convert(replace(COPY, partition=partition), 0)
    assert isinstance(request, st.RecordListRequest)
    return request


def test_copy_from_storage_of_0_13_2_is_of_few_records_until_their_size_is_known() -> None:
    """An answer with 500 records of 1 MiB would exceed the longest frame and end the connection."""
    converter = RequestConverter()
    assert copied(converter).max_records == 20, "as 0.13.2 copies"
    learn(converter, 3, batch(1 << 20, count=20))
    assert copied(converter).max_records in (15, 16)
    learn(converter, 4, batch(1 << 10))
    assert copied(converter, partition=4).max_records == 500
    assert converter.convert(COPY, 1) is COPY, "newer storages bound the answer"


def test_copy_that_is_lost_with_its_connection_is_repeated_with_fewer_records() -> None:
    converter = RequestConverter()
    learn(converter, 3, batch(100))
    first = copied(converter)
    assert first.max_records == 500
    converter.answered(first, None)
    second = copied(converter)
    assert second.max_records == 62
    converter.answered(second, None)
    assert copied(converter).max_records == 7
    for expected in (14, 28, 56, 112, 224, 448, 500, 500):
        learn(converter, 3, batch(100, copied(converter).max_records))
        assert copied(converter).max_records == expected
    converter.answered(request_for_last_id(), None)
    assert copied(converter).max_records == 500, "another request"


def test_copy_of_one_record_is_never_of_less() -> None:
    converter = RequestConverter()
    for _ in range(5):
        converter.answered(copied(converter), None)
    assert copied(converter).max_records == 1


def request_for_last_id() -> st.MaxTransactionIdRequest:
    return st.MaxTransactionIdRequest(7, -2, 3)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_truncation_below_mark_is_a_plain_one_for_older_storages(version: int) -> None:
    request = st.TruncateBelowMarkRequest(7, -2, 3, 10, 20)
    converter = RequestConverter()
    assert converter.convert(request, version) == st.TruncateRequest(7, -2, 3, 10)
    assert converter.convert(request, 3) is request
