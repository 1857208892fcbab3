"""Read a stream with data by requests for ranges of records, without a feed. Touches the network.

A *range* has consecutive records of one partition, with their data. The stream requests the next
range of a partition before the application has taken the last one, but not while two ranges of the
partition wait for the application. So the memory of a stream is limited (spec/wire.md section 9).
The client's `RequestClient` sends each request again until it is answered.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never

from waltz.client.core.codec import FeedRecord
from waltz.client.core.deserializing import SKIPPED, Deserializer
from waltz.client.core.errors import (
    ClientAhead,
    DataCorrupt,
    DataUnreadable,
    PermissionDenied,
    ServerTooOld,
)
from waltz.client.core.read_values import Answer, AnswerKind, ReadRecords
from waltz.client.core.requests import CHECKSUM_ATTEMPTS
from waltz.client.core.values import Transaction, TransactionRow, transactions_of
from waltz.client.request_client import OnAnswer, RequestClient
from waltz.protocol import RecordBatch, ReqId
from waltz.protocol.notation import LAST_ID
from waltz.protocol.records import WIRE_OVERHEAD_BYTES
from waltz.protocol.stored import STORED_OVERHEAD_BYTES, StoredBatch

_WAIT_MS = 10_000
"""How long a server waits for the next transaction before it answers with an empty range."""

_UNCONFIRMED_WAIT_MS = 500
"""The wait in place of `_WAIT_MS` while the log is not known to reach the stream's position.

If the log ends before the position, the stream raises ClientAhead, but only after several empty
answers (`mount.AHEAD_CONFIRMATIONS`). The shorter wait makes this error come soon
(test_stream_position_beyond_the_log_soon_raises_client_ahead).
"""

_ROW_HEAD = struct.Struct(">q16siI")
"""The fields of a `TransactionRow` before its data.

A record begins with these fields both in wire form (`RecordBatch`) and on disk (`StoredBatch`)."""

_ROW_LENGTH = 3
"""The index of the data length in a `TransactionRow`."""

_SKIP_CHECKSUM = "4x"
"""Skips a checksum in the format of a record.

Every record ends with a checksum. In disk form, another checksum precedes the data."""

_BYTES_OF_ONE_RANGE_EACH = 32 << 20
"""The most bytes of the ranges of a stream, if it holds one range of each partition.

Each partition has an equal share, which limits one range. A partition can hold `_HELD_RANGES`
ranges, so a stream can hold that many times these bytes."""

_MIN_RANGE_BYTES = 16 << 10
"""The least share of a partition, even if the shares together exceed `_BYTES_OF_ONE_RANGE_EACH`."""

_HELD_RANGES = 2
"""How many ranges of one partition may wait for the application."""


BATCH_TRANSACTIONS = 1000
"""The most transactions of one batch of a stream."""


class RangeLimits(NamedTuple):
    """The most records and bytes of a range."""

    records: int
    size: int
    """The bytes. The partition's share of `_BYTES_OF_ONE_RANGE_EACH` applies if it is smaller."""


OBJECT_LIMITS = RangeLimits(4 * BATCH_TRANSACTIONS, 2 << 20)
"""The ranges of a stream that makes an object of each transaction."""

COLUMN_LIMITS = RangeLimits(8192, 4 << 20)
"""The ranges of a stream of columns (`waltz.client.batch_stream`).

They are larger than `OBJECT_LIMITS`: the cost of such a stream is per range, not per
transaction."""


class ArrivedRange(NamedTuple):
    """A range that has arrived."""

    partition: int
    records: RecordBatch | StoredBatch


@dataclass(slots=True)
class _StreamPartition:
    """The state of one partition of a stream."""

    position: int
    """The id of the last transaction that has arrived.

    Before the first arrival, this is the id after which the stream begins."""
    held: int = 0
    """The number of ranges that have arrived and that the application has not taken."""
    open_request: OnAnswer | None = None
    """The callback of the request that has no answer yet, None if there is none.

    `RequestClient.cancel` finds the request by its callback."""


