"""Convert requests for storages that support only older versions of the storage protocol. Pure.

Version 0 has no request with a bound in bytes. Such a request is converted to a request for as many
records as probably fit the bound. Versions before 2 cannot return records in their form on disk:
they return verified records in wire form. Versions before 3 have the same request for a truncation
above the mark and for a truncation below the mark.
"""

from __future__ import annotations

from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz.protocol.storage import (
    BOUNDED_LISTS_SINCE,
    STORED_LISTS_SINCE,
    TRUNCATE_BELOW_MARK_SINCE,
)

_FIRST_GUESS_BYTES = 16 << 10
"""Size of a record that is assumed before any record is measured."""
_WEIGHT = 8
"""A new measurement moves the mean by its difference from the mean, divided by this number."""


class RequestConverter:
    """Converts requests; keeps the mean size of the records of each partition for this purpose."""

    def __init__(self) -> None:
        self._means: dict[int, float] = {}

    def learn_sizes(self, partition: int, records: RecordBatch) -> None:
        """Measure ``records``, which were read from ``partition``."""
        if records.count:
            size = len(records.wire) / records.count
            mean = self._means.get(partition, size)
            self._means[partition] = mean + (size - mean) / _WEIGHT

    def convert(self, request: st.Request, version: int) -> st.Request:
        """Return ``request`` in a form that a storage with protocol ``version`` understands."""
        if isinstance(request, st.TruncateBelowMarkRequest) and version < TRUNCATE_BELOW_MARK_SINCE:
            return st.TruncateRequest(
                request.session_id, request.seq_num, request.partition, request.transaction_id
            )
        if isinstance(request, st.StoredRecordListRequest) and version < STORED_LISTS_SINCE:
            request = st.BoundedRecordListRequest(
                request.session_id,
                request.seq_num,
                request.partition,
                request.first_id,
                request.max_records,
                request.max_bytes,
            )
        if isinstance(request, st.BoundedRecordListRequest) and version < BOUNDED_LISTS_SINCE:
            mean = self._means.get(request.partition, _FIRST_GUESS_BYTES)
            count = max(1, min(request.max_records, int(request.max_bytes / mean)))
            return st.RecordListRequest(
                request.session_id, request.seq_num, request.partition, request.first_id, count
            )
        return request
