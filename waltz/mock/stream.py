"""A stream of a mock cluster. Waits on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from typing_extensions import override

from waltz.client import ClientAhead, ClientClosed, Transaction
from waltz.client.core.log_stream import LogStream
from waltz.client.core.values import DataT_co
from waltz.client.stream import BATCH
from waltz.mock.faults import Draws
from waltz.mock.shared import SharedLogs


class MockStream(LogStream[DataT_co]):
    """The stream of a `MockClient`; ``make_data`` converts the bytes to the data of the
    transactions.
    """

    def __init__(
        self,
        cluster: SharedLogs,
        marks: Mapping[int, int],
        until: Mapping[int, int],
        make_data: Callable[[bytes], Any],
        draws: Draws,
        count_received: Callable[[int, int], None],
    ) -> None:
        self._cluster = cluster
        self._until = dict(until)
        self._marks = {p: mark for p, mark in marks.items() if mark < until.get(p, mark + 1)}
        self._make_data = make_data
        self._draws = draws
        self._count_received = count_received
        self._begun = False
        self._closed = False

    @override
    async def batches(self) -> AsyncIterator[list[Transaction[DataT_co]]]:
        if self._begun or self._closed:
            raise ClientClosed
        self._begun = True
        try:
            while self._marks:
                await self._cluster.until(self._something)
                await asyncio.sleep(self._draws.delay(self._cluster.faults))
                if self._closed:
                    raise ClientClosed
                for partition in list(self._marks):
                    if batch := self._take(partition):
                        self._count_received(partition, len(batch))
                        yield batch
        finally:
            await self.aclose()

    @override
    async def aclose(self) -> None:
        self._closed = True
        self._cluster.changed()

    def _something(self) -> bool:
        return self._closed or any(
            self._cluster.fed(partition) > mark or self._cluster.mark(partition) < mark
            for partition, mark in self._marks.items()
        )

    def _take(self, partition: int) -> list[Transaction[DataT_co]]:
        mark, fed = self._marks[partition], self._cluster.fed(partition)
        if self._cluster.mark(partition) < mark:
            raise ClientAhead(partition, mark, self._cluster.mark(partition))
        until = self._until.get(partition, fed)
        entries = self._cluster.between(partition, mark, min(fed, until), BATCH)
        batch: list[Transaction[DataT_co]] = []
        for e in entries:
            try:
                data = self._make_data(e.data)
            except Exception:
                if not batch:
                    raise
                break
            batch.append(Transaction(partition, e.id, e.req_id, e.header, data))
        if batch:
            self._marks[partition] = batch[-1].id
            if batch[-1].id == self._until.get(partition):
                del self._marks[partition]
        return batch
