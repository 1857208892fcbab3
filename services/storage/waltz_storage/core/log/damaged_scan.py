"""Pure. Continue the scan of a segment after damaged records.

A record is damaged if it is known to have been flushed and fails its checksum. The log keeps such
records: they are not served, and are repaired from other replicas. So a start must find the *place*
of each of them: where it begins and where it ends. The index shows the place, and so do the lengths
in the records, but either may be wrong, too. So a place counts only if the scan can continue after
the damaged records. One of these must follow them: a valid record with the next id, or the end of
the segment, if that is certain (`_Segment._is_end`).

`log_recovery` calls `scan_past_damage` for the opening of a log. `inspect` calls
`ends_before_valid` for files of which less is known.
"""

from __future__ import annotations

from array import array

from waltz_storage.core.log.flushed_end import FlushedEnd
from waltz_storage.core.log.segment_format import (
    CHECKSUM,
    ENTRY_BYTES,
    ID_AND_LENGTH,
    RECORD_OVERHEAD_BYTES,
    ByteSource,
    decode_entries,
    entry_position,
    long_record_is_valid,
)
from waltz_storage.core.log.segment_scan import SegmentPlan, scan

MOST_DAMAGED = 100_000
"""A segment with more damaged records is not opened: another replica is copied sooner than so many
records are repaired, and the search for their places would take long."""


def scan_past_damage(
    data: ByteSource,
    index: ByteSource,
    plan: SegmentPlan,
    must_have: int,
    flushed: FlushedEnd | None,
    *,
    sealed: bool,
) -> SegmentPlan | None:
    """Continue the scan ``plan``, which ended before it reached the record ``must_have``.

    An invalid record up to ``must_have`` is damage; an invalid record after it is a torn write. A
    ``sealed`` segment is not the last one of its log, and ``must_have`` is its last record. In the
    last segment, ``must_have`` is the last record that is known to be durable. The flushed mark
    shows it, or the index and the local low-water mark, if these reach further. ``flushed`` is the
    flushed mark, None if it is not known.

    Return the plan of the whole segment, with all damaged records. Return None if the place of one
    of them is not certain, or if there are more than `MOST_DAMAGED`. Raises OSError.
    """
    last_checksum = None
    if flushed is not None and flushed.last_id == must_have:
        last_checksum = flushed.checksum
    segment = _Segment(data, index, plan.first_id, must_have, last_checksum, sealed=sealed)
    offsets, damaged = plan.offsets[:], list(plan.damaged)
    next_id, position = plan.next_id, plan.end
    while next_id <= must_have:
        ends = segment.shortest_run(next_id, position, MOST_DAMAGED - len(damaged))
        if ends is None:
            return None
        damaged.extend(range(next_id, next_id + len(ends)))
        # The first damaged record begins at ``position``, each later one where the one before ends.
        offsets.append(position)
        offsets.extend(ends[:-1])
        rest = scan(data, plan.first_id, from_id=next_id + len(ends), from_offset=ends[-1])
        offsets.extend(rest.offsets)
        next_id, position = rest.next_id, rest.end
    return SegmentPlan(
        plan.first_id,
        next_id,
        end=position,
        scanned_from=plan.scanned_from,
        scan_offset=plan.scan_offset,
        offsets=offsets,
        damaged=tuple(damaged),
    )


def ends_before_valid(
    data: ByteSource, index: ByteSource, first_id: int, damaged_id: int, position: int
) -> array[int] | None:
    """Return where each of the consecutive damaged records from ``damaged_id`` on ends.

    The first of them is at ``position``. Return None unless a valid record with the next id follows
    the damaged ones: this function is for readers that do not know how far the log must reach.
    """
    segment = _Segment(data, index, first_id, must_have=None, last_checksum=None, sealed=False)
    # The number of damaged records is not limited: a file has more bytes than records.
    return segment.shortest_run(damaged_id, position, most=data.size())


