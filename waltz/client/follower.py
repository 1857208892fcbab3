"""Keep a state up to date with partitions of the log. Waits on the event loop.

`StateFollower` applies transactions in order to the state of an application. A transaction that the
state fails to apply is applied again. The *mark* of a state is the last transaction that it
contains. A *decision* is an append that the application builds by the state; its locks are checked
against the mark that the state had then. `waltz.sync.callbacks` does the same with threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, Protocol, Self, TypeVar

from waltz.client.core.arguments import check_timeout, checked_id
from waltz.client.core.errors import (
    AnswerLate,
    ClientAhead,
    ClientClosed,
    ClientFailed,
    DataUnreadable,
    PartitionUnknown,
    PermissionDenied,
    new_instance,
)
from waltz.client.core.log_stream import LogStream
from waltz.client.core.mount import AHEAD_CONFIRMATIONS, NOT_READY_BACKOFF_SECONDS
from waltz.client.core.values import Attempt, Draft, Transaction
from waltz.client.deadlines import TimeLimit
from waltz.client.log_client import LogClient
from waltz.client.submitting import Build, call_build
from waltz.net import Backoff
from waltz.protocol.records import NO_TRANSACTION

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

log = logging.getLogger(__name__)

_BACKOFF = Backoff(0.05, 10.0)
"""The delays in seconds between attempts to apply a transaction that fails."""

_FINAL = (ClientAhead, ClientClosed, ClientFailed, DataUnreadable, PermissionDenied)
"""Errors after which no attempt can succeed: the partition stops."""


class FollowedState(Protocol[T_contra]):
    """The state of an application: what it computes from the log."""

    async def mark(self, partition: int) -> int:
        """Return the id of the last transaction that the state contains, -1 for none."""

    async def apply(self, transaction: Transaction[T_contra]) -> None:
        """Change the state by the next transaction of a partition, and store its id as the mark.

        A state that outlives the process must store the change and the mark together, so that
        neither is stored without the other. After an error, `mark` is called again. If it returns
        less than the id of the transaction, this method is called again with the transaction.
        """


class StateFollower(Generic[T]):
    """Applies the log of some partitions to a state; an async context manager.

    Each partition has a stream of its own: while one partition is retried, the others continue.
    Leaving the context waits until the calls of ``state.apply`` that are under way have returned.
    The methods raise ValueError for a partition that is not followed.

    Args:
        client: An open client. The follower does not close it.
        state: The state. Its methods are called for one transaction of a partition at a time.
        partitions: The partitions to follow. None: all. An unknown one raises PartitionUnknown.
    """

    def __init__(
        self,
        client: LogClient[T],
        state: FollowedState[T],
        partitions: Iterable[int] | None = None,
    ) -> None:
        numbers = range(client.num_partitions) if partitions is None else sorted(set(partitions))
        for number in numbers:
            if not 0 <= number < client.num_partitions:
                raise PartitionUnknown(number, client.num_partitions)
        self._client = client
        self._state = state
        self._followed = {number: _Followed(client, state, number) for number in numbers}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(followed.run()) for followed in self._followed.values()]
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.gather(*(followed.stop() for followed in self._followed.values()))
            await asyncio.gather(*self._tasks)
        finally:
            # Tasks are still running only if one of the waits was cancelled.
            for task in self._tasks:
                task.cancel()

    def mark(self, partition: int) -> int:
        """Return the last id of ``partition`` that was applied, -1 before the first."""
        return self._followed_partition(partition).mark

    def problem(self, partition: int) -> Exception | None:
        """Return the last error of ``partition``.

        Return None if there was no error, or if a transaction was applied since the error.
        """
        return self._followed_partition(partition).problem

    async def applied(
        self,
        partition: int,
        transaction_id: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> None:
        """Wait until the state contains a transaction.

        Args:
            partition: A followed partition.
            transaction_id: The id of the transaction.
            timeout: The longest wait in seconds. None: no limit.

        Raises:
            AnswerLate: The timeout passed. The text has the error that holds the partition up.
            ClientAhead: The follower has found that the log ends before the mark of the state,
                which is that of another log. Before that, a call with an id up to this mark
                returns; `caught_up` does not.
            DataUnreadable: The serializer cannot read the next transaction.
            PermissionDenied: The client has no right to read the partition.
            ClientClosed: The client, or this follower, is closed.
            ClientFailed: The client has failed.
        """
        followed = self._followed_partition(partition)
        checked_id("transaction_id", transaction_id)
        check_timeout(timeout)

        def late_error() -> AnswerLate:
            held_up = "" if followed.problem is None else f", held up by: {followed.problem!r}"
            return AnswerLate(
                f"transaction {transaction_id} of partition {partition} was not applied within "
                f"{timeout:g} s; the state is at {followed.mark}{held_up}"
            )

        async with TimeLimit(timeout, late_error):
            await followed.wait_until_applied(transaction_id)

    async def caught_up(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> None:
        """Wait until the state contains all that the log had when this call began.

        First the high-water marks are read, then the state is awaited. A state that is then beyond
        a high-water mark is compared with the log as it is now: if the log ends before the mark of
        the state, ClientAhead is raised. ``timeout``, in seconds, limits each read and the wait.
        None: the reads have the timeout of the client's options, and the wait has no limit. Raises
        the errors of `applied` and of `LogClient.high_water_mark`.
        """
        numbers = list(self._followed)
        marks = await asyncio.gather(
            *(self._client.high_water_mark(number, timeout=timeout) for number in numbers)
        )
        waits = (
            self.applied(number, mark, timeout=timeout)
            for number, mark in zip(numbers, marks, strict=True)
        )
        await asyncio.gather(*waits)
        checks = (
            self._check_mark(number, mark, timeout)
            for number, mark in zip(numbers, marks, strict=True)
        )
        await asyncio.gather(*checks)

    async def submit(
        self,
        partition: int,
        build: Build[T],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - raises WaltzError, not TimeoutError
    ) -> int | None:
        """Append the draft that ``build`` returns, and wait until the state contains it.

        ``build`` gets an `Attempt` whose ``mark`` is that of the state. If the state has become
        outdated since, the locks of the draft refuse the append. After such a conflict ``build`` is
        called again, once the state contains the conflicting transaction. ``build`` must not wait
        until the state contains later transactions: they would be conflicts, because the locks of
        its draft are checked against a mark that was read before the call.

        ``timeout``, in seconds, limits the append, and separately the wait for the state. None: the
        append has the timeout of the client's options, and the wait has no limit. Returns the id of
        the transaction in ``partition``, None if ``build`` returned None. Raises the errors of
        `LogClient.submit`, and those of `applied` that occur before the transaction is sent.
        """
        followed = self._followed_partition(partition)

        async def decide(attempt: Attempt) -> Draft[T] | None:
            await followed.wait_until_started()
            if attempt.conflict is not None:
                await followed.wait_until_applied(attempt.conflict)
            # Read the mark before `build` is called. The state may advance during the call. A mark
            # that is read after the call could include a transaction that `build` has not seen, and
            # a conflict with this transaction would not be detected.
            mark = followed.mark
            draft = await call_build(build, replace(attempt, mark=mark))
            if draft is None or draft.mark is not None:
                return draft
            return replace(draft, mark=mark)

        transaction_id = await self._client.submit(partition, decide, timeout=timeout)
        if transaction_id is not None:
            # The transaction is in the log, so an error of the wait is not an error of this call.
            with contextlib.suppress(AnswerLate, *_FINAL):
                await self.applied(partition, transaction_id, timeout=timeout)
        return transaction_id

    async def _check_mark(self, partition: int, log_mark: int, seconds: float | None) -> None:
        """Raise ClientAhead if the log of ``partition`` ends before the mark of the state.

        ``log_mark`` is a high-water mark that was read before. If the state is beyond it, it is
        read again, with the timeout ``seconds``: transactions may have been appended and applied
        since. `AHEAD_CONFIRMATIONS` says why one answer is not enough.
        """
        mark, num_reads = self.mark(partition), 0
        while log_mark < mark:
            if num_reads == AHEAD_CONFIRMATIONS:
                raise ClientAhead(partition, mark, log_mark)
            if num_reads:
                await asyncio.sleep(NOT_READY_BACKOFF_SECONDS)
            log_mark = await self._client.high_water_mark(partition, timeout=seconds)
            num_reads += 1

    def _followed_partition(self, partition: int) -> _Followed[T]:
        """Return a followed partition. Raises ValueError for another one."""
        if partition not in self._followed:
            raise ValueError(f"partition {partition} is not followed")
        return self._followed[partition]


class _Followed(Generic[T]):
    """One partition that is followed: `run` applies its log, and other calls wait for its mark."""

    def __init__(self, client: LogClient[T], state: FollowedState[T], number: int) -> None:
        self.mark = NO_TRANSACTION
        """See `StateFollower.mark`."""
        self.problem: Exception | None = None
        """See `StateFollower.problem`."""
        self._client = client
        self._state = state
        self._number = number
        self._started = False
        """Whether the mark of the state was read at least once."""
        self._mark_was_read = False
        """Whether the mark of the state was read by the last call of `_follow`."""
        self._end_error: Exception | None = None
        """The error that ended `run`; None while `run` continues.

        ClientClosed if `stop` or a cancellation has ended it.
        """
        self._stream: LogStream[T] | None = None
        """The stream of the last `_follow`, which `stop` closes; None before the first."""
        self._stopping = asyncio.Event()
        """Set by `stop`."""
        self._changed = asyncio.Event()
        """Set, and replaced by a new event, by each `_notify`."""

    async def run(self) -> None:
        """Apply transactions until `stop`, or until an error that no retry can correct."""
        try:
            await self._follow_with_retries()
        finally:  # Also if this task is cancelled. Otherwise the waiting calls would never return.
            if self._end_error is None:
                self._end_error = ClientClosed()
            self._notify()

    async def stop(self) -> None:
        """Make `run` end after the transaction that is being applied."""
        self._stopping.set()
        if self._stream is not None:
            await self._stream.aclose()

    async def wait_until_started(self) -> None:
        """Wait until the mark of the state was read. Raises the error that ended `run`."""
        while not self._started:
            await self._wait_for_change()
        self._check_running()

    async def wait_until_applied(self, transaction_id: int) -> None:
        """Wait until the state contains a transaction. Raises the error that ended `run`.

        Return if `run` ended after the transaction was applied, unless by ClientAhead: then the
        mark is that of another log, and does not show that the state contains the transaction.
        """
        while not self._started or self.mark < transaction_id:
            await self._wait_for_change()
        if isinstance(self._end_error, ClientAhead):
            self._check_running()

    async def _follow_with_retries(self) -> None:
        """Apply transactions as `run` does; call `_follow` again after an error, with a delay."""
        failures = 0
        while not self._stopping.is_set():
            mark_before = self.mark
            try:
                await self._follow_uncancelled()
            except _FINAL as error:
                if not self._stopping.is_set():
                    log.error(
                        "partition %d: following stopped: %s; correct the cause and start a new "
                        "follower",
                        self._number,
                        error,
                    )
                self.problem = self._end_error = error
                break
            except Exception as error:
                self.problem = error
                if self.mark > mark_before:
                    failures = 0  # Transactions were applied since the last error.
                delay = _BACKOFF.delay(failures)
                failed_step = (
                    f"applying transaction {self.mark + 1}"
                    if self._mark_was_read
                    else "reading the mark of the state"
                )
                log.warning(
                    "partition %d: %s failed, retrying in %g s",
                    self._number,
                    failed_step,
                    delay,
                    exc_info=True,
                )
                failures += 1
                await self._pause(delay)

    async def _follow_uncancelled(self) -> None:
        """Call `_follow`. Raise RuntimeError for a CancelledError that does not cancel this task.

        Such an error comes from a task or a future that the state awaits and that was cancelled. It
        must not end this task: it is retried like any other error of the state.
        """
        try:
            await self._follow()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError("the state awaited something that was cancelled") from error

    async def _follow(self) -> None:
        """Read the mark of the state, and apply the transactions after it."""
        self._mark_was_read = False
        self.mark = await self._state.mark(self._number)
        self._mark_was_read = self._started = True
        self._notify()
        async with self._client.stream({self._number: self.mark}, data=True) as stream:
            self._stream = stream
            if self._stopping.is_set():
                return  # `stop` was called before ``_stream`` was set, and could not close it.
            async for transaction in stream:
                await self._state.apply(transaction)
                self.mark = transaction.id
                self.problem = None
                self._notify()
                if self._stopping.is_set():
                    return

    async def _pause(self, seconds: float) -> None:
        """Wait for ``seconds``, or until `stop`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _wait_for_change(self) -> None:
        """Wait until the mark has changed or `run` ends. If `run` has ended, raise its error.

        The caller must check its condition again afterwards.
        """
        self._check_running()
        await self._changed.wait()

    def _check_running(self) -> None:
        """Raise the error that ended `run`, if it has ended."""
        if self._end_error is not None:
            raise new_instance(self._end_error)

    def _notify(self) -> None:
        """Wake up the waiting calls; each of them checks its condition again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
