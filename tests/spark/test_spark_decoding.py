"""Records in wire form become the rows that they are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.spark.decoding import ARROW_SCHEMA, to_arrow

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


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=12))
def test_each_record_is_a_row(records: list[Record]) -> None:
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


def test_sizes_that_are_equal_only_on_the_average() -> None:
    req_id = ReqId(1, 0, 0, 0)
    records = [record(i, req_id, 0, data) for i, data in enumerate([b"1234", b"", b"12"])]
    assert to_arrow(RecordBatch.of(records)).column("data").to_pylist() == [b"1234", b"", b"12"]
