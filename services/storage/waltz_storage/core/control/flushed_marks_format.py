"""Pure. The bytes of the file of the flushed marks (spec/disk.md section 11).

The file has three slots for each partition: the newest durable one, the one that a flush may be
writing, and the one to write next (see `flushed_marks`). The control file has two *structs* for
each partition, which are written in turn; the newer undamaged one is *current* (spec/disk.md
section 2). A slot contains a sequence number, the mark (the flushed end of the log), the checksum
of one of these structs, and its own checksum. A slot *counts* only while that struct is current.
Reason: Waltz 0.13.2 does not update this file, but it writes a new struct when a store session
begins. So marks that were written before 0.13.2 used the directory do not count any more. Among the
slots that count, the one with the highest sequence number has the partition's mark.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from waltz.protocol.checksums import crc32
from waltz_storage.core.log.flushed_end import FlushedEnd

FLUSHED_FILE = "waltz-storage.flushed"
SLOTS = 3
_SLOT = struct.Struct(">qqII")
_CHECKSUM = struct.Struct(">I")
SLOT_BYTES = _SLOT.size + _CHECKSUM.size
PARTITION_BYTES = SLOTS * SLOT_BYTES


class MarkSlot(NamedTuple):
    """One slot: the mark ``end``, and the checksum of the control struct that it belongs to."""

    sequence: int
    end: FlushedEnd
    struct_checksum: int

    def encode(self, partition: int) -> bytes:
        """Return the bytes of the slot, whose checksum also covers the partition's id."""
        body = _SLOT.pack(self.sequence, self.end.last_id, self.end.checksum, self.struct_checksum)
        return body + _CHECKSUM.pack(_checksum(body, partition))


def slot_offset(partition: int, slot: int) -> int:
    """Return where slot ``slot`` of ``partition`` begins in the file."""
    return PARTITION_BYTES * partition + SLOT_BYTES * slot


def decode_slots(raw: bytes, partition: int) -> list[MarkSlot | None]:
    """Return the slots of a partition, None for each that is empty or damaged.

    ``raw`` is the whole file, which may be truncated.
    """
    slots: list[MarkSlot | None] = []
    for slot in range(SLOTS):
        start = slot_offset(partition, slot)
        part = raw[start : start + SLOT_BYTES]
        body = part[: _SLOT.size]
        is_checksum_right = part[_SLOT.size :] == _CHECKSUM.pack(_checksum(body, partition))
        if len(part) < SLOT_BYTES or not is_checksum_right:
            slots.append(None)
            continue
        sequence, last_id, checksum, struct_checksum = _SLOT.unpack(body)
        slots.append(MarkSlot(sequence, FlushedEnd(last_id, checksum), struct_checksum))
    return slots


def current_slot(slots: Iterable[MarkSlot | None], struct_checksum: int) -> MarkSlot | None:
    """Return the slot that has the mark of a partition, None if no slot counts.

    ``struct_checksum`` is the checksum of the partition's current control struct.
    """
    counting = [slot for slot in slots if slot and slot.struct_checksum == struct_checksum]
    return max(counting, key=lambda slot: slot.sequence, default=None)


def current_end(raw: bytes, partition: int, struct_checksum: int) -> FlushedEnd | None:
    """Return the mark of a partition, None if no slot counts.

    ``raw`` is the whole file. ``struct_checksum`` is that of the partition's current struct.
    """
    slot = current_slot(decode_slots(raw, partition), struct_checksum)
    return slot.end if slot else None


def _checksum(body: bytes, partition: int) -> int:
    """Return the checksum of a slot.

    The start value depends on the partition: a slot that was written at the place of another
    partition fails its checksum.
    """
    return crc32(body, partition + 1)
