"""Pure. Find the end of a log when its files are opened (spec/disk.md section 8).

Damage is not a torn tail. The local low-water mark and the index show up to which record the log
was flushed: it is *known clean* up to that record. An invalid record in the known-clean part means
damage: the partition is refused, and a vote counts this replica as unknown. If such a record were
taken for a torn tail, the replica would vote with a shorter log, and a committed record could be
lost. After the known-clean part, the first invalid record is the torn tail of an interrupted write,
and the log ends before it. Shown by `test_storage_crash` and, against Waltz 0.13.2, by
`tests/vectors/test_storage_dir`.

This module changes no file: the caller applies the plans if no file of the partition is damaged.
"""

from __future__ import annotations

import uuid
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import sub

from waltz.protocol.checksums import crc32
from waltz_storage.core.log.segment_format import (
    CHECKPOINT_INTERVAL,
    CHECKSUM,
    ENTRY_BYTES,
    HEADER_BYTES,
    ID_AND_LENGTH,
    RECORD_OVERHEAD_BYTES,
    ByteSource,
    Damage,
    FileHeader,
    decode_entries,
    entry_position,
    long_record_is_valid,
)

# The positions of the fields in a file's header.
_KEY_AT = 12
_PARTITION_AT = 28
_FIRST_ID_AT = 32

_WINDOW_BYTES = 1 << 20
"""How many bytes of a file are read at once."""
_WINDOW_ENTRIES = _WINDOW_BYTES // ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """The content of a segment, and the changes that its files need.

    The last valid record ends at byte ``end`` of the data file. The scan began with the record
    ``scanned_from`` at byte ``scan_offset``. The scanned records, up to ``next_id`` - 1, have the
    index entries ``offsets``.
    """

    first_id: int
    next_id: int
    end: int
    scanned_from: int
    scan_offset: int
    offsets: array[int]


def check_header(source: ByteSource, key: uuid.UUID, partition: int, first_id: int) -> FileHeader:
    """Return the header of a data or index file; raises Damage if it differs from the arguments."""
    header = FileHeader.decode(source.read(0, HEADER_BYTES))
    if header.key != key:
        raise Damage(_KEY_AT, f"the cluster key does not match: {header.key} instead of {key}")
    if header.partition != partition:
        raise Damage(_PARTITION_AT, f"the partition id does not match: {header.partition}")
    if header.first_id != first_id:
        raise Damage(
            _FIRST_ID_AT,
            f"the first transaction id does not match the name: {header.first_id}",
        )
    return header


def recover_segment(
    data: ByteSource, index: ByteSource, first_id: int, local_low_water_mark: int, *, last: bool
) -> SegmentPlan:
    """Find the last valid record of a segment; raises Damage, whose offset is in the data file.

    The scan begins at the last record of the known-clean part, as in Waltz 0.13.2, so that a start
    does not read all records of the log. In the ``last`` segment of the log, the index entries
    before that record are checked, too. A truncation that was interrupted by a loss of power can
    leave an index file of its former length with zeros in the middle
    (`test_index_torn_by_truncation_below_local_mark_is_rebuilt`).
    """
    # The last id that the index file has an entry for.
    claimed_last = first_id + (index.size() - HEADER_BYTES) // ENTRY_BYTES - 1
    last_clean = _known_clean(claimed_last, local_low_water_mark)
    if last_clean > first_id and (not last or _entries_increase(index, last_clean - first_id + 1)):
        raw = index.read(entry_position(last_clean - first_id), ENTRY_BYTES)
        plan = _scan(data, first_id, last_clean, decode_entries(raw)[0])
        if plan.next_id > last_clean:
            return plan
    # The known-clean part has at most one record of this segment, or its last record is invalid, or
    # the index is wrong. A scan of all records shows which, and rebuilds the index.
    plan = _scan(data, first_id, first_id, HEADER_BYTES)
    if last_clean == first_id:
        # If the segment begins at a checkpoint, for example with record 2000, `_known_clean` may
        # have returned this checkpoint. The checkpoint is about the index entries before it, and
        # this segment has none. So the local low-water mark alone decides whether the first record
        # is known clean. Waltz 0.13.2 drops a damaged first record as a torn tail
        # (`test_damaged_first_record_below_local_mark_is_damage`).
        last_clean = min(claimed_last, local_low_water_mark)
    if first_id <= last_clean and plan.next_id <= last_clean:
        raise Damage(
            plan.end,
            f"segment corrupted: record {plan.next_id} is invalid, but the log was known to be "
            f"clean up to {last_clean}",
        )
    return plan


def find_hole(plans: Sequence[SegmentPlan]) -> tuple[SegmentPlan, SegmentPlan] | None:
    """Return the first two consecutive segments between which records are missing, else None."""
    for earlier, later in pairwise(plans):
        if earlier.next_id != later.first_id:
            return earlier, later
    return None


def _known_clean(claimed_last: int, local_low_water_mark: int) -> int:
    """Return the last id of the known-clean part (spec/disk.md section 8, step 3).

    ``claimed_last`` is the last id that the index file has an entry for. A crash may have torn the
    entries of the newest checkpoint interval (see `TailSegment.write_checkpoint`). So beyond the
    local low-water mark, only the entries up to the last checkpoint below ``claimed_last`` count.
    """
    if claimed_last <= local_low_water_mark:
        return claimed_last
    checkpoint = (max(0, claimed_last - 1) // CHECKPOINT_INTERVAL) * CHECKPOINT_INTERVAL
    return max(local_low_water_mark, checkpoint)


def _entries_increase(index: ByteSource, count: int) -> bool:
    """Return whether the first ``count`` entries can be the offsets of consecutive records.

    The check reads each entry once and reads no record.
    """
    # The last entry of the window before. The first entry has none before it: with this value, the
    # difference below is just large enough if the first entry is right.
    entry_before = array("q", [HEADER_BYTES - RECORD_OVERHEAD_BYTES])
    for number in range(0, count, _WINDOW_ENTRIES):
        size = min(_WINDOW_ENTRIES, count - number) * ENTRY_BYTES
        window = decode_entries(index.read(entry_position(number), size))
        if number == 0 and window[0] != HEADER_BYTES:
            return False
        # Each entry minus the entry before it is the size of a record.
        smallest_record = min(map(sub, window, entry_before + window))
        if smallest_record < RECORD_OVERHEAD_BYTES:
            return False
        entry_before = window[-1:]
    return True


def _scan(data: ByteSource, first_id: int, from_id: int, from_offset: int) -> SegmentPlan:
    """Read valid records from ``from_offset`` on, in windows, up to the first invalid record."""
    size = data.size()
    offsets = array("q")
    next_id, offset = from_id, from_offset
    window, window_start = b"", 0
    while HEADER_BYTES <= offset <= size - RECORD_OVERHEAD_BYTES:
        # The position of the record in the window. The window must have at least its fixed parts.
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
            valid = crc32(body) == CHECKSUM.unpack_from(window, body_end)[0]
        elif position > 0:
            # The window ends within this record: try again with a window that begins with it.
            window, window_start = data.read(offset, _WINDOW_BYTES), offset
            continue
        else:
            # The record is longer than a window.
            valid = long_record_is_valid(data, offset, RECORD_OVERHEAD_BYTES + length)
        if not valid:
            break
        offsets.append(offset)
        offset += RECORD_OVERHEAD_BYTES + length
        next_id += 1
    return SegmentPlan(first_id, next_id, offset, from_id, from_offset, offsets)
