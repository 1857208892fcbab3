"""Pure. The checksum of a range of records, to compare replicas (spec/wire.md section 11).

The checksum is computed in slices, so that other requests to the partition are done in between.
"""

from __future__ import annotations

from waltz.protocol.admin import RangeChecksumRequest, RangeChecksumResponse
from waltz_storage.core.errors import RequestRefused
from waltz_storage.core.partitions.partition import StoragePartition

RANGE_LIMIT_BYTES = 256 << 20
"""An answer covers at most this many bytes of records, but at least one record."""

_SLICE_BYTES = 1 << 20


class RangeChecksum:
    """The computation for one request: call `advance` until it returns the answer.

    The range should end at or below the high-water mark: records above the mark may be truncated
    between two slices.
    """

    def __init__(self, request: RangeChecksumRequest) -> None:
        self._request = request
        self._next_id = request.first_id
        self._size = 0
        self._value = 0

    def advance(self, opened: StoragePartition) -> RangeChecksumResponse | None:
        """Read the next slice; return the answer after the last slice, else None.

        Raises RequestRefused.
        """
        request = self._request
        if request.first_id < 0:
            raise RequestRefused(f"no record has the id {request.first_id}: ids begin at 0")
        left = RANGE_LIMIT_BYTES - self._size
        most = request.last_id + 1 - self._next_id
        found = opened.scan(self._next_id, most, min(_SLICE_BYTES, left), self._value)
        # A scan reads at least one record, which may be larger than the rest of the limit. It
        # counts only if it is the first record of the answer.
        fits = found.size <= left or not self._size
        if fits:
            self._next_id += found.count
            self._size += found.size
            self._value = found.checksum
        if fits and found.count and self._next_id <= request.last_id:
            return None
        return self._answer()

    def _answer(self) -> RangeChecksumResponse:
        request, value = self._request, self._value
        signed = value - (1 << 32) if value & 0x8000_0000 else value
        return RangeChecksumResponse(
            request.seq_num,
            request.partition,
            request.first_id,
            self._next_id - 1,
            self._size,
            signed,
        )
