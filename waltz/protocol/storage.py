"""Messages between server and storage (spec/wire.md sections 6 and 10). Pure.

Every message begins with the id of a store session, a sequence number, and the partition. An answer
has the sequence number of its request. ``offline`` marks requests of an offline recovery: it fills
a switched-off replica from a peer (`waltz.admin.offline_copy`).

A *store session* is a server's exclusive right to write the replicas of one partition. Each session
of a partition has a larger id than the one before. For each partition, a storage keeps a *fence*:
the largest session id of the requests that it has received. The storage refuses requests with a
smaller session id. `CommittedRecordListRequest` and `StoredRecordListRequest` raise no fence.
Neither do requests with an impossible session id: one so far above the persisted id that no server
can have it (spec/disk.md section 9).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from waltz.protocol.failures import FAILURE, RpcFailure
from waltz.protocol.fields import (
    BATCH,
    BOOLEAN,
    HEADER,
    HEADERS,
    INT,
    LONG,
    STORED_BATCH,
    UUID,
    OptionalCodec,
    SingleRecordCodec,
)
from waltz.protocol.frames import STORAGE, STORAGE_APPEND_TYPE, STORED_LIST_TYPE
from waltz.protocol.layout import Field, Layout, MessageTable
from waltz.protocol.records import RecordBatch, RecordHeader
from waltz.protocol.stored import StoredBatch

NO_SEQ = -2
"""The sequence number of a request that has no connection yet.

The sender replaces it when it chooses the connection.
"""

BOUNDED_LISTS_SINCE = 1
"""The first version whose requests for records can limit the bytes of the answer."""

COMMITTED_LISTS_SINCE = 1
"""The first version that reads committed records without raising the fence."""

STORED_LISTS_SINCE = 2
"""The first version that reads records in their form on disk."""

TRUNCATE_BELOW_MARK_SINCE = 3
"""The first version that has a separate request for a truncation below the low-water mark."""


@dataclass(frozen=True, slots=True)
class _Message:
    """The fields at the beginning of every message."""

    session_id: int
    seq_num: int
    partition: int


@dataclass(frozen=True, slots=True)
class OpenRequest(_Message):
    """The first request on a connection. Its session id, sequence number and partition are -1.

    A node refuses it unless the cluster of the node has this ``key`` and ``num_partitions``.
    """

    key: uuid.UUID
    num_partitions: int


@dataclass(frozen=True, slots=True)
class LastSessionInfoRequest(_Message):
    """Raise the fence to ``session_id``, and request the session that the storage persisted."""

    offline: bool = False


@dataclass(frozen=True, slots=True)
class LastSessionInfoResponse(_Message):
    """The persisted session, its low-water mark, and the replica's local low-water mark.

    The low-water mark is the high-water mark at which the session began. The local low-water mark
    is this replica's last id at that time; it is smaller if the replica lagged.
    """

    last_session_id: int
    low_water_mark: int
    local_low_water_mark: int


@dataclass(frozen=True, slots=True)
class SetLowWaterMarkRequest(_Message):
    """Persist ``session_id`` as the current session, which began at ``low_water_mark``."""

    low_water_mark: int
    offline: bool = False


@dataclass(frozen=True, slots=True)
class TruncateRequest(_Message):
    """Remove all records after ``transaction_id``.

    The answer is a MaxTransactionIdResponse with the last id that remains.

    The records up to the low-water mark are normally committed. So from version
    `TRUNCATE_BELOW_MARK_SINCE` on, a storage refuses to truncate its log below this mark by this
    request. `TruncateBelowMarkRequest` is for the exception. In older versions, servers use this
    request for the exception, too, so a storage cannot refuse it in general (spec/wire.md section
    10).
    """

    transaction_id: int
    offline: bool = False


@dataclass(frozen=True, slots=True)
class TruncateBelowMarkRequest(_Message):
    """Remove all records after ``transaction_id``, although it is below the low-water mark.

    The answer is that of a TruncateRequest.

    A session persists its low-water mark on the storages before it opens. If the session never
    opened, records up to this mark are perhaps not committed. Only a server can know that a session
    never opened. ``low_water_mark`` is the mark of that session, which the server has read from
    this storage. A storage that has another mark by now refuses the request: another session has
    written it meanwhile, and may have opened.
    """

    transaction_id: int
    low_water_mark: int


@dataclass(frozen=True, slots=True)
class AppendRequest(_Message):
    """Append ``records``. The id of the first one must be the next id of the log."""

    records: RecordBatch
    offline: bool = False


@dataclass(frozen=True, slots=True)
class SuccessResponse(_Message):
    """The request was executed, and its effect is durable.

    This answers an OpenRequest, a SetLowWaterMarkRequest or an AppendRequest.
    """


@dataclass(frozen=True, slots=True)
class FailureResponse(_Message):
    """The request was not executed; ``failure`` has the reason. This can answer any request."""

    failure: RpcFailure


@dataclass(frozen=True, slots=True)
class RecordHeaderRequest(_Message):
    """Request one record without its data."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class RecordHeaderResponse(_Message):
    """The header, None if the log does not have the transaction."""

    header: RecordHeader | None


