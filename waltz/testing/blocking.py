"""An in-process cluster on a thread of its own, for clients on any thread. Touches threads.

`waltz.testing.cluster` has the cluster itself, which needs a running event loop. This module wraps
it for tests without asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from waltz.client import Serializer, Transaction
from waltz.client.opening import Opening
from waltz.protocol import CLIENT_SERVER, ProtocolSpec
from waltz.sync.event_loop import EventLoopThread
from waltz.testing.cluster import InProcessClient, InProcessCluster, InProcessOptions
from waltz.testing.faults import Faults

T = TypeVar("T")


class SyncCluster:
    """An `InProcessCluster` on an event loop of its own, on its own thread.

    Enter it with ``with``. Or call `start`: then the cluster's thread runs until the process ends.
    The methods may be called on any thread. They wait only for the cluster's thread, which never
    waits for the event loop of the caller. So a coroutine may call them, too.
    """

    def __init__(
        self,
        partitions: int = 1,
        *,
        servers: int = 1,
        storages: int = 3,
        seed: int = 0,
        name: str = "testing",
        faults: Faults | None = None,
    ) -> None:
        self.asyncio_cluster = InProcessCluster(
            partitions, servers=servers, storages=storages, seed=seed, name=name, faults=faults
        )
        """The cluster itself. Use it only on its own event loop, by `call` or `run`.

        Only these parts of it may be used on any thread: `fail_next_append`, `fail_next_lock` and
        `resume_feed`, which take a lock; `connect`, which opens nothing by itself;
        ``num_partitions`` and ``faults``, which read or replace single values.
        """
        self._thread: EventLoopThread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Start the cluster, as the beginning of a ``with`` block does."""
        self._thread = EventLoopThread("waltz-testing")
        try:
            self._thread.call(self.asyncio_cluster.start())
        except BaseException:
            self._thread.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.run(self.asyncio_cluster.__aexit__(kind, error, traceback))
        finally:
            self._running_thread().stop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the event loop of the cluster and return its result."""
        return self._running_thread().call(work)

    def call(self, function: Callable[[], T]) -> T:
        """Call ``function`` on the event loop of the cluster and return its result."""

        async def work() -> T:
            return function()

        return self.run(work())

    @property
    def num_partitions(self) -> int:
        """The number of partitions; they are numbered from 0."""
        return self.asyncio_cluster.num_partitions

    @property
    def faults(self) -> Faults:
        """See `InProcessCluster.faults`."""
        return self.asyncio_cluster.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self.asyncio_cluster.faults = faults

    @overload
    def connect(
        self,
        *,
        serializer: Serializer[T],
        spec: ProtocolSpec = CLIENT_SERVER,
        **options: Unpack[InProcessOptions],
    ) -> Opening[InProcessClient[T]]: ...

    @overload
    def connect(
        self,
        *,
        serializer: None = None,
        spec: ProtocolSpec = CLIENT_SERVER,
        **options: Unpack[InProcessOptions],
    ) -> Opening[InProcessClient[bytes]]: ...

    def connect(
        self,
        *,
        serializer: Serializer[Any] | None = None,
        spec: ProtocolSpec = CLIENT_SERVER,
        **options: Unpack[InProcessOptions],
    ) -> Opening[InProcessClient[Any]]:
        """Return a client to open, on any event loop.

        For a blocking client, pass the result to `waltz.sync.opened`. The arguments are those of
        `InProcessCluster.connect`.
        """
        return self.asyncio_cluster.connect(serializer=serializer, spec=spec, **options)

    def transactions(self, partition: int) -> list[Transaction[bytes]]:
        """Return all committed transactions of a partition, with their data as bytes."""
        return self.call(lambda: self.asyncio_cluster.transactions(partition))

    def fail_next_append(self, partition: int, *, committed: bool) -> None:
        """See `InProcessCluster.fail_next_append`."""
        self.asyncio_cluster.fail_next_append(partition, committed=committed)

    def fail_next_lock(self, partition: int) -> None:
        """See `InProcessCluster.fail_next_lock`."""
        self.asyncio_cluster.fail_next_lock(partition)

    def suspend_feed(self, partition: int) -> None:
        """See `InProcessCluster.suspend_feed`."""
        self.call(lambda: self.asyncio_cluster.suspend_feed(partition))

    def resume_feed(self, partition: int) -> None:
        """See `InProcessCluster.resume_feed`."""
        self.asyncio_cluster.resume_feed(partition)

    def cut_clients(self) -> int:
        """See `InProcessCluster.cut_clients`."""
        return self.call(self.asyncio_cluster.cut_clients)

    def kill_server(self, number: int = 0, *, expire: bool = True) -> None:
        """See `InProcessCluster.kill_server`."""
        self.run(self.asyncio_cluster.kill_server(number, expire=expire))

    def start_server(self, number: int = 0) -> None:
        """See `InProcessCluster.start_server`."""
        self.run(self.asyncio_cluster.start_server(number))

    def kill_storage(self, number: int = 0, *, power_loss: bool = False) -> None:
        """See `InProcessCluster.kill_storage`."""
        self.run(self.asyncio_cluster.kill_storage(number, power_loss=power_loss))

    def start_storage(self, number: int = 0) -> None:
        """See `InProcessCluster.start_storage`."""
        self.run(self.asyncio_cluster.start_storage(number))

    def _running_thread(self) -> EventLoopThread:
        """Return the cluster's thread, which runs after `start`."""
        assert self._thread is not None, "use the cluster in a with block"
        return self._thread
