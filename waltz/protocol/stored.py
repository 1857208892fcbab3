"""Records in the form of segment files, for readers that check the records themselves. Pure.

A record has the same fields as on the wire. On disk, the checksum of the data precedes the data,
and a checksum of all other bytes ends the record. Source: spec/disk.md section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol.records import WIRE_HEAD

STORED_HEAD_BYTES = WIRE_HEAD.size + 4
"""The bytes before a record's data: those of the wire form, and the checksum of the data."""

STORED_OVERHEAD_BYTES = STORED_HEAD_BYTES + 4
"""Bytes that a record adds to its data on disk."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Records that are not checked yet: ``raw`` should contain ``count`` consecutive ones."""

    count: int
    raw: bytes | memoryview


NO_STORED_RECORDS = StoredBatch(0, b"")