class StreamRanges:
    """Requests the ranges of several partitions, and returns them in the order of their arrival.

    ``after`` maps a partition to the transaction after which it is read, ``until`` to its last
    transaction, if it has one. ``wake`` is called after each answer, and when the client ends.
    ``unsupported`` is None, or an error because a server is too old for ranges. Then no more ranges
    are requested: the caller raises the error, or reads the transactions after `positions` from
    feeds. ``failure`` is the error that ends the stream, None while there is none.
    """

    def __init__(
        self,
        request_client: RequestClient,
        after: Mapping[int, int],
        until: Mapping[int, int],
        wake: Callable[[], None],
        limits: RangeLimits = OBJECT_LIMITS,
    ) -> None:
        self.unsupported: ServerTooOld | None = None
        self.failure: Exception | None = None
        self._request_client = request_client
        self._until = until
        self._wake = wake
        share = max(_BYTES_OF_ONE_RANGE_EACH // max(len(after), 1), _MIN_RANGE_BYTES)
        self._limits = RangeLimits(limits.records, min(share, limits.size))
        self._partitions = {
            partition: _StreamPartition(position) for partition, position in after.items()
        }
        self._arrived: deque[ArrivedRange] = deque()
        """The ranges that `take` has not returned, in the order of their arrival."""
        self._ended = False
        """Whether `end` was called."""

    @property
    def positions(self) -> dict[int, int]:
        """For each partition the last transaction that has arrived."""
        return {partition: state.position for partition, state in self._partitions.items()}

    @property
    def complete(self) -> bool:
        """Whether every partition has a last transaction in ``until``, and it has arrived."""
        return all(
            partition in self._until and state.position >= self._until[partition]
            for partition, state in self._partitions.items()
        )

    def request(self) -> None:
        """Request the next range of each partition that has no open request and needs one."""
        for partition, state in self._partitions.items():
            self._request(partition, state)

    def take(self) -> ArrivedRange | None:
        """Remove and return the range that arrived first, None if no range waits.

        This makes room for another range of the same partition, which is requested now. If the
        client has ended, nothing is requested, because the request would raise an error before the
        other ranges that have arrived are returned.
        """
        if not self._arrived:
            return None
        arrived = self._arrived.popleft()
        state = self._partitions[arrived.partition]
        state.held -= 1
        if not self._request_client.ended:
            self._request(arrived.partition, state)
        return arrived

    def end(self) -> None:
        """Cancel the open requests, and send no more."""
        self._ended = True
        for partition, state in self._partitions.items():
            if state.open_request is not None:
                self._request_client.cancel(partition, state.open_request)
                state.open_request = None

    def _request(self, partition: int, state: _StreamPartition) -> None:
        """Request the next range of a partition, if it needs one and has room for it now."""
        count = self._limits.records
        if partition in self._until:
            count = min(count, self._until[partition] - state.position)
        is_stopped = self._ended or self.unsupported is not None or self.failure is not None
        has_room = state.open_request is None and state.held < _HELD_RANGES
        if is_stopped or not has_room or count <= 0:
            return

        def on_answer(answer: Answer | None) -> None:
            state.open_request = None
            # None: the client has ended. The caller, which `_wake` wakes, raises the error.
            if answer is not None:
                self._handle_answer(partition, state, answer)
            self._wake()

        state.open_request = on_answer
        log_reaches_position = self._request_client.known_mark(partition) >= state.position
        wait_ms = _WAIT_MS if log_reaches_position else _UNCONFIRMED_WAIT_MS
        # A message cannot name the id after the largest one. A request for the largest one gets the
        # same answer: no log has so many transactions, so it ends before the position.
        first_id = min(state.position + 1, LAST_ID)
        request = ReadRecords(first_id, count, self._limits.size, wait_ms, stored=True)
        self._request_client.send(partition, request, on_answer)

    def _handle_answer(self, partition: int, state: _StreamPartition, answer: Answer) -> None:
        """Keep the range that has arrived and request the next one, or record why there is none."""
        match answer.kind:
            case AnswerKind.RECORDS:
                assert answer.records is not None
                self._request_client.note_mark(partition, answer.mark)
                if answer.records.count:
                    state.position += answer.records.count
                    state.held += 1
                    self._arrived.append(ArrivedRange(partition, answer.records))
                self._request(partition, state)
            case AnswerKind.UNSUPPORTED:
                self.unsupported = ServerTooOld(partition, answer.version, "request for ranges")
            case AnswerKind.AHEAD:
                self.failure = ClientAhead(partition, state.position, answer.mark)
            case AnswerKind.CORRUPT:
                self.failure = DataCorrupt(partition, answer.corrupt_id, CHECKSUM_ATTEMPTS)
            case AnswerKind.DENIED:
                self.failure = PermissionDenied(partition, answer.denial)
            case AnswerKind.DATA | AnswerKind.MARK | AnswerKind.HEADERS:
                raise AssertionError(f"not an answer to a request for records: {answer.kind}")
            case _:
                assert_never(answer.kind)


def decode_transactions(
    partition: int, records: RecordBatch | StoredBatch, deserializer: Deserializer
) -> Iterator[list[Transaction[Any]]]:
    """Yield the transactions of a range in lists of up to `BATCH_TRANSACTIONS`.

    The transactions before an unreadable one are yielded first; then the DataUnreadable of
    ``deserializer`` is raised.
    """
    rows = _rows(records)
    for first in range(0, len(rows), BATCH_TRANSACTIONS):
        batch_rows, unreadable = rows[first : first + BATCH_TRANSACTIONS], None
        if not deserializer.returns_bytes:
            batch_rows, unreadable = _deserialized(partition, batch_rows, deserializer)
        if batch_rows:
            yield transactions_of(partition, batch_rows)
        if unreadable is not None:
            raise unreadable


def _deserialized(
    partition: int, rows: list[TransactionRow], deserializer: Deserializer
) -> tuple[list[TransactionRow], DataUnreadable | None]:
    """Return the rows with the values of their data in place of the data, and None.

    Rows to skip are left out. If data cannot be read, return the rows before them, and the error.
    """
    read: list[TransactionRow] = []
    for transaction_id, req_id, header, length, data in rows:
        try:
            value = deserializer.read(partition, transaction_id, data)
        except DataUnreadable as error:
            return read, error
        if value is not SKIPPED:
            read.append((transaction_id, req_id, header, length, value))
    return read, None


def _rows(records: RecordBatch | StoredBatch) -> list[TransactionRow]:
    """Return a row for each record of a range, which the client has verified."""
    if isinstance(records, StoredBatch):
        raw, before_data, overhead = bytes(records.raw), _SKIP_CHECKSUM, STORED_OVERHEAD_BYTES
    else:
        raw, before_data, overhead = records.wire, "", WIRE_OVERHEAD_BYTES
    size = len(raw) // records.count if records.count else 0
    length = size - overhead
    if length >= 0 and len(raw) == size * records.count:
        # Assume that all records have the same size: then no loop in Python is needed. The lengths
        # in the rows show whether this is true. The first row begins in the right place. After a
        # row that begins in the right place and has this length, the next one does so, too.
        form = f"{_ROW_HEAD.format}{before_data}{length}s{_SKIP_CHECKSUM}"
        rows: list[TransactionRow] = list(struct.iter_unpack(form, raw))
        if {row[_ROW_LENGTH] for row in rows} == {length}:
            return rows
    rows, position, unpack = [], 0, _ROW_HEAD.unpack_from
    head_bytes = struct.calcsize(f"{_ROW_HEAD.format}{before_data}")
    for _ in range(records.count):
        transaction_id, req_id, header, length = unpack(raw, position)
        start = position + head_bytes
        rows.append((transaction_id, req_id, header, length, raw[start : start + length]))
        position += length + overhead
    return rows


def fed_transaction(record: FeedRecord, data: Any) -> Transaction[Any]:
    """Return the transaction that a feed has shown as ``record``."""
    client, generation, partition, seq, transaction_id, header = record
    req_id = ReqId(client, generation, partition, seq)
    return Transaction(partition, transaction_id, req_id, header, data)


async def read_ranges(
    ranges: StreamRanges, wait_for_change: Callable[[], Awaitable[None]]
) -> AsyncGenerator[ArrivedRange, None]:
    """Yield the ranges until ``ranges`` is complete or unsupported. Then end the requests.

    ``wait_for_change`` must return after a call of the ``wake`` of ``ranges``. Raises
    ``ranges.failure`` and the errors of ``wait_for_change``.
    """
    try:
        ranges.request()
        while True:
            arrived = ranges.take()
            if arrived is not None:
                yield arrived
            elif ranges.failure is not None:
                raise ranges.failure
            elif ranges.unsupported is not None or ranges.complete:
                return
            else:
                await wait_for_change()
    finally:
        ranges.end()


async def read_batches(
    ranges: StreamRanges, wait_for_change: Callable[[], Awaitable[None]], deserializer: Deserializer
) -> AsyncGenerator[list[Transaction[Any]], None]:
    """Yield the transactions of `read_ranges` in lists. Raises its errors and DataUnreadable."""
    async with aclosing(read_ranges(ranges, wait_for_change)) as arriving:
        async for arrived in arriving:
            for batch in decode_transactions(arrived.partition, arrived.records, deserializer):
                yield batch
