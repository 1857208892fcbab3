"""Encode and decode messages between client and server (spec/wire.md sections 4, 9, 12, 13). Pure.

The table in this module defines how each message of `client_messages` is encoded in each version.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz.protocol.batches import ANSWERS, APPENDS, OUTCOMES, check_locks
from waltz.protocol.client_messages import (
    AddPreferredPartitionRequest,
    AddPreferredPartitionResponse,
    AnsweredAppendRequest,
    AppendAnswers,
    AppendBatchRequest,
    AppendBatchResponse,
    AppendRequest,
    CheckStorageConnectivityRequest,
    CheckStorageConnectivityResponse,
    FeedData,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    HeadersRequest,
    HeadersResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    MountState,
    RecordsRequest,
    RecordsResponse,
    RemovePreferredPartitionRequest,
    RemovePreferredPartitionResponse,
    RequestDenied,
    ServerPartitionsAssignmentRequest,
    ServerPartitionsAssignmentResponse,
    ServerPartitionsHealthStatRequest,
    ServerPartitionsHealthStatResponse,
    StoredRecordsResponse,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz.protocol.client_numbers import (
    ANSWERED_APPEND_TYPE,
    APPEND_ANSWERS_SINCE,
    APPEND_ANSWERS_TYPE,
    APPEND_BATCH_SINCE,
    APPEND_BATCH_TYPE,
    APPEND_LOCKS_SINCE,
    APPEND_TYPE,
    CLIENT_AHEAD_SINCE,
    DENIALS_SINCE,
    FEED_DATA_TYPE,
    HEADERS_RESPONSE_TYPE,
    RANGES_SINCE,
    READ_LOCKS_SINCE,
    REQUEST_DENIED_TYPE,
    STORED_RANGES_SINCE,
    STORED_RECORDS_TYPE,
    TRANSACTION_DATA_REQUEST_TYPE,
)
from waltz.protocol.fields import (
    BOOLEAN,
    BYTES,
    HEADERS,
    INT,
    INTS,
    LONG,
    REQ_ID,
    STORED_BATCH,
    TEXT,
    UNCHECKED_BATCH,
    MalformedMessage,
    MappingCodec,
    Reader,
)
from waltz.protocol.frames import CLIENT_SERVER, encode_frame
from waltz.protocol.layout import Field, Layout, MessageTable
from waltz.protocol.records import ReqId, checksum

__all__ = [
    "AddPreferredPartitionRequest",
    "AddPreferredPartitionResponse",
    "AnsweredAppendRequest",
    "AppendAnswers",
    "AppendBatchRequest",
    "AppendBatchResponse",
    "AppendRequest",
    "CheckStorageConnectivityRequest",
    "CheckStorageConnectivityResponse",
    "FeedData",
    "FeedRequest",
    "FeedSuspended",
    "FlushRequest",
    "FlushResponse",
    "HeadersRequest",
    "HeadersResponse",
    "HighWaterMarkRequest",
    "HighWaterMarkResponse",
    "LockFailure",
    "Message",
    "MountRequest",
    "MountResponse",
    "MountState",
    "RecordsRequest",
    "RecordsResponse",
    "RemovePreferredPartitionRequest",
    "RemovePreferredPartitionResponse",
    "RequestDenied",
    "ServerPartitionsAssignmentRequest",
    "ServerPartitionsAssignmentResponse",
    "ServerPartitionsHealthStatRequest",
    "ServerPartitionsHealthStatResponse",
    "StoredRecordsResponse",
    "TransactionDataRequest",
    "TransactionDataResponse",
    "decode",
    "encode",
    "encode_parts",
    "frame",
]


class _MountStateAsBooleanCodec:
    """The mount state in versions 0 to 2: whether it is READY. CLIENT_AHEAD becomes NOT_READY."""

    def write(self, out: list[bytes], value: MountState) -> None:
        BOOLEAN.write(out, value is MountState.READY)

    def read(self, reader: Reader) -> MountState:
        return MountState.READY if BOOLEAN.read(reader) else MountState.NOT_READY


class _MountStateAsIntCodec:
    """The mount state in version 3 and later."""

    def write(self, out: list[bytes], value: MountState) -> None:
        INT.write(out, value)

    def read(self, reader: Reader) -> MountState:
        number = INT.read(reader)
        try:
            return MountState(number)
        except ValueError:
            raise MalformedMessage(f"unknown mount state: {number}") from None


class _DataOrErrorCodec:
    """The last fields of TransactionDataResponse, as a tuple (data, checksum, error).

    On the wire, a boolean comes first. Data and checksum follow if it is true, otherwise the error.
    """

    def write(self, out: list[bytes], value: tuple[bytes | None, int, str | None]) -> None:
        data, crc, error = value
        BOOLEAN.write(out, data is not None)
        if data is not None:
            BYTES.write(out, data)
            INT.write(out, crc)
        else:
            TEXT.write(out, error)

    def read(self, reader: Reader) -> tuple[bytes | None, int, str | None]:
        if BOOLEAN.read(reader):
            # Null data read as empty data: in the message, None would mean an error.
            return BYTES.read(reader) or b"", INT.read(reader), None
        return None, 0, TEXT.read(reader)


@dataclass(frozen=True, slots=True)
class _DataResponseOnWire:
    """A TransactionDataResponse whose last three fields are one field, ``content``.

    The table encodes each field by itself. But the boolean on the wire says which of the three
    follow, so one codec must encode them together.
    """

    req_id: ReqId
    transaction_id: int
    content: tuple[bytes | None, int, str | None]


_SMALLEST_PAIR_BYTES = 5
"""A pair has a key and a boolean. The key is an int, or a text, which begins with an int."""

_PARTITIONS = (Field("partitions", INTS),)
_TRANSACTION_ID = (Field("transaction_id", LONG),)
_MARK = Field("client_high_water_mark", LONG)
_APPEND = (
    _MARK,
    Field("write_locks", INTS),
    Field("read_locks", INTS, since=READ_LOCKS_SINCE, absent=()),
    Field("append_locks", INTS, since=APPEND_LOCKS_SINCE, absent=()),
    Field("header", INT),
    Field("data", BYTES),
    Field("checksum", INT),
)
_ERROR_AND_MARK = (Field("error", TEXT), Field("high_water_mark", LONG))

# A layout has a message's class, type byte and fields. A type byte that other modules use, too, has
# a name in `client_numbers`.
_TABLE = MessageTable(
    CLIENT_SERVER,
    (Field("req_id", REQ_ID),),
    (
        Layout(
            MountRequest,
            0,
            (
                _MARK,
                Field("seq_num", LONG),
                Field("fed", BOOLEAN, since=APPEND_ANSWERS_SINCE, absent=True),
            ),
        ),
        Layout(
            MountResponse,
            1,
            (
                Field(
                    "state",
                    _MountStateAsIntCodec(),
                    since=CLIENT_AHEAD_SINCE,
                    older=_MountStateAsBooleanCodec(),
                ),
            ),
        ),
        Layout(AppendRequest, APPEND_TYPE, _APPEND),
        Layout(FeedRequest, 3, (_MARK,)),
        Layout(FeedData, FEED_DATA_TYPE, (*_TRANSACTION_ID, Field("header", INT))),
        Layout(FeedSuspended, 5),
        Layout(TransactionDataRequest, TRANSACTION_DATA_REQUEST_TYPE, _TRANSACTION_ID),
        Layout(_DataResponseOnWire, 7, (*_TRANSACTION_ID, Field("content", _DataOrErrorCodec()))),
        Layout(FlushRequest, 8),
        Layout(FlushResponse, 9, _TRANSACTION_ID),
        Layout(LockFailure, 10, _TRANSACTION_ID),
        Layout(HighWaterMarkRequest, 11),
        Layout(HighWaterMarkResponse, 12, _TRANSACTION_ID),
        Layout(CheckStorageConnectivityRequest, 13, since=1),
        Layout(
            CheckStorageConnectivityResponse,
            14,
            (Field("storages", MappingCodec(TEXT, BOOLEAN, pair_bytes=_SMALLEST_PAIR_BYTES)),),
            since=1,
        ),
        Layout(ServerPartitionsAssignmentRequest, 15, since=2),
        Layout(ServerPartitionsAssignmentResponse, 16, _PARTITIONS, since=2),
        Layout(AddPreferredPartitionRequest, 17, _PARTITIONS, since=2),
        Layout(AddPreferredPartitionResponse, 18, (Field("result", BOOLEAN),), since=2),
        Layout(RemovePreferredPartitionRequest, 19, _PARTITIONS, since=2),
        Layout(RemovePreferredPartitionResponse, 20, (Field("result", BOOLEAN),), since=2),
        Layout(ServerPartitionsHealthStatRequest, 21, since=4),
        Layout(
            ServerPartitionsHealthStatResponse,
            22,
            (Field("health", MappingCodec(INT, BOOLEAN, pair_bytes=_SMALLEST_PAIR_BYTES)),),
            since=4,
        ),
        Layout(
            RecordsRequest,
            23,
            (
                Field("first_id", LONG),
                Field("max_records", INT),
                Field("max_bytes", INT),
                Field("wait_ms", INT),
                Field("stored", BOOLEAN, since=STORED_RANGES_SINCE, absent=False),
            ),
            since=RANGES_SINCE,
        ),
        Layout(
            RecordsResponse,
            24,
            (*_ERROR_AND_MARK, Field("records", UNCHECKED_BATCH)),
            since=RANGES_SINCE,
        ),
        Layout(
            HeadersRequest,
            25,
            (Field("first_id", LONG), Field("max_headers", INT)),
            since=RANGES_SINCE,
        ),
        Layout(
            HeadersResponse,
            HEADERS_RESPONSE_TYPE,
            (*_ERROR_AND_MARK, Field("headers", HEADERS)),
            since=RANGES_SINCE,
        ),
        Layout(
            AppendBatchRequest,
            APPEND_BATCH_TYPE,
            (_MARK, Field("appends", APPENDS)),
            since=APPEND_BATCH_SINCE,
        ),
        Layout(AppendBatchResponse, 28, (Field("outcomes", OUTCOMES),), since=APPEND_BATCH_SINCE),
        Layout(RequestDenied, REQUEST_DENIED_TYPE, (Field("error", TEXT),), since=DENIALS_SINCE),
        Layout(AnsweredAppendRequest, ANSWERED_APPEND_TYPE, _APPEND, since=APPEND_ANSWERS_SINCE),
        Layout(
            AppendAnswers,
            APPEND_ANSWERS_TYPE,
            (Field("high_water_mark", LONG), Field("answers", ANSWERS)),
            since=APPEND_ANSWERS_SINCE,
        ),
        Layout(
            StoredRecordsResponse,
            STORED_RECORDS_TYPE,
            (Field("high_water_mark", LONG), Field("records", STORED_BATCH)),
            since=STORED_RANGES_SINCE,
        ),
    ),
)

Message = (
    MountRequest
    | MountResponse
    | AppendRequest
    | AnsweredAppendRequest
    | AppendAnswers
    | FeedRequest
    | FeedData
    | FeedSuspended
    | TransactionDataRequest
    | TransactionDataResponse
    | FlushRequest
    | FlushResponse
    | LockFailure
    | HighWaterMarkRequest
    | HighWaterMarkResponse
    | CheckStorageConnectivityRequest
    | CheckStorageConnectivityResponse
    | ServerPartitionsAssignmentRequest
    | ServerPartitionsAssignmentResponse
    | AddPreferredPartitionRequest
    | AddPreferredPartitionResponse
    | RemovePreferredPartitionRequest
    | RemovePreferredPartitionResponse
    | ServerPartitionsHealthStatRequest
    | ServerPartitionsHealthStatResponse
    | RecordsRequest
    | RecordsResponse
    | StoredRecordsResponse
    | HeadersRequest
    | HeadersResponse
    | AppendBatchRequest
    | AppendBatchResponse
    | RequestDenied
)


def encode(message: Message, version: int) -> bytes:
    """Return the whole frame of ``message``; raises UnsupportedByPeer."""
    if isinstance(message, TransactionDataResponse):
        content = (message.data, message.checksum, message.error)
        wire = _DataResponseOnWire(message.req_id, message.transaction_id, content)
        return _TABLE.encode(wire, version)
    return _TABLE.encode(message, version)


def encode_parts(message: StoredRecordsResponse, version: int) -> list[bytes]:
    """Return the frame in parts, which the caller sends in order. Records are not copied.

    Raises UnsupportedByPeer.
    """
    return _TABLE.encode_parts(message, version)


def decode(body: bytes, version: int) -> Message:
    """Return the message in ``body``.

    Raises MalformedMessage if the body is malformed, or an append's data do not match its checksum.
    """
    message = _TABLE.decode(body, version)
    if isinstance(message, _DataResponseOnWire):
        return TransactionDataResponse(message.req_id, message.transaction_id, *message.content)
    if isinstance(message, AppendRequest):
        if message.data is None:
            raise MalformedMessage("append without data")
        check_locks(sum(map(len, (message.write_locks, message.read_locks, message.append_locks))))
        if checksum(message.data) != message.checksum:
            raise MalformedMessage("data does not match its checksum")
    return message  # type: ignore[no-any-return]


def frame(body: bytes, version: int) -> bytes:
    """Return the frame of ``body``, a message that is already encoded, with its type byte."""
    return encode_frame(CLIENT_SERVER.magic, version, body)
