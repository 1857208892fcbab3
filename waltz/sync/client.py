"""The client as blocking calls. Threads; everything else happens in the client underneath."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Mapping
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from waltz.client import LogClient, LogStream, Serializer
from waltz.client import connect as connect_async
from waltz.client.core.values import DataT, StreamBounds
from waltz.client.options import ConnectOptions
from waltz.sync.blocking import Blocking
from waltz.sync.event_loop import EventLoopThread
from waltz.sync.stream import SyncStream
from waltz.sync.submitting import SyncBuild, submit

T = TypeVar("T")


class SyncClient(Generic[DataT]):
    """`waltz.Client` for threads: calls of the same names, arguments and errors, that block.

    To be opened with `connect`. `close`, or leaving a ``with`` block, ends it for all threads.
    """

    def __init__(self, thread: EventLoopThread, client: LogClient[DataT]) -> None:
        self._thread = thread
        self._client = client
        self._closing = threading.Lock()

    @property
    def thread(self) -> EventLoopThread:
        """The thread that does the work, for what is built upon this."""
        return self._thread

    @property
    def asyncio_client(self) -> LogClient[DataT]:
        """The client underneath; it belongs to the event loop of `thread`."""
        return self._client

    @property
    def num_partitions(self) -> int:
        """How many partitions the cluster has; they are numbered from 0."""
        return self._client.num_partitions

    @property
    def cluster_name(self) -> str:
        """The name given to the cluster when it was created."""
        return self._client.cluster_name

    @property
    def client_id(self) -> int:
        """The id under which this client appends; no other client has or had it."""
        return self._client.client_id

    @property
    def pending(self) -> int:
        """How many appends have no outcome yet; `flush` waits for them."""
        return self._client.pending

    def metrics(self) -> dict[str, Any]:
        """Return what this client metrics, in the form in which servers show theirs."""
        return self._thread.call(self._metrics())

    append = Blocking(LogClient[DataT].append)
    """Append one transaction and return its id; see `waltz.LogClient.append`.

    After an interruption, such as KeyboardInterrupt, the append is in doubt.
    """

    mount = Blocking(LogClient[DataT].mount)
    """Prepare a partition for appends; see `waltz.LogClient.mount`."""

    read = Blocking(LogClient[DataT].read)
    """Return the data of one transaction; see `waltz.LogClient.read`."""

    high_water_mark = Blocking(LogClient[DataT].high_water_mark)
    """Return the id of the last committed transaction; see `waltz.LogClient.high_water_mark`."""

    flush = Blocking(LogClient[DataT].flush)
    """Wait for the outcomes of all appends; see `waltz.LogClient.flush`."""

    def submit(
        self, partition: int, build: SyncBuild[DataT], *, timeout: float | None = None
    ) -> int | None:
        """Append what ``build`` makes of the present state; see `waltz.Client.submit`.

        ``build`` is called on this thread. It may block and use this client; when the time has run
        out meanwhile, the error is raised as soon as it returns.
        """
        return submit(
            self._thread,
            build,
            lambda asked: self._client.submit(partition, asked, timeout=timeout),
        )

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[True],
        **bounds: Unpack[StreamBounds],
    ) -> SyncStream[DataT]: ...

    @overload
    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: Literal[False] = False,
        **bounds: Unpack[StreamBounds],
    ) -> SyncStream[None]: ...

    def stream(
        self,
        partitions: int | Mapping[int, int],
        *,
        data: bool = False,
        **bounds: Unpack[StreamBounds],
    ) -> SyncStream[Any]:
        """Return a stream of partitions as an iterator; see `waltz.Client.stream`."""
        stream = self._thread.call(self._stream(partitions, data, bounds))
        return SyncStream(self._thread, stream)

    def close(self) -> None:
        """Close everything. Calls on other threads end, as in `waltz.Client.close`."""
        with self._closing:
            if self._thread.stopped:
                return
            try:
                self._thread.call(self._client.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _stream(
        self,
        partitions: int | Mapping[int, int],
        data: bool,
        bounds: StreamBounds,
    ) -> LogStream[Any]:
        return self._client.stream(partitions, data=data, **bounds)

    async def _metrics(self) -> dict[str, Any]:
        return self._client.metrics.http_form()


@overload
def connect(
    zookeeper: str, *, root: str, serializer: Serializer[T], **options: Unpack[ConnectOptions]
) -> SyncClient[T]: ...


@overload
def connect(
    zookeeper: str, *, root: str, serializer: None = None, **options: Unpack[ConnectOptions]
) -> SyncClient[bytes]: ...


def connect(
    zookeeper: str,
    *,
    root: str,
    serializer: Serializer[Any] | None = None,
    **options: Unpack[ConnectOptions],
) -> SyncClient[Any]:
    """Open a client of the cluster at ``root`` of the ZooKeeper at ``zookeeper``.

    Arguments and errors are those of `waltz.connect`.
    """
    if serializer is None:
        return opened(connect_async(zookeeper, root=root, **options))
    return opened(connect_async(zookeeper, root=root, serializer=serializer, **options))


def opened(opening: Awaitable[LogClient[T]]) -> SyncClient[T]:
    """Open whatever client ``opening`` opens, such as a mock's, for blocking calls."""
    thread = EventLoopThread("waltz-client")
    try:
        return SyncClient(thread, thread.call(_await(opening)))
    except BaseException:
        thread.stop()
        raise


async def _await(opening: Awaitable[LogClient[T]]) -> LogClient[T]:
    return await opening