@dataclass(frozen=True, slots=True)
class RecordRequest(_Message):
    """Request one record."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class RecordResponse(_Message):
    """The record as a batch of one, None if the log does not have the transaction."""

    record: RecordBatch | None


@dataclass(frozen=True, slots=True)
class MaxTransactionIdRequest(_Message):
    """Request the last id in the log, committed or not."""

    offline: bool = False


@dataclass(frozen=True, slots=True)
class MaxTransactionIdResponse(_Message):
    """The last id in the log, -1 if the log is empty."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class RecordHeaderListRequest(_Message):
    """Request up to ``max_records`` headers from ``first_id`` on."""

    first_id: int
    max_records: int


@dataclass(frozen=True, slots=True)
class RecordHeaderListResponse(_Message):
    """Consecutive headers; the list stops at the first absent id."""

    headers: tuple[RecordHeader, ...]


@dataclass(frozen=True, slots=True)
class RecordListRequest(_Message):
    """Request up to ``max_records`` records from ``first_id`` on."""

    first_id: int
    max_records: int


@dataclass(frozen=True, slots=True)
class RecordListResponse(_Message):
    """Consecutive records; the list stops at the first absent id.

    This also answers a BoundedRecordListRequest or a CommittedRecordListRequest.
    """

    records: RecordBatch


@dataclass(frozen=True, slots=True)
class BoundedRecordListRequest(_Message):
    """Request records from ``first_id`` on, at most ``max_records`` and ``max_bytes``.

    The answer has the first record even if that record is larger than ``max_bytes``.
    """

    first_id: int
    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class CommittedRecordListRequest(_Message):
    """Request records up to ``last_id``, which the reader knows to be committed.

    Readers other than servers use this request, because it never raises the fence: a reader must
    not end the session of the server that writes. A storage refuses the request if ``session_id``
    is not the session that the storage persisted: a replica of an older session may still have
    other records at the same ids. ``max_records`` and ``max_bytes`` are as in
    `BoundedRecordListRequest`.
    """

    first_id: int
    last_id: int
    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class StoredRecordListRequest(CommittedRecordListRequest):
    """Request committed records in their form on disk. The reader verifies the checksums."""


@dataclass(frozen=True, slots=True)
class StoredRecordListResponse(_Message):
    """Consecutive records of one segment, which the storage has not verified.

    The list stops at the first absent id.
    """

    records: StoredBatch


_OFFLINE = Field("offline", BOOLEAN)
_TRANSACTION_ID = (Field("transaction_id", LONG),)
_RANGE = (Field("first_id", LONG), Field("max_records", INT))
_MAX_BYTES = Field("max_bytes", INT)
_COMMITTED_RANGE = (
    Field("first_id", LONG),
    Field("last_id", LONG),
    Field("max_records", INT),
    _MAX_BYTES,
)

