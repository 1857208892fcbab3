"""Messages of the storage admin port (spec/wire.md sections 7 and 11). Pure.

Every message begins with a sequence number. An answer has the sequence number of its request.

A partition has two *switches* on a storage node: one allows servers to read it, the other allows
them to write it. A partition is *available* if both are on.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import IntEnum

from waltz.protocol.damaged_ranges import RANGES, DamagedRange
from waltz.protocol.failures import FAILURE, RpcFailure
from waltz.protocol.fields import (
    BATCH,
    BOOLEAN,
    BYTE,
    INT,
    INTS,
    LONG,
    TEXT,
    UUID,
    MalformedMessage,
    MappingCodec,
    Reader,
)
from waltz.protocol.frames import ADMIN, REPAIR_TYPE
from waltz.protocol.layout import Field, Layout, MessageTable
from waltz.protocol.records import RecordBatch


@dataclass(frozen=True, slots=True)
class AdminSuccessResponse:
    """The request was executed, and its effect is durable."""

    seq_num: int


@dataclass(frozen=True, slots=True)
class AdminFailureResponse:
    """The request was not executed; ``failure`` has the reason."""

    seq_num: int
    failure: RpcFailure


@dataclass(frozen=True, slots=True)
class AdminOpenRequest:
    """The first request on a connection. A node of another cluster refuses the request.

    ``key`` is the key of the cluster. The sequence number is -1.
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
    """Request up to ``max_records`` records from ``first_id`` on. The switches have no effect."""

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
    """Request a partition's persisted session. The request does not raise the fence (`storage`)."""

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


class Switch(IntEnum):
    """The two switches of a partition."""

    READ = 1
    WRITE = 2


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
class PartitionState:
    """The state of one assigned partition.

    The session and its marks are those that `storage.LastSessionInfoResponse` describes.
    ``max_transaction_id`` is -1 if the log is empty. ``size_bytes`` is the size of the partition's
    segment files, including preallocated space.
    """

    partition: int
    session_id: int
    low_water_mark: int
    local_low_water_mark: int
    max_transaction_id: int
    size_bytes: int
    readable: bool
    writable: bool

    @property
    def available(self) -> bool:
        """Whether servers can read and write the partition."""
        return self.readable and self.writable


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
    """The damaged ranges, ascending by partition and id; the first ones if there are many."""

    seq_num: int
    ranges: tuple[DamagedRange, ...]


@dataclass(frozen=True, slots=True)
class RepairRecordsRequest:
    """Replace damaged records by those of another replica, which computed their range checksum."""

    seq_num: int
    partition: int
    checksum: int
    records: RecordBatch


class _SwitchCodec:
    """One byte, the number of a `Switch`."""

    def write(self, out: list[bytes], value: Switch) -> None:
        BYTE.write(out, value)

    def read(self, reader: Reader) -> Switch:
        number = BYTE.read(reader)
        try:
            return Switch(number)
        except ValueError:
            raise MalformedMessage(f"unknown switch: {number}") from None


class _StatesCodec:
    """An int count, then that many `PartitionState`."""

    def write(self, out: list[bytes], value: tuple[PartitionState, ...]) -> None:
        INT.write(out, len(value))
        out += (_STATE.pack(*astuple(state)) for state in value)

    def read(self, reader: Reader) -> tuple[PartitionState, ...]:
        states = []
        for _ in range(reader.count(_STATE.size)):
            partition, session, low, local, last, size, read, write = reader.fixed(_STATE)
            states.append(
                PartitionState(partition, session, low, local, last, size, read == 1, write == 1)
            )
        return tuple(states)


_STATE = struct.Struct(">iqqqqqbb")
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
            (Field("available", MappingCodec(INT, BOOLEAN, pair_bytes=5)),),
        ),
        Layout(
            PartitionSwitchRequest,
            15,
            (_PARTITIONS, Field("switch", _SwitchCodec()), Field("on", BOOLEAN)),
            since=1,
        ),
        Layout(PartitionStatesRequest, 16, since=1),
        Layout(PartitionStatesResponse, 17, (Field("states", _StatesCodec()),), since=1),
        Layout(RangeChecksumRequest, 18, (_PARTITION, *_FIRST_AND_LAST), since=1),
        Layout(
            RangeChecksumResponse,
            19,
            (_PARTITION, *_FIRST_AND_LAST, Field("num_bytes", LONG), _CHECKSUM),
            since=1,
        ),
        Layout(DamagedRecordsRequest, 20, since=2),
        Layout(DamagedRecordsResponse, 21, (Field("ranges", RANGES),), since=2),
        Layout(RepairRecordsRequest, REPAIR_TYPE, (_PARTITION, _CHECKSUM, _RECORDS), since=2),
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
)

Message = Request | Response


def encode(message: Message, version: int) -> bytes:
    """Return the whole frame of ``message``; raises UnsupportedByPeer."""
    return _TABLE.encode(message, version)


def encode_parts(message: Message, version: int) -> list[bytes]:
    """Return the frame in parts, which the caller sends in order. Records are not copied."""
    return _TABLE.encode_parts(message, version)


def decode(body: bytes, version: int) -> Message:
    """Return the message in ``body``; raises MalformedMessage."""
    message: Message = _TABLE.decode(body, version)
    return message
