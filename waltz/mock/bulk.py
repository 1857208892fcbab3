"""The ranges and batches of the mock client. Waits on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import accumulate
from typing import Any

from typing_extensions import override

from waltz.client import (
    AppendUncertain,
    ClientAhead,
    ClientOptions,
    ClusterUnreachable,
    Draft,
    HeaderRange,
    LogBulk,
    RecordRange,
)
from waltz.client.core.append_values import Append
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.requests import ReadHeaders, ReadRecords
from waltz.mock.faults import Delivery
from waltz.mock.log import Entry, Request
from waltz.mock.partition import MockPartition
from waltz.mock.shared import SharedLogs
from waltz.protocol.records import Record, RecordBatch, RecordHeader, ReqId, checksum


class MockBulk(LogBulk):
    """The ranges and batches of a `MockClient`.

    A batch that is lost is sent again. A batch in doubt is in the log as a whole or not at all.
    """

    def __init__(
        self,
        cluster: SharedLogs,
        options: ClientOptions,
        check: Callable[[int], None],
        open_call: Callable[[], AbstractContextManager[None]],
        mounted: Callable[[int], Awaitable[MockPartition]],
    ) -> None:
        super().__init__(options)
        self._cluster = cluster
        self._check_client = check
        self._open_call = open_call
        self._mounted = mounted

    @override
    def _check(self, partition: int) -> None:
        self._check_client(partition)

    @override
    async def _read_records(self, partition: int, request: ReadRecords) -> RecordRange:
        first_id = request.first_id
        with suppress(TimeoutError):
            async with asyncio.timeout(request.wait_ms / 1000):
                await self._cluster.until(lambda: self._cluster.mark(partition) >= first_id)
        mark, entries = self._range(partition, first_id, request.max_records)
        sizes = accumulate(len(entry.data) for entry in entries)
        fitting = sum(size <= request.max_bytes for size in sizes)
        records = (
            Record(e.id, e.req_id, e.header, e.data, checksum(e.data))
            for e in entries[: max(1, fitting)]
        )
        return RecordRange(RecordBatch.of(records), mark)

    @override
    async def _read_headers(self, partition: int, request: ReadHeaders) -> HeaderRange:
        mark, entries = self._range(partition, request.first_id, request.max_headers)
        return HeaderRange(tuple(RecordHeader(e.id, e.req_id, e.header) for e in entries), mark)

    @override
    async def _append_batch(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        appends: Sequence[Append],
        seconds: float | None,
    ) -> list[BatchOutcome]:
        sent: list[ReqId] = []
        bound = asyncio.timeout(seconds)
        with self._open_call():
            try:
                async with bound:
                    return await self._send(partition, drafts, appends, sent)
            except TimeoutError:
                if not bound.expired():
                    raise
                if sent:
                    raise _uncertain(sent, f"no outcome within {seconds:g} s") from None
                raise ClusterUnreachable(
                    f"no server took a batch for partition {partition} within {seconds:g} s"
                ) from None

    async def _send(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        appends: Sequence[Append],
        sent: list[ReqId],
    ) -> list[BatchOutcome]:
        """Send a batch until it arrives; ``sent`` has the request ids of the last time."""
        state = await self._mounted(partition)
        mark = appends[0].mark
        while True:
            await asyncio.sleep(state.draws.delay(self._cluster.faults))
            self._check(partition)
            against = self._cluster.fed(partition) if mark is None else mark
            sent[:] = [state.next_req_id() for _ in drafts]
            requests = [
                Request.of(req_id, draft, append.data, against)
                for req_id, draft, append in zip(sent, drafts, appends, strict=True)
            ]
            delivery, outcomes = self._cluster.take_batch(requests, state.draws)
            match delivery:
                case Delivery.ARRIVES | Delivery.CONFLICT:
                    await asyncio.sleep(state.draws.delay(self._cluster.faults))
                    return outcomes
                case Delivery.UNCERTAIN_ABSENT | Delivery.UNCERTAIN_COMMITTED:
                    raise _uncertain(sent, "a fault of the mock cluster")
                case Delivery.LOST:
                    pass

    def _range(self, partition: int, first_id: int, most: int) -> tuple[int, list[Entry]]:
        """Return the log's mark and the entries from ``first_id`` on. Raises ClientAhead."""
        self._check(partition)
        mark = self._cluster.mark(partition)
        if first_id > mark + 1:
            raise ClientAhead(partition, first_id - 1, mark)
        return mark, list(self._cluster.between(partition, first_id - 1, mark, most))


def _uncertain(sent: Sequence[ReqId], reason: str) -> AppendUncertain:
    first = sent[0]
    return AppendUncertain(first.partition, first, reason, (None,) * len(sent))
