"""Messages of the storage admin port (spec/wire.md sections 7 and 11). Pure.

Every message begins with a sequence number. An answer has the sequence number of its request.

`partition_states` defines the switches and the state of a partition, and when it is *available*.
This module exports its classes, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from waltz.protocol.damaged_ranges import RANGES, DamagedRange
from waltz.protocol.failures import FAILURE, RpcFailure
from waltz.protocol.fields import (
    BATCH,
    BOOLEAN,
    INT,
    INTS,
    LONG,
    TEXT,
    UUID,
    MappingCodec,
)
from waltz.protocol.frames import ADMIN, REPAIR_TYPE
from waltz.protocol.layout import Field, Layout, MessageTable
from waltz.protocol.partition_states import STATES, SWITCH
from waltz.protocol.partition_states import PartitionState as PartitionState
from waltz.protocol.partition_states import Switch as Switch
from waltz.protocol.records import RecordBatch


@dataclass(frozen=True, slots=True)
class AdminSuccessResponse:
    """The request was executed, and its effect is durable."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class AdminFailureResponse:
    """The request was not executed completely; ``failure`` is the first error.

    If the request is for several partitions, some of them may have been changed.
    """

    seq_num: int
    failure: RpcFailure


@dataclass(frozen=True, slots=True)
class AdminOpenRequest:
    """The first request on a connection; -1 is its sequence number.

    A node refuses it unless the cluster of the node has this ``key`` and ``num_partitions``.
    """

    seq_num: int
    key: uuid.UUID
    num_partitions: int


@dataclass(frozen=True, slots=True)
class PartitionAvailableRequest:
    """Turn both switches of these partitions on or off."""

    seq_num: int
    partitions: tuple[int, ...]
    available: bool


@dataclass(frozen=True, slots=True)
class PartitionAssignmentRequest:
    """Assign these partitions to the node, or remove their assignment.

    A removal deletes the partitions' files only if ``delete_files`` is set.
    """

    seq_num: int
    partitions: tuple[int, ...]
    assigned: bool
    delete_files: bool


@dataclass(frozen=True, slots=True)
class RecordListRequest:
    """Request up to ``max_records`` records from ``first_id`` on.

    The node answers even if the partition is switched off.
    """

    seq_num: int
    partition: int
    first_id: int
    max_records: int


@dataclass(frozen=True, slots=True)
class RecordListResponse:
    """Consecutive records; the list stops at the first absent id, or before it exceeds 64 MiB."""

    seq_num: int
    partition: int
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class LastSessionInfoRequest:
    """Request a partition's persisted session. This does not raise the fence (see `storage`)."""

    seq_num: int
    partition: int


@dataclass(frozen=True, slots=True)
class LastSessionInfoResponse:
    """The persisted session and its marks; see `storage.LastSessionInfoResponse`."""

    seq_num: int
    partition: int
    last_session_id: int
    low_water_mark: int
    local_low_water_mark: int


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """Request the node's metrics."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class MetricsResponse:
    """The metrics as JSON text."""

    seq_num: int
    json: str


@dataclass(frozen=True, slots=True)
class AssignedPartitionStatusRequest:
    """Request for each assigned partition whether it is available."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class AssignedPartitionStatusResponse:
    """For each assigned partition: whether it is available."""

    seq_num: int
    available: Mapping[int, bool]


@dataclass(frozen=True, slots=True)
class PartitionSwitchRequest:
    """Turn one switch of these partitions on or off."""

    seq_num: int
    partitions: tuple[int, ...]
    switch: Switch
    on: bool


@dataclass(frozen=True, slots=True)
class PartitionStatesRequest:
    """Request the state of all assigned partitions."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class PartitionStatesResponse:
    """The states of all assigned partitions, in ascending order of their ids."""

    seq_num: int
    states: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class RangeChecksumRequest:
    """Request one checksum of all records from ``first_id`` to ``last_id``, to compare replicas."""

    seq_num: int
    partition: int
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class RangeChecksumResponse:
    """The *range checksum*: the CRC-32 of the ``num_bytes`` that the records have on disk.

    ``last_id`` is smaller than the requested one if the log ends before it, or if the records
    exceed the limit of one request. It is ``first_id`` - 1 if the log has none of the records.
    """

    seq_num: int
    partition: int
    first_id: int
    last_id: int
    num_bytes: int
    checksum: int


@dataclass(frozen=True, slots=True)
class DamagedRecordsRequest:
    """Request all records that the node found damaged and that are not repaired."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class DamagedRecordsResponse:
    """The damaged ranges, ascending by partition and id.

    If there are too many for one answer, only the first ones are in it.
    """

    seq_num: int
    ranges: tuple[DamagedRange, ...]


