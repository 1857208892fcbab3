"""One active partition: applies its log and runs its contexts. Touches threads and the network.

`waltz.sync.callbacks` describes contexts and the order of the calls. The *feed* of a partition is
the stream of its transactions. Methods run on the event loop, unless their docstring names another
thread. `waltz.sync.callbacks.core.progress` decides which context a transaction belongs to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic

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
from waltz.sync.callbacks.calling import Callbacks
from waltz.sync.callbacks.core.context import TransactionBuilder, TransactionContext
from waltz.sync.callbacks.core.metrics import CallbackMetrics
from waltz.sync.callbacks.core.progress import Delivery, PartitionProgress
from waltz.sync.callbacks.open_contexts import OpenContexts, SubmittedContext
from waltz.sync.callbacks.workers import Workers

_BACKOFF = Backoff(0.05, 5.0)
"""The delays in seconds before a partition is mounted again after an error."""

log = logging.getLogger(__name__)


class ActivePartition(Generic[DataT]):
    """One partition from its activation to its deactivation. `run` follows its feed."""

    def __init__(
        self,
        number: int,
        mark: int,
        client: LogClient[DataT],
        application: Application[DataT],
        workers: Workers,
        metrics: CallbackMetrics,
        open_contexts: OpenContexts,
    ) -> None:
        self.number = number
        self.open_contexts = open_contexts
        self.problem: Exception | None = None
        """The error that ended the feed; None after a later feed has delivered transactions.

        A ClientAhead also ends when the log reaches the mark again.
        """

        self._client = client
        self._application = application
        self._workers = workers
        self._metrics = metrics
        self._progress: PartitionProgress[SubmittedContext[DataT]] = PartitionProgress(
            client.client_id, mark
        )
        self._callbacks = Callbacks(number, application, workers, self._progress)
        self._loop = asyncio.get_running_loop()
        self._stream: LogStream[DataT] | None = None
        """The stream of the last `_apply_feed`; None before the first."""
        self._stopping = asyncio.Event()
        """Set by `stop`."""
        self._stop_error: Callable[[], WaltzError] | None = None
        """The argument of `stop`, which returns an error; None before `stop`."""
        self._ended = False
        """Whether the loop of `run` has ended, so that no more transactions will be applied."""
        self._ending_contexts = asyncio.Lock()
        """Held by `_end_committed_contexts`, so that the callbacks of contexts do not overlap."""
        self._num_waiting = 0
        """The number of calls of `applied_up_to` that wait."""
        self._changed = asyncio.Event()
        """Set when a transaction was applied, an append has ended, or `stop` was called."""
        metrics.active = True

    @property
    def mark(self) -> int:
        """The id of the last transaction that was applied. Any thread may read it."""
        return self._progress.mark

    async def run(self) -> None:
        """Apply the feed until `stop`, then end the contexts whose transactions are in the log.

        After an error the partition is mounted again at `mark`, so that the next transaction is the
        one that failed. The delay before this mount grows while no transaction is applied.

        However it ends, also by an unexpected error or by a cancellation, no call waits afterwards
        for a transaction that will not be applied.
        """
        try:
            await self._apply_until_stop()
        except Exception:  # The errors of the feed and of callbacks were reported already.
            log.exception(
                "partition %d: unexpected error; the partition is not applied any more: restart "
                "the application",
                self.number,
            )
        except asyncio.CancelledError:
            # The event loop stops without `stop`, maybe while a transaction is applied: no callback
            # may overlap with it.
            self._remove(self._progress.take_unapplied())
            raise
        finally:
            self._refuse(partial(ClientClosed, f"partition {self.number} is not applied any more"))
            self._ended = True
            await self._end_committed_contexts()

    async def _apply_until_stop(self) -> None:
        """See `run`."""
        feeds_without_progress = 0
        while not self._stopping.is_set():
            mark_before = self.mark
            await self._apply_feed_and_report()
            if self.mark > mark_before:
                feeds_without_progress = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BACKOFF.delay(feeds_without_progress)):
                    await self._stopping.wait()
            feeds_without_progress += 1

    def check_accepts(self) -> None:
        """Raise an error if the partition accepts no contexts. Runs on any thread.

        The error is that of `stop`, or ClientAhead.
        """
        if self._stop_error is not None:
            raise self._stop_error()
        # After any other problem, contexts are accepted: appends need no feed, and the partition is
        # mounted again. But the locks of a context must not be checked against a mark that the log
        # does not reach.
        if isinstance(self.problem, ClientAhead):
            # Each call raises an instance of its own, with its own traceback.
            ahead = self.problem
            raise ClientAhead(ahead.partition, ahead.client_mark, ahead.log_mark)

    async def stop(self, new_error: Callable[[], WaltzError]) -> None:
        """Make `run` end after the transaction that it applies now.

        ``new_error`` returns the error for a context that cannot be retried because the partition
        has stopped: each context gets an instance of its own. Only the first call has an effect.
        """
        if self._refuse(new_error) and self._stream is not None:
            await self._stream.aclose()

    def _refuse(self, new_error: Callable[[], WaltzError]) -> bool:
        """Make the calls that wait raise ``new_error()``. Return False if `stop` was called."""
        if self._stop_error is not None:
            return False
        self._stop_error = new_error
        self._metrics.active = False
        self._stopping.set()
        self.open_contexts.ignore_limit()
        self._notify()
        return True

    async def applied_up_to(self, transaction_id: int) -> None:
        """Wait until ``transaction_id`` was applied. Raises the error of `stop` after `stop`."""
        self._num_waiting += 1
        try:
            while self.mark < transaction_id:
                if self._stop_error is not None:
                    raise self._stop_error()
                await self._wait_for_change()
        finally:
            self._num_waiting -= 1

    def execute(self, context: TransactionContext[DataT]) -> Draft[DataT] | None:
        """Return the draft that ``context`` builds, None if it builds none. Runs on any thread.

        If it builds none, ``context.on_completion(False)`` is called. If ``context.execute`` raises
        an error, ``context.on_exception`` is called, and the error is raised again.

        The locks of the draft are checked against the mark. The mark is read before
        ``context.execute`` is called: a transaction that is applied during the call may not be
        visible to ``context.execute``. With a mark that is read after the call, a conflict with
        this transaction would not be detected.
        """
        mark = self.mark
        builder: TransactionBuilder[DataT] = TransactionBuilder()
        try:
            draft = builder.draft(mark) if context.execute(builder) else None
        except Exception as error:
            self._callbacks.call(context.on_exception, error)
            raise
        if draft is None:
            self._callbacks.call(context.on_completion, False)
        return draft

    async def append(self, submitted: SubmittedContext[DataT], draft: Draft[DataT]) -> None:
        """Append ``draft``. After a lock failure, call `execute` again and append the new draft.

        Returns when the transaction is in the log, or will not be appended any more. If it is in
        the log, the context ends when the transaction was applied, or when `run` ends.
        """
        committed = False
        try:
            committed = await self._append_with_retries(submitted, draft)
        finally:
            # A context whose transaction is in the log is removed when the transaction was applied
            # (`_call_on_application`), or will not be applied (`_end_committed_contexts`).
            if not committed:
                self.open_contexts.remove(submitted.number)

    async def _append_with_retries(
        self, submitted: SubmittedContext[DataT], draft: Draft[DataT] | None
    ) -> bool:
        """Append until there is no lock failure; return whether the transaction is in the log.

        If the result is false, a callback has reported how the context ended. After AppendUncertain
        the result is false, although the transaction may be in the log.
        """
        context = submitted.context
        try:
            while draft is not None:
                try:
                    await self._append_once(draft, submitted)
                except LockFailed as failed:
                    await self._workers.retry(self._callbacks.call, context.on_lock_failure)
                    await self.applied_up_to(failed.transaction_id)
                    draft = await self._workers.retry(self._execute_again, context)
                else:
                    return True
        except Exception as error:
            await self._workers.retry(self._callbacks.call, context.on_exception, error)
        return False

    async def _append_once(self, draft: Draft[DataT], submitted: SubmittedContext[DataT]) -> None:
        """Append ``draft`` and record which transaction belongs to its context.

        `PartitionProgress.committed` must be called before `end_append`. In the opposite order, the
        transaction could be applied between the two calls. It would seem to belong to no context,
        and the callbacks of its context would not be called.
        """
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
            self._progress.committed(transaction_id, submitted)
        finally:
            self._progress.end_append(number)
            self._notify()
        if self._ended:
            # `run` has ended the committed contexts before this one was recorded: end it here.
            await self._end_committed_contexts()

    def _execute_again(self, context: TransactionContext[DataT]) -> Draft[DataT] | None:
        """Call `execute`; return None if it raises. Runs on a retry thread."""
        try:
            return self.execute(context)
        except Exception:
            # `execute` has called on_exception. The error cannot be raised by `submit`, which has
            # returned already.
            log.debug(
                "partition %d: execute raised an exception on a retry; context %r ends without a "
                "commit",
                self.number,
                context,
                exc_info=True,
            )
            return None

    async def _apply_feed_and_report(self) -> None:
        """Do the same as `_apply_feed`, but report its error to the application.

        Call `stop` if the client is closed or has failed.
        """
        try:
            await self._apply_feed()
        except ClientClosed:
            await self.stop(new_error=ClientClosed)
        except Exception as error:
            self.problem = error
            if isinstance(error, ClientFailed):
                # Stop before the report: when the application knows of the failure, `submit` must
                # raise ClientFailed.
                await self.stop(new_error=partial(ClientFailed, error.reason))
            await self._workers.apply(self._callbacks.report, self.mark + 1, error)

    async def _apply_feed(self) -> None:
        """Mount the partition at `mark` and apply its feed.

        Returns when `stop` was called, or when a transaction could not be applied: then the feed
        must begin again. Raises the errors of the feed.
        """
        if isinstance(self.problem, ClientAhead):
            # A stream of a log that ends at the mark again has no batch that would show it.
            log_mark = await self._client.high_water_mark(self.number)
            if log_mark < self.mark:
                raise ClientAhead(self.number, self.mark, log_mark)
            self.problem = None
        async with self._client.stream({self.number: self.mark}, data=True) as stream:
            self._stream = stream
            async for batch in stream.batches():
                self.problem = None
                await self._wait_until_decided(batch)
                if not await self._workers.apply(self._deliver, batch):
                    return
                self._notify()

    async def _wait_until_decided(self, batch: Sequence[Transaction[DataT]]) -> None:
        """Wait until it is known which context each transaction belongs to, or until `stop`."""
        # Only appends that began before the batch arrived can have caused its transactions.
        last_append = self._progress.last_append
        while self._progress.is_undecided(batch, last_append) and not self._stopping.is_set():
            await self._wait_for_change()

    def _deliver(self, batch: Sequence[Transaction[DataT]]) -> bool:
        """Apply transactions, and return whether all were applied. Runs on an applying thread."""
        for transaction in batch:
            if self._stopping.is_set():
                return False
            delivery = self._progress.begin_apply(transaction)
            if delivery is None:  # It was applied before, and a new mount feeds it again.
                continue
            self._call_on_completion(delivery)
            try:
                self._application.apply_transaction(transaction)
            except Exception as error:
                self._callbacks.report(transaction.id, error)
                return False
            self._progress.applied(transaction)
            if delivery.context is not None:
                self._call_on_application(delivery.context)
            if self._num_waiting:
                # Wake up `applied_up_to` now: it must not wait for the rest of the batch.
                self._loop.call_soon_threadsafe(self._notify)
        return True

    def _call_on_completion(self, delivery: Delivery[SubmittedContext[DataT]]) -> None:
        """Call ``on_completion(True)`` if ``delivery`` says so. Runs on an applying thread."""
        submitted = delivery.context
        if submitted is not None and delivery.call_on_completion:
            self._metrics.completion.add(time.monotonic() - submitted.submitted_at)
            self._callbacks.call(submitted.context.on_completion, True)

    def _call_on_application(self, submitted: SubmittedContext[DataT]) -> None:
        """Call ``on_application`` and end the context. Runs on an applying thread."""
        self._metrics.application.add(time.monotonic() - submitted.submitted_at)
        self._callbacks.call(submitted.context.on_application)
        self.open_contexts.remove(submitted.number)

    async def _end_committed_contexts(self) -> None:
        """End the contexts whose transactions are in the log and will not be applied here.

        Their ``on_completion(True)`` is called, unless it was called before. The contexts end even
        if these calls fail or are cancelled.
        """
        async with self._ending_contexts:
            deliveries = self._progress.take_unapplied()
            try:
                for delivery in deliveries:
                    await self._workers.apply(self._call_on_completion, delivery)
            except ClientClosed:
                pass  # The interpreter exits, and the workers have ended.
            finally:
                self._remove(deliveries)

    def _remove(self, deliveries: Sequence[Delivery[SubmittedContext[DataT]]]) -> None:
        """Let `flush` and `submit` not wait for the contexts of ``deliveries`` any more."""
        for delivery in deliveries:
            assert delivery.context is not None
            self.open_contexts.remove(delivery.context.number)

    async def _wait_for_change(self) -> None:
        """Wait until a transaction was applied, an append has ended, or `stop` was called.

        The caller must check its condition just before this call, without an ``await`` in between.
        This call forgets the changes that were reported before it. Without the ``await``, none of
        them was reported after the check, so the caller misses nothing.
        """
        self._changed.clear()
        await self._changed.wait()

    def _notify(self) -> None:
        """Wake up the calls that wait in `_wait_for_change`."""
        self._changed.set()
