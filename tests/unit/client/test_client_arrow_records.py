"""Records in wire form and in disk form are decoded to equal rows, and verified."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from waltz.client.core.arrow_records import ARROW_SCHEMA, RecordsDamaged, stored_to_arrow, to_arrow
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.protocol.stored import StoredBatch
from waltz_storage.core.log.segment_format import SegmentEncoder

INTS = st.integers(-(2**31), 2**31 - 1)


def record(number: int, req_id: ReqId, header: int, data: bytes) -> Record:
    return Record(number, req_id, header, data, checksum(data))


RECORDS = st.builds(
    record,
    st.integers(-(2**63), 2**63 - 1),
    st.builds(ReqId, INTS, INTS, INTS, INTS),
    INTS,
    st.one_of(st.binary(max_size=20), st.just(b"same size")),
)


@given(st.lists(RECORDS, max_size=12))
def test_decoding_gives_one_row_for_each_record(records: list[Record]) -> None:
    batch = to_arrow(RecordBatch.of(records))
    assert batch.schema == ARROW_SCHEMA
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "partition": r.req_id.partition,
            "transaction_id": r.transaction_id,
            "client_id": r.req_id.client_id,
            "generation": r.req_id.generation,
            "seq": r.req_id.seq,
            "header": r.header,
            "data": r.data,
        }
        for r in records
    ]


def test_decoding_records_of_different_sizes_with_a_round_mean_keeps_their_data() -> None:
    req_id = ReqId(1, 0, 0, 0)
    records = [record(i, req_id, 0, data) for i, data in enumerate([b"1234", b"", b"12"])]
    assert to_arrow(RecordBatch.of(records)).column("data").to_pylist() == [b"1234", b"", b"12"]


FIRST = 7
DATA = st.lists(st.binary(max_size=20)) | st.lists(st.binary(min_size=9, max_size=9))


def wire_of(data: list[bytes]) -> RecordBatch:
    req_id = ReqId(1, 2, 3, 4)
    return RecordBatch.of(record(FIRST + i, req_id, i, each) for i, each in enumerate(data))


def stored(batch: RecordBatch) -> StoredBatch:
    """The records of ``batch`` as a storage writes them."""
    encoder = SegmentEncoder(FIRST, 0, 1 << 30)
    encoder.add(batch.wire, 0, batch.count)
    return StoredBatch(batch.count, b"".join(encoder.parts))


@given(DATA)
def test_decoding_disk_form_equals_wire_form(data: list[bytes]) -> None:
    batch = stored_to_arrow(stored(wire_of(data)), 3, FIRST)
    batch.validate(full=True)
    assert batch == to_arrow(wire_of(data))


@given(DATA.filter(bool), st.data())
def test_decoding_any_flipped_bit_is_detected(data: list[bytes], draw: st.DataObject) -> None:
    found = stored(wire_of(data))
    raw = bytearray(found.raw)
    raw[draw.draw(st.integers(0, len(raw) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(RecordsDamaged):
        stored_to_arrow(StoredBatch(found.count, bytes(raw)), 3, FIRST)


@given(DATA.filter(bool), st.integers(-2, 2), st.integers(-2, 2), st.integers(-50, 50))
def test_decoding_refuses_unrequested_records(
    data: list[bytes], first: int, count: int, size: int
) -> None:
    found = stored(wire_of(data))
    raw = bytes(found.raw)[:size] if size < 0 else bytes(found.raw) + bytes(size)
    counted = max(0, found.count + count)
    # The first records of an answer are an answer themselves, and no records have no position.
    is_answer = counted <= found.count and raw == stored(wire_of(data[:counted])).raw
    assume(not is_answer or (first != 0 and counted > 0))
    with pytest.raises(RecordsDamaged):
        stored_to_arrow(StoredBatch(counted, raw), 3, FIRST + first)


@pytest.mark.parametrize("sizes", [[5, 5], [5, 6]])
def test_decoding_data_checksum_mismatch_is_detected(sizes: list[int]) -> None:
    """The storage computed its checksum over the damaged record, so only the client's checksum
    shows it.
    """
    wire = bytearray(wire_of([bytes(size) for size in sizes]).wire)
    wire[33] ^= 1
    with pytest.raises(RecordsDamaged):
        stored_to_arrow(stored(RecordBatch(len(sizes), bytes(wire))), 3, FIRST)


@pytest.mark.parametrize("sizes", [[5, 5], [5, 6]])
def test_decoding_refuses_records_of_another_partition(sizes: list[int]) -> None:
    found = stored(wire_of([bytes(size) for size in sizes]))
    with pytest.raises(RecordsDamaged):
        stored_to_arrow(found, 2, FIRST)
