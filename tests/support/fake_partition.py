"""Simulate a server's partition for client tests, without network, storages and quorum.

It handles one message at a time, so that a test can stop anywhere: appends wait in a queue until
`resolve` is called, and feeds continue when `pump` is called. Source: spec/wire.md section 4
(server reactions).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from waltz.protocol import Record, RecordBatch, RecordHeader, ReqId, checksum
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.client_server import (
    AppendBatchRequest,
    AppendBatchResponse,
    AppendRequest,
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
    TransactionDataRequest,
    TransactionDataResponse,
)

FETCH = 5
"""Transactions per FeedRequest beyond what the log already has."""


@dataclass
class FakeLog:
    """A partition's log, which outlives the servers that own it."""

    partition: int = 0
    entries: list[AppendRequest] = field(default_factory=list)
    taken: dict[int, int] = field(default_factory=dict)
    """Lock to the transaction that took it last."""

    @property
    def mark(self) -> int:
        return len(self.entries) - 1

    def commit(self, request: AppendRequest) -> None:
        self.entries.append(request)
        for lock in request.write_locks + request.append_locks:
            self.taken[lock] = self.mark

    def conflict(self, request: AppendRequest) -> int | None:
        """The transaction that took one of the request's locks too late for it."""
        last = max(
            (self.taken.get(x, -1) for x in request.write_locks + request.read_locks), default=-1
        )
        return last if last > request.client_high_water_mark else None

    def record(self, transaction_id: int) -> Record:
        entry = self.entries[transaction_id]
        return Record(transaction_id, entry.req_id, entry.header, entry.data, entry.checksum)

    def ids(self) -> list[ReqId]:
        return [entry.req_id for entry in self.entries]

    def fill(self, count: int, client_id: int = 9999, size: int = 8) -> None:
        """Append ``count`` transactions of another client."""
        for _ in range(count):
            data = b"%0*d" % (size, self.mark + 1)
            req_id = ReqId(client_id, 0, self.partition, self.mark + 1)
            self.commit(AppendRequest(req_id, -1, (), (), (), self.mark + 1, data, checksum(data)))


@dataclass
class _Feed:
    session: ReqId
    connection: Hashable
    position: int
    remaining: int
    end: Any


