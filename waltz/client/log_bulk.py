"""The interface of ranges and batches: many transactions in one request. Waits on the event loop.

Servers from protocol version 5 on offer them (spec/wire.md section 9). Records stay in wire form,
so that a pipeline can turn thousands of them into columns at once.
"""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from waltz.client.core.append_values import Append
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.errors import DataTooLarge
from waltz.client.core.requests import ReadHeaders, ReadRecords
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

    The checksums are verified. Iterating over ``records`` yields one `Record` at a time;
    ``records.wire`` is all of them as bytes.
    """

    records: RecordBatch
    high_water_mark: int


@dataclass(frozen=True, slots=True)
class HeaderRange:
    """Headers of committed transactions with consecutive ids, and the high-water mark then."""

    headers: tuple[RecordHeader, ...]
    high_water_mark: int


class LogBulk(abc.ABC):
    """Many transactions in one request. `LogClient.bulk` returns it.

    Timeouts are as in `LogClient`.
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
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> RecordRange:
        """Return committed records from ``first_id`` on, within both bounds but at least one.

        There are none if the log ends before ``first_id``. With ``wait_seconds`` the server waits
        that long for the first. Fewer records than the bounds allow do not mean that the log ends:
        compare the last one with the high-water mark.

        Raises:
            ServerTooOld: The server does not offer ranges.
            ClientAhead: ``first_id`` is beyond the next id of the log.
            DataCorrupt: A record failed its checksum in every attempt.
            AnswerLate: The time ran out.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
            ValueError: ``first_id`` is below 0, or a bound is below 1.
        """
        self._check(partition)
        _check_range(first_id, max_records, max_bytes)
        request = ReadRecords(first_id, max_records, max_bytes, round(wait_seconds * 1000))
        missing = f"the records of partition {partition} from {first_id} on did not come"
        return await self._in_time(self._read_records(partition, request), timeout, missing)

    async def headers(
        self,
        partition: int,
        first_id: int,
        *,
        max_headers: int = 10_000,
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> HeaderRange:
        """Return headers of committed transactions from ``first_id`` on, possibly none.

        A header has the request id of its append. So this finds out whether an append that raised
        AppendUncertain is in the log.

        Raises what `records` raises.
        """
        self._check(partition)
        _check_range(first_id, max_headers)
        missing = f"the headers of partition {partition} from {first_id} on did not come"
        work = self._read_headers(partition, ReadHeaders(first_id, max_headers))
        return await self._in_time(work, timeout, missing)

    async def append(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        *,
        mark: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it expires as a named error
    ) -> list[BatchOutcome]:
        """Append ``drafts`` in their order with one request; return the outcome of each.

        Each draft is checked by its own locks against what others took after ``mark``, the last
        transaction that the caller's decision takes into account. Drafts of one batch do not refuse
        each other.

        A batch is not a transaction: one refused draft does not refuse the others, and after a
        fault a prefix of the batch may be in the log. The rest is then `Absent`. Nothing is sent
        twice.

        Raises:
            AppendUncertain: The time ran out, or the client was closed, after the batch was sent
                and before all outcomes were known. Its ``outcomes`` has those that are known.
            ClusterUnreachable: The time ran out and nothing was sent.
            ServerTooOld: The server does not offer batches. Nothing was sent.
            ClientAhead: The log ends before the last transaction that this client has seen.
            DataTooLarge: The data of all drafts exceeds 64 MiB. Nothing was sent.
            PartitionUnknown: The cluster has no such partition.
            ClientClosed: The client is closed.
            ValueError: There are too many drafts or locks, or a draft has a mark.
        """
        self._check(partition)
        appends = _appends_of(drafts, self._options.serializer, mark)
        if not appends:
            return []
        seconds = self._options.append_timeout if timeout is None else timeout
        return await self._append_batch(partition, drafts, appends, seconds)

    async def _in_time(self, work: Awaitable[T], seconds: float | None, missing: str) -> T:
        if seconds is None:
            seconds = self._options.answer_timeout
        return await in_time(work, seconds, missing)

    # The methods that an implementation provides.

    @abc.abstractmethod
    def _check(self, partition: int) -> None:
        """Raise ClientClosed, ClientFailed, PartitionUnknown."""

    @abc.abstractmethod
    async def _read_records(self, partition: int, request: ReadRecords) -> RecordRange: ...

    @abc.abstractmethod
    async def _read_headers(self, partition: int, request: ReadHeaders) -> HeaderRange: ...

    @abc.abstractmethod
    async def _append_batch(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        appends: Sequence[Append],
        seconds: float | None,
    ) -> list[BatchOutcome]: ...


def _check_range(first_id: int, count: int, size: int = 1) -> None:
    """Raise ValueError unless a range from ``first_id`` on may be requested in these bounds."""
    if first_id < 0:
        raise ValueError(f"transaction ids begin at 0: there is no {first_id}")
    if count < 1 or size < 1:
        raise ValueError("a range has at least one record: its bounds must be above 0")


def _appends_of(
    drafts: Sequence[Draft[Any]], serializer: Serializer[Any] | None, mark: int | None
) -> list[Append]:
    """Return the appends of a batch. Raises ValueError, DataTooLarge, and the serializer's."""
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
        raise DataTooLarge(size, MAX_DATA_BYTES)
    return appends
