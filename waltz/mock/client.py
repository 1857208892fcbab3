"""The mock client: `waltz.LogClient` on logs of this process. Waits on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, Self, Unpack, cast, overload
from weakref import WeakSet

from waltz.client import (
    AppendUncertain,
    ClientAhead,
    ClientClosed,
    ClientOptions,
    ClusterUnreachable,
    Draft,
    LockFailed,
    PartitionUnknown,
    TransactionNotFound,
)
from waltz.client.core.metrics import ClientMetrics, measured
from waltz.client.core.serializers import encoded
from waltz.client.core.values import DataT, DraftFields, StreamBounds, stream_bounds
from waltz.client.deadlines import in_time
from waltz.client.submitting import Build, submit
from waltz.mock.bulk import MockBulk
from waltz.mock.faults import Delivery
from waltz.mock.log import Request
from waltz.mock.partition import MockPartition
from waltz.mock.shared import SharedLogs
from waltz.mock.stream import MockStream
from waltz.protocol.records import NO_TRANSACTION, ReqId
from waltz.runtime.metrics import Registry

_GENERATION = 1


@dataclass(slots=True)
class _Appending:
    """What the measures ask for; see `waltz.client.core.metrics.Appending`."""

    cluster: SharedLogs
    partitions: dict[int, MockPartition] = field(default_factory=dict)

    def is_mounted(self, partition: int) -> bool:
        return partition in self.partitions

    def mark(self, partition: int) -> int:
        return self.cluster.fed(partition) if partition in self.partitions else NO_TRANSACTION

    def in_flight(self, partition: int) -> int:
        state = self.partitions.get(partition)
        return 0 if state is None else state.in_flight


class MockClient(Generic[DataT]):
    """One application's access to a mock cluster. Open it with `MockCluster.connect`.

    What its methods mean is said in `waltz.Client`.
    """

    def __init__(self, cluster: SharedLogs, client_id: int, options: ClientOptions) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._options = options
        self._appending = _Appending(cluster)
        self._metrics = ClientMetrics(
            cluster.name, client_id, self._appending, asyncio.get_running_loop().time
        )
        self._calls = 0
        self._open_calls: dict[int, None] = {}
        self._num_streams = 0
        self._streams: WeakSet[MockStream[Any]] = WeakSet()
        self._closed = False

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has; they are numbered from 0."""
        return self._cluster.num_partitions

    @property
    def bulk(self) -> MockBulk:
        """See `waltz.Client.bulk`."""
        return MockBulk(self._cluster, self._options, self._check, self._calling, self._mounted)

    @property
    def cluster_name(self) -> str:
        """The name given to the cluster."""
        return self._cluster.name

    @property
    def client_id(self) -> int:
        """The id under which this client appends."""
        return self._client_id

    @property
    def pending(self) -> int:
        """How many appends have no outcome yet."""
        return len(self._open_calls)

    @property
    def metrics(self) -> Registry:
        """What this client metrics."""
        return self._metrics.registry

    async def append(
        self,
        partition: int,
        data: DataT,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
        **draft: Unpack[DraftFields],
    ) -> int:
        """See `waltz.Client.append`."""
        made: Draft[DataT] = Draft(data, **draft)
        return await self._append(partition, made, made.mark, timeout)

    async def submit(
        self,
        partition: int,
        build: Build[DataT],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> int | None:
        """See `waltz.Client.submit`."""
        self._check(partition)
        seconds = self._options.append_timeout_seconds if timeout is None else timeout
        mount = partial(self._mount, partition)
        return await submit(partition, build, mount, partial(self._append, partition), seconds)

    async def mount(
        self,
        partition: int,
        mark: int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> int:
        """See `waltz.Client.mount`."""
        self._check(partition)
        return await self._mount(partition, mark)

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[True],
        **bounds: Unpack[StreamBounds],
    ) -> MockStream[DataT]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[False] = False,
        **bounds: Unpack[StreamBounds],
    ) -> MockStream[None]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: bool,
        **bounds: Unpack[StreamBounds],
    ) -> MockStream[DataT | None]: ...

    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        after: int = -1,
        until: int | Mapping[int, int] | None = None,
        data: bool = False,
    ) -> MockStream[Any]:
        """See `waltz.Client.stream`."""
        marks, ends = stream_bounds(partitions, after, until)
        for number in marks:
            self._check(number)
        make_data = self._decoded if data else _nothing
        self._num_streams += 1
        draws = self._cluster.draws(self._client_id, -self._num_streams)
        stream: MockStream[Any] = MockStream(
            self._cluster, marks, ends, make_data, draws, self._handed
        )
        self._streams.add(stream)
        return stream

    async def read(
        self,
        partition: int,
        transaction_id: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> DataT:
        """See `waltz.Client.read`."""
        self._check(partition)
        mark = self._cluster.mark(partition)
        if not NO_TRANSACTION < transaction_id <= mark:
            raise TransactionNotFound(partition, transaction_id, mark)
        [entry] = self._cluster.between(partition, transaction_id - 1, transaction_id, 1)
        return cast(DataT, self._decoded(entry.data))

    async def high_water_mark(
        self,
        partition: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> int:
        """See `waltz.Client.high_water_mark`."""
        self._check(partition)
        return self._cluster.mark(partition)

    async def flush(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> None:
        """See `waltz.Client.flush`."""
        self._check_open()
        last = self._calls

        def done() -> bool:
            return next(iter(self._open_calls), last + 1) > last

        seconds = self._options.answer_timeout_seconds if timeout is None else timeout
        missing = "not every append called before flush had its outcome"
        await in_time(self._cluster.until(done), seconds, missing)
        self._check_open()

    async def close(self) -> None:
        """See `waltz.Client.close`."""
        self._closed = True
        for stream in list(self._streams):
            await stream.aclose()
        self._cluster.changed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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

    async def _append(
        self, partition: int, draft: Draft[DataT], mark: int | None, seconds: float | None
    ) -> int:
        self._check(partition)
        data = encoded(self._options.serializer, draft.data)
        if seconds is None:
            seconds = self._options.append_timeout_seconds
        with self._calling():
            work = self._in_time(partition, draft, data, mark, seconds)
            clock = asyncio.get_running_loop().time
            return await measured(self._metrics.of(partition), work, clock)

    @contextmanager
    def _calling(self) -> Iterator[None]:
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

    async def _in_time(
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
            self._check_open()
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
                    raise AppendUncertain(partition, req_id, "the mock cluster was told so")
                case Delivery.LOST:
                    pass

    async def _seen(self, partition: int, transaction_id: int, req_id: ReqId) -> None:
        """Return when the feed shows ``transaction_id``, by which an append's fate is known."""
        await self._cluster.until(
            lambda: self._closed or self._cluster.fed(partition) >= transaction_id
        )
        if self._cluster.fed(partition) < transaction_id:
            raise AppendUncertain(partition, req_id, str(ClientClosed()))

    def _handed(self, partition: int, transactions: int) -> None:
        self._metrics.of(partition).received += transactions

    def _decoded(self, data: bytes) -> Any:
        serializer = self._options.serializer
        return data if serializer is None else serializer.deserialize(data)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed

    def _check(self, partition: int) -> None:
        self._check_open()
        if not 0 <= partition < self.num_partitions:
            raise PartitionUnknown(partition, self.num_partitions)


def _nothing(data: bytes) -> None:
    """Show no data."""
