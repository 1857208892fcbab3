"""Perform the appends of all partitions: calls, timeouts, limits, connections. Touches the network.

`waltz.client.core.appends` decides which messages are sent, and interprets the answers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from waltz.client.append_call import AppendCall, AppendToken, batch_outcome
from waltz.client.append_errors import append_error, is_ahead
from waltz.client.append_outcome import wait_until_settled
from waltz.client.core.append_values import Append, AppendResult, Outcome
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.batches import BatchOutcome
from waltz.client.core.codec import FeedRun, parse
from waltz.client.core.directory import Directory
from waltz.client.core.errors import ClientClosed, ErrorFactory
from waltz.client.core.mount import NOT_READY_BACKOFF_SECONDS, Phase, RequestIds
from waltz.client.in_flight import InFlightLimit
from waltz.client.link import ServerLink
from waltz.client.links import Links
from waltz.client.request_client import RequestClient
from waltz.client.ticker import Ticker
from waltz.net import Dialer, decode_received
from waltz.protocol.client_numbers import APPEND_ANSWERS_SINCE
from waltz.protocol.records import NO_TRANSACTION, ReqId

MAX_IN_FLIGHT_BYTES = 64 << 20
"""The limit, per partition, for the bytes of data of its appends without an outcome."""


@dataclass(slots=True)
class _PartitionState:
    """A partition in use. ``link`` leads to its server, None while there is no connection."""

    appends: PartitionAppends
    in_flight: InFlightLimit
    link: ServerLink | None = None


class Appender:
    """The appends of one client id. A partition is mounted (`core.mount`) when it is first used.

    This class implements `LinkUser` of `waltz.client.links`, and `AppendState` of
    `waltz.client.core.metrics`. ``max_in_flight`` and ``long_wait_seconds`` are those of
    `ClientOptions`.
    """

    def __init__(
        self,
        client_id: int,
        directory: Directory,
        dialer: Dialer,
        request_client: RequestClient,
        *,
        max_in_flight: int,
        long_wait_seconds: float,
    ) -> None:
        self._client_id = client_id
        self._request_client = request_client
        self._max_in_flight = max_in_flight
        self._long_wait_seconds = long_wait_seconds
        self._links = Links(directory, dialer, self)
        self._ticker = Ticker(self._tick)
        self._partitions: dict[int, _PartitionState] = {}
        self._entering: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """For each partition a lock, which `_enter` and `_partition` acquire in the order of calls.

        The locks are separate, so that a partition without a server does not delay the others."""
        self._last_call = 0
        """The number of the last append call; calls are numbered from 1."""
        self._open_calls: dict[int, None] = {}
        """The numbers of the open calls, ascending: a dictionary is used as an ordered set."""
        self._flushers: list[tuple[int, asyncio.Future[None]]] = []
        """For each waiting `flush`: the last call that it waits for, and its future."""
        self._end_error: ErrorFactory | None = None
        """The argument of `end`; None before."""

    @property
    def pending(self) -> int:
        """The number of append calls without an outcome."""
        return len(self._open_calls)

    def problems(self) -> str:
        """Return which servers are not connected, and why; see `Links.problems`."""
        # A partition that was mounted at a mark, and never read, has only a link of this class.
        return self._request_client.problems() or self._links.problems()

    def is_mounted(self, partition: int) -> bool:
        """See AppendState."""
        state = self._partitions.get(partition)
        return state is not None and state.appends.mount.phase is Phase.MOUNTED

    def mark(self, partition: int) -> int:
        """See AppendState."""
        state = self._partitions.get(partition)
        return NO_TRANSACTION if state is None else state.appends.log_mark

    def in_flight(self, partition: int) -> int:
        """See AppendState."""
        state = self._partitions.get(partition)
        return 0 if state is None else state.in_flight.count

    async def mount(self, partition: int, mark: int | None = None) -> int:
        """Return the largest id that this client knows to be in the log of ``partition``.

        Before its first use, also begin to mount it after ``mark`` (None: high-water mark).
        """
        appends = (await self._partition(partition, mark)).appends
        return max(appends.log_mark, self._request_client.known_mark(partition))

    async def append(self, partition: int, append: Append, timeout_seconds: float | None) -> int:
        """Append, and return the transaction id. Send the append again if its outcome is ABSENT.

        Raises LockFailed, ClientAhead, PermissionDenied, ServerTooOld, ClientClosed, ClientFailed,
        AppendUncertain, and ClusterUnreachable if the timeout passes and the append is certainly
        not in the log.
        """
        call = AppendCall(partition, timeout_seconds, append.mark)
        await self._track(call, self._append(call, append))
        result = call.outcomes[0] if call.outcomes else None
        if result is None or result.outcome is not Outcome.COMMITTED:
            raise self._error(call, result)
        return result.number

    async def append_batch(
        self, partition: int, appends: Sequence[Append], timeout_seconds: float | None
    ) -> list[BatchOutcome]:
        """Append a batch with one mark in one message; return the outcome of each append.

        The batch is sent again only if the log seems to end before its mark (`_retry_ahead`).
        Raises the errors of `append` except LockFailed.
        """
        call = AppendCall(partition, timeout_seconds, appends[0].mark)
        await self._track(call, self._append_batch(call, appends))
        results = call.outcomes
        if not results:  # The timeout passed before the batch was passed to `PartitionAppends`.
            raise self._error(call, None)
        assert len(results) == len(appends), "withdraw returns an outcome of each append"
        outcomes = tuple(batch_outcome(result) for result in results)
        known = [outcome for outcome in outcomes if outcome is not None]
        if len(known) < len(appends):
            raise self._error(call, results[outcomes.index(None)], outcomes)
        return known

    def give_up(self, req_id: ReqId) -> None:
        """Make the call of the append ``req_id`` raise AppendUncertain now.

        Do nothing if the append was not sent, or has an outcome.
        """
        state = self._partitions.get(req_id.partition)
        if state is not None:
            state.appends.give_up(req_id)
            self._perform(state)

    async def wait_for_outcome(self, req_id: ReqId) -> bool:
        """Wait until an append of this client has an outcome; see `wait_until_settled`."""
        state = await self._partition(req_id.partition)
        state.appends.flush()
        self._perform(state)
        return await wait_until_settled(state.appends, req_id, self._check)

    async def flush(self) -> None:
        """Wait until every append that was called before has an outcome."""
        if not self._open_calls:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushers.append((self._last_call, future))
        for state in self._partitions.values():
            state.appends.flush()
            self._perform(state)
        await future

    def end(self, why: ErrorFactory) -> None:
        """End all present appends, and make all later ones fail.

        Appends whose outcome the server has already answered get this outcome. Other appends that
        were sent raise AppendUncertain. All others raise the error that ``why`` returns. Only the
        first call has an effect.
        """
        if self._end_error is not None:
            return
        self._end_error = why
        self._ticker.stop()
        self._links.end()
        for state in self._partitions.values():
            state.link = None
            state.appends.close()
            self._perform(state)
            state.in_flight.remove_limits()  # Calls that wait in `_enter` continue, and fail.

    async def close(self) -> None:
        """Make all appends fail with ClientClosed, unless `end` was called. Close the links."""
        self.end(ClientClosed)
        await self._links.close()

    def attached(self, partition: int, link: ServerLink, generation: int) -> None:
        """See LinkUser."""
        state = self._partitions[partition]
        state.link = link
        state.appends.attach(generation, link.seq, link.version)
        self._perform(state)

    def detached(self, partition: int) -> None:
        """See LinkUser."""
        state = self._partitions[partition]
        state.link = None
        state.appends.detach()

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """See LinkUser. Ignore messages about partitions that have another link by now."""
        touched: dict[int, _PartitionState] = {}
        for item in decode_received(parse, bodies, link.version):
            number = item.partition if isinstance(item, FeedRun) else item.req_id.partition
            state = self._partitions.get(number)
            if state is None or state.link is not link:
                continue
            touched[number] = state
            if isinstance(item, FeedRun):
                state.appends.feed_received(item.records)
            else:
                state.appends.received(item)
        for number, state in touched.items():
            # Before the mount, `log_mark` can be a mark of the caller that the log never reached.
            if self.is_mounted(number):
                self._request_client.note_mark(number, state.appends.log_mark)
            self._perform(state)

    async def _track(self, call: AppendCall, work: Coroutine[Any, Any, None]) -> None:
        """Await ``work`` as an open call. At the timeout, cancel it and set ``timed_out``."""
        self._last_call += 1
        number = self._last_call
        self._open_calls[number] = None
        limit = asyncio.timeout(call.seconds)
        try:
            async with limit:
                await work
        except TimeoutError:
            if not limit.expired():
                raise  # An error of ``work``, not of ``limit``.
            call.timed_out = True
        finally:
            del self._open_calls[number]
            if self._flushers:
                self._wake_flushers()

    async def _append(self, call: AppendCall, append: Append) -> None:
        """Append; append again while the outcome is ABSENT, or AHEAD and possibly wrong."""
        size = len(append.data)
        while True:
            state = await self._enter(call, 1, size)
            try:
                self._check()
                [token] = call.begin(1)
                state.appends.append(token, append)
                await self._await_outcomes(state, call)
            finally:
                call.leave(state.in_flight, [size], state.appends.is_in_doubt)
            is_absent = call.outcomes[0].outcome is Outcome.ABSENT
            if not (is_absent or await self._retry_ahead(state, call)):
                return

    async def _append_batch(self, call: AppendCall, appends: Sequence[Append]) -> None:
        """Append a batch; append it again while its outcome is AHEAD and possibly wrong."""
        sizes = [len(append.data) for append in appends]
        while True:
            state = await self._enter(call, len(sizes), sum(sizes))
            try:
                self._check()
                state.appends.append_batch(call.begin(len(sizes)), appends)
                await self._await_outcomes(state, call)
            finally:
                call.leave(state.in_flight, sizes, state.appends.is_in_doubt)
            if not await self._retry_ahead(state, call):
                return

    async def _enter(self, call: AppendCall, count: int, size: int) -> _PartitionState:
        """Wait until ``count`` appends of ``size`` bytes may be sent, and count them as in flight.

        Calls leave this method in the order in which they entered it, so that the first attempts of
        a client's appends are sent in the order of its calls. Without the lock, a call that begins
        just when `_begin_mount` has returned would overtake the calls that wait for the mount.

        If the server is not known yet, or older than `APPEND_ANSWERS_SINCE`, raises ClientAhead if
        the log ends before the mark of the call. A newer server checks it: the outcome is AHEAD.
        """
        number = call.partition
        async with self._entering[number]:
            state = self._partitions.get(number) or await self._begin_mount(number)
            if state.appends.mount.version < APPEND_ANSWERS_SINCE:
                await self._request_client.check_mark(number, call.mark)
            await state.in_flight.enter(count, size)
            return state

    async def _retry_ahead(self, state: _PartitionState, call: AppendCall) -> bool:
        """If the outcome is AHEAD and possibly wrong, pause. Return whether to append again.

        AHEAD means that the log ends before the mark, and that the append is not in the log. It is
        final only after `AHEAD_CONFIRMATIONS` answers (`core.mount`): a server that has lost the
        partition, and does not know it yet, answers AHEAD to a mark that is right.
        """
        if call.outcomes[0].outcome is not Outcome.AHEAD:
            return False
        call.num_ahead += 1
        if is_ahead(call, state.appends):
            return False
        await asyncio.sleep(NOT_READY_BACKOFF_SECONDS)
        return True

    async def _await_outcomes(self, state: _PartitionState, call: AppendCall) -> None:
        """Send the appends of ``call``, and wait until they have outcomes.

        If the wait is cancelled, also by the timeout, withdraw the appends without an outcome.
        """
        self._perform(state)
        try:
            await call.wait_for_outcomes()
        except asyncio.CancelledError:
            if tokens := call.without_outcome:
                _settle(state.appends.withdraw(tokens))
            raise

    async def _partition(self, number: int, mark: int | None = None) -> _PartitionState:
        """Return a partition's state. The first call mounts it after ``mark``; see `mount`."""
        self._check()
        if state := self._partitions.get(number):
            return state
        async with self._entering[number]:
            return self._partitions.get(number) or await self._begin_mount(number, mark)

    async def _begin_mount(self, number: int, mark: int | None = None) -> _PartitionState:
        """Begin to mount a partition. The caller holds the partition's lock in ``_entering``."""
        self._check()
        if mark is None:
            mark = await self._request_client.read_mark(number)
            self._check()
        ids = RequestIds(self._client_id, number)
        appends = PartitionAppends(ids, mark, self._long_wait_seconds)
        in_flight = InFlightLimit(self._max_in_flight, MAX_IN_FLIGHT_BYTES)
        state = self._partitions[number] = _PartitionState(appends, in_flight)
        self._links.want(number)  # When its server is connected, `attached` mounts the partition.
        return state

    def _error(
        self,
        call: AppendCall,
        result: AppendResult | None,
        outcomes: tuple[BatchOutcome | None, ...] = (),
    ) -> Exception:
        """Return the error for the caller of ``call``; see `append_error`."""
        state = self._partitions.get(call.partition)
        appends = None if state is None else state.appends
        end_error = None if self._end_error is None else self._end_error()
        return append_error(call, appends, end_error, result, outcomes, self.problems())

    def _check(self) -> None:
        """Raise the error that `end` was called with, if it was called."""
        if self._end_error is not None:
            raise self._end_error()

    def _perform(self, state: _PartitionState) -> None:
        """Send the messages and record the outcomes that a partition's appends have produced."""
        effects = state.appends.effects
        messages = effects.take_messages()
        if messages and state.link is not None:  # Without a link, drop them: see `core.effects`.
            state.link.send(messages)
        _settle(effects.take_results())
        if not state.appends.idle:
            self._ticker.start()

    def _tick(self, now: float) -> bool:
        """Let partitions notice timeouts; return whether any of them waits for something."""
        busy = False
        for state in self._partitions.values():
            if not state.appends.idle:
                busy = True
                state.appends.tick(now)
                self._perform(state)
        return busy

    def _wake_flushers(self) -> None:
        """End each `flush` that waits only for calls that have ended."""
        oldest_open = next(iter(self._open_calls), self._last_call + 1)
        for last_call, future in self._flushers:
            if last_call < oldest_open and not future.done():
                future.set_result(None)
        self._flushers = [(call, future) for call, future in self._flushers if not future.done()]


def _settle(results: Iterable[AppendResult]) -> None:
    """Record outcomes at their tokens, which are those of `AppendCall.begin`."""
    for result in results:
        cast(AppendToken, result.token).settle(result)
