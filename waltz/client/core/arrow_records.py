"""Decode thousands of records at once to the columns of a `pyarrow.RecordBatch`. Pure.

Needs ``waltz-log[columns]``; `import waltz` does not import this module.

Records from servers are in wire form or in disk form, and the client has checked them. Records from
replicas are in disk form, and are checked here: a replica may return bytes that were damaged on its
disk.

In both forms, records follow each other without gaps. A record is a head of fixed size, its data,
and a last checksum. In wire form, the last checksum is that of the data. In disk form, it is that
of head and data, and the head ends with the checksum of the data.

All bytes become one Arrow column of records without a copy, and Arrow slices heads and data out of
that column. A Python loop finds the offsets of the records. If all records have the same size, no
loop is needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from waltz.client.core.equal_records import are_right
from waltz.client.core.many_checksums import pieces_match
from waltz.protocol.records import WIRE_OVERHEAD_BYTES, RecordBatch
from waltz.protocol.stored import STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES, StoredBatch

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
"""The columns; Spark and Arrow see all of them as nullable."""

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
"""The head of a record in wire form."""

_STORED_HEAD = np.dtype([*_HEAD.descr, ("checksum", ">u4")])
"""The head of a record in disk form."""

assert _STORED_HEAD.itemsize == STORED_HEAD_BYTES

_CRC_BYTES = 4
"""The size of a checksum."""
_LENGTH = struct.Struct(">I")
_LENGTH_AT = _HEAD.itemsize - _LENGTH.size
"""The offset of the data length in a record, which is the same in both forms."""

_Offsets = np.ndarray[Any, np.dtype[np.int32]]


class RecordsDamaged(Exception):
    """A replica returned damaged records, or other records than the requested ones."""


@dataclass(frozen=True, slots=True)
class _Records:
    """Records as the Arrow column ``whole``, which has the bytes of one record in each row."""

    whole: Any

    def slice(self, start: int, stop: int | None = None) -> Any:
        """Return the bytes from ``start`` to ``stop`` of each record as an Arrow column.

        As in Python, a negative number counts from the end, and None is the end.
        """
        return pc.binary_slice(self.whole, start, stop)

    def numbers(self, start: int, stop: int | None, kind: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return the same bytes as `slice`, read as one value of the type ``kind`` per record."""
        # The buffers of a binary column are its validity, its offsets and its bytes. The last one
        # may be None if there are no bytes.
        content = self.slice(start, stop).buffers()[2] or b""
        return np.frombuffer(content, kind, count=len(self.whole))


def to_arrow(records: RecordBatch | StoredBatch) -> Any:
    """Return checked records as one `pyarrow.RecordBatch`.

    The records must have less than 2 GiB, because the offsets of an Arrow column have 32 bits.
    """
    if isinstance(records, StoredBatch):
        stored = _split(records.raw, records.count, STORED_OVERHEAD_BYTES)
        heads = stored.numbers(0, STORED_HEAD_BYTES, _STORED_HEAD)
        return _arrow_batch(heads, stored.slice(STORED_HEAD_BYTES, -_CRC_BYTES))
    split = _split(records.wire, records.count, WIRE_OVERHEAD_BYTES)
    heads = split.numbers(0, _HEAD.itemsize, _HEAD)
    return _arrow_batch(heads, split.slice(_HEAD.itemsize, -_CRC_BYTES))


def stored_to_arrow(records: StoredBatch, partition: int, first_id: int) -> Any:
    """Check records of a replica, and return them as one `pyarrow.RecordBatch`.

    The records must be those of ``partition`` from ``first_id`` on, without gaps. They must match
    two checksums: that of the record, which the storage wrote, and that of its data, which the
    client sent. Raises RecordsDamaged.
    """
    # `are_right` is called first, so that its memory is free before columns are made. It returns
    # None if the records have different sizes.
    right = are_right(records, partition, first_id) if records.count else None
    split = _split(records.raw, records.count, STORED_OVERHEAD_BYTES)
    heads = split.numbers(0, STORED_HEAD_BYTES, _STORED_HEAD)
    data = split.slice(STORED_HEAD_BYTES, -_CRC_BYTES)
    if right is None:  # The records have different sizes, or there are no records.
        ids = np.arange(first_id, first_id + records.count)
        right = (
            np.array_equal(heads["transaction_id"], ids)
            and bool((heads["partition"] == partition).all())
            and _checksums_match(split, heads, data)
        )
    if not right:
        raise RecordsDamaged(
            f"a replica returned damaged records among {records.count} from id {first_id} on"
        )
    return _arrow_batch(heads, data)


def _checksums_match(split: _Records, heads: np.ndarray[Any, Any], data: Any) -> bool:
    """Return whether all records match both checksums: that of the record and that of its data."""
    record_crcs = split.numbers(-_CRC_BYTES, None, np.dtype(">u4")).astype(np.uint32)
    return pieces_match(data, heads["checksum"].astype(np.uint32)) and pieces_match(
        split.slice(0, -_CRC_BYTES), record_crcs
    )


def _arrow_batch(heads: np.ndarray[Any, Any], data: Any) -> Any:
    """Return an Arrow batch with the columns of `ARROW_SCHEMA`."""
    columns = [
        _arrow_array(heads[field.name], field.type)
        for field in ARROW_SCHEMA
        if field.name != "data"
    ]
    return pa.RecordBatch.from_arrays([*columns, data], schema=ARROW_SCHEMA)


def _arrow_array(column: np.ndarray[Any, Any], kind: Any) -> Any:
    """Return big-endian numbers as an Arrow array. `pyarrow.array` would import pandas."""
    native = np.ascontiguousarray(column, column.dtype.newbyteorder("="))
    return pa.Array.from_buffers(kind, len(native), [None, pa.py_buffer(native)])


def _split(raw: bytes | memoryview, count: int, overhead: int) -> _Records:
    """Split ``raw`` into ``count`` records; each has ``overhead`` bytes besides its data.

    Raises RecordsDamaged.
    """
    offsets = _offsets_if_equal_sizes(raw, count, overhead)
    if offsets is None:
        offsets = _offsets_one_by_one(raw, count, overhead)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
    return _Records(pa.BinaryArray.from_buffers(pa.binary(), count, buffers))


def _offsets_if_equal_sizes(raw: bytes | memoryview, count: int, overhead: int) -> _Offsets | None:
    """Return the offset of each record, and the end of the last one, without a Python loop.

    Returns None if the records do not all have the same size.
    """
    if not count or len(raw) % count or len(raw) // count < overhead:
        return None
    size = len(raw) // count
    table = np.frombuffer(raw, np.uint8).reshape(count, size)
    lengths = np.ascontiguousarray(table[:, _LENGTH_AT : _LENGTH_AT + _LENGTH.size]).view(">u4")
    if (lengths != size - overhead).any():
        return None
    return np.arange(0, len(raw) + 1, size, dtype=np.int32)


def _offsets_one_by_one(raw: bytes | memoryview, count: int, overhead: int) -> _Offsets:
    """Return the offset of each record, and the end of the last one. Raises RecordsDamaged."""
    # Local names for what the loop calls for each record: this is faster.
    offsets = [0]
    position = 0
    length_at, add = _LENGTH.unpack_from, offsets.append
    try:
        for _ in range(count):
            position += overhead + length_at(raw, position + _LENGTH_AT)[0]
            add(position)
    except struct.error:
        raise RecordsDamaged("the last record is cut off") from None
    if position != len(raw):
        raise RecordsDamaged("the records do not end at the end of the answer")
    return np.array(offsets, np.int32)
