"""Convert requests for storages that support only older versions of the storage protocol. Pure.

* Version 0 has no request with a bound in bytes, and does not bound the lists of records that it
  returns. So each request for a list is converted to a request for as many records as probably fit
  (`waltz.net.core.record_counts`).
* Versions before 2 cannot return records in disk form, as they lie on the disk: they return
  verified records in the form of the protocol.
* Versions before 3 have one request for all truncations: it need not name the low-water mark to cut
  a log below this mark.
"""

from __future__ import annotations

from waltz.net.core.record_counts import RecordCounts
from waltz.protocol import storage as st
from waltz.protocol.storage import (
    BOUNDED_LISTS_SINCE,
    STORED_LISTS_SINCE,
    TRUNCATE_BELOW_MARK_SINCE,
)


class RequestConverter:
    """Converts the requests to one storage; learns from its answers how large the records are."""

    def __init__(self) -> None:
        self._counts = RecordCounts()

    def answered(self, converted: st.Request, response: st.Message | None) -> None:
        """Note the response to the request ``converted``; None if the connection was lost.

        A storage of version 0 puts all requested records into one message. If this is longer than a
        frame may be, the connection is closed. So after a lost connection, the next request of the
        partition is for fewer records: the same request could close each later connection, too.
        """
        if isinstance(response, st.RecordListResponse):
            self._counts.received(response.partition, response.records)
        elif response is None and isinstance(converted, st.RecordListRequest):
            self._counts.lost(converted.partition, converted.max_records)

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
        if version >= BOUNDED_LISTS_SINCE:
            return request
        if not isinstance(request, st.BoundedRecordListRequest):
            return request
        partition = request.partition
        count = self._counts.allowed(partition, request.max_records, request.max_bytes)
        return st.RecordListRequest(
            request.session_id, request.seq_num, partition, request.first_id, count
        )
