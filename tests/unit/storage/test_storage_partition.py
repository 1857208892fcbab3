"""The requests of one partition: bounds of what one answer holds, and sessions that begin."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any

import pytest

from tests.support.inline_engine import InlineEngine, arrival
from waltz.protocol import storage
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.testing.disk import MemoryDisk
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_format import ENTRY_BYTES, HEADER_BYTES
from waltz_storage.core.partitions import partition as partition_module
from waltz_storage.core.partitions.storage_directory import StorageDirectory

RECORDS = 10
ALL = 1 << 30


@pytest.fixture
def engine() -> InlineEngine:
    """Return an engine with ten records in partition 0, in session 1."""
    directory = StorageDirectory(MemoryDisk(), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    directory.assign(0)
    engine = InlineEngine(directory)
    engine.ask(storage.SetLowWaterMarkRequest(1, 0, 0, -1))
    records = RecordBatch.of(Record(n, ReqId(1, 2, 0, n), 0, b"x" * 100, 7) for n in range(RECORDS))
    engine.ask(storage.AppendRequest(1, 0, 0, records))
    return engine


def committed(first_id: int, last_id: int, records: int = ALL, size: int = ALL) -> Any:
    return storage.CommittedRecordListRequest(1, 0, 0, first_id, last_id, records, size)


def stored(first_id: int, last_id: int, records: int = ALL, size: int = ALL) -> Any:
    return storage.StoredRecordListRequest(1, 0, 0, first_id, last_id, records, size)


@pytest.mark.parametrize("request_of", [committed, stored])
@pytest.mark.parametrize(
    ("first_id", "last_id", "most", "count"), [(0, 6, ALL, 7), (2, 6, ALL, 5), (2, 6, 3, 3)]
)
def test_committed_read_ends_at_the_last_committed_id(
    engine: InlineEngine, request_of: Any, first_id: int, last_id: int, most: int, count: int
) -> None:
    assert engine.ask(request_of(first_id, last_id, most)).records.count == count


@pytest.mark.parametrize(
    "request_of",
    [
        committed,
        stored,
        lambda first_id, _: storage.BoundedRecordListRequest(1, 0, 0, first_id, ALL, ALL),
    ],
    ids=["committed", "stored", "bounded"],
)
def test_answer_is_bounded_whatever_the_request_allows(
    engine: InlineEngine, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.ask(request_of(0, RECORDS - 1)).records.count == RECORDS
    monkeypatch.setattr(partition_module, "BULK_LIMIT_BYTES", 450)
    assert engine.ask(request_of(0, RECORDS - 1)).records.count == 3


def test_header_list_ends_before_damage_for_servers_that_request_the_rest() -> None:
    """A server of version 0 may take a list with less than 64 headers for the whole block."""
    disk = MemoryDisk()
    directory = StorageDirectory(disk, uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    directory.assign(0)
    engine = InlineEngine(directory)
    engine.ask(storage.SetLowWaterMarkRequest(1, 0, 0, -1))
    records = RecordBatch.of(Record(n, ReqId(1, 2, 0, n), 0, b"x" * 100, 7) for n in range(RECORDS))
    engine.ask(storage.AppendRequest(1, 0, 0, records))
    file, third = "0/0000000000000000000.seg", HEADER_BYTES + 2 * 140
    disk.damage(file, third, bytes([disk.content(file)[third] ^ 1]))
    answers: list[Any] = []
    for version in (0, 1):
        request = storage.RecordHeaderListRequest(1, 0, 0, 0, RECORDS)
        engine.submit([arrival(request, answers.append, version)])
    old, new = answers
    assert isinstance(old, storage.FailureResponse)
    assert [header.transaction_id for header in new.headers] == [0, 1]


def test_refused_append_is_not_counted() -> None:
    directory = StorageDirectory(MemoryDisk(), uuid.UUID(int=5), 1, LogOptions(lambda: 1))
    directory.assign(0)
    engine = InlineEngine(directory)
    accepted, out_of_order = (
        engine.ask(
            storage.AppendRequest(
                -1, first_id, 0, RecordBatch.of([Record(first_id, ReqId(1, 2, 0, 3), 0, b"", 7)])
            )
        )
        for first_id in (0, 5)
    )
    assert isinstance(accepted, storage.SuccessResponse)
    assert isinstance(out_of_order, storage.FailureResponse)
    assert directory.partitions[0].appended_records == 1
    assert directory.partitions[0].append_latency.count == 1


@pytest.mark.parametrize(
    "request_of",
    [
        lambda session: storage.LastSessionInfoRequest(session, 0, 0),
        lambda session: storage.MaxTransactionIdRequest(session, 0, 0),
        lambda session: storage.SetLowWaterMarkRequest(session, 0, 0, RECORDS - 1),
        lambda session: storage.TruncateRequest(session, 0, 0, -1),
        lambda session: storage.AppendRequest(session, 0, 0, RecordBatch.of([])),
        lambda session: storage.RecordListRequest(session, 0, 0, 0, 1),
    ],
)
def test_request_with_an_impossible_session_blocks_no_server(
    engine: InlineEngine, request_of: Any
) -> None:
    refused = engine.ask(request_of((1 << 63) - 1))
    assert "impossible" in refused.failure.message
    end = engine.ask(storage.MaxTransactionIdRequest(1, 0, 0))
    assert end == storage.MaxTransactionIdResponse(1, 0, 0, RECORDS - 1)
    began = engine.ask(storage.SetLowWaterMarkRequest(2, 0, 0, RECORDS - 1))
    assert isinstance(began, storage.SuccessResponse)


def test_session_that_has_begun_has_a_durable_index_up_to_its_local_mark() -> None:
    disk = MemoryDisk()
    options = LogOptions(lambda: 1, allocate_bytes=0)
    directory = StorageDirectory(disk, uuid.UUID(int=5), 1, options)
    directory.assign(0)
    engine = InlineEngine(directory)
    engine.ask(storage.SetLowWaterMarkRequest(1, 0, 0, -1))
    records = RecordBatch.of(Record(n, ReqId(1, 2, 0, n), 0, b"x", 7) for n in range(RECORDS))
    engine.ask(storage.AppendRequest(1, 0, 0, records))
    began = engine.ask(storage.SetLowWaterMarkRequest(2, 0, 0, RECORDS - 1))
    assert isinstance(began, storage.SuccessResponse)
    index = "0/0000000000000000000.idx"
    written = disk.content(index)
    assert len(written) == HEADER_BYTES + RECORDS * ENTRY_BYTES
    for seed in range(10):
        assert disk.crashed(Random(seed)).content(index) == written
