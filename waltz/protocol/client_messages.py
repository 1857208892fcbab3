"""The messages between client and server, as values (spec/wire.md sections 4, 9, 12 and 13). Pure.

Every message begins with a `ReqId`. The `ReqId` of a request about one partition has the client's
id, the partition's generation that the client knows, the partition, and a sequence number. The
table in `client_server` defines how each message is encoded.

A log's *high-water mark* is its last committed transaction id. A *client high-water mark* is the
last id that the client has processed. A *mount* binds a partition to one connection of a client.
Over this connection the client appends to the partition and receives its *feed*: one `FeedData` for
each committed transaction, in the order of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from waltz.protocol.batches import AppendAnswer, BatchedAppend, BatchedOutcome
from waltz.protocol.records import RecordBatch, RecordHeader, ReqId
from waltz.protocol.stored import StoredBatch


class MountState(IntEnum):
    """The answer to a mount."""

    READY = 0
    NOT_READY = 1
    """The server does not own the partition, or has not opened it; the client retries."""
    CLIENT_AHEAD = 2
    """The client's mark is above the log's high-water mark: the client has read another log."""


@dataclass(frozen=True, slots=True)
class MountRequest:
    """Mount a partition; if ``fed``, start a feed after ``client_high_water_mark``.

    MountResponse, FeedRequest and FeedSuspended of this feed repeat ``req_id``.

    ``seq_num`` is not the sequence number in ``req_id``. It is the number of the connection, and
    grows with each connection of the client. After the mount, the server accepts no append or feed
    request for the partition on the client's older connections. So no old append that is still on
    its way can get into the log after newer appends of the client.

    If ``fed`` is false, the server sends no feed before MountResponse; a FeedRequest may begin the
    feed later. Clients set it to false if they learn the outcomes of their appends from
    `AppendAnswers`. Before version 6 every mount is fed.
    """

    req_id: ReqId
    client_high_water_mark: int
    seq_num: int
    fed: bool = True


@dataclass(frozen=True, slots=True)
class MountResponse:
    """The answer to a mount.

    If the mount is fed, the feed up to the log's high-water mark comes before READY.
    """

    req_id: ReqId
    state: MountState


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Append ``data`` as one transaction. The locks are hashes (`Lock.hash`).

    The server refuses the append if a transaction after ``client_high_water_mark`` took one of the
    append's write or read locks. When the append commits, its transaction takes the append's write
    and append locks. ``header`` is an int of the application. ``checksum`` is the CRC-32 of
    ``data``.

    The client learns from the feed (`FeedData`) that the append is committed, and from a
    `LockFailure` that it is refused.
    """

    req_id: ReqId
    client_high_water_mark: int
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]
    header: int
    data: bytes
    checksum: int


@dataclass(frozen=True, slots=True)
class AnsweredAppendRequest(AppendRequest):
    """An append whose outcome the server sends in `AppendAnswers`.

    ``client_high_water_mark`` may be `batches.LOG_MARK`. Then the locks are checked against the
    log's high-water mark at the time when the append arrives.
    """


@dataclass(frozen=True, slots=True)
class AppendAnswers:
    """The outcomes of one or more appends of one client, and the log's high-water mark.

    Each of the appends was an `AnsweredAppendRequest`. ``req_id`` is that of the first of them. The
    outcomes of committed appends arrive in the order of the log.
    """

    req_id: ReqId
    high_water_mark: int
    answers: tuple[AppendAnswer, ...]


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """Begin or continue the feed after ``client_high_water_mark``, up to a FeedSuspended."""

    req_id: ReqId
    client_high_water_mark: int


@dataclass(frozen=True, slots=True)
class FeedData:
    """A committed transaction. ``req_id`` is the id of the append that created it."""

    req_id: ReqId
    transaction_id: int
    header: int