class FakePartition:
    """One generation of a partition on one server."""

    def __init__(
        self, log: FakeLog, generation: int, send: Callable[[Any, Any], None], *, auto: bool = True
    ) -> None:
        self.log = log
        self.generation = generation
        self.auto = auto
        self.ready = True
        self.opening = False
        self.drop_appends = 0
        self.spoil_data = 0
        self.data_errors = 0
        self.silent_marks = 0
        self.handled: list[Any] = []
        self.pending: deque[tuple[Hashable, Any]] = deque()
        self._send = send
        self.waiting: list[tuple[Hashable, RecordsRequest]] = []
        """Reads of what is not there yet."""
        self._mounts: dict[int, tuple[Hashable, int, int]] = {}
        self._feeds: dict[int, _Feed] = {}

    def handle(self, connection: Hashable, message: Any) -> None:
        """Take one message of a client."""
        self.handled.append(message)
        match message:
            case MountRequest():
                self._mount(connection, message)
            case AppendRequest() | AppendBatchRequest():
                if self.drop_appends:
                    self.drop_appends -= 1
                elif self._current(connection, message) and (
                    message.req_id.generation == self.generation
                ):
                    self.pending.append((connection, message))
            case FlushRequest():
                self.pending.append((connection, message))
            case FeedRequest():
                self._feed_request(connection, message)
            case HighWaterMarkRequest(req_id):
                if self.silent_marks:
                    self.silent_marks -= 1
                else:
                    mark = -(2**63) if self.opening else self.log.mark
                    self._send(connection, HighWaterMarkResponse(req_id, mark))
            case _:
                self._read(connection, message)
        if self.auto:
            self.resolve()
            self.pump()

    def resolve(self, count: int | None = None, *, lose: bool = False) -> None:
        """Decide the first ``count`` queued appends (None: all); with ``lose`` none gets in."""
        while self.pending and (count is None or count > 0):
            connection, message = self.pending.popleft()
            if count is not None:
                count -= 1
            match message:
                case AppendRequest():
                    conflict = self.log.conflict(message)
                    if conflict is not None:
                        self._send(connection, LockFailure(message.req_id, conflict))
                    elif not lose:
                        self.log.commit(message)
                case AppendBatchRequest():
                    self._batch(connection, message, lose=lose)
                case FlushRequest(req_id):
                    self._send(connection, FlushResponse(req_id, self.log.mark))
                case MountRequest():
                    self._mounted(connection, message)
        waiting, self.waiting = self.waiting, []
        for connection, message in waiting:
            self._records(connection, message)

    def pump(self, count: int | None = None) -> None:
        """Send up to ``count`` FeedData of each feed (None: all there is)."""
        for client, feed in list(self._feeds.items()):
            left = count
            while feed.position < self.log.mark and feed.remaining and left != 0:
                feed.position += 1
                feed.remaining -= 1
                left = None if left is None else left - 1
                entry = self.log.entries[feed.position]
                self._send(feed.connection, FeedData(entry.req_id, feed.position, entry.header))
            if not feed.remaining:
                del self._feeds[client]
                self._send(feed.connection, feed.end)

    def lost(self, connection: Hashable) -> None:
        """A connection is gone: its registrations and feeds go with it."""
        self._mounts = {c: m for c, m in self._mounts.items() if m[0] != connection}
        self._feeds = {c: f for c, f in self._feeds.items() if f.connection != connection}

    def _current(self, connection: Hashable, message: Any) -> bool:
        mounted = self._mounts.get(message.req_id.client_id)
        return mounted is not None and mounted[0] == connection

    def _mount(self, connection: Hashable, message: MountRequest) -> None:
        client, seq = message.req_id.client_id, message.seq_num
        old = self._mounts.get(client)
        generation = message.req_id.generation
        if old is None or old[0] == connection or (generation, seq) > (old[2], old[1]):
            self._mounts[client] = (connection, seq, generation)
            self._feeds.pop(client, None)
            self.pending.append((connection, message))

    def _mounted(self, connection: Hashable, message: MountRequest) -> None:
        mark, req_id = message.client_high_water_mark, message.req_id
        if not self._current(connection, message):
            return
        if not self.ready:
            self._send(connection, MountResponse(req_id, MountState.NOT_READY))
        elif mark > self.log.mark:
            self._send(connection, MountResponse(req_id, MountState.CLIENT_AHEAD))
        else:
            end = MountResponse(req_id, MountState.READY)
            feed = _Feed(req_id, connection, mark, self.log.mark - mark, end)
            self._feeds[req_id.client_id] = feed
            if not feed.remaining:
                self.pump(0)

    def _feed_request(self, connection: Hashable, message: FeedRequest) -> None:
        if not self._current(connection, message):
            return
        mark = message.client_high_water_mark
        assert mark <= self.log.mark, "a real server closes the connection"
        remaining = max(self.log.mark - mark, FETCH)
        end = FeedSuspended(message.req_id)
        self._feeds[message.req_id.client_id] = _Feed(
            message.req_id, connection, mark, remaining, end
        )

    def _batch(self, connection: Hashable, message: AppendBatchRequest, *, lose: bool) -> None:
        """Decide a batch at one instant; with ``lose`` only what was granted first gets in."""
        first, mark = message.req_id, message.client_high_water_mark
        singles = [
            AppendRequest(
                ReqId(first.client_id, first.generation, first.partition, first.seq + i),
                mark,
                *(each.write_locks, each.read_locks, each.append_locks),
                *(each.header, each.data, each.checksum),
            )
            for i, each in enumerate(message.appends)
        ]
        conflicts = [self.log.conflict(single) for single in singles]
        outcomes = []
        for single, conflict in zip(singles, conflicts, strict=True):
            if conflict is not None:
                outcomes.append(BatchedOutcome(OutcomeKind.REFUSED, conflict))
            elif lose and any(outcome.kind is OutcomeKind.COMMITTED for outcome in outcomes):
                outcomes.append(BatchedOutcome(OutcomeKind.ABSENT))
            else:
                self.log.commit(single)
                outcomes.append(BatchedOutcome(OutcomeKind.COMMITTED, self.log.mark))
        self._send(connection, AppendBatchResponse(first, tuple(outcomes)))

    def _read(self, connection: Hashable, message: Any) -> None:
        match message:
            case TransactionDataRequest():
                self._data(connection, message)
            case RecordsRequest():
                self._records(connection, message)
            case HeadersRequest(req_id, first_id, count):
                last = min(first_id + count - 1, self.log.mark)
                records = [self.log.record(i) for i in range(first_id, last + 1)]
                headers = tuple(RecordHeader(r.transaction_id, r.req_id, r.header) for r in records)
                self._send(connection, HeadersResponse(req_id, None, self.log.mark, headers))

    def _records(self, connection: Hashable, message: RecordsRequest) -> None:
        req_id, first_id, count, size, wait_ms = (
            *(message.req_id, message.first_id, message.max_records),
            *(message.max_bytes, message.wait_ms),
        )
        if self.opening or self.data_errors:
            self.data_errors = max(0, self.data_errors - 1)
            empty = RecordBatch.of([])
            self._send(connection, RecordsResponse(req_id, "not ready", -(2**63), empty))
            return
        if first_id == self.log.mark + 1 and wait_ms:
            self.waiting.append((connection, message))
            return
        records: list[Record] = []
        for i in range(first_id, min(first_id + count, self.log.mark + 1)):
            if records and sum(len(r.encode()) for r in records) + 40 > size:
                break
            record = self.log.record(i)
            if self.spoil_data:
                self.spoil_data -= 1
                record = replace(record, checksum=record.checksum ^ 1)
            records.append(record)
        batch = RecordBatch.of(records)
        self._send(connection, RecordsResponse(req_id, None, self.log.mark, batch))

    def _data(self, connection: Hashable, message: TransactionDataRequest) -> None:
        req_id, wanted = message.req_id, message.transaction_id
        if self.data_errors or not self.ready or not 0 <= wanted <= self.log.mark:
            self.data_errors = max(0, self.data_errors - 1)
            error = "partition not ready" if not self.ready else "TransactionNotFoundException: x"
            answer = TransactionDataResponse(req_id, wanted, None, error=error)
        else:
            entry = self.log.entries[wanted]
            crc = entry.checksum
            if self.spoil_data:
                self.spoil_data -= 1
                crc ^= 1
            answer = TransactionDataResponse(req_id, wanted, entry.data, crc)
        self._send(connection, answer)
