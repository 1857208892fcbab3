"""Records become columns, thousands at once: `pyarrow.RecordBatch`. Pure.

They come in wire form from servers, which the client has checked, or as they are on disk from
replicas, and those are checked here. Either way they lie back to back, so all bytes are one Arrow
column of records as it is; heads and data are sliced out of it by Arrow. Only finding where each
record begins is a loop, and not even that if all are of one size.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from waltz.protocol.records import WIRE_OVERHEAD_BYTES, RecordBatch
from waltz.protocol.stored import STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES, StoredBatch
from waltz.spark.core.checksums import joined, match, moved

ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("transaction_id", pa.int64()),
        ("client_id", pa.int32()),
        ("generation", pa.int32()),
        ("seq", pa.int32()),
        ("header", pa.int32()),
        ("data", pa.binary()),
    ]
)
"""The columns, all of which may be null as far as Spark and Arrow are told."""

_HEAD = np.dtype(
    [
        ("transaction_id", ">i8"),
        ("client_id", ">i4"),
        ("generation", ">i4"),
        ("partition", ">i4"),
        ("seq", ">i4"),
        ("header", ">i4"),
        ("length", ">u4"),
    ]
)
_STORED_HEAD = np.dtype([*_HEAD.descr, ("checksum", ">u4")])
assert _STORED_HEAD.itemsize == STORED_HEAD_BYTES

_CRC_BYTES = 4
_LENGTH_AT = _HEAD.itemsize - 4
_LENGTH = struct.Struct(">I")


class RecordsDamaged(Exception):
    """What a replica sent is not the records that it should be."""


@dataclass(frozen=True, slots=True)
class _Records:
    """Records as one Arrow column, and where each begins and the last one ends."""

    whole: Any
    starts: np.ndarray[Any, np.dtype[np.int32]]

    def slice(self, start: int, stop: int | None = None) -> Any:
        """Return the same bytes of each record as an Arrow column."""
        return pc.binary_slice(self.whole, start, stop)

    def numbers(self, start: int, stop: int | None, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return the same bytes of each record as numbers."""
        found = self.slice(start, stop).buffers()[2] or b""
        return np.frombuffer(found, kind, count=len(self.whole))


def to_arrow(records: RecordBatch) -> Any:
    """Return the records, fewer than 2 GiB of them, as one `pyarrow.RecordBatch`."""
    found = _records(records.wire, records.count, WIRE_OVERHEAD_BYTES)
    heads = found.numbers(0, _HEAD.itemsize, _HEAD)
    return _columns(heads, found.slice(_HEAD.itemsize, -_CRC_BYTES))


def stored_to_arrow(records: StoredBatch, first_id: int) -> Any:
    """Return the records, whose ids must go on from ``first_id``, after checking all of them.

    Each must be as the storage wrote it, and its data as the client sent it. Raises RecordsDamaged.
    """
    found = _records(records.raw, records.count, STORED_OVERHEAD_BYTES)
    heads = found.numbers(0, STORED_HEAD_BYTES, _STORED_HEAD)
    data = found.slice(STORED_HEAD_BYTES, -_CRC_BYTES)
    ids = np.arange(first_id, first_id + records.count)
    if not (np.array_equal(heads["transaction_id"], ids) and _intact(found, heads, data)):
        raise RecordsDamaged(f"damaged records among {records.count} from {first_id} on")
    return _columns(heads, data)


def _intact(found: _Records, heads: np.ndarray[Any, Any], data: Any) -> bool:
    """Whether all records have the checksums that they carry, of themselves and of their data."""
    sums = found.numbers(-_CRC_BYTES, None, np.dtype(">u4")).astype(np.uint32)
    data_sums = heads["checksum"].astype(np.uint32)
    if not match(data, data_sums):
        return False
    sizes = heads["length"]
    if len(sizes) and (sizes == sizes[0]).all():
        # A record's checksum is that of its head, moved on by its data, xor that of its data.
        head_sum = moved(crc32(heads.tobytes()), int(sizes[0]))
        return head_sum == joined(sums ^ data_sums, STORED_HEAD_BYTES)
    return match(found.slice(0, -_CRC_BYTES), sums)


def _columns(heads: np.ndarray[Any, Any], data: Any) -> Any:
    columns = [
        _numbers(heads[field.name], field.type) for field in ARROW_SCHEMA if field.name != "data"
    ]
    return pa.RecordBatch.from_arrays([*columns, data], schema=ARROW_SCHEMA)


def _numbers(column: np.ndarray[Any, Any], kind: Any) -> Any:
    """Return big-endian numbers as an Arrow array. Unlike `pyarrow.array`, without pandas."""
    native = np.ascontiguousarray(column, column.dtype.newbyteorder("="))
    return pa.Array.from_buffers(kind, len(native), [None, pa.py_buffer(native)])


def _records(raw: bytes | memoryview, count: int, overhead: int) -> _Records:
    """Take ``count`` records that have ``overhead`` beside their data. Raises RecordsDamaged."""
    starts = _starts(raw, count, overhead)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(raw)]
    return _Records(pa.BinaryArray.from_buffers(pa.binary(), count, buffers), starts)


def _starts(
    raw: bytes | memoryview, count: int, overhead: int
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return where each record begins, and where the last one ends. Raises RecordsDamaged."""
    if count and len(raw) % count == 0 and len(raw) // count >= overhead:
        size = len(raw) // count
        table = np.frombuffer(raw, np.uint8).reshape(count, size)
        lengths = np.ascontiguousarray(table[:, _LENGTH_AT : _LENGTH_AT + 4]).view(">u4")
        if (lengths == size - overhead).all():
            return np.arange(0, len(raw) + 1, size, dtype=np.int32)
    starts = [0]
    position = 0
    length_at, add = _LENGTH.unpack_from, starts.append
    try:
        for _ in range(count):
            position += overhead + length_at(raw, position + _LENGTH_AT)[0]
            add(position)
    except struct.error:
        raise RecordsDamaged("records that are cut off") from None
    if position != len(raw):
        raise RecordsDamaged("records that do not end where they should")
    return np.array(starts, np.int32)
