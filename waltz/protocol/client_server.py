"""Messages between client and server (wire.md section 4, formats.md for version 5). Pure.

Every message begins with a `ReqId`. Requests about one partition carry the client's id, the
partition's generation as the client knows it, the partition, and a sequence number.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from enum import IntEnum

from waltz.protocol.batches import (
    APPENDS,
    OUTCOMES,
    BatchedAppend,
    Outcome,
    check_locks,
)
from waltz.protocol.fields import (
    BATCH,
    BOOLEAN,
    BYTES,
    HEADERS,
    INT,
    INTS,
    LONG,
    REQ_ID,
    TEXT,
    MalformedMessage,
    Mapping,
    Reader,
)
from waltz.protocol.frames import CLIENT_SERVER, encode_frame
from waltz.protocol.layout import Field, Layout, MessageTable
from waltz.protocol.records import RecordBatch, RecordHeader, ReqId, checksum


class MountState(IntEnum):
    """What a server says to a mount: go on, ask again later, or this client knows too much."""

    READY = 0
    NOT_READY = 1
    CLIENT_AHEAD = 2


@dataclass(frozen=True, slots=True)
class MountRequest:
    """Start a feed after ``client_high_water_mark``; ``req_id`` becomes the feed session's id."""

    req_id: ReqId
    client_high_water_mark: int
    seq_num: int


@dataclass(frozen=True, slots=True)
class MountResponse:
    """Answer to a mount. READY comes after everything up to the log's mark was fed."""

    req_id: ReqId
    state: MountState


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Append ``data`` if no write or read lock was taken after ``client_high_water_mark``."""

    req_id: ReqId
    client_high_water_mark: int
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    header: int
    data: bytes
    checksum: int


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Feed on after ``client_high_water_mark``."""

    req_id: ReqId
    client_high_water_mark: int


@dataclass(frozen=True, slots=True)
class FeedData:
    """A committed transaction; ``req_id`` is that of the append that made it."""

    req_id: ReqId
    transaction_id: int
    header: int


