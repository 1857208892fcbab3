"""One active partition: follows its feed, applies it, carries contexts through. Threads, network.

Everything here runs on the event loop, but for what is said to run on a worker's or the caller's
thread. Which context a transaction belongs to is decided in `waltz.sync.callbacks.core.progress`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from waltz.client import (
    ClientAhead,
    ClientClosed,
    ClientFailed,
    Draft,
    LockFailed,
    LogClient,
    LogStream,
    Transaction,
    WaltzError,
)
from waltz.client.core.values import DataT
from waltz.net.core.backoff import Backoff
from waltz.sync.callbacks.application import Application
from waltz.sync.callbacks.core.context import TransactionBuilder, TransactionContext
from waltz.sync.callbacks.core.metrics import CallbackMetrics
from waltz.sync.callbacks.core.progress import Delivery, PartitionProgress
from waltz.sync.callbacks.in_flight import InFlight
from waltz.sync.callbacks.workers import Workers

_BACKOFF = Backoff(0.05, 5.0)
"""Before a feed is mounted again after something raised; doubles from the first to the last."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Underway(Generic[DataT]):
    """A submitted context: its number in `InFlight`, and when it was submitted."""

    number: int
    context: TransactionContext[DataT]
    since: float


class ActivePartition(Generic[DataT]):
    """One partition from its activation to its deactivation. `follow` runs it."""

    def __init__(
        self,
        number: int,
        mark: int,
        client: LogClient[DataT],
        application: Application[DataT],
        workers: Workers,
        metrics: CallbackMetrics,
        in_flight: InFlight,
    ) -> None:
        self.number = number
        self.in_flight = in_flight
        self.problem: Exception | None = None
        """Why nothing is applied at present, if the feed says so."""

        self._client = client
        self._application = application
        self._workers = workers
        self._metrics = metrics
        self._progress: PartitionProgress[Underway[DataT]] = PartitionProgress(
            client.client_id, mark
        )
        self._loop = asyncio.get_running_loop()
        self._stream: LogStream[DataT] | None = None
        self._stopping = asyncio.Event()
        self._stopped = False
        self._why: Callable[[], WaltzError] | None = None
        self._waiting = 0
        self._changed = asyncio.Event()
        metrics.active = True

    @property
    def mark(self) -> int:
        """The last transaction applied."""
        return self._progress.mark

    async def follow(self) -> None:
        """Apply what the feed brings, until `stop`; then tell contexts what became of them."""
        failures = 0
        while not self._stopping.is_set():
            before = self.mark
            try:
                await self._mounted()
            except ClientClosed:
                await self.stop(ClientClosed)
            except Exception as error:
                self.problem = error
                await self._workers.apply(self._report, self.mark + 1, error)
                if isinstance(error, ClientFailed):
                    await self.stop(partial(ClientFailed, error.reason))
            failures = 0 if self.mark > before else failures
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BACKOFF.delay(failures)):
                    await self._stopping.wait()
            failures += 1
        self._stopped = True
        await self._conclude()

    def check(self) -> None:
        """Raises what `stop` was given, or the problem, if the partition takes no contexts."""
        if self._why is not None:
            raise self._why()
        match self.problem:
            case ClientAhead(partition=partition, client_mark=mark, log_mark=log_mark):
                raise ClientAhead(partition, mark, log_mark)

    async def stop(self, why: Callable[[], WaltzError]) -> None:
        """Have `follow` end after the transaction that it is at.

        ``why`` makes the error of contexts that cannot be tried again because of that. Only the
        first call counts.
        """
        if self._why is not None:
            return
        self._why = why
        self._metrics.active = False
        self._stopping.set()
        self.in_flight.end()
        self._tell()
        if self._stream is not None:
            await self._stream.aclose()

    async def applied_up_to(self, transaction_id: int) -> None:
        """Return when that transaction was applied. Raises what `stop` was given."""
        self._waiting += 1
        try:
            while self.mark < transaction_id:
                if self._why is not None:
                    raise self._why()
                await self._something()
        finally:
            self._waiting -= 1

    def execute(self, context: TransactionContext[DataT]) -> Draft[DataT] | None:
        """Return what ``context`` wants appended at the present mark. On any thread.

        Tells it if that is nothing, or if it raises; then the error is raised again.
        """
        mark = self.mark
        builder: TransactionBuilder[DataT] = TransactionBuilder()
        try:
            draft = builder.draft(mark) if context.execute(builder) else None
        except Exception as error:
            self._call(context.on_exception, error)
            raise
        if draft is None:
            self._call(context.on_completion, False)
        return draft

    async def carry(self, underway: Underway[DataT], draft: Draft[DataT] | None) -> None:
        """Append ``draft``, and what ``execute`` makes of it after lock failures."""
        committed = False
        try:
            committed = await self._carried(underway, draft)
        finally:
            if not committed:
                self.in_flight.leave(underway.number)

    async def _carried(self, underway: Underway[DataT], draft: Draft[DataT] | None) -> bool:
        """Return whether it is in the log; otherwise the context was told what became of it."""
        context = underway.context
        try:
            while draft is not None:
                try:
                    await self._append(draft, underway)
                except LockFailed as failed:
                    await self._workers.retry(self._call, context.on_lock_failure)
                    await self.applied_up_to(failed.transaction_id)
                    draft = await self._workers.retry(self._execute_again, context)
                else:
                    return True
        except Exception as error:
            await self._workers.retry(self._call, context.on_exception, error)
        return False

    async def _append(self, draft: Draft[DataT], underway: Underway[DataT]) -> None:
        number = self._progress.begin_append()
        try:
            transaction_id = await self._client.append(
                self.number,
                draft.data,
                header=draft.header,
                write_locks=draft.write_locks,
                read_locks=draft.read_locks,
                append_locks=draft.append_locks,
                mark=draft.mark,
            )
            self._progress.committed(transaction_id, underway)
        finally:
            self._progress.end_append(number)
            self._tell()
        if self._stopped:
            await self._conclude()

    def _execute_again(self, context: TransactionContext[DataT]) -> Draft[DataT] | None:
        """On a retry thread."""
        try:
            return self.execute(context)
        except Exception:
            # It was told, and here nobody waits for it.
            log.debug("execute of %r has raised", context, exc_info=True)
            return None

    async def _mounted(self) -> None:
        """Apply what one mount of the feed brings; returns when something has to be repeated."""
        async with self._client.stream({self.number: self.mark}, data=True) as stream:
            self._stream = stream
            async for batch in stream.batches():
                self.problem = None
                last_append = self._progress.last_append
                while self._progress.unclear(batch, last_append) and not self._stopping.is_set():
                    await self._something()
                if not await self._workers.apply(self._deliver, batch):
                    return
                self._tell()

    def _deliver(self, batch: Sequence[Transaction[DataT]]) -> bool:
        """Apply transactions and return whether all were. On an applying thread."""
        for transaction in batch:
            if self._stopping.is_set():
                return False
            delivery = self._progress.next(transaction)
            if delivery is None:
                continue
            self._complete(delivery)
            try:
                self._application.apply_transaction(transaction)
            except Exception as error:
                self._report(transaction.id, error)
                return False
            self._progress.applied(transaction)
            if delivery.context is not None:
                self._end(delivery.context)
            if delivery.context is not None or self._waiting:
                self._loop.call_soon_threadsafe(self._tell)
        return True

    def _complete(self, delivery: Delivery[Underway[DataT]]) -> None:
        """On an applying thread."""
        if delivery.context is not None and delivery.tell_completion:
            self._metrics.completion.add(time.monotonic() - delivery.context.since)
            self._call(delivery.context.context.on_completion, True)

    def _end(self, underway: Underway[DataT]) -> None:
        """On an applying thread."""
        self._metrics.application.add(time.monotonic() - underway.since)
        self._call(underway.context.on_application)
        self.in_flight.leave(underway.number)

    async def _conclude(self) -> None:
        """Tell those whose transactions are in the log, but will not be applied here."""
        for delivery in self._progress.abandon():
            await self._workers.apply(self._complete, delivery)
            assert delivery.context is not None
            self.in_flight.leave(delivery.context.number)

    async def _something(self) -> None:
        """Wait until anything has happened."""
        if self._changed.is_set():
            self._changed.clear()
        await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        """Call a context's method; what it raises is reported. On any thread."""
        try:
            callback(*args)
        except Exception as error:
            self._report(self.mark + 1, error)

    def _report(self, transaction_id: int, error: Exception) -> None:
        """On any thread."""
        try:
            self._application.uncaught_exception(self.number, transaction_id, error)
        except BaseException:
            # On whatever thread this is: it has other things to do.
            log.exception("uncaught_exception has raised, about: %s", error)