@dataclass(frozen=True, slots=True)
class RepairRecordsRequest:
    """Replace damaged records by ``records`` of another replica.

    ``checksum`` is the range checksum of ``records``, which the other replica has computed.
    """

    seq_num: int
    partition: int
    checksum: int
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class PullRecordsRequest:
    """Make the node copy records of another storage, its peer, into its own ``partition``.

    ``host`` and ``admin_port`` are the address of the peer's admin port. The records are those from
    ``first_id`` to ``last_id``. The node's partition must not be available: no server may write it
    meanwhile. Its persisted session must be ``session_id``, the next id of its log ``first_id``.
    """

    seq_num: int
    partition: int
    session_id: int
    host: str
    admin_port: int
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class PullRecordsResponse:
    """The records up to ``last_id`` are durable.

    ``last_id`` is smaller than the requested one if the copy of all records would take longer than
    a second.
    """

    seq_num: int
    partition: int
    last_id: int


_PAIR_BYTES = 5
"""A pair of AssignedPartitionStatusResponse has an int and a boolean."""

_PARTITION = Field("partition", INT)
_FIRST_AND_LAST = (Field("first_id", LONG), Field("last_id", LONG))
_CHECKSUM = Field("checksum", INT)
_RECORDS = Field("records", BATCH)
_PARTITIONS = Field("partitions", INTS)

_TABLE = MessageTable(
    ADMIN,
    (Field("seq_num", LONG),),
    (
        Layout(AdminSuccessResponse, 1),
        Layout(AdminFailureResponse, 2, (Field("failure", FAILURE),)),
        Layout(AdminOpenRequest, 3, (Field("key", UUID), Field("num_partitions", INT))),
        Layout(PartitionAvailableRequest, 4, (_PARTITIONS, Field("available", BOOLEAN))),
        # Type 5 is unused.
        Layout(
            PartitionAssignmentRequest,
            6,
            (_PARTITIONS, Field("assigned", BOOLEAN), Field("delete_files", BOOLEAN)),
        ),
        Layout(
            RecordListRequest, 7, (_PARTITION, Field("first_id", LONG), Field("max_records", INT))
        ),
        Layout(RecordListResponse, 8, (_PARTITION, _RECORDS)),
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
            AssignedPartitionStatusResponse,
            14,
            (Field("available", MappingCodec(INT, BOOLEAN, pair_bytes=_PAIR_BYTES)),),
        ),
        Layout(
            PartitionSwitchRequest,
            15,
            (_PARTITIONS, Field("switch", SWITCH), Field("on", BOOLEAN)),
            since=1,
        ),
        Layout(PartitionStatesRequest, 16, since=1),
        Layout(PartitionStatesResponse, 17, (Field("states", STATES),), since=1),
        Layout(RangeChecksumRequest, 18, (_PARTITION, *_FIRST_AND_LAST), since=1),
        Layout(
            RangeChecksumResponse,
            19,
            (_PARTITION, *_FIRST_AND_LAST, Field("num_bytes", LONG), _CHECKSUM),
            since=1,
        ),
        Layout(DamagedRecordsRequest, 20, since=2),
        Layout(DamagedRecordsResponse, 21, (Field("ranges", RANGES),), since=2),
        # `frames` defines this type byte, because it allows these requests to be large.
        Layout(RepairRecordsRequest, REPAIR_TYPE, (_PARTITION, _CHECKSUM, _RECORDS), since=2),
        Layout(
            PullRecordsRequest,
            23,
            (
                _PARTITION,
                Field("session_id", LONG),
                Field("host", TEXT),
                Field("admin_port", INT),
                *_FIRST_AND_LAST,
            ),
            since=3,
        ),
        Layout(PullRecordsResponse, 24, (_PARTITION, Field("last_id", LONG)), since=3),
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
    | PartitionSwitchRequest
    | PartitionStatesRequest
    | RangeChecksumRequest
    | DamagedRecordsRequest
    | RepairRecordsRequest
    | PullRecordsRequest
)

Response = (
    AdminSuccessResponse
    | AdminFailureResponse
    | RecordListResponse
    | LastSessionInfoResponse
    | MetricsResponse
    | AssignedPartitionStatusResponse
    | PartitionStatesResponse
    | RangeChecksumResponse
    | DamagedRecordsResponse
    | PullRecordsResponse
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
