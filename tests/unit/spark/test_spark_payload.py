"""Test the decoding of data to columns, and the treatment of rows that cannot be decoded."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from waltz.client.core.arrow_records import to_arrow
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import Mode, parse_options
from waltz.spark.core.payload import DataMalformed, PayloadDecoder, payload_decoder

AMOUNTS = StructType(
    [
        StructField("transaction_id", LongType()),
        StructField("amount", LongType()),
        StructField("who", StringType()),
    ]
)


def batch(*data: bytes) -> Any:
    records = (
        Record(number, ReqId(1, 0, 4, number), 0, each, checksum(each))
        for number, each in enumerate(data, 100)
    )
    return to_arrow(RecordBatch.of(records))


def payload(schema: StructType | None = None, **options: str) -> PayloadDecoder:
    return payload_decoder(parse_options({"zookeeper": "z:1"} | options), schema)


def decoded(made: PayloadDecoder, *data: bytes) -> list[tuple[Any, ...]]:
    found = made.decode(batch(*data))
    found.validate(full=True)
    return [tuple(row[name] for name in made.schema.names) for row in found.to_pylist()]


def ipc(*rows: dict[str, Any]) -> bytes:
    table = pa.Table.from_pylist(list(rows))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def test_payload_text_is_null_for_invalid_utf8() -> None:
    made = payload(decode="utf8")
    assert [row[-1] for row in decoded(made, "é".encode(), b"", b"\xff")] == ["é", "", None]


def test_payload_json_decodes_to_columns() -> None:
    rows = decoded(
        payload(AMOUNTS, decode="json"),
        b'{"amount": 5, "who": "a", "more": [1]}',
        b'{"who": null}',
        b'{\n"amount": -3\n}',
    )
    assert rows == [(100, 5, "a"), (101, None, None), (102, -3, None)]


@pytest.mark.parametrize(
    "bad",
    [
        (b'{"amount": 1}{"amount": 2}', b""),
        (b'{"amount":', b'1}{"amount": 2}'),
        (b'{"amount": 1}', b'{"amount": 2} {"amount": 3}', b" "),
        (b'{"amount": 1, "x": {', b'}}{"amount": 2}'),
    ],
)
def test_payload_json_objects_do_not_move_to_other_rows(bad: tuple[bytes, ...]) -> None:
    """Each value is decoded alone, although many are parsed together."""
    made = payload(AMOUNTS, decode="json")
    alone = [decoded(made, data)[0][1:] for data in bad]
    assert [row[1:] for row in decoded(made, *bad)] == alone
    assert (None, None) in alone


def test_payload_json_text_that_is_not_utf8_is_null() -> None:
    rows = decoded(payload(AMOUNTS, decode="json"), b'{"who": "\xff"}', b'{"who": "b"}')
    assert [row[2] for row in rows] == [None, "b"]


WRITTEN = {
    "type": "record",
    "name": "Transfer",
    "fields": [
        {"name": "amount", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "key", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
    ],
}
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def avro(**values: object) -> bytes:
    given: dict[str, object] = {
        "amount": 1,
        "who": None,
        "at": NOON,
        "price": Decimal(3),
        "tags": [],
        "counts": {},
        "key": None,
    }
    made = BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(WRITTEN), given | values)
    return made.getvalue()


def avro_payload(schema: StructType, **options: str) -> PayloadDecoder:
    return payload(schema, decode="avro", avroSchema=json.dumps(WRITTEN), **options)


def test_payload_avro_decodes_to_columns() -> None:
    rows = decoded(avro_payload(AMOUNTS), avro(amount=5, who="a"), avro(amount=-3))
    assert rows == [(100, 5, "a"), (101, -3, None)]


def test_payload_avro_logical_and_nested_types_are_converted() -> None:
    schema = StructType(
        [
            StructField("at", TimestampType()),
            StructField("price", DecimalType(9, 0)),
            StructField("tags", ArrayType(StringType())),
            StructField("counts", MapType(StringType(), IntegerType())),
        ]
    )
    row = avro(tags=["a", "b"], counts={"x": 1})
    assert decoded(avro_payload(schema), row) == [(NOON, Decimal(3), ["a", "b"], [("x", 1)])]


def test_payload_avro_uuid_is_text() -> None:
    key = uuid.UUID(int=1)
    schema = StructType([StructField("key", StringType())])
    assert decoded(avro_payload(schema), avro(key=key)) == [(str(key),)]


@pytest.mark.parametrize("mode", ["permissive", "drop"])
def test_payload_malformed_avro_row_is_null_or_dropped(mode: str) -> None:
    """Rows that are Avro only when joined are malformed, because each row is decoded alone."""
    good = avro(amount=7)
    bad = [b"", good + b"!", good[:5], good[5:], b"\xff" * 20]
    rows = decoded(avro_payload(AMOUNTS, mode=mode), good, *bad, good)
    amounts = [row[1] for row in rows]
    assert amounts == ([7, *[None] * len(bad), 7] if mode == "permissive" else [7, 7])


def test_payload_avro_value_of_another_type_is_null() -> None:
    schema = StructType([StructField("amount", StringType())])
    assert decoded(avro_payload(schema), avro(amount=7)) == [(None,)]


MALFORMED = [b'{"amount": 1}', b"{", b'{"amount": "many"}', b"", b"[1]", b'{"amount": 2}']


@pytest.mark.parametrize(
    ("mode", "amounts"), [("permissive", [1, None, None, None, None, 2]), ("drop", [1, 2])]
)
def test_payload_malformed_json_row_is_null_or_dropped(
    mode: str, amounts: list[int | None]
) -> None:
    rows = decoded(payload(AMOUNTS, decode="json", mode=mode), *MALFORMED)
    assert [row[1] for row in rows] == amounts
    assert rows[-1][0] == 105


@pytest.mark.parametrize("kind", ["json", "arrow"])
def test_payload_malformed_row_in_fail_mode_raises_error_that_names_it(kind: str) -> None:
    good = json.dumps({"amount": 1}).encode() if kind == "json" else ipc({"amount": 1, "who": "a"})
    made = payload(AMOUNTS, decode=kind, mode="fail")
    with pytest.raises(
        DataMalformed, match="transaction 101 of partition 4: data cannot be decoded as " + kind
    ):
        decoded(made, good, b"?", good)


def test_payload_with_only_malformed_rows_in_drop_mode_is_empty() -> None:
    assert decoded(payload(AMOUNTS, decode="json", mode="drop"), b"{", b"}") == []


def test_payload_arrow_transaction_with_many_rows_gives_all_of_them() -> None:
    rows = decoded(
        payload(AMOUNTS, decode="arrow"),
        ipc({"who": "a", "amount": 1}, {"who": "b", "amount": 2}),
        b"nothing",
        ipc({"who": "c", "amount": 3, "x": 0}),
        ipc({"who": "c"}),
    )
    assert rows == [
        (100, 1, "a"),
        (100, 2, "b"),
        (101, None, None),
        (102, 3, "c"),
        (103, None, None),
    ]


def test_payload_arrow_stream_with_a_wrong_offset_is_null() -> None:
    """An offset beyond the data would copy memory of the worker to the column."""
    good = ipc({"who": "abcd", "amount": 1}, {"who": "efgh", "amount": 2})
    before, _, after = good.rpartition((4).to_bytes(4, "little") + (8).to_bytes(4, "little"))
    bad = before + (5000).to_bytes(4, "little") + (8).to_bytes(4, "little") + after
    rows = decoded(payload(AMOUNTS, decode="arrow"), bad, good)
    assert rows == [(100, None, None), (101, 1, "abcd"), (101, 2, "efgh")]


def test_payload_arrow_stream_with_an_unknown_dictionary_is_null() -> None:
    """Arrow raises a KeyError for it."""
    good = ipc({"who": "abcd", "amount": 1})
    encoded = pa.table({"who": pa.array(["a"]).dictionary_encode(), "amount": [1]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, encoded.schema) as stream:
        stream.write_table(encoded)
    schema, _ = pa.ipc.MessageReader.open_stream(good)
    _, dictionary, _ = pa.ipc.MessageReader.open_stream(sink.getvalue())
    bad = schema.serialize().to_pybytes() + dictionary.serialize().to_pybytes()
    rows = decoded(payload(AMOUNTS, decode="arrow"), bad, good)
    assert rows == [(100, None, None), (101, 1, "abcd")]


def test_payload_arrow_stream_with_a_malformed_name_is_null() -> None:
    """The name of a field is not UTF-8: reading it raises a UnicodeDecodeError."""
    good = ipc({"who": "abcd", "amount": 1})
    rows = decoded(payload(AMOUNTS, decode="arrow"), good.replace(b"who", b"wh\xfc"), good)
    assert rows == [(100, None, None), (101, 1, "abcd")]


def test_payload_empty_batch_has_no_rows() -> None:
    assert decoded(payload(AMOUNTS, decode="json")) == []


def test_payload_with_column_data_keeps_the_raw_bytes() -> None:
    schema = StructType([StructField("a", DoubleType()), StructField("data", BinaryType())])
    made = payload(schema, decode="json")
    assert decoded(made, b'{"a": 1.5}', b"x") == [(1.5, b'{"a": 1.5}'), (None, b"x")]


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({}, AMOUNTS, "leave out schema"),
        ({"decode": "json"}, None, "decode json needs the columns"),
        (
            {"decode": "json"},
            StructType([StructField("header", StringType())]),
            "the column header is the log's own and INT",
        ),
        ({"decode": "avro"}, AMOUNTS, "needs the option avroSchema"),
        (
            {"decode": "avro", "avroSchema": '{"type": "record", "name": "r", "fields": []}'},
            AMOUNTS,
            "the column amount of .* is not in avroSchema",
        ),
        (
            {"decode": "json"},
            StructType([StructField("v", VariantType())]),
            "declare it as STRING, and cast afterwards",
        ),
    ],
)
def test_payload_invalid_schemas_are_refused(
    options: dict[str, str], schema: StructType | None, text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        payload(schema, **options)


def test_payload_columns_have_the_types_of_the_schema() -> None:
    schema = StructType([StructField("i", IntegerType()), StructField("d", DecimalType(9, 2))])
    made = PayloadDecoder("json", Mode.PERMISSIVE, schema)
    assert [str(v) for v in decoded(made, b'{"i": 1, "d": "2.50"}')[0]] == ["1", "2.50"]
