"""Pure. The bytes of the control file, and which of a partition's two structs is current.

Source: spec/disk.md section 2. The file has an entry for each partition, and an entry has two
structs. An update never overwrites the current struct, so that a torn write leaves the state before
the update (planted bug "control file overwritten in place").

A partition has a read switch and a write switch. Waltz 0.13.2 has one common switch for both. If
only one of the two switches is on, the entry has a flag that 0.13.2 does not know. 0.13.2 finds
such a partition switched off, and copies the flag in each update. If an administrator of 0.13.2
then sets the common switch, the copied flag is wrong. So this flag is written with a stamp, the low
16 bits of the update's number. The flag counts only if the stamp fits the number of the last
update. Example: this storage writes the flag in update 7, with the stamp 7. 0.13.2 copies both in
update 8. The stamp 7 does not fit 8, so the flag does not count any more (`test_storage_switches`).
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, replace

from waltz.protocol.admin import Switch
from waltz.protocol.checksums import crc32

CONTROL_FILE = "waltz-storage.ctl"
HEADER_BYTES = 128
ENTRY_BYTES = 76
STRUCT_BYTES = 36

# The bits of a partition's flags; `PartitionInfo` explains them.
_AVAILABLE = 1
_ASSIGNED = 4
_READABLE = 8
_WRITABLE = 16
_ONLY_ONE_SWITCH = _READABLE | _WRITABLE
"""The two bits of the flag "only one of the two switches is on". The bit that is set says which
switch is on; they are never set both."""
_STAMP_SHIFT = 16
"""The lowest bit of the stamp; the flags are in the bits below."""
_LOW_16_BITS = 0xFFFF
_LAST_SEQUENCE = (1 << 31) - 1
"""The highest number of an update; the field has 32 bits and a sign."""

_HEADER = struct.Struct(">iq16si")
_STRUCT = struct.Struct(">qqqIi")
_CHECKSUM = struct.Struct(">I")
_PARTITION = struct.Struct(">i")


class EntryCorrupted(Exception):
    """No struct of a partition's entry can be used as the current one; the text says why."""


@dataclass(frozen=True, slots=True)
class ControlHeader:
    """The cluster of the directory. ``created_ms`` is in milliseconds since 1970.

    ``version`` is not checked, as in Waltz 0.13.2.
    """

    created_ms: int
    key: uuid.UUID
    num_partitions: int
    version: int = 0

    def encode(self) -> bytes:
        """Return the 128 bytes of the header."""
        head = _HEADER.pack(self.version, self.created_ms, self.key.bytes, self.num_partitions)
        return head.ljust(HEADER_BYTES, b"\0")

    @classmethod
    def decode(cls, raw: bytes) -> ControlHeader:
        """Read a header of at least 128 bytes."""
        version, created_ms, key, num_partitions = _HEADER.unpack_from(raw)
        return cls(created_ms, uuid.UUID(bytes=key), num_partitions, version)


def inverted(key: uuid.UUID) -> uuid.UUID:
    """Return ``key`` with all bits inverted.

    The control file has the inverted key of its cluster while its segment files are complete only
    with the write-ahead log (docs/decisions/write-ahead-log.md).
    """
    return uuid.UUID(bytes=bytes(byte ^ 0xFF for byte in key.bytes))


