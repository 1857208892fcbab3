"""Test that unchecked batches detect every damage of their records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.protocol import MalformedMessage
from waltz.protocol.fields import UNCHECKED_BATCH, Reader
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum

FIRST = 7


def batch_of(data: list[bytes]) -> RecordBatch:
    return RecordBatch.of(
        Record(FIRST + i, ReqId(1, 2, 3, i), -1, each, checksum(each))
        for i, each in enumerate(data)
    )


def read(count: int, wire: bytes) -> RecordBatch:
    return UNCHECKED_BATCH.read(Reader(count.to_bytes(4, "big", signed=True) + wire))


DATA = st.lists(st.binary(max_size=40), max_size=5)


@given(DATA)
def test_stored_batch_that_was_encoded_decodes_and_verifies(data: list[bytes]) -> None:
    out: list[bytes] = []
    UNCHECKED_BATCH.write(out, batch_of(data))
    found = UNCHECKED_BATCH.read(Reader(b"".join(out)))
    assert found == batch_of(data)
    assert found.mismatch(FIRST) is None


@given(DATA.filter(bool), st.data())
def test_stored_batch_with_a_changed_bit_fails_at_its_record(
    data: list[bytes], draw: st.DataObject
) -> None:
    records = [bytearray(record.encode()) for record in batch_of(data)]
    which = draw.draw(st.integers(0, len(records) - 1))
    # The checksum of the data does not cover the request id and the header.
    seen = [n for n in range(len(records[which])) if not 8 <= n < 28]
    at, bit = draw.draw(st.sampled_from(seen)), draw.draw(st.integers(0, 7))
    records[which][at] ^= 1 << bit
    assert RecordBatch(len(records), b"".join(records)).mismatch(FIRST) == FIRST + which


@given(DATA, st.integers(-9, 9))
def test_stored_batch_with_another_first_id_fails(data: list[bytes], first: int) -> None:
    wrong = bool(data) and first != FIRST
    assert batch_of(data).mismatch(first) == (first if wrong else None)


@given(DATA, DATA, st.integers(0, 40))
def test_stored_batch_with_another_count_fails(
    data: list[bytes], more: list[bytes], cut: int
) -> None:
    wire = batch_of(data + more).wire
    wire = wire[: max(0, len(wire) - cut)]
    well = wire == batch_of(data).wire
    assert (RecordBatch(len(data), wire).mismatch(FIRST) is None) == well


@pytest.mark.parametrize("count", [-1, 2, 1 << 30])
def test_stored_batch_with_an_impossible_count_fails_at_once(count: int) -> None:
    with pytest.raises(MalformedMessage, match="impossible count"):
        read(count, batch_of([b"only one"]).wire)
