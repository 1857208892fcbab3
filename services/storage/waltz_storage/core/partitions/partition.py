"""Pure. One partition: its log, session and marks, and the effect of each request on them.

`core.engine.engine` decides when a request is executed, `fencing` whether it is refused. A
partition changes files only through its log and the control file. Only one thread at a time may use
a partition, except that the thread of the engine may call `raise_fence` at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from waltz.protocol import storage
from waltz.protocol.failures import RpcFailure
from waltz.protocol.records import RecordBatch
from waltz.runtime.core.timer import Timer
from waltz_storage.core.control.control_file import ControlFile
from waltz_storage.core.control.control_format import PartitionInfo
from waltz_storage.core.errors import RequestRefused, UnknownRequest
from waltz_storage.core.log.log_check import CheckedRecords
from waltz_storage.core.log.log_reads import Steps, result_of
from waltz_storage.core.log.partition_log import PartitionLog, ScannedRecords
from waltz_storage.core.log.segment_reads import LEAST_HEADERS
from waltz_storage.core.partitions.fencing import (
    begin_session,
    check_request,
    check_truncation,
    is_possible,
    is_read,
    raises_fence,
)

READ_LIMIT_BYTES = 64 << 20
"""A list of records ends before it would exceed this size, but has at least one record."""

BULK_LIMIT_BYTES = 16 << 20
"""As `READ_LIMIT_BYTES`, for requests that name their own bound in bytes: the lower one counts.

A copy of a replica makes many such requests."""

_MAX_HEADERS = 1 << 14
"""The most headers in an answer."""
_WITHOUT_METRIC = "other"
"""The key in `StoragePartition.requests` for request types that have no metric."""

_COUNTERS: dict[type, str] = {
    storage.LastSessionInfoRequest: "last-session-info-request",
    storage.SetLowWaterMarkRequest: "set-low-water-mark-request",
    storage.TruncateRequest: "truncate-request",
    storage.TruncateBelowMarkRequest: "truncate-request",
    storage.RecordHeaderRequest: "record-header-request",
    storage.RecordRequest: "record-request",
    storage.MaxTransactionIdRequest: "max-transaction-request",
    storage.RecordHeaderListRequest: "record-header-list-request",
    storage.RecordListRequest: "record-list-request",
    storage.BoundedRecordListRequest: "bounded-record-list-request",
    storage.CommittedRecordListRequest: "committed-record-list-request",
    storage.StoredRecordListRequest: "stored-record-list-request",
}
COUNTER_NAMES = tuple(dict.fromkeys(_COUNTERS.values()))
"""Names of the request counters (spec/behaviour.md section 13).

