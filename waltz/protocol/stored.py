"""Records as they are in segment files: what storages give to readers that check it themselves.

The same fields as on the wire, but the data's checksum stands before the data, and a checksum of
all that comes before it ends a record. Pure: no I/O. Source: spec/disk.md section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol.records import WIRE_HEAD

STORED_HEAD_BYTES = WIRE_HEAD.size + 4
"""What comes before a record's data: the same as on the wire, and the checksum of the data."""

STORED_OVERHEAD_BYTES = STORED_HEAD_BYTES + 4
"""Bytes that a record adds to its data on disk."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """``raw`` was read as ``count`` records, back to back. Nobody has looked at it yet."""

    count: int
    raw: bytes | memoryview


NOTHING_STORED = StoredBatch(0, b"")
