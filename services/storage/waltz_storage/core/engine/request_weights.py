"""Pure. The weight of a request: about how many bytes the request or its answer needs in memory.

A connection begins no further request while the weight of its unanswered requests is too large (see
`shell.request_intake`). The weight of a request for a list of records is its bound in bytes. A
request of an older version bounds only the number of records: its weight is this number multiplied
by the estimated size of a record. The estimate comes from earlier answers on the same connection
for the same partition. Before the first of them, the weight is that of the largest answer.
"""

from __future__ import annotations

from waltz.protocol import admin, storage
from waltz_storage.core.partitions.partition import BULK_LIMIT_BYTES, READ_LIMIT_BYTES

LEAST_READ_BYTES = 64 << 10
"""The least weight of a read: a queued read needs some memory even if its answer is small."""

ADMIN_WEIGHT = 16 << 20
"""The weight of a request on the admin port, unless its own bytes are more.

A connection may thus begin four of these requests at a time (see `shell.request_intake`)."""

_SMOOTHING = 8
"""An answer with smaller records lowers the estimated size by one eighth of the difference."""
_HEADER_BYTES = 256
"""About how many bytes of memory the header of a record needs."""
_MOST_HEADERS_BYTES = 4 << 20
"""The largest weight of a request for headers: that of the most headers in an answer
(`partition._MAX_HEADERS`)."""


class RequestWeights:
    """The weights of the requests of one connection, in bytes."""

    def __init__(self) -> None:
        self._sizes: dict[int, float] = {}
        """The estimated size of a record in an answer, in bytes, for each partition.

        Larger records raise the estimate at once, and smaller ones lower it slowly: too low an
        estimate lets the answers use too much memory, and too high an estimate does no harm."""

    def learn(self, answer: storage.Response) -> None:
        """Update the estimated record size of the partition from the records in ``answer``."""
        if isinstance(answer, storage.RecordListResponse) and answer.records.count:
            size = len(answer.records.wire) / answer.records.count
            estimate = self._sizes.get(answer.partition, size)
            self._sizes[answer.partition] = max(size, estimate + (size - estimate) / _SMOOTHING)

    def of(self, request: storage.Message, message_bytes: int) -> int:
        """Return the weight of a request whose message has ``message_bytes`` bytes."""
        match request:
            case storage.BoundedRecordListRequest(max_bytes=max_bytes):
                return _clamped(max_bytes, BULK_LIMIT_BYTES)
            case storage.CommittedRecordListRequest(max_bytes=max_bytes):
                # This includes StoredRecordListRequest, which is a subclass.
                return _clamped(max_bytes, BULK_LIMIT_BYTES)
            case storage.RecordListRequest(max_records=count):
                # Without an estimate, one record counts as much as the largest answer.
                size = self._sizes.get(request.partition, READ_LIMIT_BYTES)
                return _clamped(int(count * size), READ_LIMIT_BYTES)
            case storage.RecordHeaderListRequest(max_records=count):
                return _clamped(count * _HEADER_BYTES, _MOST_HEADERS_BYTES)
            case storage.RecordRequest() | storage.RecordHeaderRequest():
                return LEAST_READ_BYTES
            case _:
                return message_bytes


def admin_weight(request: admin.Message) -> int:
    """Return the weight of a request on the admin port."""
    if isinstance(request, admin.RepairRecordsRequest):
        return max(ADMIN_WEIGHT, len(request.records.wire))
    return ADMIN_WEIGHT


def _clamped(size: int, limit: int) -> int:
    """Return the weight of a read of ``size`` bytes whose answer has at most ``limit`` bytes."""
    return max(LEAST_READ_BYTES, min(size, limit))
