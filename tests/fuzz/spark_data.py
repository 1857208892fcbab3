"""Data in the log and in segment files, as Spark's workers parse it."""

from __future__ import annotations

import json
from io import BytesIO
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.fuzz.mutation import mutate
from tests.fuzz.target import hold
from waltz.client.core.arrow_records import RecordsDamaged, stored_to_arrow, to_arrow
from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz.protocol.stored import StoredBatch
from waltz.spark.core.options import parse_options
from waltz.spark.core.payload import DataMalformed, PayloadDecoder, payload_decoder
from waltz_storage.core.log.segment_format import SegmentEncoder

_FIRST = 7
_PARTITION = 4
_SCHEMA = StructType([StructField("amount", LongType()), StructField("who", StringType())])
_WRITTEN = {
    "type": "record",
    "name": "Transfer",
    "fields": [{"name": "amount", "type": "long"}, {"name": "who", "type": ["null", "string"]}],
}
_ARROW = pa.schema([("amount", pa.int64()), ("who", pa.string())])
_KINDS = ("utf8", "json", "arrow", "avro")
_MODES = ("fail", "permissive", "drop")


class Payloads:
    """The data of two transactions, of a kind and a mode that the first byte selects."""

    name = "payload"
    modules = ("waltz.spark.core.payload", "waltz.spark.core.payload_parsers")

    def make(self, random: Random) -> bytes:
        """Return data that is valid for its kind."""
        choice = random.randrange(len(_KINDS) * len(_MODES))
        row = {"amount": random.randrange(100), "who": random.choice((None, "a", "é"))}
        match _KINDS[choice % len(_KINDS)]:
            case "arrow":
                table = pa.Table.from_pylist([row], schema=_ARROW)
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as stream:
                    stream.write_table(table)
                data = bytes(sink.getvalue())
            case "avro":
                made = BytesIO()
                fastavro.schemaless_writer(made, fastavro.parse_schema(_WRITTEN), row)
                data = made.getvalue()
            case _:
                data = json.dumps(row).encode()
        return bytes((choice,)) + data

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes of the data."""
        return data[:1] + mutate(random, data[1:], other[1:])

    def check(self, data: bytes) -> bool:
        """Decode the data twice in one batch."""
        choice = data[0] % (len(_KINDS) * len(_MODES))
        found = to_arrow(_batch([data[1:], data[1:]]))
        try:
            decoded = _payload(choice).decode(found)
        except DataMalformed as refused:
            hold(_MODES[choice // len(_KINDS)] == "fail", "only the mode fail refuses data")
            hold("cannot be decoded" in str(refused), "a refusal is explained")
            return False
        decoded.validate(full=True)
        return True


class StoredRecords:
    """Records in the form of segment files, after a byte that is their number."""

    name = "stored-records"
    modules = ("waltz.client.core.arrow_records", "waltz.client.core.many_checksums")

    def make(self, random: Random) -> bytes:
        """Return intact records, of one size or of several."""
        same = random.random() < 0.5
        sizes = [5 if same else random.randrange(20) for _ in range(random.randrange(1, 6))]
        batch = _batch([random.randbytes(size) for size in sizes])
        encoder = SegmentEncoder(_FIRST, 0, 1 << 30)
        encoder.add(batch.wire, 0, batch.count)
        return bytes((batch.count,)) + b"".join(encoder.parts)

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes, or the number of records."""
        if random.random() < 0.1:
            return bytes((random.randrange(256),)) + data[1:]
        return data[:1] + mutate(random, data[1:], other[1:])

    def check(self, data: bytes) -> bool:
        """Verify and parse the records."""
        try:
            found = stored_to_arrow(StoredBatch(data[0], data[1:]), _PARTITION, _FIRST)
        except RecordsDamaged as refused:
            hold("damaged" in str(refused) or len(str(refused)) > 10, "a refusal is explained")
            return False
        found.validate(full=True)
        ids = found.column("transaction_id").to_pylist()
        hold(ids == list(range(_FIRST, _FIRST + data[0])), "accepted ids have no gaps")
        return True


def _payload(choice: int) -> PayloadDecoder:
    kind = _KINDS[choice % len(_KINDS)]
    options = {"zookeeper": "z:1", "decode": kind, "mode": _MODES[choice // len(_KINDS)]}
    if kind == "avro":
        options["avroSchema"] = json.dumps(_WRITTEN)
    return payload_decoder(parse_options(options), None if kind == "utf8" else _SCHEMA)


def _batch(data: list[bytes]) -> RecordBatch:
    req_id = ReqId(1, 0, _PARTITION, 0)
    return RecordBatch.of(
        Record(number, req_id, 0, each, checksum(each)) for number, each in enumerate(data, _FIRST)
    )


def spark_targets() -> tuple[Any, ...]:
    """Return one of each target of this module."""
    return Payloads(), StoredRecords()
