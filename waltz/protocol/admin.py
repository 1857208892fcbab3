"""Messages of the storage admin port (wire.md section 7). Pure.

Every message begins with a sequence number that the answer repeats.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping as MappingType
from dataclasses import dataclass

from waltz.protocol.failures import FAILURE, RpcFailure
from waltz.protocol.fields import BATCH, BOOLEAN, INT, INTS, LONG, TEXT, UUID, Mapping
from waltz.protocol.frames import ADMIN
from waltz.protocol.layout import Field, Layout, MessageTable
from waltz.protocol.records import RecordBatch


@dataclass(frozen=True, slots=True)
class AdminSuccessResponse:
    """Done, and durable."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class AdminFailureResponse:
    """Not done, and why."""

    seq_num: int
    failure: RpcFailure


@dataclass(frozen=True, slots=True)
class AdminOpenRequest:
    """First request on a connection: is this a node of the same cluster? The number is -1."""

    seq_num: int
    key: uuid.UUID
    num_partitions: int


@dataclass(frozen=True, slots=True)
class PartitionAvailableRequest:
    """Switch reading and writing of these partitions on or off."""

    seq_num: int
    partitions: tuple[int, ...]
    available: bool


@dataclass(frozen=True, slots=True)
class PartitionAssignmentRequest:
    """Create these partitions on the node, or drop them, with or without their files."""

    seq_num: int
    partitions: tuple[int, ...]
    assigned: bool
    delete_files: bool


@dataclass(frozen=True, slots=True)
class RecordListRequest:
    """Ask for up to ``max_records`` records from ``first_id`` on, whatever the switches say."""

    seq_num: int
    partition: int
    first_id: int
    max_records: int


@dataclass(frozen=True, slots=True)
class RecordListResponse:
    """Consecutive records; the list stops at the first absent id."""

    seq_num: int
    partition: int
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class LastSessionInfoRequest:
    """Ask for a partition's persisted session, without raising any fence."""

    seq_num: int
    partition: int


@dataclass(frozen=True, slots=True)
class LastSessionInfoResponse:
    """The persisted session and its marks."""

    seq_num: int
    partition: int
    last_session_id: int
    low_water_mark: int
    local_low_water_mark: int


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Ask for the node's metrics."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class MetricsResponse:
    """The metrics as JSON text."""

    seq_num: int
    json: str


@dataclass(frozen=True, slots=True)
class AssignedPartitionStatusRequest:
    """Ask which partitions are assigned, and which of them are available."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class AssignedPartitionStatusResponse:
    """Assigned partition to whether it is available."""

    seq_num: int
    available: MappingType[int, bool]


_PARTITION = Field("partition", INT)
_PARTITIONS = Field("partitions", INTS)

_TABLE = MessageTable(
    ADMIN,
    (Field("seq_num", LONG),),
    (
        Layout(AdminSuccessResponse, 1),
        Layout(AdminFailureResponse, 2, (Field("failure", FAILURE),)),
        Layout(AdminOpenRequest, 3, (Field("key", UUID), Field("num_partitions", INT))),
        Layout(PartitionAvailableRequest, 4, (_PARTITIONS, Field("available", BOOLEAN))),
        Layout(
            PartitionAssignmentRequest,
            6,
            (_PARTITIONS, Field("assigned", BOOLEAN), Field("delete_files", BOOLEAN)),
        ),
        Layout(
            RecordListRequest, 7, (_PARTITION, Field("first_id", LONG), Field("max_records", INT))
        ),
        Layout(RecordListResponse, 8, (_PARTITION, Field("records", BATCH))),
        Layout(LastSessionInfoRequest, 9, (_PARTITION,)),
        Layout(
            LastSessionInfoResponse,
            10,
            (
                _PARTITION,
                Field("last_session_id", LONG),
                Field("low_water_mark", LONG),
                Field("local_low_water_mark", LONG),
            ),
        ),
        Layout(MetricsRequest, 11),
        Layout(MetricsResponse, 12, (Field("json", TEXT),)),
        Layout(AssignedPartitionStatusRequest, 13),
        Layout(
            AssignedPartitionStatusResponse, 14, (Field("available", Mapping(INT, BOOLEAN, 5)),)
        ),
    ),
)

Request = (
    AdminOpenRequest
    | PartitionAvailableRequest
    | PartitionAssignmentRequest
    | RecordListRequest
    | LastSessionInfoRequest
    | MetricsRequest
    | AssignedPartitionStatusRequest
)

Response = (
    AdminSuccessResponse
    | AdminFailureResponse
    | RecordListResponse
    | LastSessionInfoResponse
    | MetricsResponse
    | AssignedPartitionStatusResponse
)

Message = Request | Response


def encode(message: Message, version: int) -> bytes:
    """Return the whole frame of ``message``."""
    return _TABLE.encode(message, version)


def decode(body: bytes, version: int) -> Message:
    """Return the message in ``body``; raises MalformedMessage."""
    message: Message = _TABLE.decode(body, version)
    return message
