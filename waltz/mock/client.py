"""The mock client: `waltz.LogClient` on logs in memory. Waits on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from typing_extensions import override

from waltz.client import (
    AppendUncertain,
    ClientAhead,
    ClientClosed,
    ClientOptions,
    ClusterUnreachable,
    Draft,
    LockFailed,
    LogClient,
    LogStream,
    PartitionUnknown,
    TransactionNotFound,
)
from waltz.client.core.metrics import measured
from waltz.client.core.serializers import encoded
from waltz.client.core.values import DataT
from waltz.mock.bulk import MockBulk
from waltz.mock.faults import Delivery
from waltz.mock.log import Request
from waltz.mock.partition import MockPartition
from waltz.mock.shared import SharedLogs
from waltz.mock.stream import MockStream
from waltz.protocol.records import NO_TRANSACTION, ReqId

_GENERATION = 1


@dataclass(slots=True)
class _Appending:
    """The state that the metrics read; see `waltz.client.core.metrics.Appending`."""

    cluster: SharedLogs
    partitions: dict[int, MockPartition] = field(default_factory=dict)

    def is_mounted(self, partition: int) -> bool:
        return partition in self.partitions

    def mark(self, partition: int) -> int:
        return self.cluster.fed(partition) if partition in self.partitions else NO_TRANSACTION

    def in_flight(self, partition: int) -> int:
        state = self.partitions.get(partition)
        return 0 if state is None else state.in_flight


class MockClient(LogClient[DataT]):
    """The client that `MockCluster.connect` opens."""

    def __init__(self, cluster: SharedLogs, client_id: int, options: ClientOptions) -> None:
        self._cluster = cluster
        self._appending = _Appending(cluster)
        super().__init__(
            options,
            self._appending,
            cluster_name=cluster.name,
            num_partitions=cluster.num_partitions,
            client_id=client_id,
        )
        self._calls = 0
        self._open_calls: dict[int, None] = {}
        self._num_streams = 0
        self._streams: WeakSet[MockStream[Any]] = WeakSet()
        self._closed = False

    @property
    @override
    def pending(self) -> int:
        return len(self._open_calls)

    @property
    @override
    def bulk(self) -> MockBulk:
        return MockBulk(self._cluster, self._options, self._check, self._open_call, self._mounted)

    @override
    async def close(self) -> None:
        self._closed = True
        for stream in list(self._streams):
            await stream.aclose()
        self._cluster.changed()

    @override
    def _check(self, partition: int | None = None) -> None:
        if self._closed:
            raise ClientClosed
        if partition is not None and not 0 <= partition < self.num_partitions:
            raise PartitionUnknown(partition, self.num_partitions)

    @override
    def _stream(
        self, marks: Mapping[int, int], ends: Mapping[int, int], data: bool
    ) -> LogStream[Any]:
        make_data = self._deserialize if data else _no_data
        self._num_streams += 1
        draws = self._cluster.draws(self._client_id, -self._num_streams)
        stream: MockStream[Any] = MockStream(
            self._cluster, marks, ends, make_data, draws, self._count_received
        )
        self._streams.add(stream)
        return stream

    @override
    async def _read_data(self, partition: int, transaction_id: int) -> bytes:
        mark = self._cluster.mark(partition)
        if not NO_TRANSACTION < transaction_id <= mark:
            raise TransactionNotFound(partition, transaction_id, mark)
        [entry] = self._cluster.between(partition, transaction_id - 1, transaction_id, 1)
        return entry.data

    @override
    async def _read_mark(self, partition: int) -> int:
        return self._cluster.mark(partition)

    @override
    async def _flush(self) -> None:
        last = self._calls
        await self._cluster.until(lambda: next(iter(self._open_calls), last + 1) > last)

    @override
    async def _mount(self, partition: int, mark: int | None = None) -> int:
        self._check(partition)
        state = self._appending.partitions.get(partition)
        if state is None:
            fed = self._cluster.fed(partition)
            draws = self._cluster.draws(self._client_id, partition)
            room = asyncio.Semaphore(self._options.max_in_flight)
            first = ReqId(self._client_id, _GENERATION, partition, 0)
            state = MockPartition(fed if mark is None else mark, draws, room, first)
            self._appending.partitions[partition] = state
        return max(state.mounted_at, self._cluster.fed(partition))

    @override
    async def _append(
        self, partition: int, draft: Draft[DataT], mark: int | None, seconds: float | None
    ) -> int:
        self._check(partition)
        data = encoded(self._options.serializer, draft.data)
        if seconds is None:
            seconds = self._options.append_timeout
        with self._open_call():
            work = self._append_in_time(partition, draft, data, mark, seconds)
            clock = asyncio.get_running_loop().time
            return await measured(self._metrics.of(partition), work, clock)

    @contextmanager
    def _open_call(self) -> Iterator[None]:
        """Count an append as open."""
        self._calls += 1
        call = self._calls
        self._open_calls[call] = None
        try:
            yield
        finally:
            del self._open_calls[call]
            self._cluster.changed()

    async def _mounted(self, partition: int) -> MockPartition:
        await self._mount(partition)
        return self._appending.partitions[partition]

    async def _append_in_time(
        self,
        partition: int,
        draft: Draft[DataT],
        data: bytes,
        mark: int | None,
        seconds: float | None,
    ) -> int:
        sent: list[ReqId] = []
        bound = asyncio.timeout(seconds)
        try:
            async with bound:
                state = await self._mounted(partition)
                async with state.room:
                    state.in_flight += 1
                    try:
                        return await self._sent(state, partition, draft, data, mark, sent)
                    finally:
                        state.in_flight -= 1
        except TimeoutError:
            if not bound.expired():
                raise
            if sent:
                reason = f"no outcome within {seconds:g} s"
                raise AppendUncertain(partition, sent[-1], reason) from None
            raise ClusterUnreachable(
                f"no server took an append to partition {partition} within {seconds:g} s"
            ) from None

    async def _sent(
        self,
        state: MockPartition,
        partition: int,
        draft: Draft[DataT],
        data: bytes,
        mark: int | None,
        sent: list[ReqId],
    ) -> int:
        cluster = self._cluster
        while True:
            await asyncio.sleep(state.draws.delay(cluster.faults))
            self._check()
            if cluster.mark(partition) < state.mounted_at:
                raise ClientAhead(partition, state.mounted_at, cluster.mark(partition))
            req_id = state.next_req_id()
            sent.append(req_id)
            against = cluster.fed(partition) if mark is None else mark
            request = Request.of(req_id, draft, data, against)
            delivery, transaction_id = cluster.take(request, state.draws)
            match delivery:
                case Delivery.ARRIVES | Delivery.CONFLICT:
                    await self._seen(partition, transaction_id, req_id)
                    await asyncio.sleep(state.draws.delay(cluster.faults))
                    if delivery is Delivery.CONFLICT:
                        raise LockFailed(partition, transaction_id)
                    return transaction_id
                case Delivery.UNCERTAIN_ABSENT | Delivery.UNCERTAIN_COMMITTED:
                    raise AppendUncertain(partition, req_id, "a fault of the mock cluster")
                case Delivery.LOST:
                    pass

    async def _seen(self, partition: int, transaction_id: int, req_id: ReqId) -> None:
        """Return when the feed shows ``transaction_id``, which decides the outcome of an append."""
        await self._cluster.until(
            lambda: self._closed or self._cluster.fed(partition) >= transaction_id
        )
        if self._cluster.fed(partition) < transaction_id:
            raise AppendUncertain(partition, req_id, str(ClientClosed()))


def _no_data(data: bytes) -> None:
    """Return the data of a stream without data."""
