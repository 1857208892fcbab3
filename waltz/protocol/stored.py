"""Records in the form of segment files, for readers that check the records themselves. Pure.

A record has the same fields as on the wire, with two differences. The checksum of the data precedes
the data, and the record ends with a second checksum, that of all bytes of the record before this
checksum. Source: spec/disk.md section 3.2.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from waltz.protocol.records import WIRE_HEAD

_CHECKSUM_BYTES = 4
_LENGTH = struct.Struct(">I")
_LENGTH_OFFSET = WIRE_HEAD.size - _LENGTH.size
"""The position of the data length in a record."""

STORED_HEAD_BYTES = WIRE_HEAD.size + _CHECKSUM_BYTES
"""The number of bytes before a record's data: the head of the wire form, then the checksum of the
data."""

STORED_OVERHEAD_BYTES = STORED_HEAD_BYTES + _CHECKSUM_BYTES
"""The number of bytes that a record adds to its data on disk."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Unchecked records: ``raw`` has the bytes of ``count`` records, which may be damaged."""

    count: int
    raw: bytes | memoryview

    def first(self, count: int) -> StoredBatch:
        """Return the first ``count`` records.

        The caller must have checked these records: their data lengths are used here.
        """
        position = 0
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(self.raw, position + _LENGTH_OFFSET)
            position += STORED_OVERHEAD_BYTES + length
        return StoredBatch(count, self.raw[:position])


NO_STORED_RECORDS = StoredBatch(0, b"")