def is_key_or_inverse(stored_key: uuid.UUID, key: uuid.UUID) -> bool:
    """Return whether each byte of ``stored_key`` is the byte of ``key``, as it is or inverted.

    A crash may tear the write of an inverted key, so that only some of its bytes are inverted.
    """
    pairs = zip(stored_key.bytes, key.bytes, strict=True)
    return all(stored in (byte, byte ^ 0xFF) for stored, byte in pairs)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The persisted state of a partition besides its log (spec/disk.md section 9).

    ``session_id`` is the last store session, -1 if there was none. ``low_water_mark`` is the last
    transaction that was committed when this session began. ``local_low_water_mark`` is the last
    transaction that this log had then; it is lower if this replica lagged. ``flags`` is a sum,
    without the stamp: 1 if both switches are on, 8 if only the read switch is on, 16 if only the
    write switch is on, 4 if the partition is assigned to this node.
    """

    session_id: int = -1
    low_water_mark: int = -1
    local_low_water_mark: int = -1
    flags: int = _AVAILABLE

    @property
    def readable(self) -> bool:
        """Whether the read switch is on."""
        return bool(self.flags & (_AVAILABLE | _READABLE))

    @property
    def writable(self) -> bool:
        """Whether the write switch is on."""
        return bool(self.flags & (_AVAILABLE | _WRITABLE))

    @property
    def available(self) -> bool:
        """Whether both switches are on."""
        return bool(self.flags & _AVAILABLE)

    @property
    def assigned(self) -> bool:
        """Whether the partition is assigned to this node."""
        return bool(self.flags & _ASSIGNED)

    def is_on(self, switch: Switch) -> bool:
        """Whether ``switch`` is on."""
        return self.readable if switch is Switch.READ else self.writable

    def with_switch(self, switch: Switch, on: bool) -> PartitionInfo:
        """Return a copy with ``switch`` on or off."""
        if switch is Switch.READ:
            return self._switched(on, self.writable)
        return self._switched(self.readable, on)

    def as_available(self, available: bool) -> PartitionInfo:
        """Return a copy with both switches on or off."""
        return self._switched(available, available)

    def as_assigned(self) -> PartitionInfo:
        """Return a copy that is assigned."""
        return replace(self, flags=self.flags | _ASSIGNED)

    def _switched(self, readable: bool, writable: bool) -> PartitionInfo:
        """Return a copy with the read switch and the write switch on or off."""
        flags = self.flags & ~(_AVAILABLE | _ONLY_ONE_SWITCH)
        if readable and writable:
            flags |= _AVAILABLE
        elif readable:
            flags |= _READABLE
        elif writable:
            flags |= _WRITABLE
        return replace(self, flags=flags)


@dataclass(frozen=True, slots=True)
class ControlEntry:
    """One of the two structs of a partition's entry.

    ``sequence`` is the number of the update that wrote it: of the two structs, the one with the
    higher number is current. ``slot`` is the struct's place in the entry, 0 or 1.
    """

    info: PartitionInfo
    sequence: int
    slot: int

    def updated(self, info: PartitionInfo) -> ControlEntry:
        """Return the entry after the next update, which goes to the other struct."""
        assert self.sequence < _LAST_SEQUENCE, (
            "the number would wrap, and the old struct would have the higher one"
        )
        return ControlEntry(info, self.sequence + 1, 1 - self.slot)

    def encode(self) -> bytes:
        """Return the 36 bytes of the struct."""
        info = self.info
        body = _STRUCT.pack(
            info.session_id,
            info.low_water_mark,
            info.local_low_water_mark,
            _stamped(info.flags, self.sequence),
            self.sequence,
        )
        return body + _CHECKSUM.pack(crc32(body))

    @property
    def checksum(self) -> int:
        """The checksum in the struct. It covers the number, so it differs after each update."""
        checksum: int = _CHECKSUM.unpack(self.encode()[_STRUCT.size :])[0]
        return checksum


def entry_offset(partition: int) -> int:
    """Return where the entry of ``partition`` begins."""
    return HEADER_BYTES + ENTRY_BYTES * partition


def struct_offset(partition: int, slot: int) -> int:
    """Return where struct ``slot`` (0 or 1) of ``partition`` begins."""
    return entry_offset(partition) + _PARTITION.size + STRUCT_BYTES * slot


def fresh_entry(partition: int) -> bytes:
    """Return the 76 bytes of the entry of a partition that was never assigned."""
    older = ControlEntry(PartitionInfo(), sequence=-1, slot=0)
    return _PARTITION.pack(partition) + older.encode() + older.updated(PartitionInfo()).encode()


def decode_entry(raw: bytes) -> ControlEntry:
    """Return the current struct of the entry ``raw``; raises EntryCorrupted."""
    if len(raw) < ENTRY_BYTES:
        raise EntryCorrupted("partition info missing: the control file is cut off")
    undamaged = []
    for slot in (0, 1):
        start = _PARTITION.size + STRUCT_BYTES * slot
        body = raw[start : start + _STRUCT.size]
        if crc32(body) == _CHECKSUM.unpack_from(raw, start + _STRUCT.size)[0]:
            session, low, local, flags, sequence = _STRUCT.unpack(body)
            info = PartitionInfo(session, low, local, _unstamped(flags, sequence))
            undamaged.append(ControlEntry(info, sequence, slot))
    if not undamaged:
        raise EntryCorrupted("partition info corrupted: both copies fail their checksums")
    if len(undamaged) == 2 and undamaged[0].sequence == undamaged[1].sequence:
        raise EntryCorrupted("both copies of the partition info have the same sequence number")
    current = max(undamaged, key=lambda entry: entry.sequence)
    if current.sequence == _LAST_SEQUENCE:
        # No update can follow (see `ControlEntry.updated`), and `reset_steps` relies on this error.
        raise EntryCorrupted("the partition info has the highest possible sequence number")
    return current


def reset_steps(entry: ControlEntry | None) -> tuple[ControlEntry, ControlEntry, ControlEntry]:
    """Return the structs that reset an entry if they are written in this order, each flushed.

    ``entry`` is the current struct, None if no struct can be used. The entry ends as in Waltz
    0.13.2: both structs have fresh info, with the numbers -1 and 0. The order matters for a crash
    between two steps. The current struct then has the last info or fresh info, never the info of
    the older struct, whose marks are outdated (`test_storage_control`).
    """
    # An entry without a usable struct may have two undamaged structs with equal numbers (see
    # `decode_entry`). A crash between two steps must make neither of them current. So the first
    # step writes the highest number, which `decode_entry` refuses: the entry stays corrupted until
    # the last step.
    current = entry or ControlEntry(PartitionInfo(), sequence=_LAST_SEQUENCE - 1, slot=0)
    fresh = current.updated(PartitionInfo())
    return (
        fresh,  # It has the next number, and replaces the older struct.
        # The struct before the reset is not current any more, and can be replaced, too.
        ControlEntry(PartitionInfo(), sequence=-1, slot=current.slot),
        # This changes only the number of ``fresh``.
        ControlEntry(PartitionInfo(), sequence=0, slot=fresh.slot),
    )


def _stamped(flags: int, sequence: int) -> int:
    """Return the flags as they are written in update ``sequence``."""
    if flags & _ONLY_ONE_SWITCH:
        return flags | ((sequence & _LOW_16_BITS) << _STAMP_SHIFT)
    return flags


def _unstamped(raw: int, sequence: int) -> int:
    """Return the flags of ``raw``, written in update ``sequence``.

    The flag "only one of the two switches is on" stays only if its stamp fits ``sequence`` and no
    other flag contradicts it.
    """
    flags = raw & _LOW_16_BITS
    stamp_fits = (raw >> _STAMP_SHIFT) == (sequence & _LOW_16_BITS)
    has_both = (flags & _ONLY_ONE_SWITCH) == _ONLY_ONE_SWITCH
    contradictory = bool(flags & _AVAILABLE) or has_both
    if contradictory or not stamp_fits:
        return flags & ~_ONLY_ONE_SWITCH
    return flags
