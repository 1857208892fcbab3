"""The bytes of the control file, and which of a partition's two structs counts. Pure.

Source: disk.md section 2. An update never overwrites the struct that counts, so that a torn write
leaves the state before it.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, replace
from zlib import crc32

CONTROL_FILE = "waltz-storage.ctl"
HEADER_BYTES = 128
ENTRY_BYTES = 76
STRUCT_BYTES = 36

_AVAILABLE = 1
_ASSIGNED = 4
_LAST_SEQUENCE = (1 << 31) - 1

_HEADER = struct.Struct(">iq16si")
_STRUCT = struct.Struct(">qqqii")
_CHECKSUM = struct.Struct(">I")
_PARTITION = struct.Struct(">i")


class EntryCorrupted(Exception):
    """Neither struct of a partition's entry can be trusted; the text says why."""


@dataclass(frozen=True, slots=True)
class ControlHeader:
    """Whose directory this is. The time is in ms since 1970; the version is never checked."""

    created_ms: int
    key: uuid.UUID
    num_partitions: int
    version: int = 0

    def encode(self) -> bytes:
        """Return 128 bytes."""
        head = _HEADER.pack(self.version, self.created_ms, self.key.bytes, self.num_partitions)
        return head.ljust(HEADER_BYTES, b"\0")

    @classmethod
    def decode(cls, raw: bytes) -> ControlHeader:
        """Read a header of at least 128 bytes."""
        version, created_ms, key, num_partitions = _HEADER.unpack_from(raw)
        return cls(created_ms, uuid.UUID(bytes=key), num_partitions, version)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What the node remembers of a partition besides its log (disk.md section 9)."""

    session_id: int = -1
    low_water_mark: int = -1
    local_low_water_mark: int = -1
    flags: int = _AVAILABLE

    @property
    def available(self) -> bool:
        """Whether servers may read and write it."""
        return bool(self.flags & _AVAILABLE)

    @property
    def assigned(self) -> bool:
        """Whether it is on this node."""
        return bool(self.flags & _ASSIGNED)

    def as_available(self, available: bool) -> PartitionInfo:
        """Return this with the switch set."""
        flags = self.flags | _AVAILABLE if available else self.flags & ~_AVAILABLE
        return replace(self, flags=flags)

    def as_assigned(self) -> PartitionInfo:
        """Return this as assigned."""
        return replace(self, flags=self.flags | _ASSIGNED)


@dataclass(frozen=True, slots=True)
class ControlEntry:
    """A partition's current info, the number of its update, and which struct (0 or 1) holds it."""

    info: PartitionInfo
    sequence: int
    slot: int

    def updated(self, info: PartitionInfo) -> ControlEntry:
        """Return the entry after the next update, which goes to the other struct."""
        return ControlEntry(info, self.sequence + 1, 1 - self.slot)

    def encode(self) -> bytes:
        """Return the 36 bytes of its struct."""
        info = self.info
        body = _STRUCT.pack(
            info.session_id,
            info.low_water_mark,
            info.local_low_water_mark,
            info.flags,
            self.sequence,
        )
        return body + _CHECKSUM.pack(crc32(body))


def entry_offset(partition: int) -> int:
    """Return where the entry of ``partition`` begins."""
    return HEADER_BYTES + ENTRY_BYTES * partition


def struct_offset(partition: int, slot: int) -> int:
    """Return where struct ``slot`` (0 or 1) of ``partition`` begins."""
    return entry_offset(partition) + _PARTITION.size + STRUCT_BYTES * slot


def fresh_entry(partition: int) -> bytes:
    """Return the 76 bytes of an entry that was never used."""
    older = ControlEntry(PartitionInfo(), -1, 0)
    return _PARTITION.pack(partition) + older.encode() + older.updated(PartitionInfo()).encode()


def decode_entry(raw: bytes) -> ControlEntry:
    """Return the current struct of an entry; raises EntryCorrupted."""
    if len(raw) < ENTRY_BYTES:
        raise EntryCorrupted("partition info missing: the control file is cut off")
    found = []
    for slot in (0, 1):
        start = _PARTITION.size + STRUCT_BYTES * slot
        body = raw[start : start + _STRUCT.size]
        if crc32(body) == _CHECKSUM.unpack_from(raw, start + _STRUCT.size)[0]:
            session, low, local, flags, sequence = _STRUCT.unpack(body)
            found.append(ControlEntry(PartitionInfo(session, low, local, flags), sequence, slot))
    if not found:
        raise EntryCorrupted("partition info corrupted: both copies fail their checksums")
    if len(found) == 2 and found[0].sequence == found[1].sequence:
        raise EntryCorrupted("both copies of the partition info have the same sequence number")
    current = max(found, key=lambda entry: entry.sequence)
    if current.sequence == _LAST_SEQUENCE:
        raise EntryCorrupted("the partition info has the last sequence number that there is")
    return current


def reset_steps(entry: ControlEntry | None) -> tuple[ControlEntry, ControlEntry, ControlEntry]:
    """Return the structs to write one after the other, each flushed, to make an entry fresh.

    The end is what Waltz 0.13.2 leaves: number -1 in the struct that was current, 0 in the other.
    A crash between two steps leaves the old info, or a fresh one, never an older one.
    """
    current = entry or ControlEntry(PartitionInfo(), 0, 0)
    fresh = current.updated(PartitionInfo())
    return (
        fresh,
        ControlEntry(PartitionInfo(), -1, current.slot),
        ControlEntry(PartitionInfo(), 0, fresh.slot),
    )
