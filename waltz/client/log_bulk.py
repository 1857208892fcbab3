"""The interface for many transactions in one request: reads of ranges, appends of batches.

Servers support these requests from protocol version 5 on (spec/wire.md section 9). Records stay in
wire form, so that a pipeline can convert thousands of them to columns at once. Waits on the event
loop.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from waltz.client.core.append_values import Append
from waltz.client.core.arguments import (
    MOST_INT,
    check_drafts,
    check_range,
    check_seconds,
    check_timeout,
)
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.errors import DataTooLarge
from waltz.client.core.read_values import ReadHeaders, ReadRecords
from waltz.client.core.serializers import append_of
from waltz.client.core.values import MAX_DATA_BYTES, Draft, Serializer
from waltz.client.deadlines import in_time
from waltz.client.options import ClientOptions
from waltz.protocol.batches import MAX_BATCH_APPENDS, MAX_LOCKS
from waltz.protocol.records import RecordBatch, RecordHeader

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Committed records with consecutive ids, and the high-water mark when they were read.

    The checksums are verified. Iterating over ``records`` yields one `Record` at a time.
    ``records.wire`` has all records as bytes.
    """

    records: RecordBatch
    high_water_mark: int


@dataclass(frozen=True, slots=True)
class HeaderRange:
    """Headers with consecutive ids, and the high-water mark when they were read.

    They are the headers of committed transactions.
    """

    headers: tuple[RecordHeader, ...]
    high_water_mark: int


