"""The messages between client and server, as values (spec/wire.md sections 4 and 9). Pure.

Every message begins with a `ReqId`. The `ReqId` of a request about one partition has the client's
id, the partition's generation as the client knows it, the partition, and a sequence number. The
table in `client_server` defines how each is encoded.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from enum import IntEnum

from waltz.protocol.batches import BatchedAppend, BatchedOutcome
from waltz.protocol.records import RecordBatch, RecordHeader, ReqId


class MountState(IntEnum):
    """The answer to a mount: ready, not ready, or the client's mark is beyond the log's end."""

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
    """Answer to a mount. READY follows after everything up to the log's mark was fed."""

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
    """Continue the feed after ``client_high_water_mark``."""

    req_id: ReqId
    client_high_water_mark: int


@dataclass(frozen=True, slots=True)
class FeedData:
    """A committed transaction; ``req_id`` is that of its append."""

    req_id: ReqId
    transaction_id: int
    header: int


@dataclass(frozen=True, slots=True)
class FeedSuspended:
    """The feed stops here until the next FeedRequest."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class TransactionDataRequest:
    """Request the data of one transaction."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class TransactionDataResponse:
    """The data of one transaction, or the reason for its absence (``data`` is None)."""

    req_id: ReqId
    transaction_id: int
    data: bytes | None
    checksum: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class FlushRequest:
    """Request an answer when every earlier append is resolved."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class FlushResponse:
    """All earlier appends are resolved; the log's mark is ``transaction_id``."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class LockFailure:
    """The append was refused; retry it after ``transaction_id`` has been applied."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class HighWaterMarkRequest:
    """Request a partition's last committed id."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class HighWaterMarkResponse:
    """The last committed id; -1 for an empty log, -2^63 while the partition opens."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityRequest:
    """Request that the server dials every storage node it uses."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityResponse:
    """Storage ``host:port`` to whether it could be opened."""

    req_id: ReqId
    storages: MappingType[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentRequest:
    """Request the list of the server's partitions."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentResponse:
    """The partitions that the server has an object for."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionRequest:
    """Request that the server prefers these partitions."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionResponse:
    """Whether the preference was added."""

    req_id: ReqId
    result: bool


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionRequest:
    """Request that the server no longer prefers these partitions."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionResponse:
    """Whether the preference was removed."""

    req_id: ReqId
    result: bool


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatRequest:
    """Request the health of the server's partitions."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatResponse:
    """Partition to whether its last store session could be created."""

    req_id: ReqId
    health: MappingType[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Request committed records from ``first_id`` on, within both bounds, but at least one.

    With ``wait_ms`` above 0 the server waits up to that time for the first one.
    """

    req_id: ReqId
    first_id: int
    max_records: int
    max_bytes: int
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecordsResponse:
    """Consecutive records and the log's mark, or the reason for their absence (``error``)."""

    req_id: ReqId
    error: str | None
    high_water_mark: int
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class HeadersRequest:
    """Request the headers of committed records from ``first_id`` on."""

    req_id: ReqId
    first_id: int
    max_headers: int


@dataclass(frozen=True, slots=True)
class HeadersResponse:
    """Consecutive headers and the log's mark, or the reason for their absence (``error``)."""

    req_id: ReqId
    error: str | None
    high_water_mark: int
    headers: tuple[RecordHeader, ...]


@dataclass(frozen=True, slots=True)
class AppendBatchRequest:
    """Append these in order; number *i* has the sequence number of ``req_id`` plus *i*.

    Each is checked by its own locks, against those taken after ``client_high_water_mark``.
    """

    req_id: ReqId
    client_high_water_mark: int
    appends: tuple[BatchedAppend, ...]


@dataclass(frozen=True, slots=True)
class AppendBatchResponse:
    """The outcome of each append of a batch, in its order."""

    req_id: ReqId
    outcomes: tuple[BatchedOutcome, ...]
