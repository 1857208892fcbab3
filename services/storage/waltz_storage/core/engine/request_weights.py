"""Pure. The weight of a request: about how many bytes the request or its answer needs in memory.

A connection begins no further request while the weight of its requests under way is too large (see
`shell.connections`). The bound in bytes of a list is its weight. For a list without such a bound,
the size of the records that were read before from its partition converts the number of records to
bytes. Before any record is read, such a list has the weight of the largest answer.
"""

from __future__ import annotations

from waltz.protocol import admin, storage
from waltz_storage.core.partitions.partition import BULK_LIMIT_BYTES, READ_LIMIT_BYTES

LEAST_READ_BYTES = 64 << 10
"""The least weight of a read: its steps and its place in a lane cost something, too."""

ADMIN_WEIGHT = 16 << 20
"""The weight of a request on the admin port, unless its own bytes are more."""

_SLOWNESS = 8
"""Smaller records lower the size of a partition's records by the difference divided by this."""
_HEADER_BYTES = 256
"""About how many bytes of memory a header needs."""
_MOST_HEADERS_BYTES = 4 << 20


class RequestWeights:
    """The weights of the requests of one connection, in bytes."""

    def __init__(self) -> None:
        self._sizes: dict[int, float] = {}
        """The size of the records of each partition in wire form, in bytes.

        It follows larger records at once and smaller ones slowly, because too small a weight is a
        risk for the memory, and too large a weight is not."""

    def learn(self, answer: storage.Response) -> None:
        """Measure the records of ``answer``."""
        if isinstance(answer, storage.RecordListResponse) and answer.records.count:
            size = len(answer.records.wire) / answer.records.count
            old = self._sizes.get(answer.partition, size)
            self._sizes[answer.partition] = max(size, old + (size - old) / _SLOWNESS)

    def of(self, request: storage.Message, message_bytes: int) -> int:
        """Return the weight of a request, whose message has ``message_bytes``."""
        match request:
            case storage.BoundedRecordListRequest(max_bytes=most):
                return _clamped(most, BULK_LIMIT_BYTES)
            case storage.CommittedRecordListRequest(max_bytes=most):
                return _clamped(most, BULK_LIMIT_BYTES)
            case storage.RecordListRequest(max_records=count):
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


def _clamped(size: int, most: int) -> int:
    return max(LEAST_READ_BYTES, min(size, most))
