"""Messages between server and storage (spec/wire.md sections 6 and 10). Pure.

Every message begins with the id of the store session, a sequence number, and the partition. An
answer has the sequence number of its request. ``offline`` marks requests of an offline recovery
(spec/behaviour.md section 11).
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
    STORED,
    UUID,
    Optional,
    SingleRecord,
)
from waltz.protocol.frames import STORAGE
from waltz.protocol.layout import Field, Layout, MessageTable
from waltz.protocol.records import RecordBatch, RecordHeader
from waltz.protocol.stored import StoredBatch

NO_SEQ = -2
"""Placeholder: the connection replaces it by a sequence number when it sends the request."""

BOUNDED_LISTS_SINCE = 1
"""The first version with lists of records bounded in bytes."""

COMMITTED_LISTS_SINCE = 1
"""The first version with reads of committed records that never raise the fence."""

STORED_LISTS_SINCE = 2
"""The first version with reads of records in their form on disk."""


@dataclass(frozen=True, slots=True)
class _Message:
    """The fields at the beginning of every message."""

    session_id: int
    seq_num: int
    partition: int


@dataclass(frozen=True, slots=True)
class OpenRequest(_Message):
    """The first request on a connection; a node of another cluster refuses it. All ids are -1."""

    key: uuid.UUID
    num_partitions: int


@dataclass(frozen=True, slots=True)
class LastSessionInfoRequest(_Message):
    """Request the persisted session; raises the fence to ``session_id``."""

    offline: bool = False


@dataclass(frozen=True, slots=True)
class LastSessionInfoResponse(_Message):
    """The persisted session and its marks."""

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
    """Remove everything after ``transaction_id``; answered with the new max id."""

    transaction_id: int
    offline: bool = False


@dataclass(frozen=True, slots=True)
class AppendRequest(_Message):
    """Append ``records``; their ids must continue those of the log."""

    records: RecordBatch
    offline: bool = False


@dataclass(frozen=True, slots=True)
class SuccessResponse(_Message):
    """The request was executed, and its effect is durable."""


@dataclass(frozen=True, slots=True)
class FailureResponse(_Message):
    """The request was not executed; ``failure`` has the reason."""

    failure: RpcFailure


@dataclass(frozen=True, slots=True)
class RecordHeaderRequest(_Message):
    """Request one record without its data."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class RecordHeaderResponse(_Message):
    """The header, None if there is no such transaction."""

    header: RecordHeader | None


@dataclass(frozen=True, slots=True)
class RecordRequest(_Message):
    """Request one record."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class RecordResponse(_Message):
    """The record as a batch of one, None if there is no such transaction."""

    record: RecordBatch | None


@dataclass(frozen=True, slots=True)
class MaxTransactionIdRequest(_Message):
    """Request the last id in the log, committed or not."""

    offline: bool = False


@dataclass(frozen=True, slots=True)
class MaxTransactionIdResponse(_Message):
    """The last id in the log, -1 if it is empty."""

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
    """Consecutive records; the list stops at the first absent id."""

    records: RecordBatch


@dataclass(frozen=True, slots=True)
class BoundedRecordListRequest(_Message):
    """Request records from ``first_id`` on, within both bounds, or one larger record."""

    first_id: int
    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class CommittedRecordListRequest(_Message):
    """Request committed records, up to ``last_id``, for readers other than servers.

    It never raises the fence. A storage refuses it unless its persisted session is ``session_id``.
    """

    first_id: int
    last_id: int
    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class StoredRecordListRequest(CommittedRecordListRequest):
    """Request committed records in their form on disk; the reader verifies their checksums."""


@dataclass(frozen=True, slots=True)
class StoredRecordListResponse(_Message):
    """Consecutive unverified records of one segment; the list stops at the first absent id."""

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
        Layout(AppendRequest, 6, (Field("records", BATCH), _OFFLINE)),
        Layout(SuccessResponse, 7),
        Layout(FailureResponse, 8, (Field("failure", FAILURE),)),
        Layout(RecordHeaderRequest, 9, _TRANSACTION_ID),
        Layout(RecordHeaderResponse, 10, (Field("header", Optional(HEADER)),)),
        Layout(RecordRequest, 11, _TRANSACTION_ID),
        Layout(RecordResponse, 12, (Field("record", Optional(SingleRecord())),)),
        Layout(MaxTransactionIdRequest, 13, (_OFFLINE,)),
        Layout(MaxTransactionIdResponse, 14, _TRANSACTION_ID),
        Layout(RecordHeaderListRequest, 15, _RANGE),
        Layout(RecordHeaderListResponse, 16, (Field("headers", HEADERS),)),
        Layout(RecordListRequest, 17, _RANGE),
        Layout(RecordListResponse, 18, (Field("records", BATCH),)),
        Layout(BoundedRecordListRequest, 19, (*_RANGE, _MAX_BYTES), since=BOUNDED_LISTS_SINCE),
        Layout(CommittedRecordListRequest, 20, _COMMITTED_RANGE, since=COMMITTED_LISTS_SINCE),
        Layout(StoredRecordListRequest, 21, _COMMITTED_RANGE, since=STORED_LISTS_SINCE),
        Layout(StoredRecordListResponse, 22, (Field("records", STORED),), since=STORED_LISTS_SINCE),
    ),
)

Request = (
    OpenRequest
    | LastSessionInfoRequest
    | SetLowWaterMarkRequest
    | TruncateRequest
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
    """Return the frame in parts, to be sent one after the other; records are not copied."""
    return _TABLE.encode_parts(message, version)


def decode(body: bytes, version: int) -> Message:
    """Return the message in ``body``; raises MalformedMessage."""
    message: Message = _TABLE.decode(body, version)
    return message
