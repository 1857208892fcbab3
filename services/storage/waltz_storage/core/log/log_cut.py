"""Pure. Find where a truncation may cut a log, or refuse the truncation.

A cut at a wrong position would remove committed records. So the position must be certain: the index
and the last record that stays must both show it. This module only reads, through `LogSegments`.
`PartitionLog.truncate` does the cut.
"""

from __future__ import annotations

from waltz.protocol.records import NO_TRANSACTION, WIRE_OVERHEAD_BYTES
from waltz_storage.core.errors import RecordsDamaged, TruncationRefused
from waltz_storage.core.log.log_segments import LogSegments
from waltz_storage.core.log.segment_files import SegmentBounds
from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    ID_AND_LENGTH,
    INDEX_SUFFIX,
    RECORD_OVERHEAD_BYTES,
    Damage,
    entry_position,
)


def cut_offset(segments: LogSegments, last_id: int) -> int:
    """Return where the segment that has the record ``last_id`` + 1 must be cut to remove it.

    Raises TruncationRefused, OSError.

    Recovery compares only the newest index entries with the data; of the older entries, it checks
    only the order. So an older entry may be wrong. This function therefore reads the last record
    that stays and compares the end of that record with the index
    (`test_truncation_at_a_wrong_index_entry_is_refused`).

    The last record that stays may be damaged. The log must not be cut before it: the vote has
    counted this replica as one that has this record. If the log became shorter and the server died,
    the next vote could miss a committed record. The damaged record may only stay if a later start
    can find where it ends. The next record, which would show that, is removed by the cut. There are
    two cases:

    * The id and the length of the damaged record are intact, and the index confirms the length.
      Then the record stays (`test_truncation_to_a_damaged_record_keeps_it`). A start finds its end
      by its length. The flushed mark confirms that: it has the checksum that is stored at this end.
    * Otherwise a later start would refuse the partition, and the replica would not count in votes
      any more. So the truncation is refused, and the replica still counts.
    """
    if last_id == NO_TRANSACTION:
        return HEADER_BYTES
    segment = segments.segment_of(last_id)
    try:
        _check_last(segments, segment, last_id)
        if segments.segment_of(last_id + 1).first_id == last_id + 1:
            # The record to remove is the first one of its segment, of which only the header stays.
            return HEADER_BYTES
        return segments.extent(segment, last_id, 1).offsets[1]
    except RecordsDamaged as damaged:
        raise TruncationRefused(
            damaged.partition, damaged.file, damaged.offset, damaged.what
        ) from damaged


def _check_last(segments: LogSegments, segment: SegmentBounds, last_id: int) -> None:
    """Check that the record ``last_id`` ends where the index says; raises RecordsDamaged, OSError.

    The id and the length of the record must be intact; the rest may be damaged.
    """
    try:
        last = segments.read_step(segment, last_id, count=1, max_bytes=0, at_least=1)
    except RecordsDamaged:
        if not _has_certain_end(segments, segment, last_id):
            raise
        return
    # ``raw`` is as long as the index says, ``wire`` as long as the record itself says.
    data_bytes = len(last.wire) - WIRE_OVERHEAD_BYTES
    with segments.damage_in(segment, INDEX_SUFFIX):
        if len(last.raw) != data_bytes + RECORD_OVERHEAD_BYTES:
            position = entry_position(last_id + 1 - segment.first_id)
            raise Damage(position, f"index corrupted: record {last_id} does not end there")


def _has_certain_end(segments: LogSegments, segment: SegmentBounds, last_id: int) -> bool:
    """Return whether the id and the length that a damaged record has in the file fit the index.

    Raises RecordsDamaged, OSError.
    """
    start, end = segments.extent(segment, last_id, 1).offsets
    if start < HEADER_BYTES:
        return False
    head = segments.files(segment.first_id).data.read(start, ID_AND_LENGTH.size)
    if len(head) < ID_AND_LENGTH.size:
        return False
    stored_id, length = ID_AND_LENGTH.unpack(head)
    expected: tuple[int, int] = (last_id, end - start - RECORD_OVERHEAD_BYTES)
    return length >= 0 and (stored_id, length) == expected
