"""`StoragePartition`: one partition's log, session and marks, and what each request does to them.

Touches disk through the log and the control file. One thread at a time may use a partition; only
`see` may be called by another one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from waltz.protocol import storage
from waltz.protocol.failures import RpcFailure
from waltz.protocol.records import RecordBatch, RecordHeader
from waltz.runtime.metrics import Timer
from waltz_storage.core.control import ControlFile
from waltz_storage.core.control_format import PartitionInfo
from waltz_storage.core.errors import RequestRefused, UnknownRequest
from waltz_storage.core.fencing import admit, begin_session, raises_fence
from waltz_storage.core.log import PartitionLog, Scan

READ_LIMIT_BYTES = 64 << 20
"""A list of records ends before it would grow beyond this; it always has the first one."""

BULK_LIMIT_BYTES = 16 << 20
"""The same for lists that are bounded in bytes, whatever their bound: they come again and again."""

_MAX_HEADERS = 1 << 14
_NOT_COUNTED = "other"

_COUNTERS: dict[type, str] = {
    storage.LastSessionInfoRequest: "last-session-info-request",
    storage.SetLowWaterMarkRequest: "set-low-water-mark-request",
    storage.TruncateRequest: "truncate-request",
    storage.RecordHeaderRequest: "record-header-request",
    storage.RecordRequest: "record-request",
    storage.MaxTransactionIdRequest: "max-transaction-request",
    storage.RecordHeaderListRequest: "record-header-list-request",
    storage.RecordListRequest: "record-list-request",
    storage.BoundedRecordListRequest: "bounded-record-list-request",
    storage.CommittedRecordListRequest: "committed-record-list-request",
    storage.StoredRecordListRequest: "stored-record-list-request",
}
COUNTER_NAMES = tuple(_COUNTERS.values())
"""Names of the request counters (spec/behaviour.md section 13; the bounded lists are ours)."""


class StoragePartition:
    """An open partition."""

    def __init__(self, partition: int, log: PartitionLog, control: ControlFile) -> None:
        self.partition = partition
        self.log = log
        self.requests: Counter[str] = Counter()
        self.appends = 0
        self.append_latency = Timer()
        self._control = control
        self._highest_session = self.info.session_id
        self._fence = threading.Lock()

    @property
    def info(self) -> PartitionInfo:
        """The persisted session, marks and flags."""
        return self._control.info(self.partition)

    def see(self, request: storage.Request) -> None:
        """Raise the fence: requests of sessions older than this one's will be refused."""
        session_id = request.session_id
        if raises_fence(request):
            with self._fence:
                self._highest_session = max(self._highest_session, session_id)

    def admit(self, request: storage.Request, version: int) -> None:
        """Check that the request, made in ``version``, may be done; raises RequestRefused."""
        self.see(request)
        admit(request, version, self.info, self._highest_session)

    def handle(self, request: storage.Request, version: int) -> storage.Response:
        """Do any request but an append; raises RequestRefused, DiskFailed."""
        self.requests[_COUNTERS.get(type(request), _NOT_COUNTED)] += 1
        self.admit(request, version)
        context = (request.session_id, request.seq_num, request.partition)
        match request:
            case storage.LastSessionInfoRequest():
                info = self.info
                return storage.LastSessionInfoResponse(
                    *context, info.session_id, info.low_water_mark, info.local_low_water_mark
                )
            case storage.SetLowWaterMarkRequest():
                self._begin_session(request.session_id, request.low_water_mark)
                return storage.SuccessResponse(*context)
            case storage.TruncateRequest():
                if request.transaction_id < self.log.max_id:
                    self.log.truncate(request.transaction_id)
                return storage.MaxTransactionIdResponse(*context, self.log.max_id)
            case storage.MaxTransactionIdRequest():
                return storage.MaxTransactionIdResponse(*context, self.log.max_id)
            case storage.RecordHeaderRequest():
                headers = self.headers(request.transaction_id, 1)
                return storage.RecordHeaderResponse(*context, headers[0] if headers else None)
            case storage.RecordRequest():
                batch = self.records(request.transaction_id, 1)
                return storage.RecordResponse(*context, batch if batch.count else None)
            case storage.RecordHeaderListRequest():
                headers = self.headers(request.first_id, request.max_records)
                return storage.RecordHeaderListResponse(*context, headers)
            case storage.RecordListRequest():
                batch = self.records(request.first_id, request.max_records)
                return storage.RecordListResponse(*context, batch)
            case storage.BoundedRecordListRequest(_, _, _, first_id, most, max_bytes):
                batch = self.records(first_id, most, min(max_bytes, BULK_LIMIT_BYTES))
                return storage.RecordListResponse(*context, batch)
            case storage.CommittedRecordListRequest():
                return self._committed(request)
            case _:
                raise UnknownRequest(f"unknown message type: {type(request).__name__}")

    def appended(self, records: int, seconds: float) -> None:
        """Count an answered append of ``records`` that took ``seconds`` since it arrived."""
        self.appends += records
        self.append_latency.add(seconds)

    def records(
        self, first_id: int, max_records: int, max_bytes: int = READ_LIMIT_BYTES
    ) -> RecordBatch:
        """Return consecutive records; raises PartitionDamaged, RequestRefused."""
        with _reading():
            return self.log.read(first_id, max_records, max_bytes)

    def scan(self, first_id: int, max_records: int, max_bytes: int, value: int) -> Scan:
        """Go on with a checksum over records; raises PartitionDamaged, RequestRefused."""
        with _reading():
            return self.log.scan(first_id, max_records, max_bytes, value)

    def headers(self, first_id: int, max_records: int) -> tuple[RecordHeader, ...]:
        """Return headers of consecutive records; raises PartitionDamaged, RequestRefused."""
        with _reading():
            return self.log.headers(first_id, min(max_records, _MAX_HEADERS))

    def _committed(self, request: storage.CommittedRecordListRequest) -> storage.Response:
        context = (request.session_id, request.seq_num, request.partition)
        most = min(request.max_records, request.last_id + 1 - request.first_id)
        size = min(request.max_bytes, BULK_LIMIT_BYTES)
        if isinstance(request, storage.StoredRecordListRequest):
            with _reading():
                stored = self.log.read_stored(request.first_id, most, size)
            return storage.StoredRecordListResponse(*context, stored)
        return storage.RecordListResponse(*context, self.records(request.first_id, most, size))

    def _begin_session(self, session_id: int, low_water_mark: int) -> None:
        info = begin_session(self.info, session_id, low_water_mark, self.log.max_id)
        # What lies below the local mark counts as known clean: it must be durable first.
        self.log.flush_all()
        self._control.update(self.partition, info)


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # A read changes nothing; the same error while something is changed ends the process.
        raise RequestRefused(f"the storage disk cannot be read: {error.strerror}") from error


def failure(request: storage.Request, refused: RequestRefused) -> storage.FailureResponse:
    """Return the answer to a refused request."""
    return storage.FailureResponse(
        request.session_id, request.seq_num, request.partition, RpcFailure(refused.message)
    )


def append_answers(
    requests: Sequence[storage.AppendRequest], outcomes: Sequence[RequestRefused | None]
) -> list[storage.Response]:
    """Return the answers to a group of appends."""
    return [
        storage.SuccessResponse(request.session_id, request.seq_num, request.partition)
        if refused is None
        else failure(request, refused)
        for request, refused in zip(requests, outcomes, strict=True)
    ]
