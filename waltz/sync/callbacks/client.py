"""The client with callbacks: takes contexts, keeps partitions active. Threads; network below."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from waltz import sync as blocking
from waltz.client import ClientClosed, Draft, PartitionUnknown, Serializer
from waltz.client.core.values import DataT
from waltz.client.options import ConnectOptions
from waltz.sync import SyncClient
from waltz.sync.callbacks.application import Application
from waltz.sync.callbacks.core.context import TransactionContext
from waltz.sync.callbacks.core.errors import PartitionInactive, TimedOut
from waltz.sync.callbacks.core.metrics import CallbackMetrics
from waltz.sync.callbacks.in_flight import InFlight
from waltz.sync.callbacks.partition import ActivePartition, Underway
from waltz.sync.callbacks.workers import Workers

T = TypeVar("T")

MAX_IN_FLIGHT = 100
SUBMIT_TIMEOUT_SECONDS = 10.0
APPLY_THREADS = 10
RETRY_THREADS = 1


class CallbackClient(Generic[DataT]):
    """Carries contexts through for an application; see `waltz.sync.callbacks`. To be closed.

    ``log`` does the work and is closed with this. With ``auto_mount`` every partition is active
    from the beginning, otherwise those given to `set_partitions`.

    ``max_in_flight`` is how many contexts per partition may be without an end; `submit` waits for
    room up to ``submit_timeout`` seconds. ``apply_threads`` call the application, as many
    partitions at a time; ``retry_threads`` call ``execute`` after lock failures.

    Raises whatever the application's ``get_client_high_water_mark`` does; then ``log`` is closed.
    """

    def __init__(
        self,
        log: SyncClient[DataT],
        application: Application[DataT],
        *,
        auto_mount: bool = True,
        max_in_flight: int = MAX_IN_FLIGHT,
        submit_timeout: float = SUBMIT_TIMEOUT_SECONDS,
        apply_threads: int = APPLY_THREADS,
        retry_threads: int = RETRY_THREADS,
    ) -> None:
        self._log = log
        self._application = application
        self._auto_mount = auto_mount
        self._max_in_flight = max_in_flight
        self._submit_timeout = submit_timeout
        self._workers = Workers(apply_threads, retry_threads)
        self._active: dict[int, ActivePartition[DataT]] = {}
        self._in_flight: dict[int, InFlight] = {}
        self._metrics: dict[int, CallbackMetrics] = {}
        self._tasks: dict[ActivePartition[DataT], asyncio.Task[None]] = {}
        self._carrying: set[asyncio.Task[None]] = set()
        self._changing = threading.Lock()
        self._closed = False
        if auto_mount:
            try:
                self._change(range(log.num_partitions))
            except BaseException:
                self.close()
                raise

    @property
    def log(self) -> SyncClient[DataT]:
        """The client underneath: for reads, high-water marks, metrics, and streams beside."""
        return self._log

    @property
    def active_partitions(self) -> frozenset[int]:
        """The partitions that this client handles."""
        return frozenset(self._active)

    @property
    def has_pending(self) -> bool:
        """Whether a context has no end yet, be it under way or about to be tried again."""
        return any(len(in_flight) for in_flight in list(self._in_flight.values()))

    def set_partitions(self, partitions: Iterable[int]) -> None:
        """Handle these partitions, and no others any more.

        Contexts under way in one that goes are not lost: they are told what becomes of them, but
        not tried again. Raises ValueError with ``auto_mount``, PartitionUnknown, ClientClosed,
        InCallback, and what ``get_client_high_water_mark`` raises.
        """
        if self._auto_mount:
            raise ValueError(
                "every partition is active: open the client with auto_mount=False to choose them"
            )
        self._workers.check_outside("set_partitions")
        self._change(partitions)

    def mark(self, partition: int) -> int:
        """Return the last transaction that the application has applied. Raises as `submit`."""
        return self._of(partition).mark

    def submit(self, context: TransactionContext[DataT]) -> None:
        """Have ``context`` executed, here and now, and what it builds appended.

        Returns when it is on its way; the context is told what becomes of it. If too many are
        under way, this waits for room; not so in a callback, where it would wait for itself.

        Raises what ``partition_id`` and ``execute`` raise, DataMissing, TimedOut when there is no
        room, PartitionInactive, PartitionUnknown, ClientClosed, ClientFailed, ClientAhead when the
        application has seen more than the log holds.
        """
        partition = self._of(context.partition_id(self._log.num_partitions))
        partition.check()
        seconds = None if self._workers.in_callback else self._submit_timeout
        number = partition.in_flight.enter(seconds)
        try:
            partition.check()
            draft = partition.execute(context)
            if draft is not None:
                underway = Underway(number, context, time.monotonic())
                self._log.thread.start(self._begin(partition, underway, draft))
        except BaseException:
            partition.in_flight.leave(number)
            raise
        if draft is None:
            partition.in_flight.leave(number)

    def flush(self, timeout: float | None = None) -> None:
        """Return when every context submitted before has come to its end.

        That is: has been applied, or was told that it will not be. ``timeout`` is in seconds.
        Raises TimedOut, InCallback.
        """
        self._workers.check_outside("flush")
        deadline = None if timeout is None else time.monotonic() + timeout
        for in_flight in list(self._in_flight.values()):
            in_flight.wait(deadline)

    def wait_applied(
        self, partition: int, transaction_id: int, timeout: float | None = None
    ) -> None:
        """Return when the application has applied everything up to that transaction.

        ``timeout`` is in seconds. Raises TimedOut, InCallback, and what `mark` raises.
        """
        self._workers.check_outside("wait_applied")
        self._log.thread.call(self._applied(self._of(partition), transaction_id, timeout))

    def close(self) -> None:
        """End, and tell every context under way that it did. May be called again.

        One that was sent gets AppendUncertain; one whose transaction is known to be in the log
        ``on_completion(True)``, though it is not applied. Raises InCallback.
        """
        self._workers.check_outside("close")
        with self._changing:
            if self._closed:
                return
            self._closed = True
            try:
                self._log.thread.call(self._end())
            finally:
                self._log.close()
                self._workers.shut_down()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of(self, number: int) -> ActivePartition[DataT]:
        partition = self._active.get(number)
        self._log.thread.check()
        if self._closed:
            raise ClientClosed
        if not 0 <= number < self._log.num_partitions:
            raise PartitionUnknown(number, self._log.num_partitions)
        if partition is None:
            raise PartitionInactive(number)
        return partition

    def _change(self, partitions: Iterable[int]) -> None:
        wanted = set(partitions)
        for number in wanted:
            if not 0 <= number < self._log.num_partitions:
                raise PartitionUnknown(number, self._log.num_partitions)
        with self._changing:
            if self._closed:
                raise ClientClosed
            for number in self._active.keys() - wanted:
                self._log.thread.call(self._deactivate(number))
            for number in sorted(wanted - self._active.keys()):
                mark = self._application.get_client_high_water_mark(number)
                self._log.thread.call(self._activate(number, mark))

    # What follows runs on the event loop.

    async def _activate(self, number: int, mark: int) -> None:
        client = self._log.asyncio_client
        if number not in self._metrics:
            self._metrics[number] = CallbackMetrics(client.metrics, number)
            self._in_flight[number] = InFlight(number, self._max_in_flight)
        self._in_flight[number].begin()
        partition = ActivePartition(
            number,
            mark,
            client,
            self._application,
            self._workers,
            self._metrics[number],
            self._in_flight[number],
        )
        self._tasks[partition] = asyncio.create_task(partition.follow())
        self._active[number] = partition

    async def _deactivate(self, number: int) -> None:
        partition = self._active.pop(number)
        await partition.stop(partial(PartitionInactive, number))
        await self._tasks.pop(partition)

    async def _applied(
        self, partition: ActivePartition[DataT], transaction_id: int, seconds: float | None
    ) -> None:
        bound = asyncio.timeout(seconds)
        try:
            async with bound:
                await partition.applied_up_to(transaction_id)
        except TimeoutError:
            if not bound.expired():
                raise
            raise TimedOut(
                f"partition {partition.number} was applied up to {partition.mark}, not to "
                f"{transaction_id}, within {seconds:g} s; it goes on"
            ) from None

    async def _begin(
        self,
        partition: ActivePartition[DataT],
        underway: Underway[DataT],
        draft: Draft[DataT],
    ) -> None:
        carrying = asyncio.create_task(partition.carry(underway, draft))
        self._carrying.add(carrying)
        carrying.add_done_callback(self._carrying.discard)

    async def _end(self) -> None:
        for partition in self._active.values():
            await partition.stop(ClientClosed)
        await self._log.asyncio_client.close()
        await asyncio.gather(*self._tasks.values(), *self._carrying, return_exceptions=True)


@overload
def connect(
    application: Application[T],
    zookeeper: str,
    *,
    root: str,
    serializer: Serializer[T],
    auto_mount: bool = True,
    **options: Unpack[ConnectOptions],
) -> CallbackClient[T]: ...


@overload
def connect(
    application: Application[bytes],
    zookeeper: str,
    *,
    root: str,
    serializer: None = None,
    auto_mount: bool = True,
    **options: Unpack[ConnectOptions],
) -> CallbackClient[bytes]: ...


def connect(
    application: Application[Any],
    zookeeper: str,
    *,
    root: str,
    serializer: Serializer[Any] | None = None,
    auto_mount: bool = True,
    **options: Unpack[ConnectOptions],
) -> CallbackClient[Any]:
    """Open a client with callbacks of the cluster at ``root`` of the ZooKeeper at ``zookeeper``.

    The other arguments and the errors are those of `waltz.connect`, and of `CallbackClient`, whose
    ``max_in_flight`` is the one given here. For its other arguments make it of a
    `waltz.sync.connect`.
    """
    most = options.get("max_in_flight", MAX_IN_FLIGHT)
    options["max_in_flight"] = most
    if serializer is None:
        log = blocking.connect(zookeeper, root=root, **options)
    else:
        log = blocking.connect(zookeeper, root=root, serializer=serializer, **options)
    return CallbackClient(log, application, auto_mount=auto_mount, max_in_flight=most)
