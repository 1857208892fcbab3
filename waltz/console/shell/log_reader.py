"""Read pages of a log for the console's log browser, and search the log. Touches the network.

A *page* here has consecutive transactions of one partition. Every read is bounded: in records, in
bytes, and in time. The number of reads at once is bounded, too. The first read opens a client, and
a later read opens another client if the first has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from waltz.client import ClientClosed, ClientFailed, LogClient, ServerTooOld
from waltz.client.deadlines import in_time
from waltz.console.core.records import DataFormat, ShownRecord, show_record
from waltz.protocol.records import Record, RecordHeader, ReqId

MAX_PAGE_RECORDS = 200
"""The most records that a page may have; `waltz.console.shell.http` checks it."""
_PAGE_BYTES = 1 << 20
"""The most bytes of data of a page; a larger record is alone on its page."""
_MOST_READS = 4
"""The most reads that are under way at once; others wait."""

OpenClient = Callable[[], Awaitable[LogClient[bytes]]]
"""Opens a client of the cluster."""


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """The bounds of one read: the time for each answer, and how many ids a search covers.

    A search reads at most ``search_requests`` ranges, each of ``search_headers`` ids.
    """

    answer_seconds: float = 10.0
    search_headers: int = 5000
    search_requests: int = 20


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive transactions of a partition, and the high-water mark, -1 for an empty log.

    ``next_id`` is the id after the page, None if the log ends with the page. ``is_truncated`` says
    whether the page has fewer transactions than requested because of the bound on its bytes.
    """

    partition: int
    high_water_mark: int
    records: tuple[ShownRecord, ...]
    next_id: int | None
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The id ``found`` of the transaction that has a request id, None if it was not found.

    The transactions from ``first_id`` to ``last_id`` were searched, in ranges, the newest range
    first. The search ends with the range that has the transaction. ``complete`` says whether the
    search has reached the beginning of the log.
    """

    partition: int
    found: int | None
    first_id: int
    last_id: int
    complete: bool


class LogPageReader:
    """Reads one cluster's log by one client."""

    def __init__(self, open_client: OpenClient, bounds: ReadBounds = ReadBounds()) -> None:
        self._open_client = open_client
        self._bounds = bounds
        self._client: LogClient[bytes] | None = None
        self._opening = asyncio.Lock()
        """Held while the client is checked and opened, so that only one is opened."""
        self._read_slots = asyncio.Semaphore(_MOST_READS)

    async def page(
        self, partition: int, first_id: int | None, count: int, data_format: DataFormat
    ) -> Page:
        """Return up to ``count`` transactions from ``first_id`` on.

        If ``first_id`` is None, return the last ones. Raises WaltzError.
        """
        async with self._read_slots:
            client = await self._ready_client()
            mark = await client.high_water_mark(partition, timeout=self._bounds.answer_seconds)
            first = max(0, mark - count + 1) if first_id is None else first_id
            last = min(first + count - 1, mark)
            if last < first:
                return Page(partition, mark, (), next_id=None, is_truncated=False)
            records = await self._records(client, partition, first, last)
            shown = tuple(show_record(record, data_format) for record in records)
            next_id = first + len(records)
            return Page(
                partition,
                mark,
                shown,
                next_id=next_id if next_id <= mark else None,
                is_truncated=next_id <= last,
            )

    async def find(self, req_id: ReqId, before: int | None) -> SearchResult:
        """Search for a request id among the last transactions before the id ``before``.

        If ``before`` is None, search the last transactions of the log. Raises WaltzError.
        """
        async with self._read_slots:
            client, partition = await self._ready_client(), req_id.partition
            mark = await client.high_water_mark(partition, timeout=self._bounds.answer_seconds)
            # Search backwards: the transactions from ``first`` to ``last`` are always those that
            # were searched.
            first = mark + 1 if before is None else min(before, mark + 1)
            last = first - 1
            found: int | None = None
            for _ in range(self._bounds.search_requests):
                if first <= 0 or found is not None:
                    break
                end, first = first, max(0, first - self._bounds.search_headers)
                found = await self._search(client, req_id, first, end)
            return SearchResult(partition, found, first, last, complete=first <= 0)

    async def aclose(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.close()

    async def _ready_client(self) -> LogClient[bytes]:
        """Return the client; open it, or another one after it has failed."""
        async with self._opening:
            if self._client is not None:
                try:
                    # There is nothing to flush: the call raises the error of a failed client.
                    await self._client.flush(timeout=self._bounds.answer_seconds)
                except (ClientFailed, ClientClosed):
                    await self._client.close()
                    self._client = None
            if self._client is None:
                self._client = await self._open_client()
            return self._client

    async def _records(
        self, client: LogClient[bytes], partition: int, first: int, last: int
    ) -> tuple[Record, ...]:
        """Return the records from ``first`` to ``last``, or fewer because of the bound on bytes."""
        try:
            answer = await client.bulk.records(
                partition,
                first,
                max_records=last - first + 1,
                max_bytes=_PAGE_BYTES,
                timeout=self._bounds.answer_seconds,
            )
        except ServerTooOld:
            work = _streamed(client, partition, first, last)
            missing = f"the records of partition {partition} from {first} on did not arrive"
            return await in_time(work, self._bounds.answer_seconds, missing)
        return tuple(answer.records)

    async def _search(
        self, client: LogClient[bytes], req_id: ReqId, first: int, end: int
    ) -> int | None:
        """Search the ids from ``first`` to ``end`` - 1; return the one with ``req_id``, if any."""
        next_id = first
        while next_id < end:
            headers = await self._headers(client, req_id.partition, next_id, end)
            for header in headers:
                if header.req_id == req_id:
                    return header.transaction_id
            if not headers:
                # The log now ends before ``next_id``, although its mark was higher: another log has
                # replaced it. Stop, because the rest of the range does not exist.
                break
            next_id += len(headers)
        return None

    async def _headers(
        self, client: LogClient[bytes], partition: int, first: int, end: int
    ) -> tuple[RecordHeader, ...]:
        """Return headers of ids from ``first`` to ``end`` - 1, or only the first of them."""
        try:
            answer = await client.bulk.headers(
                partition, first, max_headers=end - first, timeout=self._bounds.answer_seconds
            )
        except ServerTooOld:
            work = _streamed_headers(client, partition, first, end)
            missing = f"the headers of partition {partition} from {first} on did not arrive"
            return await in_time(work, self._bounds.answer_seconds, missing)
        return answer.headers


async def _streamed(
    client: LogClient[bytes], partition: int, first: int, last: int
) -> tuple[Record, ...]:
    """Return what `LogPageReader._records` returns, from a server without requests for ranges."""
    records: list[Record] = []
    size = 0
    async with aclosing(client.stream(partition, after=first - 1, until=last, data=True)) as stream:
        async for transaction in stream:
            size += len(transaction.data)
            if records and size > _PAGE_BYTES:
                break
            # The checksum is 0: a stream does not return it, and pages do not show it.
            records.append(
                Record(
                    transaction.id,
                    transaction.req_id,
                    transaction.header,
                    transaction.data,
                    checksum=0,
                )
            )
    return tuple(records)


async def _streamed_headers(
    client: LogClient[bytes], partition: int, first: int, end: int
) -> tuple[RecordHeader, ...]:
    """Return the headers from ``first`` to ``end`` - 1, as `_streamed` returns records."""
    async with aclosing(client.stream(partition, after=first - 1, until=end - 1)) as stream:
        return tuple([RecordHeader(t.id, t.req_id, t.header) async for t in stream])
