"""Verify records that a server has passed on in their form on disk. Pure.

Neither the storage nor the server has verified these records. A record is right if it has the
expected id and partition, and matches two checksums. The client that appended the record computed
the checksum of the data. The storage added the checksum of head and data (spec/disk.md section
3.2). The records must end exactly where their bytes end.

With numpy, records of one size are verified all at once, about ten times as fast
(`waltz.client.core.equal_records`). `import waltz` does not load numpy, because that takes a tenth
of a second. This module uses numpy if the program has loaded it, and loads it for the first large
range. Only streams of columns and Spark request large ranges, so other programs need not wait for
numpy.
"""

from __future__ import annotations

import struct
import sys
from functools import cache

from waltz.protocol.checksums import crc32
from waltz.protocol.stored import STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES, StoredBatch

_HEAD = struct.Struct(">q8xi8xII")
"""The fields of a head that are checked: id, partition, length and checksum of the data."""
_CHECKSUM = struct.Struct(">I")
"""The checksum of head and data, with which a record ends."""
_FEWEST_AT_ONCE = 512
"""The least number of records that are verified at once. To verify fewer one by one is faster."""
_LARGE_RANGE_BYTES = 2 << 20
"""A range of more bytes loads numpy."""

assert _HEAD.size == STORED_HEAD_BYTES


def verified(
    records: StoredBatch, partition: int, first_id: int, max_records: int
) -> StoredBatch | None:
    """Return the records if all are right, otherwise None.

    They must be those of ``partition`` from ``first_id`` on, at least one and at most
    ``max_records``.
    """
    count = records.count
    if not 0 < count <= max_records or len(records.raw) < count * STORED_OVERHEAD_BYTES:
        return None
    if count >= _FEWEST_AT_ONCE and _has_numpy(len(records.raw)):
        from waltz.client.core.equal_records import are_right

        # These records are not copied: a copy of megabytes would take longer than the checks.
        all_are_right = are_right(records, partition, first_id)
        if all_are_right is not None:  # None: the records have different sizes.
            return records if all_are_right else None
    copy = StoredBatch(count, bytes(records.raw))  # Slices of bytes are faster than of a view.
    return copy if _each_is_right(copy, partition, first_id) else None


def _has_numpy(range_bytes: int) -> bool:
    """Return whether numpy can be used; load numpy for a large range, if it is installed."""
    return "numpy" in sys.modules or (range_bytes > _LARGE_RANGE_BYTES and _load_numpy())


@cache
def _load_numpy() -> bool:
    """Load numpy; return whether it is installed."""
    try:
        import numpy  # noqa: F401 - only loaded here
    except ImportError:
        return False
    return True


def _each_is_right(records: StoredBatch, partition: int, first_id: int) -> bool:
    """Return whether each record is right, and no bytes follow the last one."""
    raw, position = records.raw, 0
    head_at, checksum_at = _HEAD.unpack_from, _CHECKSUM.unpack_from
    try:
        for expected_id in range(first_id, first_id + records.count):
            transaction_id, of_partition, length, data_checksum = head_at(raw, position)
            start = position + STORED_HEAD_BYTES
            end = start + length
            if (
                transaction_id != expected_id
                or of_partition != partition
                or crc32(raw[start:end]) != data_checksum
                or crc32(raw[position:end]) != checksum_at(raw, end)[0]
            ):
                return False
            position = end + _CHECKSUM.size
    except struct.error:
        return False  # The last record is cut off.
    return position == len(raw)
