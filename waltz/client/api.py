"""What every client offers, the real one and the mock alike: the interface to program against.

Pure: two protocols. `waltz.Client` and `waltz.mock.MockClient` satisfy `LogClient`; what they mean
by it is said in `waltz.Client`, and one suite of tests holds both to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, Unpack, overload

from waltz.client.bulk import HeaderRange, RecordRange
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.values import DataT, DataT_co, Draft, DraftFields, StreamBounds, Transaction
from waltz.client.submitting import Build
from waltz.runtime.metrics import Registry


class LogStream(Protocol[DataT_co]):
    """Transactions of one or several partitions; see `waltz.Stream`."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def __aiter__(self) -> AsyncIterator[Transaction[DataT_co]]: ...

    def batches(self) -> AsyncIterator[Sequence[Transaction[DataT_co]]]:
        """Yield transactions as they come; never an empty list."""

    async def aclose(self) -> None:
        """End the stream."""


class LogBulk(Protocol):
    """Many transactions in one request; see `waltz.Client.bulk`."""

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
        """Return committed records from ``first_id`` on, within both bounds, but at least one."""

    async def headers(
        self,
        partition: int,
        first_id: int,
        *,
        max_headers: int = 10_000,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> HeaderRange:
        """Return headers of committed transactions from ``first_id`` on, perhaps none."""

    async def append(
        self,
        partition: int,
        drafts: Sequence[Draft[Any]],
        *,
        mark: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> list[BatchOutcome]:
        """Append ``drafts`` in their order; return what became of each."""


class LogClient(Protocol[DataT]):
    """One application's access to one cluster; see `waltz.Client`."""

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has; they are numbered from 0."""

    @property
    def bulk(self) -> LogBulk:
        """Ranges and batches, for pipelines."""

    @property
    def cluster_name(self) -> str:
        """The name given to the cluster when it was created."""

    @property
    def client_id(self) -> int:
        """The id under which this client appends; no other client has or had it."""

    @property
    def pending(self) -> int:
        """How many appends have no outcome yet."""

    @property
    def metrics(self) -> Registry:
        """What this client metrics."""

    async def append(
        self,
        partition: int,
        data: DataT,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
        **draft: Unpack[DraftFields],
    ) -> int:
        """Append one transaction and return its id."""

    async def submit(
        self,
        partition: int,
        build: Build[DataT],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> int | None:
        """Append what ``build`` makes of the present state; have it made again after a conflict."""

    async def mount(
        self,
        partition: int,
        mark: int | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> int:
        """Make ready to append, and return the last transaction fed."""

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[True],
        **bounds: Unpack[StreamBounds],
    ) -> LogStream[DataT]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[False] = False,
        **bounds: Unpack[StreamBounds],
    ) -> LogStream[None]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: bool,
        **bounds: Unpack[StreamBounds],
    ) -> LogStream[DataT | None]: ...

    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: bool = False,
        **bounds: Unpack[StreamBounds],
    ) -> LogStream[Any]:
        """Return a stream of one partition after ``after``, or of several, each after its id."""

    async def read(
        self,
        partition: int,
        transaction_id: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> DataT:
        """Return the data of one transaction."""

    async def high_water_mark(
        self,
        partition: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> int:
        """Return the id of the partition's last committed transaction, -1 if there is none."""

    async def flush(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - see waltz.Client
    ) -> None:
        """Return when every append called before this has its outcome."""

    async def close(self) -> None:
        """Close everything."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...