Waltz 0.13.2 has no counters for bounded, committed and stored lists."""


class StoragePartition:
    """An open partition."""

    def __init__(self, partition: int, log: PartitionLog, control: ControlFile) -> None:
        self.partition = partition
        """The id of the partition."""
        self.log = log
        self.requests: Counter[str] = Counter()
        """How many requests other than appends were executed or refused, for each name in
        `COUNTER_NAMES`, and for `_WITHOUT_METRIC`."""
        self.appended_records = 0
        """How many records of accepted appends became durable."""
        self.append_latency = Timer()
        """The times in seconds from the arrival of an append until it was durable."""
        self._control = control
        # The fence (see `fencing`) is the higher of two values. Each value is written by one thread
        # at a time, so no update is lost, although there is no lock. The engine's thread writes the
        # first value when a request arrives. The thread that uses the partition writes the second
        # value when it admits a request (`test_fence_raised_during_admission_is_not_lowered`).
        self._highest_arrived = self.info.session_id
        self._highest_admitted = self.info.session_id

    @property
    def info(self) -> PartitionInfo:
        """The persisted session, marks and flags."""
        return self._control.info(self.partition)

    def raise_fence(self, request: storage.Request) -> None:
        """Refuse requests of sessions older than that of ``request``, which has arrived.

        Only the thread that runs `Engine.step` may call this.
        """
        if raises_fence(request) and is_possible(request.session_id, self.info):
            self._highest_arrived = max(self._highest_arrived, request.session_id)

    def admit(self, request: storage.Request, version: int) -> None:
        """Check that a request with protocol ``version`` may be executed; raises RequestRefused.

        This raises the fence first: `raise_fence` was not called if the partition was not assigned
        yet when the request arrived.
        """
        if raises_fence(request) and is_possible(request.session_id, self.info):
            self._highest_admitted = max(self._highest_admitted, request.session_id)
        highest = max(self._highest_arrived, self._highest_admitted)
        check_request(request, version, self.info, highest)

    def handle(self, request: storage.Request, version: int) -> storage.Response:
        """Execute any request other than an append; return its answer.

        Raises RequestRefused, DiskFailed.
        """
        if is_read(request):
            return result_of(self.read_steps(request, version))
        self._count_and_admit(request, version)
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
            case storage.TruncateRequest() | storage.TruncateBelowMarkRequest():
                check_truncation(request, version, self.info, self.log.max_id)
                if request.transaction_id < self.log.max_id:
                    with _refusing_read_errors():
                        self.log.truncate(request.transaction_id)
                    # A copy of the files from before the truncation is refused from now on.
                    self._control.advance_generation()
                return storage.MaxTransactionIdResponse(*context, self.log.max_id)
            case storage.MaxTransactionIdRequest():
                return storage.MaxTransactionIdResponse(*context, self.log.max_id)
            case _:
                raise UnknownRequest(f"unknown message type: {type(request).__name__}")

    def read_steps(self, request: storage.Request, version: int) -> Steps[storage.Response]:
        """Answer a request that only reads records (`is_read`), in steps (see `log_reads`).

        The first step counts the request and checks that it may be executed. Raises RequestRefused.
        """
        self._count_and_admit(request, version)
        context = (request.session_id, request.seq_num, request.partition)
        log = self.log
        with _refusing_read_errors():
            match request:
                case storage.RecordHeaderRequest(transaction_id=transaction_id):
                    headers = yield from log.header_steps(transaction_id, 1)
                    return storage.RecordHeaderResponse(*context, headers[0] if headers else None)
                case storage.RecordRequest(transaction_id=transaction_id):
                    batch = yield from log.batch_steps(transaction_id, 1, READ_LIMIT_BYTES)
                    return storage.RecordResponse(*context, batch if batch.count else None)
                case storage.RecordHeaderListRequest(first_id=first_id, max_records=max_records):
                    count = min(max_records, _MAX_HEADERS)
                    # A server of Waltz 0.13.2 might never request the rest of a shorter list.
                    least = LEAST_HEADERS if version == 0 else 1
                    headers = yield from log.header_steps(first_id, count, least)
                    return storage.RecordHeaderListResponse(*context, headers)
                case storage.RecordListRequest(first_id=first_id, max_records=max_records):
                    batch = yield from log.batch_steps(first_id, max_records, READ_LIMIT_BYTES)
                    return storage.RecordListResponse(*context, batch)
                case storage.BoundedRecordListRequest(_, _, _, first_id, max_records, max_bytes):
                    size = min(max_bytes, BULK_LIMIT_BYTES)
                    batch = yield from log.batch_steps(first_id, max_records, size)
                    return storage.RecordListResponse(*context, batch)
                case storage.CommittedRecordListRequest():
                    return (yield from self._committed_steps(request))
                case _:
                    raise AssertionError(f"{type(request).__name__} is not a read of records")

    def count_append(self, records: int, seconds: float) -> None:
        """Count an accepted append of this many records, which was durable after ``seconds``."""
        self.appended_records += records
        self.append_latency.add(seconds)

    def records(
        self, first_id: int, max_records: int, max_bytes: int = READ_LIMIT_BYTES
    ) -> RecordBatch:
        """Return consecutive records from ``first_id`` on, without a check of session or switches.

        The bounds are those of `PartitionLog.read_batch`. Requests on the admin port do the same in
        steps (`record_steps`). Raises RequestRefused.
        """
        return result_of(self.record_steps(first_id, max_records, max_bytes))

    def record_steps(
        self, first_id: int, max_records: int, max_bytes: int = READ_LIMIT_BYTES
    ) -> Steps[RecordBatch]:
        """Do what `records` does, in steps."""
        with _refusing_read_errors():
            return (yield from self.log.batch_steps(first_id, max_records, max_bytes))

    def repair(self, records: RecordBatch, checksum: int) -> tuple[CheckedRecords, ...]:
        """Replace damaged records by those of a peer, durably.

        Return the results of the checks of these records after the repair. ``checksum`` is that of
        `log_repair.repair_records`. Only records up to the local low-water mark are repaired. The
        session that set the mark, and every later one, began with these records, so the peer has
        the same transactions under these ids. Above the mark, the peer may have another transaction
        under the same id. Raises RequestRefused, DiskFailed.
        """
        mark = self.info.local_low_water_mark
        if records.count and records.first_id() + records.count - 1 > mark:
            raise RequestRefused(
                f"partition {self.partition}: only records up to the local low-water mark {mark} "
                "are repaired; the mark rises when a server begins the next store session"
            )
        with _refusing_read_errors():
            return self.log.repair(records, checksum)

    def scan(
        self, first_id: int, max_records: int, max_bytes: int, checksum: int
    ) -> ScannedRecords:
        """Continue the CRC-32 ``checksum`` over consecutive records (see `PartitionLog.scan`).

        Raises RequestRefused.
        """
        with _refusing_read_errors():
            return self.log.scan(first_id, max_records, max_bytes, checksum)

    def _count_and_admit(self, request: storage.Request, version: int) -> None:
        """Count a request other than an append, and do what `admit` does."""
        self.requests[_COUNTERS.get(type(request), _WITHOUT_METRIC)] += 1
        self.admit(request, version)

    def _committed_steps(
        self, request: storage.CommittedRecordListRequest
    ) -> Steps[storage.Response]:
        """Answer a request for committed records.

        A StoredRecordListRequest, which is a subclass, is answered in disk form.
        """
        context = (request.session_id, request.seq_num, request.partition)
        max_records = min(request.max_records, request.last_id + 1 - request.first_id)
        size = min(request.max_bytes, BULK_LIMIT_BYTES)
        if isinstance(request, storage.StoredRecordListRequest):
            stored = yield from self.log.stored_steps(request.first_id, max_records, size)
            return storage.StoredRecordListResponse(*context, stored)
        batch = yield from self.log.batch_steps(request.first_id, max_records, size)
        return storage.RecordListResponse(*context, batch)

    def _begin_session(self, session_id: int, low_water_mark: int) -> None:
        """Persist the session and its marks; raises RequestRefused, DiskFailed."""
        info = begin_session(self.info, session_id, low_water_mark, self.log.max_id)
        # Records up to the local mark count as known clean: recovery takes an invalid record among
        # them for damage, not for a torn tail. So the records and their index entries must be
        # durable before the mark. Otherwise a loss of power would make this replica refuse the
        # partition (planted bug "marks cover records that are not flushed").
        self.log.flush_all()
        self._control.update(self.partition, info)


@contextmanager
def _refusing_read_errors() -> Iterator[None]:
    """Convert an OSError to RequestRefused.

    A failed read changes nothing, so only the request fails. A failed change of files raises
    DiskFailed instead, which ends the process.
    """
    try:
        yield
    except OSError as error:
        raise RequestRefused(f"the storage disk cannot be read: {error.strerror}") from error


def failure(request: storage.Request, refused: RequestRefused) -> storage.FailureResponse:
    """Return the answer to a refused request."""
    return storage.FailureResponse(
        request.session_id, request.seq_num, request.partition, RpcFailure(refused.message)
    )


def append_answers(
    requests: Sequence[storage.AppendRequest], outcomes: Sequence[RequestRefused | None]
) -> list[storage.Response]:
    """Return the answers to a group of appends; ``outcomes`` has None for each accepted one."""
    return [
        storage.SuccessResponse(request.session_id, request.seq_num, request.partition)
        if refused is None
        else failure(request, refused)
        for request, refused in zip(requests, outcomes, strict=True)
    ]
