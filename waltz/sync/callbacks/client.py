"""The client with callbacks. Touches threads and the network.

An application applies the log of each *active* partition. To append a transaction, it submits a
*context*: an object that builds the transaction, and whose callbacks report how the append ends.
`waltz.sync.callbacks` describes the order of the calls; `partition` carries it out.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Generic, Self

from waltz.client import ClientClosed, Draft, PartitionUnknown
from waltz.client.core.arguments import check_count, check_seconds, check_timeout, checked_id
from waltz.client.core.deserializing import Unreadable
from waltz.client.core.values import DataT
from waltz.client.deadlines import TimeLimit
from waltz.sync import SyncClient
from waltz.sync.callbacks.application import Application
from waltz.sync.callbacks.core.context import TransactionContext
from waltz.sync.callbacks.core.errors import InCallback, PartitionInactive, TimedOut
from waltz.sync.callbacks.core.metrics import CallbackMetrics
from waltz.sync.callbacks.open_contexts import OpenContexts, Submission, SubmittedContext
from waltz.sync.callbacks.partition import ActivePartition
from waltz.sync.callbacks.workers import Workers

# The defaults of the arguments of `CallbackClient`, which describes them.
MAX_IN_FLIGHT = 100
SUBMIT_TIMEOUT_SECONDS = 10.0
APPLY_THREADS = 10
RETRY_THREADS = 1


def check_applies_all(unreadable: Unreadable) -> None:
    """Raise ValueError if a client with this option ``unreadable`` leaves transactions out.

    An application applies every transaction, each after its predecessor. Marks, the end of contexts
    and retries after lock failures rely on that, as does `waltz.state.StateStore`.
    """
    if unreadable == "skip":
        raise ValueError(
            "unreadable is 'skip': an application with callbacks must apply every transaction; "
            "pass 'raw', and let the application ignore data that are bytes, or 'raise'"
        )


class CallbackClient(Generic[DataT]):
    """Runs contexts of an application and applies the log to it; see `waltz.sync.callbacks`.

    Open a client with `connect`, or create it from a client of `waltz.sync`. Close it in the end.

    Args:
        log: The client to use. `close` closes it, too.
        application: The application that applies the transactions.
        auto_mount: Whether every partition is active from the beginning. If not, `set_partitions`
            chooses the active partitions.
        max_in_flight: The largest number of open contexts per partition. At this number `submit`
            waits until a context ends.
        submit_timeout: How many seconds `submit` waits until a context ends.
        apply_threads: The number of threads that apply transactions, each for one partition at a
            time.
        retry_threads: The number of threads that call ``execute`` after lock failures, and
            ``on_lock_failure`` and ``on_exception``.

    Raises ValueError if the ``unreadable`` of ``log`` is ``"skip"``, because the application must
    apply every transaction. With ``"raw"`` it gets unreadable data as bytes.

    If the application's ``get_client_high_water_mark`` raises an error, the constructor closes
    ``log`` and raises the error.
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
        check_count("max_in_flight", max_in_flight)
        check_seconds("submit_timeout", submit_timeout)
        check_count("apply_threads", apply_threads)
        check_count("retry_threads", retry_threads)
        check_applies_all(log.asyncio_client.unreadable)
        self._log = log
        self._application = application
        self._auto_mount = auto_mount
        self._max_in_flight = max_in_flight
        self._submit_timeout = submit_timeout
        self._workers = Workers(apply_threads, retry_threads)
        self._active: dict[int, ActivePartition[DataT]] = {}
        """The active partitions by number. Only the event loop's thread changes this."""
        self._open_contexts: dict[int, OpenContexts] = {}
        """The open contexts of each partition that is or was active.

        Copied before each iteration, because the event loop's thread may add a partition.
        """
        self._metrics: dict[int, CallbackMetrics] = {}
        """The metrics of each partition that is or was active."""
        self._tasks: dict[ActivePartition[DataT], asyncio.Task[None]] = {}
        """The task of `ActivePartition.run` of each active partition."""
        self._appending: set[asyncio.Task[None]] = set()
        """The tasks that append the transactions of submitted contexts."""
        self._starting = threading.Lock()
        """Held while an append is started, and while `close` forbids it."""
        self._may_start = True
        """Whether `submit` may start appends: `close` waits for all that were started before."""
        self._changing = threading.Lock()
        """Held while the active partitions change, and during `close`; see `_exclusive`."""
        self._changing_thread: int | None = None
        """The identifier of the thread that holds ``_changing``, None if no thread holds it."""
        self._closed = False
        if auto_mount:
            try:
                self._change_active(range(log.num_partitions))
            except BaseException:
                self.close()
                raise

    @property
    def log(self) -> SyncClient[DataT]:
        """The client of `waltz.sync` that this client uses. Use it for reads and streams."""
        return self._log

    @property
    def active_partitions(self) -> frozenset[int]:
        """The active partitions of this client."""
        return frozenset(self._active)

    @property
    def has_pending(self) -> bool:
        """Whether a context was submitted and has not ended."""
        return any(len(contexts) for contexts in list(self._open_contexts.values()))

    def set_partitions(self, partitions: Iterable[int]) -> None:
        """Make exactly these partitions active.

        Open contexts of a partition that becomes inactive are not retried; their callbacks report
        how they end. Raises PartitionUnknown, ClientClosed, InCallback, the errors of
        ``get_client_high_water_mark``, and ValueError if the client has ``auto_mount``.
        """
        if self._auto_mount:
            raise ValueError(
                "every partition is active: open the client with auto_mount=False to choose them"
            )
        self._change_active(partitions)

    def mark(self, partition: int) -> int:
        """Return the id of the last transaction of ``partition`` that the application has applied.

        Raises PartitionInactive, PartitionUnknown, ClientClosed.
        """
        return self._active_partition(partition).mark

    def submit(self, context: TransactionContext[DataT]) -> None:
        """Call ``execute`` of ``context`` on this thread, and append the transaction it builds.

        Returns when the append is handed to the client's thread, or ``execute`` has returned False.
        The callbacks of the context report how the context ends. If an interruption such as
        KeyboardInterrupt ends this call, the transaction may be appended nevertheless: then the
        callbacks are called as usual. If it is not appended, no callback is called any more.

        If ``max_in_flight`` contexts are open, `submit` waits until one of them ends. A call from a
        callback does not wait, because the context that must end may be the one whose callback is
        running.

        Raises PartitionInactive, PartitionUnknown, DataMissing, ClientClosed, ClientFailed, and the
        errors of ``partition_id`` and ``execute``. Raises TimedOut if too many contexts stay open,
        and ClientAhead if the application's mark is beyond the end of the log.
        """
        partition = self._active_partition(context.partition_id(self._log.num_partitions))
        partition.check_accepts()
        seconds = None if self._workers.in_callback else self._submit_timeout
        submission = Submission()
        try:
            partition.open_contexts.add(submission, seconds)
            partition.check_accepts()  # The partition may have stopped while `add` waited.
            draft = self._workers.call_here(partition.execute, context)
            if draft is None:
                partition.open_contexts.abandon(submission)
            else:
                submitted = SubmittedContext(submission.number, context, time.monotonic())
                with self._starting:
                    if not self._may_start:
                        raise ClientClosed
                    work = self._start_append(partition, submission, submitted, draft)
                    self._log.thread.start(work)
        except BaseException:
            partition.open_contexts.abandon(submission)
            raise

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every context that was submitted before this call has ended.

        A context has ended when its transaction was applied, or when a callback has reported that
        the transaction will not be applied. ``timeout`` is in seconds. Raises TimedOut, InCallback,
        WrongProcess, WrongThread. After `close` it returns, because `close` ends every context.
        """
        self._log.thread.check_caller()
        if self._workers.in_callback:  # Its context is open, also on a thread that submits.
            raise InCallback("flush")
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        for contexts in list(self._open_contexts.values()):
            contexts.wait(deadline)

    def wait_applied(
        self, partition: int, transaction_id: int, timeout: float | None = None
    ) -> None:
        """Wait until the application has applied the transaction ``transaction_id``.

        ``timeout`` is in seconds. Raises TimedOut, InCallback, and the errors of `mark`.
        """
        self._workers.check_outside("wait_applied")
        checked_id("transaction_id", transaction_id)
        check_timeout(timeout)
        active = self._active_partition(partition)
        self._log.thread.call(self._wait_applied(active, transaction_id, timeout))

    def close(self) -> None:
        """Close the client and end every open context. A second call has no effect.

        A context whose append has an unknown outcome gets ``on_exception`` with AppendUncertain. A
        context whose transaction is known to be in the log gets ``on_completion(True)``, although
        the transaction is not applied. Raises InCallback.
        """
        with self._exclusive("close"):
            if self._closed:
                return
            self._closed = True
            try:
                self._log.thread.call(self._stop_all())
                # Forbid appends before the event loop is stopped below. An append that is started
                # later would never end, and neither would its context. Then wait for the appends
                # that other threads have started since `_stop_all`.
                with self._starting:
                    self._may_start = False
                self._log.thread.call(self._end_appends())
            finally:
                self._log.close()
                self._workers.shut_down()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _active_partition(self, number: int) -> ActivePartition[DataT]:
        """Return an active partition. If it is not active, raise the error that says why."""
        self._log.thread.check()  # Raises WrongProcess, WrongThread or ClientClosed.
        if self._closed:
            raise ClientClosed
        if not 0 <= number < self._log.num_partitions:
            raise PartitionUnknown(number, self._log.num_partitions)
        partition = self._active.get(number)
        if partition is None:
            raise PartitionInactive(number)
        return partition

    def _change_active(self, partitions: Iterable[int]) -> None:
        """Make exactly ``partitions`` active."""
        wanted = set(partitions)
        for number in wanted:
            if not 0 <= number < self._log.num_partitions:
                raise PartitionUnknown(number, self._log.num_partitions)
        with self._exclusive("set_partitions"):
            if self._closed:
                raise ClientClosed
            for number in self._active.keys() - wanted:
                self._log.thread.call(self._deactivate(number))
            for number in sorted(wanted - self._active.keys()):
                # If an earlier call was interrupted, a stopped run of the partition may not have
                # ended yet, and may still apply a transaction.
                self._log.thread.call(self._await_end(number))
                mark = self._application.get_client_high_water_mark(number)
                self._log.thread.call(self._activate(number, mark))

    @contextmanager
    def _exclusive(self, call: str) -> Iterator[None]:
        """Hold ``_changing`` during ``call``. Raises InCallback if ``call`` would wait forever.

        A call in a callback would wait for the end of that callback. A call in the application's
        ``get_client_high_water_mark`` would wait for the lock, which its own thread holds.
        """
        self._workers.check_outside(call)
        thread = threading.get_ident()
        if self._changing_thread == thread:
            raise InCallback(call)
        with self._changing:
            self._changing_thread = thread
            try:
                yield
            finally:
                self._changing_thread = None

    # The methods below run on the event loop.

    async def _activate(self, number: int, mark: int) -> None:
        """Begin to apply a partition after ``mark``. Its metrics and its open contexts are kept."""
        client = self._log.asyncio_client
        if number not in self._metrics:
            self._metrics[number] = CallbackMetrics(client.metrics, number)
            self._open_contexts[number] = OpenContexts(number, self._max_in_flight)
        # If the partition was active before, `ActivePartition.stop` has lifted the limit.
        self._open_contexts[number].enforce_limit()
        partition = ActivePartition(
            number,
            mark,
            client,
            self._application,
            self._workers,
            self._metrics[number],
            self._open_contexts[number],
        )
        self._tasks[partition] = asyncio.create_task(partition.run())
        self._active[number] = partition

    async def _deactivate(self, number: int) -> None:
        """Stop a partition, and wait until its run has ended."""
        partition = self._active.pop(number)
        await partition.stop(new_error=partial(PartitionInactive, number))
        await self._await_end(number)

    async def _await_end(self, number: int) -> None:
        """Wait until the runs of a partition that have been stopped have ended.

        This does not await the tasks themselves: an interruption of `set_partitions` would cancel
        them, and then the partition could be active again while a transaction is still applied.
        """
        for partition, task in list(self._tasks.items()):
            if partition.number == number:
                await asyncio.wait([task])
                self._tasks.pop(partition, None)

    async def _wait_applied(
        self, partition: ActivePartition[DataT], transaction_id: int, seconds: float | None
    ) -> None:
        """See `wait_applied`."""

        def late_error() -> TimedOut:
            return TimedOut(
                f"partition {partition.number} was applied up to transaction {partition.mark}, not "
                f"to {transaction_id}, within {seconds:g} s; applying continues"
            )

        async with TimeLimit(seconds, late_error):
            await partition.applied_up_to(transaction_id)

    async def _start_append(
        self,
        partition: ActivePartition[DataT],
        submission: Submission,
        submitted: SubmittedContext[DataT],
        draft: Draft[DataT],
    ) -> None:
        """Start the append of a context, unless an interruption of `submit` has abandoned it."""
        if not partition.open_contexts.take(submission):
            return
        appending = asyncio.create_task(partition.append(submitted, draft))
        self._appending.add(appending)  # `_end_appends` waits for it.
        appending.add_done_callback(self._appending.discard)

    async def _stop_all(self) -> None:
        """Stop all partitions, close the asyncio client, and wait until every context has ended."""
        for partition in self._active.values():
            await partition.stop(new_error=ClientClosed)
        await self._log.asyncio_client.close()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._end_appends()

    async def _end_appends(self) -> None:
        """Wait until every append has ended."""
        # One `wait` is not enough: a `submit` whose ``execute`` runs meanwhile adds another append,
        # which fails, because the asyncio client is closed.
        while self._appending:
            await asyncio.wait(self._appending)