@dataclass(frozen=True, slots=True)
class FeedSuspended:
    """The feed stops here until the next FeedRequest.

    The server has sent as many transactions as it sends for one FeedRequest.
    """

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class TransactionDataRequest:
    """Request the data of one transaction."""

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class TransactionDataResponse:
    """The data of one transaction, and their CRC-32.

    If the server cannot answer, ``data`` is None, ``checksum`` has no meaning, and ``error`` is the
    reason.
    """

    req_id: ReqId
    transaction_id: int
    data: bytes | None
    checksum: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class FlushRequest:
    """Request an answer when every earlier append of the partition is resolved.

    A resolved append is committed, refused or failed.
    """

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class FlushResponse:
    """All earlier appends of the partition are resolved.

    ``transaction_id`` is the high-water mark.
    """

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class LockFailure:
    """The append was refused because of a lock.

    The client may retry the append after it has applied the log up to ``transaction_id``. This
    answers only an `AppendRequest`. Other appends get the outcome REFUSED (`batches`).
    """

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class HighWaterMarkRequest:
    """Request the high-water mark of a partition."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class HighWaterMarkResponse:
    """The high-water mark, -1 for an empty log, or -2^63 if the server does not know it.

    The server does not know the mark if it does not own the partition, if it has not opened the
    partition, or if its generation is older than that of ``req_id``.
    """

    req_id: ReqId
    transaction_id: int


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityRequest:
    """Request that the server connects to every storage node that it uses."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class CheckStorageConnectivityResponse:
    """For the ``host:port`` of each storage node: whether the server could connect to it."""

    req_id: ReqId
    storages: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentRequest:
    """Request the list of the server's partitions."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsAssignmentResponse:
    """The partitions that the server owns."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionRequest:
    """Make this server prefer these partitions when partitions are assigned to servers."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AddPreferredPartitionResponse:
    """``result`` says whether the preference was added."""

    req_id: ReqId
    result: bool


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionRequest:
    """Make this server not prefer these partitions any more."""

    req_id: ReqId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RemovePreferredPartitionResponse:
    """``result`` says whether the preference was removed."""

    req_id: ReqId
    result: bool


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatRequest:
    """Request the health of the server's partitions."""

    req_id: ReqId


@dataclass(frozen=True, slots=True)
class ServerPartitionsHealthStatResponse:
    """For each partition of the server: whether it is healthy."""

    req_id: ReqId
    health: Mapping[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Request committed records from ``first_id`` on, at most ``max_records`` and ``max_bytes``.

    The answer has the first record even if that record is larger than ``max_bytes``. If
    ``first_id`` is not committed yet, the server answers when it is committed, but at the latest
    after ``wait_ms`` milliseconds.

    If ``stored`` is true, the server may also answer with a `StoredRecordsResponse`, whose records
    the client must verify itself.
    """

    req_id: ReqId
    first_id: int
    max_records: int
    max_bytes: int
    wait_ms: int = 0
    stored: bool = False


@dataclass(frozen=True, slots=True)
class RecordsResponse:
    """Consecutive records, and the high-water mark.

    With an ``error``, there are no records.
    """

    req_id: ReqId
    error: str | None
    high_water_mark: int
    records: RecordBatch


@dataclass(frozen=True, slots=True)
class StoredRecordsResponse:
    """Consecutive records as they lie on a replica's disk, and the high-water mark.

    No server or storage has verified the records: the client must do so.
    """

    req_id: ReqId
    high_water_mark: int
    records: StoredBatch


@dataclass(frozen=True, slots=True)
class HeadersRequest:
    """Request the headers of at most ``max_headers`` committed records from ``first_id`` on."""

    req_id: ReqId
    first_id: int
    max_headers: int


@dataclass(frozen=True, slots=True)
class HeadersResponse:
    """Consecutive headers, and the high-water mark.

    With an ``error``, there are no headers.
    """

    req_id: ReqId
    error: str | None
    high_water_mark: int
    headers: tuple[RecordHeader, ...]


@dataclass(frozen=True, slots=True)
class AppendBatchRequest:
    """Append several transactions in order.

    Append number *i*, counted from 0, has the sequence number of ``req_id`` plus *i*. An append is
    refused if a transaction after ``client_high_water_mark`` took one of the append's write or read
    locks. Transactions of the same batch do not count.
    """

    req_id: ReqId
    client_high_water_mark: int
    appends: tuple[BatchedAppend, ...]


@dataclass(frozen=True, slots=True)
class AppendBatchResponse:
    """The outcomes of all appends of a batch, in the order of the batch."""

    req_id: ReqId
    outcomes: tuple[BatchedOutcome, ...]


@dataclass(frozen=True, slots=True)
class RequestDenied:
    """The client has no right to make the request ``req_id``, which had no effect.

    This message can answer any request about a partition, also a single append. For a denied batch,
    the server sends one such message for each append. ``error`` says which right is missing, and by
    which names the server knows the client.
    """

    req_id: ReqId
    error: str | None
