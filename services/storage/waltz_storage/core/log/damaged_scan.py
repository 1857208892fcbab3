"""Pure. Go on with the scan of a segment behind damaged records.

A record is damaged if it is known to have been flushed and fails its checksum. The log keeps such
records: they are not served, and are repaired from other replicas. So a start must find their
places. The *place* of a record, where it begins and where it ends, comes from the index, or from
the lengths in the records. Either may be wrong, too. So a place counts only if the scan can go on
behind the damaged records: with a valid record that has the next id, or at the end of the log or
segment, if that is certain (`_is_end`).
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

    ``flushed`` is the flushed mark of the log, None if it is not known. A ``sealed`` segment is not
    the last one of its log: its last record is ``must_have``. Return the plan of the whole segment,
    with all damaged records, or None if the place of one of them is not certain.
    """
    offsets, damaged = plan.offsets[:], list(plan.damaged)
    next_id, position = plan.next_id, plan.end
    found = _Segment(data, index, plan.first_id, must_have, flushed, sealed=sealed)
    while next_id <= must_have:
        places = found.places(next_id, position, by_index=True) or found.places(
            next_id, position, by_index=False
        )
        if places is None:
            return None
        # The last of the places is where the records end that are damaged.
        damaged.extend(range(next_id, next_id + len(places)))
        offsets.append(position)
        offsets.extend(places[:-1])
        rest = scan(data, plan.first_id, next_id + len(places), places[-1])
        offsets.extend(rest.offsets)
        next_id, position = rest.next_id, rest.end
    return SegmentPlan(
        plan.first_id,
        next_id,
        position,
        plan.scanned_from,
        plan.scan_offset,
        offsets,
        tuple(damaged),
    )


class _Segment:
    """The files of a segment that has damaged records. The arguments are those of the scan."""

    def __init__(
        self,
        data: ByteSource,
        index: ByteSource,
        first_id: int,
        must_have: int,
        flushed: FlushedEnd | None,
        *,
        sealed: bool,
    ) -> None:
        self._data = data
        self._size = data.size()
        self._index = index
        self._first_id = first_id
        self._must_have = must_have
        self._flushed = flushed
        self._sealed = sealed

    def places(self, damaged_id: int, position: int, *, by_index: bool) -> array[int] | None:
        """Return where each of the damaged records ends that begin with ``damaged_id``.

        That record is at ``position``. The index says where a record ends, or the length in the
        record does; ``by_index`` says which of them is believed if both give a possible place.
        Return None if the scan cannot go on at the place after any number of damaged records.
        """
        ends = array("q")
        while damaged_id <= self._must_have:
            end = self._end_of(damaged_id, position, by_index=by_index)
            if end is None:
                return None
            ends.append(end)
            if self._is_valid(damaged_id + 1, end) or self._is_end(damaged_id, end):
                return ends
            damaged_id, position = damaged_id + 1, end
        return None

    def _end_of(self, transaction_id: int, position: int, *, by_index: bool) -> int | None:
        """Return where the damaged record at ``position`` ends, None if nothing shows it."""
        ends = (
            self._end_in_index(transaction_id, position),
            self._end_by_length(transaction_id, position),
        )
        possible = [
            end
            for end in (ends if by_index else reversed(ends))
            if end is not None and position + RECORD_OVERHEAD_BYTES <= end <= self._size
        ]
        return possible[0] if possible else None

    def _end_in_index(self, transaction_id: int, position: int) -> int | None:
        """Return where the next record begins by the index, if that has the damaged one here."""
        number = transaction_id - self._first_id
        entries = decode_entries(self._index.read(entry_position(number), 2 * ENTRY_BYTES))
        if not entries or entries[0] != position:
            return None
        return entries[1] if len(entries) > 1 else None

    def _end_by_length(self, transaction_id: int, position: int) -> int | None:
        """Return where the record ends by its own length, if it has its id."""
        raw = self._data.read(position, ID_AND_LENGTH.size)
        if len(raw) < ID_AND_LENGTH.size:
            return None
        stored_id, length = ID_AND_LENGTH.unpack(raw)
        return position + RECORD_OVERHEAD_BYTES + length if stored_id == transaction_id else None

    def _is_valid(self, transaction_id: int, position: int) -> bool:
        """Return whether a valid record with this id is at ``position``."""
        if self._sealed and transaction_id > self._must_have:
            return False
        end = self._end_by_length(transaction_id, position)
        if end is None or not position + RECORD_OVERHEAD_BYTES <= end <= self._size:
            return False
        return long_record_is_valid(self._data, position, end - position)

    def _is_end(self, transaction_id: int, end: int) -> bool:
        """Return whether the segment certainly ends with this damaged record, at ``end``.

        A sealed segment has no bytes after its last record, whose own length must agree with that:
        the file may have been cut off. In the last segment, the flushed mark has the checksum of
        the record that it names: the same checksum, at the place where the record would have it, is
        that of this record.
        """
        if transaction_id != self._must_have:
            return False
        if self._sealed:
            return end == self._size
        if self._flushed is None or self._flushed.last_id != transaction_id:
            return False
        raw = self._data.read(end - CHECKSUM.size, CHECKSUM.size)
        checksum: int = CHECKSUM.unpack(raw)[0]
        return checksum == self._flushed.checksum
