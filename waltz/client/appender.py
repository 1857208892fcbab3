"""Drives the appends of all partitions over the network: futures, limits, connections.

What is sent and what an answer means is decided in `waltz.client.appends`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from waltz.client.appends import Append, Outcome, PartitionAppends, Settled
from waltz.client.asker import Asker
from waltz.client.codec import FeedRun, parse
from waltz.client.directory import Directory
from waltz.client.errors import (
    AppendUncertain,
    ClientAhead,
    ClientClosed,
    ClusterUnreachable,
    Ending,
    LockFailed,
    ServerTooOld,
)
from waltz.client.link import Link
from waltz.client.links import Links
from waltz.client.mount import Phase, RequestIds
from waltz.client.ticker import Ticker
from waltz.net import TlsConfig
from waltz.protocol import CLIENT_SERVER, ProtocolSpec, ReqId
from waltz.protocol.records import NO_TRANSACTION

T = TypeVar("T")

MAX_IN_FLIGHT_BYTES = 64 << 20
"""Data of unresolved appends per partition; beyond it appends wait, but one always goes."""


@dataclass(slots=True)
class _Partition:
    appends: PartitionAppends
    link: Link | None = None
    in_flight: int = 0
    in_flight_bytes: int = 0
    queue: deque[asyncio.Future[None]] = field(default_factory=deque)


class Appender:
    """The appends of one client id. A partition is mounted when it is first used."""

    def __init__(
        self,
        client_id: int,
        directory: Directory,
        tls: TlsConfig,
        asker: Asker,
        *,
        max_in_flight: int,
        long_wait_seconds: float,
        spec: ProtocolSpec = CLIENT_SERVER,
    ) -> None:
        self._client_id = client_id
        self._asker = asker
        self._max_in_flight = max_in_flight
        self._long_wait_seconds = long_wait_seconds
        self._links = Links(directory, tls, self, spec)
        self._ticker = Ticker(self._tick)
        self._partitions: dict[int, _Partition] = {}
        # One for each, because a partition without a server must not hold up the others.
        self._mounting: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._calls = 0
        self._open_calls: dict[int, None] = {}
        self._flushers: list[tuple[int, asyncio.Future[None]]] = []
        self._ended: Ending | None = None

    @property
    def pending(self) -> int:
        """How many appends have no outcome yet."""
        return len(self._open_calls)

    def is_mounted(self, partition: int) -> bool:
        """See Appending."""
        state = self._partitions.get(partition)
        return state is not None and state.appends.mount.phase is Phase.MOUNTED

    def mark(self, partition: int) -> int:
        """See Appending."""
        state = self._partitions.get(partition)
        return NO_TRANSACTION if state is None else state.appends.mark

    def in_flight(self, partition: int) -> int:
        """See Appending."""
        state = self._partitions.get(partition)
        return 0 if state is None else state.in_flight

    async def mount(self, partition: int, mark: int | None = None) -> int:
        """Begin the partition's feed after ``mark`` (None: its high-water mark), at first use.

        Returns the last transaction fed.
        """
        return (await self._partition(partition, mark)).appends.mark

    async def append(self, partition: int, append: Append, timeout_seconds: float | None) -> int:
        """Append, again if need be, and return the transaction id.

        Raises LockFailed, ClientAhead, ServerTooOld, ClientClosed, AppendUncertain, and
        ClusterUnreachable if nothing could be sent within the time given.
        """
        sent: list[ReqId] = []
        work = self._append(partition, append, sent)
        return await self._called(work, partition, sent, timeout_seconds)

    async def append_batch(
        self, partition: int, appends: Sequence[Append], timeout_seconds: float | None
    ) -> list[Settled]:
        """Append in one message, once; return how each ended: COMMITTED, LOCK_FAILED, ABSENT.

        Raises what `append` raises, but LockFailed.
        """
        sent: list[ReqId] = []
        work = self._append_batch(partition, appends, sent)
        return await self._called(work, partition, sent, timeout_seconds)

    async def flush(self) -> None:
        """Return when every append called before this has its outcome."""
        if not self._open_calls:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushers.append((self._calls, future))
        for partition in self._partitions.values():
            partition.appends.flush()
            self._drain(partition)
        await future

    def end(self, why: Ending) -> None:
        """Do no more: what was sent ends as AppendUncertain, all else, now and later, as ``why``.

        Only the first call counts.
        """
        if self._ended is not None:
            return
        self._ended = why
        self._ticker.stop()
        self._links.end()
        for partition in self._partitions.values():
            partition.link = None
            partition.appends.close()
            self._drain(partition)
            while partition.queue:
                _wake(partition.queue.popleft())

    async def close(self) -> None:
        """End, as ClientClosed if it has not ended yet, and close the connections."""
        self.end(ClientClosed)
        await self._links.close()

    def attached(self, partition: int, link: Link, generation: int) -> None:
        """See LinkUser."""
        state = self._partitions[partition]
        state.link = link
        state.appends.attach(generation, link.seq, link.version)
        self._drain(state)

    def detached(self, partition: int) -> None:
        """See LinkUser."""
        state = self._partitions[partition]
        state.link = None
        state.appends.detach()

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """See LinkUser."""
        touched: dict[int, _Partition] = {}
        for item in parse(bodies, link.version):
            number = item.partition if isinstance(item, FeedRun) else item.req_id.partition
            state = self._partitions.get(number)
            if state is None or state.link is not link:
                continue
            touched[number] = state
            if isinstance(item, FeedRun):
                state.appends.fed(item.records)
            else:
                state.appends.received(item)
        for number, state in touched.items():
            self._asker.saw(number, state.appends.mark)
            self._drain(state)

    async def _called(
        self,
        work: Coroutine[Any, Any, T],
        partition: int,
        sent: list[ReqId],
        timeout_seconds: float | None,
    ) -> T:
        """Do ``work``, which notes in ``sent`` what it leaves behind unresolved, in time."""
        self._calls += 1
        call = self._calls
        self._open_calls[call] = None
        try:
            async with asyncio.timeout(timeout_seconds):
                return await work
        except TimeoutError:
            if sent:
                reason = f"no outcome within {timeout_seconds:g} s"
                raise AppendUncertain(partition, sent[-1], reason) from None
            raise ClusterUnreachable(
                f"no server took an append to partition {partition} within {timeout_seconds:g} s, "
                "and nothing was sent: check that servers are running and reachable"
            ) from None
        finally:
            del self._open_calls[call]
            if self._flushers:
                self._tell_flushers()

    async def _append(self, partition: int, append: Append, sent: list[ReqId]) -> int:
        state = await self._partition(partition)
        size = len(append.data)
        while True:
            future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
            await self._enter(state, 1, size)
            try:
                state.appends.append(future, append)
                settled = await self._outcome(state, future, sent)
            finally:
                _leave(state, 1, size)
            if settled.outcome is Outcome.COMMITTED:
                return settled.number
            if settled.outcome is not Outcome.ABSENT:
                raise self._error(partition, settled, state.appends.mark)

    async def _append_batch(
        self, partition: int, appends: Sequence[Append], sent: list[ReqId]
    ) -> list[Settled]:
        state = await self._partition(partition)
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Settled]] = [loop.create_future() for _ in appends]
        count, size = len(appends), sum(len(append.data) for append in appends)
        await self._enter(state, count, size)
        try:
            state.appends.append_batch(futures, appends)
            settled = [await self._outcome(state, future, sent) for future in futures]
        finally:
            _leave(state, count, size)
        for each in settled:
            if each.outcome not in (Outcome.COMMITTED, Outcome.LOCK_FAILED, Outcome.ABSENT):
                raise self._error(partition, each, state.appends.mark)
        return settled

    async def _outcome(
        self, state: _Partition, future: asyncio.Future[Settled], sent: list[ReqId]
    ) -> Settled:
        self._drain(state)
        try:
            return await future
        except asyncio.CancelledError:
            req_id = state.appends.withdraw(future)
            if req_id is not None:
                sent.append(req_id)
            raise

    async def _enter(self, state: _Partition, count: int, size: int) -> None:
        """Be among those in flight, as soon as so much fits. With nothing there everything does.

        `_leave` must follow.
        """
        while (
            self._ended is None
            and state.in_flight
            and (
                state.in_flight + count > self._max_in_flight
                or state.in_flight_bytes + size > MAX_IN_FLIGHT_BYTES
            )
        ):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            state.queue.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled() and state.queue:
                    _wake(state.queue.popleft())
                raise
        self._check()
        state.in_flight += count
        state.in_flight_bytes += size

    async def _partition(self, number: int, mark: int | None = None) -> _Partition:
        """Return the partition, mounted from its high-water mark if this is its first use."""
        self._check()
        state = self._partitions.get(number)
        if state is not None:
            return state
        async with self._mounting[number]:
            if number not in self._partitions:
                if mark is None:
                    mark = await self._asker.mark(number)
                self._check()
                ids = RequestIds(self._client_id, number)
                appends = PartitionAppends(ids, mark, self._long_wait_seconds)
                self._partitions[number] = _Partition(appends)
                self._links.want(number)
            return self._partitions[number]

    def _error(self, partition: int, settled: Settled, mark: int) -> Exception:
        """Return the named error of an outcome that is an end and no success."""
        match settled.outcome:
            case Outcome.LOCK_FAILED:
                return LockFailed(partition, settled.number)
            case Outcome.AHEAD:
                return ClientAhead(partition, mark, settled.number)
            case Outcome.UNSUPPORTED:
                return ServerTooOld(partition, settled.number, "locks of that kind, or no batches")
            case Outcome.UNCERTAIN:
                assert settled.req_id is not None
                reason = "the log was lost" if self._ended is None else str(self._ended())
                return AppendUncertain(partition, settled.req_id, reason)
            case _:
                assert self._ended is not None
                return self._ended()

    def _check(self) -> None:
        if self._ended is not None:
            raise self._ended()

    def _drain(self, state: _Partition) -> None:
        """Send what the partition wants sent, and hand out its results."""
        appends = state.appends
        if appends.outgoing:
            outgoing, appends.outgoing = appends.outgoing, []
            if state.link is not None:
                state.link.send(outgoing)
        if appends.settled:
            settled, appends.settled = appends.settled, []
            for one in settled:
                future = cast("asyncio.Future[Settled]", one.token)
                if not future.done():
                    future.set_result(one)
        if not appends.idle:
            self._ticker.start()

    def _tick(self, now: float) -> bool:
        busy = False
        for state in self._partitions.values():
            if not state.appends.idle:
                busy = True
                state.appends.tick(now)
                self._drain(state)
        return busy

    def _tell_flushers(self) -> None:
        oldest = next(iter(self._open_calls), self._calls + 1)
        for last, future in self._flushers:
            if oldest > last:
                _wake(future)
        self._flushers = [(last, future) for last, future in self._flushers if not future.done()]


def _leave(state: _Partition, count: int, size: int) -> None:
    state.in_flight -= count
    state.in_flight_bytes -= size
    for _ in range(min(count, len(state.queue))):
        _wake(state.queue.popleft())


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