_TABLE = MessageTable(
    STORAGE,
    (Field("session_id", LONG), Field("seq_num", LONG), Field("partition", INT)),
    (
        Layout(OpenRequest, 1, (Field("key", UUID), Field("num_partitions", INT))),
        Layout(LastSessionInfoRequest, 2, (_OFFLINE,)),
        Layout(
            LastSessionInfoResponse,
            3,
            (
                Field("last_session_id", LONG),
                Field("low_water_mark", LONG),
                Field("local_low_water_mark", LONG),
            ),
        ),
        Layout(SetLowWaterMarkRequest, 4, (Field("low_water_mark", LONG), _OFFLINE)),
        Layout(TruncateRequest, 5, (*_TRANSACTION_ID, _OFFLINE)),
        Layout(AppendRequest, STORAGE_APPEND_TYPE, (Field("records", BATCH), _OFFLINE)),
        Layout(SuccessResponse, 7),
        Layout(FailureResponse, 8, (Field("failure", FAILURE),)),
        Layout(RecordHeaderRequest, 9, _TRANSACTION_ID),
        Layout(RecordHeaderResponse, 10, (Field("header", OptionalCodec(HEADER)),)),
        Layout(RecordRequest, 11, _TRANSACTION_ID),
        Layout(RecordResponse, 12, (Field("record", OptionalCodec(SingleRecordCodec())),)),
        Layout(MaxTransactionIdRequest, 13, (_OFFLINE,)),
        Layout(MaxTransactionIdResponse, 14, _TRANSACTION_ID),
        Layout(RecordHeaderListRequest, 15, _RANGE),
        Layout(RecordHeaderListResponse, 16, (Field("headers", HEADERS),)),
        Layout(RecordListRequest, 17, _RANGE),
        Layout(RecordListResponse, 18, (Field("records", BATCH),)),
        Layout(BoundedRecordListRequest, 19, (*_RANGE, _MAX_BYTES), since=BOUNDED_LISTS_SINCE),
        Layout(CommittedRecordListRequest, 20, _COMMITTED_RANGE, since=COMMITTED_LISTS_SINCE),
        Layout(StoredRecordListRequest, 21, _COMMITTED_RANGE, since=STORED_LISTS_SINCE),
        Layout(
            StoredRecordListResponse,
            STORED_LIST_TYPE,
            (Field("records", STORED_BATCH),),
            since=STORED_LISTS_SINCE,
        ),
        Layout(
            TruncateBelowMarkRequest,
            23,
            (*_TRANSACTION_ID, Field("low_water_mark", LONG)),
            since=TRUNCATE_BELOW_MARK_SINCE,
        ),
    ),
)

Request = (
    OpenRequest
    | LastSessionInfoRequest
    | SetLowWaterMarkRequest
    | TruncateRequest
    | TruncateBelowMarkRequest
    | AppendRequest
    | RecordHeaderRequest
    | RecordRequest
    | MaxTransactionIdRequest
    | RecordHeaderListRequest
    | RecordListRequest
    | BoundedRecordListRequest
    | CommittedRecordListRequest
    | StoredRecordListRequest
)

Response = (
    LastSessionInfoResponse
    | SuccessResponse
    | FailureResponse
    | RecordHeaderResponse
    | RecordResponse
    | MaxTransactionIdResponse
    | RecordHeaderListResponse
    | RecordListResponse
    | StoredRecordListResponse
)

Message = Request | Response


def encode(message: Message, version: int) -> bytes:
    """Return the whole frame of ``message``; raises UnsupportedByPeer."""
    return _TABLE.encode(message, version)


def encode_parts(message: Message, version: int) -> list[bytes]:
    """Return the frame in parts, which the caller sends in order. Records are not copied.

    Raises UnsupportedByPeer.
    """
    return _TABLE.encode_parts(message, version)


def decode(body: bytes, version: int) -> Message:
    """Return the message in ``body``; raises MalformedMessage."""
    message: Message = _TABLE.decode(body, version)
    return message
