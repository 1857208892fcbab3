"""Pure. Read the records of a segment one after the other, up to the first invalid one.

The index is not used: each record says how long it is, and its checksum confirms the length.
`log_recovery` uses this scan to find the end of a log, `damaged_scan` to continue after damage.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from waltz.protocol.checksums import crc32
from waltz_storage.core.log.segment_format import (
    CHECKSUM,
    HEADER_BYTES,
    ID_AND_LENGTH,
    RECORD_OVERHEAD_BYTES,
    ByteSource,
    long_record_is_valid,
)

_WINDOW_BYTES = 1 << 20
"""How many bytes of a file are read at once."""


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """The content of a segment, and the changes that its files need.

    The segment has the records from ``first_id`` to ``next_id`` - 1, which end at byte ``end`` of
    the data file. The scan began with the record ``scanned_from`` at byte ``scan_offset``. The
    scanned records begin at ``offsets``, which become their index entries. The scanned records with
    the ids ``damaged``, in ascending order, are damaged; the other ones are valid.
    """

    first_id: int
    next_id: int
    end: int
    scanned_from: int
    scan_offset: int
    offsets: array[int]
    damaged: tuple[int, ...] = ()


def scan(data: ByteSource, first_id: int, from_id: int, from_offset: int) -> SegmentPlan:
    """Read valid records in windows, up to the first invalid record; return what was found.

    The scan begins with the record ``from_id``, which should be at byte ``from_offset``.
    ``first_id`` is the first id of the segment. Raises OSError.
    """
    size = data.size()
    offsets = array("q")
    next_id, offset = from_id, from_offset
    window, window_start = b"", 0
    while HEADER_BYTES <= offset <= size - RECORD_OVERHEAD_BYTES:
        # The position of the record in the window. From there on, the window must be at least as
        # long as the shortest record.
        position = offset - window_start
        if position + RECORD_OVERHEAD_BYTES > len(window):
            window, window_start = data.read(offset, _WINDOW_BYTES), offset
            position = 0
        stored_id, length = ID_AND_LENGTH.unpack_from(window, position)
        # The length may be damaged, too: the checksum below confirms it.
        if stored_id != next_id or not 0 <= length <= size - offset - RECORD_OVERHEAD_BYTES:
            break
        end = position + RECORD_OVERHEAD_BYTES + length
        if end <= len(window):
            body_end = end - CHECKSUM.size
            body = memoryview(window)[position:body_end]
            is_valid = crc32(body) == CHECKSUM.unpack_from(window, body_end)[0]
        elif position > 0:
            # The window ends within this record: try again with a window that begins with it.
            window, window_start = data.read(offset, _WINDOW_BYTES), offset
            continue
        else:
            # The record is longer than a window.
            is_valid = long_record_is_valid(data, offset, RECORD_OVERHEAD_BYTES + length)
        if not is_valid:
            break
        offsets.append(offset)
        offset += RECORD_OVERHEAD_BYTES + length
        next_id += 1
    return SegmentPlan(first_id, next_id, offset, from_id, from_offset, offsets)