class _Segment:
    """The files of a segment that has damaged records.

    The arguments are those of `scan_past_damage`. But ``must_have`` may be None: then only a valid
    record shows where damaged records end. ``last_checksum`` is the checksum of the record
    ``must_have`` in the flushed mark, None if the mark names another record or is not known.
    """

    def __init__(
        self,
        data: ByteSource,
        index: ByteSource,
        first_id: int,
        must_have: int | None,
        last_checksum: int | None,
        *,
        sealed: bool,
    ) -> None:
        self._data = data
        self._size = data.size()
        self._index = index
        self._first_id = first_id
        self._must_have = must_have
        self._last_checksum = last_checksum
        self._sealed = sealed

    def shortest_run(self, damaged_id: int, position: int, most: int) -> array[int] | None:
        """Return where each record of a *run* ends; None if no run is found.

        A run is a sequence of consecutive damaged records, whose first is at ``position``. The run
        by the index and the run by the lengths in the records may differ (see `damaged_run`). The
        shorter one is returned.
        """
        runs = [
            self.damaged_run(damaged_id, position, most, by_index=by_index)
            for by_index in (True, False)
        ]
        # If the index entry after a damaged record is wrong, the index makes two records seem
        # damaged: the damaged one seems to end at a wrong place, and the next one, which may be
        # intact, seems to begin there. If the length in the damaged record is right, the run by
        # lengths ends before the intact record, and is shorter.
        return min((run for run in runs if run is not None), key=len, default=None)

    def damaged_run(
        self, damaged_id: int, position: int, most: int, *, by_index: bool
    ) -> array[int] | None:
        """Return where each of the consecutive damaged records from ``damaged_id`` on ends.

        The first of them is at ``position``. The index and the length in a record both say where
        the record ends; ``by_index`` says which of the two counts if both are possible. The run
        ends before the next valid record, or at the certain end of the segment. Return None if
        neither follows within ``most`` damaged records, or if nothing shows where one of them ends.
        """
        ends = array("q")
        while len(ends) < most:
            end = self._end_of(damaged_id, position, by_index=by_index)
            if end is None:
                return None
            ends.append(end)
            if self._is_valid(damaged_id + 1, end):
                return ends
            if damaged_id == self._must_have:
                return ends if self._is_end(end) else None
            damaged_id, position = damaged_id + 1, end
        return None

    def _end_of(self, transaction_id: int, position: int, *, by_index: bool) -> int | None:
        """Return where the damaged record at ``position`` ends, None if nothing shows it."""
        ends = [
            self._end_in_index(transaction_id, position),
            self._end_by_length(transaction_id, position),
        ]
        if not by_index:
            ends.reverse()
        for end in ends:
            if end is not None and position + RECORD_OVERHEAD_BYTES <= end <= self._size:
                return end
        return None

    def _end_in_index(self, transaction_id: int, position: int) -> int | None:
        """Return where the record at ``position`` ends by the index: where the next one begins.

        None if the index has the record at another position, or has no next record.
        """
        number = transaction_id - self._first_id
        entries = decode_entries(self._index.read(entry_position(number), 2 * ENTRY_BYTES))
        if len(entries) < 2 or entries[0] != position:
            return None
        return entries[1]

    def _end_by_length(self, transaction_id: int, position: int) -> int | None:
        """Return where the record at ``position`` ends by its own length.

        None if another id is stored there, or if the file ends before.
        """
        raw = self._data.read(position, ID_AND_LENGTH.size)
        if len(raw) < ID_AND_LENGTH.size:
            return None
        stored_id, length = ID_AND_LENGTH.unpack(raw)
        return position + RECORD_OVERHEAD_BYTES + length if stored_id == transaction_id else None

    def _is_valid(self, transaction_id: int, position: int) -> bool:
        """Return whether a valid record with this id is at ``position``."""
        end = self._end_by_length(transaction_id, position)
        if end is None or not position + RECORD_OVERHEAD_BYTES <= end <= self._size:
            return False
        return long_record_is_valid(self._data, position, end - position)

    def _is_end(self, end: int) -> bool:
        """Return whether the segment certainly ends with its damaged last record, at ``end``.

        A sealed segment has no bytes after its last record. The last segment may have zeros or a
        torn write there, so its size shows nothing. Instead, the bytes before ``end`` must be the
        checksum that the flushed mark has for this record.
        """
        if self._sealed:
            return end == self._size
        raw = self._data.read(end - CHECKSUM.size, CHECKSUM.size)
        checksum: int = CHECKSUM.unpack(raw)[0]
        return checksum == self._last_checksum
