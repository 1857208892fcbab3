"""What client and server say to each other, as values (spec/wire.md sections 4 and 9). Pure.

Every message begins with a `ReqId`. Requests about one partition carry the client's id, the
partition's generation as the client knows it, the partition, and a sequence number. How each is
written is laid out in `client_server`.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field
from enum import IntEnum

from waltz.protocol.batches import BatchedAppend, BatchedOutcome
from waltz.protocol.records import RecordBatch, RecordHeader, ReqId


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
    outcomes: tuple[BatchedOutcome, ...]