@dataclass(frozen=True, slots=True)
class FeedSuspended:
    """The feed ends here until the next FeedRequest."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class TransactionDataRequest:
    """Ask for the data of one transaction."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class TransactionDataResponse:
    """The data of one transaction, or why there is none (``data`` is None)."""

    req_id: ReqId
    transaction_id: int
    data: bytes | None
    checksum: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class FlushRequest:
    """Answer when every append received before this has been resolved."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class FlushResponse:
    """All earlier appends are resolved; the log's mark is ``transaction_id``."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class LockFailure:
    """Refused; try again once ``transaction_id`` has been seen."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class HighWaterMarkRequest:
    """Ask for a partition's last committed id."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class HighWaterMarkResponse:
    """The last committed id; -1 for an empty log, -2^63 while the partition opens."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityRequest:
    """Ask the server to dial every storage node it uses."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityResponse:
    """Storage ``host:port`` to whether it could be opened."""

    req_id: ReqId
    storages: MappingType[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentRequest:
    """Ask which partitions the server has."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentResponse:
    """The partitions that the server has an object for."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionRequest:
    """Ask the server to prefer these partitions from now on."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionResponse:
    """Whether the preference was taken."""

    req_id: ReqId
    result: bool


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionRequest:
    """Ask the server to stop preferring these partitions."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionResponse:
    """Whether the preference was dropped."""

    req_id: ReqId
    result: bool


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatRequest:
    """Ask for the health of the server's partitions."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatResponse:
    """Partition to whether its last store session could be created."""

    req_id: ReqId
    health: MappingType[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Ask for committed records from ``first_id`` on, within both bounds, but at least one.

    With ``wait_ms`` above 0 the answer waits until there is one, at most so long.
    """

    req_id: ReqId
    first_id: int
    max_records: int
    max_bytes: int
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecordsResponse:
    """Consecutive records and the log's mark, or why there is nothing to be said (``error``)."""

    req_id: ReqId
    error: str | None
    high_water_mark: int
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class HeadersRequest:
    """Ask for the headers of committed records from ``first_id`` on."""

    req_id: ReqId
    first_id: int
    max_headers: int


@dataclass(frozen=True, slots=True)
class HeadersResponse:
    """Consecutive headers and the log's mark, or why there is nothing to be said (``error``)."""

    req_id: ReqId
    error: str | None
    high_water_mark: int
    headers: tuple[RecordHeader, ...]


@dataclass(frozen=True, slots=True)
class AppendBatchRequest:
    """Append these in order; number *i* has the sequence number of ``req_id`` plus *i*.

    Each is checked by its own locks, against what others took after ``client_high_water_mark``.
    """

    req_id: ReqId
    client_high_water_mark: int
    appends: tuple[BatchedAppend, ...]


@dataclass(frozen=True, slots=True)
class AppendBatchResponse:
    """What became of each append of a batch, in its order."""

    req_id: ReqId
    outcomes: tuple[Outcome, ...]


class _MountStateAsBoolean:
    """Versions 0 to 2: CLIENT_AHEAD cannot be told and looks like NOT_READY."""

    def write(self, out: list[bytes], value: MountState) -> None:
        BOOLEAN.write(out, value is MountState.READY)

    def read(self, reader: Reader) -> MountState:
        return MountState.READY if BOOLEAN.read(reader) else MountState.NOT_READY


class _MountStateAsInt:
    """Version 3 and later."""

    def write(self, out: list[bytes], value: MountState) -> None:
        INT.write(out, value)

    def read(self, reader: Reader) -> MountState:
        number = INT.read(reader)
        try:
            return MountState(number)
        except ValueError:
            raise MalformedMessage(f"unknown mount state: {number}") from None


class _DataOrError:
    """The tail of TransactionDataResponse: (data, checksum) on success, otherwise the error."""

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
            return BYTES.read(reader) or b"", INT.read(reader), None
        return None, 0, TEXT.read(reader)


@dataclass(frozen=True, slots=True)
class _DataResponseOnWire:
    """TransactionDataResponse as the table sees it: three fields in one."""

    req_id: ReqId
    transaction_id: int
    content: tuple[bytes | None, int, str | None]


_PARTITIONS = (Field("partitions", INTS),)
_TRANSACTION_ID = (Field("transaction_id", LONG),)
_MARK = Field("client_high_water_mark", LONG)
_ERROR_AND_MARK = (Field("error", TEXT), Field("high_water_mark", LONG))

_TABLE = MessageTable(
    CLIENT_SERVER,
    (Field("req_id", REQ_ID),),
    (
        Layout(MountRequest, 0, (_MARK, Field("seq_num", LONG))),
        Layout(
            MountResponse,
            1,
            (Field("state", _MountStateAsInt(), since=3, older=_MountStateAsBoolean()),),
        ),
        Layout(
            AppendRequest,
            2,
            (
                _MARK,
                Field("write_locks", INTS),
                Field("read_locks", INTS, since=1, absent=()),
                Field("append_locks", INTS, since=2, absent=()),
                Field("header", INT),
                Field("data", BYTES),
                Field("checksum", INT),
            ),
        ),
        Layout(FeedRequest, 3, (_MARK,)),
        Layout(FeedData, 4, (*_TRANSACTION_ID, Field("header", INT))),
        Layout(FeedSuspended, 5),
        Layout(TransactionDataRequest, 6, _TRANSACTION_ID),
        Layout(_DataResponseOnWire, 7, (*_TRANSACTION_ID, Field("content", _DataOrError()))),
        Layout(FlushRequest, 8),
        Layout(FlushResponse, 9, _TRANSACTION_ID),
        Layout(LockFailure, 10, _TRANSACTION_ID),
        Layout(HighWaterMarkRequest, 11),
        Layout(HighWaterMarkResponse, 12, _TRANSACTION_ID),
        Layout(CheckStorageConnectivityRequest, 13, since=1),
        Layout(
            CheckStorageConnectivityResponse,
            14,
            (Field("storages", Mapping(TEXT, BOOLEAN, 5)),),
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
            (Field("health", Mapping(INT, BOOLEAN, 5)),),
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
            ),
            since=5,
        ),
        Layout(RecordsResponse, 24, (*_ERROR_AND_MARK, Field("records", BATCH)), since=5),
        Layout(HeadersRequest, 25, (Field("first_id", LONG), Field("max_headers", INT)), since=5),
        Layout(HeadersResponse, 26, (*_ERROR_AND_MARK, Field("headers", HEADERS)), since=5),
        Layout(AppendBatchRequest, 27, (_MARK, Field("appends", APPENDS)), since=5),
        Layout(AppendBatchResponse, 28, (Field("outcomes", OUTCOMES),), since=5),
    ),
)

Message = (
    MountRequest
    | MountResponse
    | AppendRequest
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
    | HeadersRequest
    | HeadersResponse
    | AppendBatchRequest
    | AppendBatchResponse
)


def encode(message: Message, version: int) -> bytes:
    """Return the whole frame of ``message``; raises UnsupportedByPeer."""
    if isinstance(message, TransactionDataResponse):
        content = (message.data, message.checksum, message.error)
        wire = _DataResponseOnWire(message.req_id, message.transaction_id, content)
        return _TABLE.encode(wire, version)
    return _TABLE.encode(message, version)


def decode(body: bytes, version: int) -> Message:
    """Return the message in ``body``; raises MalformedMessage, also for a wrong data checksum."""
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
    """Return the frame of an already encoded body: for bytes that are passed on, not made."""
    return encode_frame(CLIENT_SERVER.magic, version, body)
