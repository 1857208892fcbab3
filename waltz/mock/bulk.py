"""The mock client's ranges and batches. Waits on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import accumulate
from typing import Any

from waltz.client import (
    AppendUncertain,
    ClientAhead,
    ClientOptions,
    ClusterUnreachable,
    Draft,
    HeaderRange,
    RecordRange,
)
from waltz.client.bulk import appends_of, check_range
from waltz.client.core.batches import BatchOutcome
from waltz.mock.faults import Delivery
from waltz.mock.log import Entry, Request
from waltz.mock.partition import MockPartition
from waltz.mock.shared import SharedLogs
from waltz.protocol.records import Record, RecordBatch, RecordHeader, ReqId, checksum


class MockBulk:
    """What `waltz.Client.bulk` offers, on the logs of a mock cluster.

    A batch that gets lost is sent again, and one whose fate is uncertain is in the log as a whole,
    or not at all.
    """

    def __init__(
        self,
        cluster: SharedLogs,
        options: ClientOptions,
        check: Callable[[int], None],
        calling: Callable[[], AbstractContextManager[None]],
        mounted: Callable[[int], Awaitable[MockPartition]],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._check = check
        self._calling = calling
        self._mounted = mounted

    async def records(
        self,
        partition: int,
        first_id: int,
        *,
        max_records: int = 10_000,
        max_bytes: int = 4 << 20,
        wait_seconds: float = 0.0,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> RecordRange:
        """See `waltz.Client.bulk`."""
        self._check(partition)
        check_range(first_id, max_records, max_bytes)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self._cluster.until(lambda: self._cluster.mark(partition) >= first_id)
        mark, entries = self._range(partition, first_id, max_records)
        sizes = accumulate(len(entry.data) for entry in entries)
        fitting = sum(size <= max_bytes for size in sizes)
        records = (
            Record(e.id, e.req_id, e.header, e.data, checksum(e.data))
            for e in entries[: max(1, fitting)]
        )
        return RecordRange(RecordBatch.of(records), mark)

    async def headers(
        self,
        partition: int,
        first_id: int,
        *,
        max_headers: int = 10_000,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> HeaderRange:
        """See `waltz.Client.bulk`."""
        self._check(partition)
        check_range(first_id, max_headers)
        mark, entries = self._range(partition, first_id, max_headers)
        return HeaderRange(tuple(RecordHeader(e.id, e.req_id, e.header) for e in entries), mark)

    async def append(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        *,
        mark: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> list[BatchOutcome]:
        """See `waltz.Client.bulk`."""
        self._check(partition)
        data = [each.data for each in appends_of(drafts, self._options.serializer, mark)]
        if not data:
            return []
        seconds = self._options.append_timeout_seconds if timeout is None else timeout
        sent: list[ReqId] = []
        bound = asyncio.timeout(seconds)
        with self._calling():
            try:
                async with bound:
                    return await self._sent(partition, drafts, data, mark, sent)
            except TimeoutError:
                if not bound.expired():
                    raise
                if sent:
                    raise _uncertain(sent, f"no outcome within {seconds:g} s") from None
                raise ClusterUnreachable(
                    f"no server took a batch for partition {partition} within {seconds:g} s"
                ) from None

    async def _sent(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        data: Iterable[bytes],
        mark: int | None,
        sent: list[ReqId],
    ) -> list[BatchOutcome]:
        """Send a batch until it arrives; ``sent`` has the request ids of the last time."""
        state = await self._mounted(partition)
        while True:
            await asyncio.sleep(state.draws.delay(self._cluster.faults))
            self._check(partition)
            against = self._cluster.fed(partition) if mark is None else mark
            sent[:] = [state.next_req_id() for _ in drafts]
            requests = [
                Request.of(req_id, draft, content, against)
                for req_id, draft, content in zip(sent, drafts, data, strict=True)
            ]
            delivery, outcomes = self._cluster.take_batch(requests, state.draws)
            match delivery:
                case Delivery.ARRIVES | Delivery.CONFLICT:
                    await asyncio.sleep(state.draws.delay(self._cluster.faults))
                    return outcomes
                case Delivery.UNCERTAIN_ABSENT | Delivery.UNCERTAIN_COMMITTED:
                    raise _uncertain(sent, "the mock cluster was told so")
                case Delivery.LOST:
                    pass

    def _range(self, partition: int, first_id: int, most: int) -> tuple[int, list[Entry]]:
        """Return the log's mark, and what is there. Raises ClientAhead."""
        self._check(partition)
        mark = self._cluster.mark(partition)
        if first_id > mark + 1:
            raise ClientAhead(partition, first_id - 1, mark)
        return mark, list(self._cluster.between(partition, first_id - 1, mark, most))


def _uncertain(sent: Sequence[ReqId], reason: str) -> AppendUncertain:
    first = sent[0]
    return AppendUncertain(first.partition, first, reason, (None,) * len(sent))
