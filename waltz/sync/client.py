"""The client with blocking methods, which an asyncio client carries out. Touches threads."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from waltz.client import BatchStream, LogClient, LogStream, Serializer
from waltz.client import connect as connect_async
from waltz.client.core.values import DataT, StreamBounds
from waltz.client.options import ConnectOptions
from waltz.sync.blocking import Blocking
from waltz.sync.event_loop import EventLoopThread
from waltz.sync.stream import SyncBatchStream, SyncStream
from waltz.sync.submitting import SyncBuild, submit

T = TypeVar("T")


class SyncClient(Generic[DataT]):
    """A `waltz.LogClient` with blocking methods of the same names, parameters and errors.

    Open a client with `connect`. `close`, or the end of a ``with`` block, closes it for all
    threads.
    """

    def __init__(self, thread: EventLoopThread, client: LogClient[DataT]) -> None:
        self._thread = thread
        self._client = client
        self._closing = threading.Lock()
        """Held by `close`, so that a second call returns only when the first has ended."""

    @property
    def thread(self) -> EventLoopThread:
        """The thread that runs the event loop of `asyncio_client`."""
        return self._thread

    @property
    def asyncio_client(self) -> LogClient[DataT]:
        """The asyncio client that does the work. Use it only on the event loop of `thread`."""
        return self._client

    @property
    def num_partitions(self) -> int:
        """The number of partitions of the cluster. Partitions are numbered from 0."""
        return self._client.num_partitions

    @property
    def cluster_name(self) -> str:
        """The name that the cluster got when it was created."""
        return self._client.cluster_name

    @property
    def client_id(self) -> int:
        """The id of this client, which its transactions have. No other client ever has this id."""
        return self._client.client_id

    @property
    def pending(self) -> int:
        """The number of append calls without an outcome. `flush` waits for these calls."""
        return self._client.pending

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of this client, in the JSON form of a server's metrics."""
        return self._thread.call(self._metrics())

    append = Blocking(LogClient[DataT].append)
    """Append one transaction and return its id; see `waltz.LogClient.append`.

    After an interruption, such as KeyboardInterrupt, the append may or may not be in the log.
    """

    mount = Blocking(LogClient[DataT].mount)
    """Prepare a partition for appends; see `waltz.LogClient.mount`."""

    read = Blocking(LogClient[DataT].read)
    """Return the data of one transaction; see `waltz.LogClient.read`."""

    high_water_mark = Blocking(LogClient[DataT].high_water_mark)
    """Return the id of the last committed transaction; see `waltz.LogClient.high_water_mark`."""

    outcome = Blocking(LogClient[DataT].outcome)
    """Return the outcome of an append that raised AppendUncertain; see `waltz.LogClient.outcome`.
    """

    flush = Blocking(LogClient[DataT].flush)
    """Wait for the outcomes of all appends; see `waltz.LogClient.flush`."""

    def submit(
        self, partition: int, build: SyncBuild[DataT], *, timeout: float | None = None
    ) -> int | None:
        """Append the transaction that ``build`` returns; see `waltz.LogClient.submit`.

        Returns the id of the transaction in ``partition``, None if ``build`` returned None.
        ``build`` is called on the calling thread. It may block, and may use this client. If the
        ``timeout`` passes during ``build``, the error is raised when ``build`` has returned.
        """
        return submit(
            self._thread,
            build,
            submit_async=lambda async_build: self._client.submit(
                partition, async_build, timeout=timeout
            ),
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
        """Return the transactions of ``partitions`` as an iterator; see `waltz.LogClient.stream`.

        With ``data``, transactions have their data. ``bounds`` are the arguments ``after`` and
        ``until`` of that method.
        """
        stream = self._thread.call(self._stream(partitions, data, bounds))
        return SyncStream(self._thread, stream)

    def batches(
        self, partitions: int | Mapping[int, int], **bounds: Unpack[StreamBounds]
    ) -> SyncBatchStream:
        """Return batches of ``partitions`` as columns; see `waltz.LogClient.batches`.

        ``bounds`` are the arguments ``after`` and ``until`` of that method.
        """
        stream = self._thread.call(self._batches(partitions, bounds))
        return SyncBatchStream(self._thread, stream)

    def close(self) -> None:
        """Close all connections and end the thread. A second call has no effect.

        Calls on other threads end as `waltz.LogClient.close` describes, or raise ClientClosed.
        """
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

    # The methods below run on the event loop: the asyncio client may be used only there.

    async def _stream(
        self,
        partitions: int | Mapping[int, int],
        data: bool,
        bounds: StreamBounds,
    ) -> LogStream[Any]:
        return self._client.stream(partitions, data=data, **bounds)

    async def _batches(
        self, partitions: int | Mapping[int, int], bounds: StreamBounds
    ) -> BatchStream:
        return self._client.batches(partitions, **bounds)

    async def _metrics(self) -> dict[str, Any]:
        return self._client.metrics.http_form()


@overload
def connect(
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: Serializer[T],
    **options: Unpack[ConnectOptions],
) -> SyncClient[T]: ...


@overload
def connect(
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: None = None,
    **options: Unpack[ConnectOptions],
) -> SyncClient[bytes]: ...


def connect(
    zookeeper: str | Path | None = None,
    *,
    root: str | None = None,
    serializer: Serializer[Any] | None = None,
    **options: Unpack[ConnectOptions],
) -> SyncClient[Any]:
    """Open a blocking client.

    The arguments and errors are those of `waltz.connect`.
    """
    if serializer is None:
        return opened(connect_async(zookeeper, root=root, **options))
    return opened(connect_async(zookeeper, root=root, serializer=serializer, **options))


def opened(opening: Awaitable[LogClient[T]]) -> SyncClient[T]:
    """Await ``opening`` on a new thread, and return a blocking client that uses its result.

    ``opening`` opens an asyncio client. It is what `waltz.connect` returns, or the ``connect`` of a
    cluster in one process (`waltz.testing`). Raises the errors of ``opening``.
    """
    thread = EventLoopThread("waltz-client")
    try:
        return SyncClient(thread, thread.call(_await(opening)))
    except BaseException:
        thread.stop()
        raise


async def _await(opening: Awaitable[LogClient[T]]) -> LogClient[T]:
    """Return the result of ``opening``: `EventLoopThread.call` needs a coroutine."""
    return await opening
