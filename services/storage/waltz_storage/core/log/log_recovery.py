"""Pure. Find the end of a log when its files are opened (spec/disk.md section 8).

Damage is not a torn tail. The flushed mark, the local low-water mark and the index show up to which
record the log was flushed: it is *known clean* up to that record. An invalid record in the
known-clean part is damaged. If it were taken for a torn tail, the replica would vote with a shorter
log, and a committed record could be lost. So the log keeps its length: the scan continues after the
damaged records if their places are certain (see `damaged_scan`). Otherwise the partition is
refused. Then the storage refuses the requests of servers to it, and a vote counts the replica as
absent.

After the known-clean part, the first invalid record is the torn tail of an interrupted write, and
the log ends before it. Shown by `test_storage_crash`, by `test_storage_damaged_start` and, against
Waltz 0.13.2, by `tests/vectors/test_storage_dir`.

This module changes no file: `log_opening` applies the plans if it does not refuse the partition.
"""

from __future__ import annotations

import uuid
from array import array
from operator import sub

from waltz_storage.core.log.damaged_scan import scan_past_damage
from waltz_storage.core.log.flushed_end import NEVER_REACHED, KnownLog
from waltz_storage.core.log.segment_format import (
    CHECKPOINT_INTERVAL,
    ENTRY_BYTES,
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    ByteSource,
    Damage,
    FileHeader,
    decode_entries,
    entry_position,
)
from waltz_storage.core.log.segment_scan import SegmentPlan, scan

# The positions of the fields in a file's header.
_KEY_AT = 12
_PARTITION_AT = 28
_FIRST_ID_AT = 32

_WINDOW_ENTRIES = (1 << 20) // ENTRY_BYTES
"""How many index entries are read at once."""


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
    data: ByteSource, index: ByteSource, first_id: int, known: KnownLog, next_first_id: int | None
) -> SegmentPlan:
    """Find the last record of a segment; return the plan for its files.

    ``known`` is what is known about the log. ``next_first_id`` is the first id of the next segment,
    None for the last segment of the log.

    A start does not read all records of the log. The scan begins at the last record that the index
    and the local low-water mark show to be known clean, as in Waltz 0.13.2. In the last segment,
    the index entries before that record are checked, too. A loss of power during a truncation can
    leave an index file of its former length with zeros in the middle
    (`test_index_torn_by_truncation_below_local_mark_is_rebuilt`).

    Four ids decide what is damage:

    * ``claimed_last``: the last id that the index file has an entry for.
    * ``last_clean``: the last known-clean id, by the index and the local low-water mark.
    * ``must_reach``: the last id that this segment must have, by the known log or the next segment.
    * ``must_have``: the larger one of ``last_clean`` and ``must_reach``. An invalid record up to it
      is damage. An invalid record after it is the torn tail.

    Raises OSError, and Damage, whose offset is in the data file, if the segment is to be refused.
    """
    claimed_last = first_id + (index.size() - HEADER_BYTES) // ENTRY_BYTES - 1
    last_clean = _known_clean(claimed_last, known.local_low_water_mark)
    is_last = next_first_id is None
    plan = None
    if last_clean > first_id:
        number = last_clean - first_id
        if not is_last or _entries_increase(index, number + 1):
            raw = index.read(entry_position(number), ENTRY_BYTES)
            plan = scan(data, first_id, from_id=last_clean, from_offset=decode_entries(raw)[0])
    if plan is None or plan.next_id <= last_clean:
        # The known-clean part has at most one record of this segment, or its last record is
        # invalid, or the index is wrong. A scan of all records shows which, and rebuilds the index.
        plan = scan(data, first_id, from_id=first_id, from_offset=HEADER_BYTES)
        if last_clean == first_id:
            # The local low-water mark alone decides whether the first record is known clean. The
            # checkpoint of `_known_clean` may be this record, for example 2000. But a checkpoint
            # shows only that the index entries before it are whole, and this segment has none of
            # these entries. Waltz 0.13.2 drops a damaged first record as a torn tail
            # (`test_damaged_first_record_below_local_mark_is_damage`).
            last_clean = min(claimed_last, known.local_low_water_mark)
    must_reach = known.must_reach if next_first_id is None else next_first_id - 1
    must_have = max(last_clean, must_reach)
    if first_id <= must_have and plan.next_id <= must_have:
        continued = scan_past_damage(
            data, index, plan, must_have, known.flushed, sealed=not is_last
        )
        if continued is None:
            raise _damage(plan, last_clean, must_reach, next_first_id)
        plan = continued
    if next_first_id is not None and plan.next_id > next_first_id:
        raise _damage(plan, last_clean, must_reach, next_first_id)
    return plan


def _damage(
    plan: SegmentPlan, last_clean: int, must_reach: int, next_first_id: int | None
) -> Damage:
    """Return why a segment is refused.

    Its scan ended before the record ``plan.next_id``, or went beyond the first record of the next
    segment. The other arguments are the values of `recover_segment`.
    """
    record = plan.next_id
    if plan.first_id <= last_clean and record <= last_clean:
        what = (
            f"segment corrupted: record {record} is invalid, but the log was known to be clean up "
            f"to {last_clean}"
        )
    elif next_first_id is None and must_reach == NEVER_REACHED.last_id:
        what = (
            "an earlier start found records damaged that were durable in the write-ahead log; "
            f"record {record} is missing or invalid"
        )
    elif next_first_id is None:
        what = (
            f"the log was flushed up to record {must_reach}, but record {record} is missing or "
            "invalid"
        )
    elif record > next_first_id:
        what = (
            f"the segment has records up to {record - 1}, but the next segment begins with record "
            f"{next_first_id}"
        )
    else:
        what = (
            f"the segment ends before record {record}, but the next segment begins with record "
            f"{next_first_id}"
        )
    return Damage(plan.end, what)


def _known_clean(claimed_last: int, local_low_water_mark: int) -> int:
    """Return the last id that the index and the local low-water mark show to be known clean.

    See spec/disk.md section 8, step 3. ``claimed_last`` is the last id that the index file has an
    entry for. The entries up to the local low-water mark count: they were flushed before the mark
    was written (`StoragePartition._begin_session`). A crash may have torn the entries of the newest
    checkpoint interval (see `TailSegment.write_checkpoint`). So beyond the mark, only the entries
    up to the last checkpoint below ``claimed_last`` count.
    """
    if claimed_last <= local_low_water_mark:
        return claimed_last
    checkpoint = (max(0, claimed_last - 1) // CHECKPOINT_INTERVAL) * CHECKPOINT_INTERVAL
    return max(local_low_water_mark, checkpoint)


def _entries_increase(index: ByteSource, count: int) -> bool:
    """Return whether the first ``count`` entries can be the offsets of consecutive records.

    The check reads each entry once and reads no record.
    """
    # The last entry of the previous window. For the first window, it is a value that lets the first
    # entry, which must be HEADER_BYTES, pass the check of the smallest record.
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