class LogBulk(abc.ABC):
    """Reads and appends many transactions in one request. `LogClient.bulk` returns this object.

    Timeouts have the same meaning and defaults as in `LogClient`. Every method also raises
    ClientFailed if the client has failed.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = options

    async def records(
        self,
        partition: int,
        first_id: int,
        *,
        max_records: int = 10_000,
        max_bytes: int = 4 << 20,
        wait_seconds: float = 0.0,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> RecordRange:
        """Return committed records from ``first_id`` on.

        The result has at most ``max_records`` records and ``max_bytes`` bytes, but always the first
        record if the log has it. If ``first_id`` is the next id of the log, the server waits up to
        ``wait_seconds`` for this transaction; the result may be empty. A result with fewer records
        does not mean that the log ends: compare the last id with the high-water mark.

        Raises:
            ServerTooOld: The server does not support ranges.
            ClientAhead: ``first_id`` is above the next id of the log.
            DataCorrupt: A record did not match its checksum in any attempt.
            AnswerLate: The timeout passed.
            PermissionDenied: The client has no right to make this request.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
            ValueError: ``first_id`` is below 0, or a maximum is below 1.
        """
        self._check(partition)
        check_range(first_id, max_records=max_records, max_bytes=max_bytes)
        check_seconds("wait_seconds", wait_seconds)
        check_timeout(timeout)
        wait_ms = round(min(wait_seconds * 1000, MOST_INT))
        request = ReadRecords(first_id, max_records, max_bytes, wait_ms)
        missing = f"the records of partition {partition} from {first_id} on did not arrive"
        if timeout is None and self._options.answer_timeout is not None:
            timeout = self._options.answer_timeout + wait_seconds
        return await self._in_time(self._read_records(partition, request), timeout, missing)

    async def headers(
        self,
        partition: int,
        first_id: int,
        *,
        max_headers: int = 10_000,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> HeaderRange:
        """Return headers of committed transactions from ``first_id`` on; the result may be empty.

        A header has the request id of the append. So a caller can find out whether an append that
        raised AppendUncertain is in the log.

        This method raises the same errors as `records`, except DataCorrupt.
        """
        self._check(partition)
        check_range(first_id, max_headers=max_headers)
        check_timeout(timeout)
        missing = f"the headers of partition {partition} from {first_id} on did not arrive"
        work = self._read_headers(partition, ReadHeaders(first_id, max_headers))
        return await self._in_time(work, timeout, missing)

    async def append(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        *,
        mark: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> list[BatchOutcome]:
        """Append ``drafts`` in their order with one request; return the outcome of each.

        ``mark`` is the id of the last transaction that the caller's decision takes into account. A
        draft is refused if a later transaction took one of its write or read locks. If ``mark`` is
        None, the mark is the id of the last transaction that the log has when the batch arrives;
        see `LogClient.append`. The locks of a draft do not refuse other drafts of the same batch.

        A batch is not atomic. If one draft is refused, the others are still appended. After a
        fault, the first drafts of the batch may be in the log while the others are `Absent`. No
        draft is sent twice, unless a server refuses the whole batch because of its mark.

        Raises:
            AppendUncertain: The timeout passed, or the client was closed, after the batch was sent
                and before all outcomes were known. ``outcomes`` has the known ones.
            ClusterUnreachable: The timeout passed, and no draft is in the log or ever will be.
            ServerTooOld: The server does not support batches. Nothing was sent.
            ClientAhead: The log ends before ``mark``, or before the last transaction that this
                client has received. No transaction is in the log.
            DataTooLarge: The data of all drafts together exceed 64 MiB. Nothing was sent.
            PermissionDenied: The client has no right to make this request.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
            ValueError: There are too many drafts or locks, or a draft has a mark. Nothing was sent.
        """
        self._check(partition)
        check_drafts(drafts)
        check_timeout(timeout)
        appends = _appends_of(drafts, self._options.serializer, mark)
        if not appends:
            return []
        seconds = self._options.append_timeout if timeout is None else timeout
        return await self._append_batch(partition, appends, seconds)

    async def _in_time(self, work: Awaitable[T], seconds: float | None, missing: str) -> T:
        """Await ``work``; see `ClientBase._in_time`."""
        if seconds is None:
            seconds = self._options.answer_timeout
        return await in_time(work, seconds, missing, self._problems)

    # The methods below are those that an implementation provides.

    @abc.abstractmethod
    def _problems(self) -> str:
        """See `ClientBase._problems`."""

    @abc.abstractmethod
    def _check(self, partition: int) -> None:
        """Raise ClientClosed or ClientFailed if the client has ended.

        Raise PartitionUnknown if the cluster has no ``partition``.
        """

    @abc.abstractmethod
    async def _read_records(self, partition: int, request: ReadRecords) -> RecordRange:
        """Return verified records in wire form. Raises the errors of `records` but AnswerLate."""

    @abc.abstractmethod
    async def _read_headers(self, partition: int, request: ReadHeaders) -> HeaderRange:
        """Return headers. Raises the errors of `headers` but AnswerLate."""

    @abc.abstractmethod
    async def _append_batch(
        self, partition: int, appends: Sequence[Append], seconds: float | None
    ) -> list[BatchOutcome]:
        """Append one or more ``appends``, which have one mark, as `append` describes.

        ``seconds`` is the timeout (None: no timeout).
        """


def _appends_of(
    drafts: Sequence[Draft[Any]], serializer: Serializer[Any] | None, mark: int | None
) -> list[Append]:
    """Return the appends of a batch, one for each of ``drafts``.

    Raises ValueError, DataTooLarge, TypeError, and the errors of the serializer.
    """
    if len(drafts) > MAX_BATCH_APPENDS:
        raise ValueError(
            f"a batch of {len(drafts)} appends: a batch has at most {MAX_BATCH_APPENDS}"
        )
    if any(draft.mark is not None for draft in drafts):
        raise ValueError("a batch has one mark: give it to append, not to its drafts")
    appends = [append_of(draft, serializer, mark) for draft in drafts]
    if sum(append.num_locks for append in appends) > MAX_LOCKS:
        raise ValueError(f"a batch has at most {MAX_LOCKS} locks: split it")
    size = sum(len(append.data) for append in appends)
    if size > MAX_DATA_BYTES:
        raise DataTooLarge(size, MAX_DATA_BYTES, batch=True)
    return appends
