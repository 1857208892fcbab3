"""Records in wire form become columns, thousands at once: `pyarrow.RecordBatch`. Pure.

Records lie back to back, so the whole wire is one Arrow column of records as it is; heads and data
are sliced out of it by Arrow. Only finding where each record begins is a loop, and not even that
if all are of one size.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from waltz.protocol.records import WIRE_OVERHEAD_BYTES, RecordBatch

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
        ("length", ">i4"),
    ]
)
_LENGTH_AT = _HEAD.itemsize - 4
_CHECKSUM_BYTES = WIRE_OVERHEAD_BYTES - _HEAD.itemsize
_LENGTH = struct.Struct(">I")


def to_arrow(records: RecordBatch) -> Any:
    """Return the records, fewer than 2 GiB of them, as one `pyarrow.RecordBatch`."""
    starts = pa.py_buffer(_starts(records))
    wire = pa.py_buffer(records.wire)
    whole = pa.BinaryArray.from_buffers(pa.binary(), records.count, [None, starts, wire])
    heads = pc.binary_slice(whole, 0, _HEAD.itemsize)
    head = np.frombuffer(heads.buffers()[2] or b"", _HEAD, count=records.count)
    columns = [
        _numbers(head[field.name], field.type) for field in ARROW_SCHEMA if field.name != "data"
    ]
    columns.append(pc.binary_slice(whole, _HEAD.itemsize, -_CHECKSUM_BYTES))
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _numbers(column: np.ndarray[Any, Any], kind: Any) -> Any:
    """Return big-endian numbers as an Arrow array. Unlike `pyarrow.array`, without pandas."""
    native = np.ascontiguousarray(column, column.dtype.newbyteorder("="))
    return pa.Array.from_buffers(kind, len(native), [None, pa.py_buffer(native)])


def _starts(records: RecordBatch) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return where each record begins, and where the last one ends."""
    count, wire = records.count, records.wire
    if count and len(wire) % count == 0:
        size = len(wire) // count
        table = np.frombuffer(wire, np.uint8).reshape(count, size)
        lengths = np.ascontiguousarray(table[:, _LENGTH_AT : _LENGTH_AT + 4]).view(">u4")
        if (lengths == size - WIRE_OVERHEAD_BYTES).all():
            return np.arange(0, len(wire) + 1, size, dtype=np.int32)
    starts = [0]
    position = 0
    length_at, add = _LENGTH.unpack_from, starts.append
    for _ in range(count):
        position += WIRE_OVERHEAD_BYTES + length_at(wire, position + _LENGTH_AT)[0]
        add(position)
    return np.array(starts, np.int32)
