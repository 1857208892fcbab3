"""Read the fields of a control file without the storage's code (spec/disk.md section 2). Pure."""

from __future__ import annotations

import struct
import zlib
from typing import Any
from uuid import UUID

HEADER_BYTES = 128
ENTRY_BYTES = 76


def control_fields(raw: bytes) -> dict[str, Any]:
    """Return every field of a control file."""
    version, created, key, count = struct.unpack_from(">iq16si", raw)
    assert raw[32:HEADER_BYTES] == bytes(96)
    return {
        "file": "waltz-storage.ctl",
        "size": len(raw),
        "version": version,
        "creationTime": created,
        "key": str(UUID(bytes=key)),
        "numPartitions": count,
        "partitions": [_entry(raw, HEADER_BYTES + ENTRY_BYTES * n) for n in range(count)],
    }


def entry_fields(raw: bytes, partition: int) -> dict[str, Any]:
    """Return every field of one partition's entry."""
    return _entry(raw, HEADER_BYTES + ENTRY_BYTES * partition)


def _entry(raw: bytes, offset: int) -> dict[str, Any]:
    return {
        "offset": offset,
        "partitionId": struct.unpack_from(">i", raw, offset)[0],
        "struct1": _struct(raw, offset + 4),
        "struct2": _struct(raw, offset + 40),
    }


def _struct(raw: bytes, offset: int) -> dict[str, Any]:
    session, mark, local, flags, number, crc = struct.unpack_from(">qqqiii", raw, offset)
    names = ("sessionId", "lowWaterMark", "localLowWaterMark", "flags", "sequenceNumber")
    values = dict(zip(names, (session, mark, local, flags, number), strict=True))
    valid = zlib.crc32(raw[offset : offset + 32]) == crc & 0xFFFF_FFFF
    return {"offset": offset, **values, "checksum": crc, "checksumValid": valid}
