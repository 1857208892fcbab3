"""Pure. The checksum of a range of records, to compare replicas (spec/wire.md section 11).

The checksum is computed in slices, so that other requests to the partition are done in between.
`shell.admin_handler` calls `RangeChecksum.advance` for each slice.
"""

from __future__ import annotations

from waltz.protocol.admin import RangeChecksumRequest, RangeChecksumResponse
from waltz.protocol.checksums import as_signed
from waltz_storage.core.errors import RequestRefused
from waltz_storage.core.partitions.partition import StoragePartition

RANGE_LIMIT_BYTES = 16 << 20
"""An answer covers at most this many bytes of records, or its first record, if that is larger."""

_SLICE_BYTES = 1 << 20
"""How many bytes one call of `RangeChecksum.advance` reads at most, unless one record is larger."""


class RangeChecksum:
    """The computation for one request: call `advance` until it returns the answer.

    The range should end at or below the high-water mark. Records above the mark may be truncated
    and replaced between two slices, and the checksum would then mix the old ones and the new ones.
    """

    def __init__(self, request: RangeChecksumRequest) -> None:
        self._request = request
        self._next_id = request.first_id
        self._size = 0
        """The bytes on disk of the records that were read so far."""
        self._checksum = 0
        """The CRC-32 of these bytes, unsigned."""

    def advance(self, partition: StoragePartition) -> RangeChecksumResponse | None:
        """Read the next slice; return the answer after the last slice, else None.

        Raises RequestRefused.
        """
        request = self._request
        if request.first_id < 0:
            raise RequestRefused(f"no record has the id {request.first_id}: ids begin at 0")
        remaining_bytes = RANGE_LIMIT_BYTES - self._size
        max_records = request.last_id + 1 - self._next_id
        max_bytes = min(_SLICE_BYTES, remaining_bytes)
        scanned = partition.scan(self._next_id, max_records, max_bytes, self._checksum)
        # A scan reads its first record whatever its size. If this record is larger than the rest of
        # the limit, it counts only if it is the first one of the answer.
        fits = scanned.size <= remaining_bytes or not self._size
        if fits:
            self._next_id += scanned.count
            self._size += scanned.size
            self._checksum = scanned.checksum
        # A scan without a record has reached the end of the log.
        is_complete = not fits or not scanned.count or self._next_id > request.last_id
        return self._answer() if is_complete else None

    def _answer(self) -> RangeChecksumResponse:
        """Return the answer for the records that were read so far."""
        request = self._request
        return RangeChecksumResponse(
            request.seq_num,
            request.partition,
            request.first_id,
            self._next_id - 1,
            self._size,
            as_signed(self._checksum),
        )
