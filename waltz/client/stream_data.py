"""Read the data of fed transactions, by one request for each transaction. Touches the network.

A feed has no data. A stream uses this module only if a server is too old for requests for ranges.
Data are read ahead: before the application wants them, but only up to limits. The client's
`RequestClient` sends the requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from waltz.client.core.codec import FEED_PARTITION, FEED_TRANSACTION_ID, FeedRecord
from waltz.client.core.deserializing import SKIPPED, Deserializer
from waltz.client.core.errors import DataCorrupt, PermissionDenied
from waltz.client.core.read_ahead import ReadAhead
from waltz.client.core.read_values import Answer, AnswerKind, ReadData
from waltz.client.core.requests import CHECKSUM_ATTEMPTS
from waltz.client.core.values import Transaction
from waltz.client.request_client import RequestClient
from waltz.client.stream_ranges import fed_transaction

_READ_AHEAD_TRANSACTIONS = 500
"""The most transactions whose data are read ahead of the application."""

_READ_AHEAD_BYTES = 32 << 20
"""The most bytes of data that are read ahead; `ReadAhead` estimates them."""


@dataclass(slots=True)
class _DataRead:
    """A transaction whose data is being read.

    When ``done`` is true, ``answer`` is the answer, or None if the client ended before the answer.
    """

    record: FeedRecord
    done: bool = False
    answer: Answer | None = None


class FedData:
    """The reads of the data of fed transactions, in the order of the transactions.

    A `FedData` without reads is false. ``on_answer`` is called when an answer arrives.
    ``end_error`` returns the error to raise for a read that has no answer because the client ended.
    """

    def __init__(
        self,
        request_client: RequestClient,
        deserializer: Deserializer,
        on_answer: Callable[[], None],
        end_error: Callable[[], Exception],
    ) -> None:
        self._request_client = request_client
        self._deserializer = deserializer
        self._on_answer = on_answer
        self._end_error = end_error
        self._ahead = ReadAhead(_READ_AHEAD_BYTES, _READ_AHEAD_TRANSACTIONS)
        self._reads: deque[_DataRead] = deque()
        """The reads that `take` has not removed, in the order of the calls of `request`."""

    def __bool__(self) -> bool:
        return bool(self._reads)

    def has_room(self) -> bool:
        """Whether the data of one more transaction may be read ahead."""
        return self._ahead.has_room()

    def request(self, record: FeedRecord) -> None:
        """Request the data of a fed transaction.

        If the client has ended, the read is done at once, without an answer.
        """
        read = _DataRead(record)
        self._reads.append(read)

        def record_answer(answer: Answer | None) -> None:
            read.answer = answer
            read.done = True
            self._ahead.arrived(len(answer.data) if answer else 0)
            self._on_answer()

        self._ahead.requested()
        if self._request_client.ended:
            # `send` would raise the error now, before `take` has returned the data that arrived.
            record_answer(None)
            return
        request = ReadData(record[FEED_TRANSACTION_ID])
        self._request_client.send(record[FEED_PARTITION], request, record_answer)

    def can_take(self) -> bool:
        """Whether the first read is done."""
        return bool(self._reads) and self._reads[0].done

    def take(self) -> list[Transaction[Any]]:
        """Remove the reads that are done, up to the first that is not; return their transactions.

        A transaction that the deserializer skips is left out. If the first read has failed, raise
        its error. Stop before a later read that has failed: the next call raises its error.
        """
        taken: list[Transaction[Any]] = []
        is_first = True
        while self.can_take():
            try:
                transaction = self._transaction_of(self._reads[0])
            except Exception:
                if is_first:
                    raise
                break
            is_first = False
            if transaction is not None:
                taken.append(transaction)
            answer = self._reads.popleft().answer
            assert answer is not None
            self._ahead.taken(len(answer.data))
        return taken

    def _transaction_of(self, read: _DataRead) -> Transaction[Any] | None:
        """Return the transaction of a read that is done, None to skip it. Raises its error."""
        answer, record = read.answer, read.record
        partition, transaction_id = record[FEED_PARTITION], record[FEED_TRANSACTION_ID]
        if answer is None:
            raise self._end_error()
        if answer.kind is AnswerKind.CORRUPT:
            raise DataCorrupt(partition, transaction_id, CHECKSUM_ATTEMPTS)
        if answer.kind is AnswerKind.DENIED:
            raise PermissionDenied(partition, answer.denial)
        value = self._deserializer.read(partition, transaction_id, answer.data)
        return None if value is SKIPPED else fed_transaction(record, value)
