"""A stream of a `Client`: its feeds, its buffer, and its batches. Touches the network.

A stream with data requests ranges of records (`waltz.client.stream_ranges`). A stream uses feeds
instead if it is without data, or if a server is too old for ranges. The *feed* of a partition has
its transactions in order, without their data. To begin a feed, the stream *mounts* the partition:
it tells the partition's server after which transaction the feed begins. The feeds of a stream have
connections and a client id of their own, so they are independent of the client's appends and of
other streams. `waltz.client.core.feed` keeps the order and drops repeated transactions.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from waltz.client.core.codec import (
    FEED_TRANSACTION_ID,
    FeedRecord,
    FeedRun,
    parse,
)
from waltz.client.core.deserializing import Deserializer
from waltz.client.core.directory import Directory
from waltz.client.core.errors import (
    ITERATED_TWICE,
    ClientAhead,
    ClientClosed,
    PermissionDenied,
)
from waltz.client.core.feed import PartitionFeed
from waltz.client.core.log_stream import LogStream
from waltz.client.core.mount import Phase, RequestIds
from waltz.client.core.values import DataT_co, Transaction
from waltz.client.link import ServerLink
from waltz.client.links import Links
from waltz.client.request_client import RequestClient
from waltz.client.stream_data import FedData
from waltz.client.stream_ranges import (
    BATCH_TRANSACTIONS,
    StreamRanges,
    fed_transaction,
    read_batches,
)
from waltz.client.ticker import Ticker
from waltz.net import Dialer, decode_received


@dataclass(frozen=True, slots=True)
class StreamDependencies:
    """The parts of a client that its streams use."""

    directory: Directory
    dialer: Dialer
    request_client: RequestClient
    new_client_id: Callable[[], Awaitable[int]]
    deserializer: Deserializer
    buffer: int
    """The number of fed transactions that a stream holds before it stops reading."""

    count_received: Callable[[int, int], None]
    """Called with a partition, and the number of its transactions that the application got."""

    on_end: Callable[[ServerStream[Any]], None]
    """Called when a stream is closed."""


class ServerStream(LogStream[DataT_co]):
    """A stream of a `Client`. Implements `waltz.client.links.LinkUser`.

    ``after`` maps each partition to the transaction after which the stream begins. ``until`` maps
    partitions to their last transactions. A partition without one never ends: the stream waits for
    its next transaction.
    """

    def __init__(
        self,
        dependencies: StreamDependencies,
        after: Mapping[int, int],
        until: Mapping[int, int],
        *,
        data: bool,
    ) -> None:
        self._dependencies = dependencies
        self._after = dict(after)
        self._until = dict(until)
        self._with_data = data
        self._ranges: StreamRanges | None = None
        """The requests of a stream with data; None before `batches` begins, and after `aclose`."""
        self._feeds: dict[int, PartitionFeed] = {}
        """The feed of each partition; empty until the stream uses feeds."""
        self._link_of: dict[int, ServerLink] = {}
        """The link to the server of each partition, from `attached` to `detached`."""
        self._links: Links | None = None
        """The stream's own connections; None until it uses feeds."""
        self._ticker = Ticker(self._tick)
        self._buffer: deque[list[FeedRecord]] = deque()
        """The fed transactions that `batches` has not taken."""
        self._buffered = 0
        """The number of transactions in ``_buffer``."""
        self._paused = False
        """Whether the stream does not read from its connections; see `_pause`."""
        self._failure: Exception | None = None
        """The error that ends the stream, from `fail` or `_check_feed`; None before."""
        self._changed = asyncio.Event()
        """Set when records or answers arrive, when the stream fails, and when it is closed."""
        self._begun = False
        """Whether a loop over `batches` has begun."""
        self._closed = False

    @override
    async def batches(self) -> AsyncIterator[list[Transaction[DataT_co]]]:
        # Refuse a second loop before the ``try``, whose end would close the stream of the first.
        if self._begun:
            raise ClientClosed(ITERATED_TWICE)
        if self._closed:
            raise ClientClosed
        self._begun = True
        try:
            async for batch in self._from_ranges_or_feeds():
                self._count_received(batch)
                yield batch
        finally:
            await self.aclose()

    def fail(self, error: Exception) -> None:
        """Make `batches` yield the transactions that have arrived, and then raise ``error``."""
        if self._failure is None:
            self._failure = error
        if self._links is not None:
            self._links.end()
        self._changed.set()

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._ticker.stop()
        if self._ranges is not None:
            # Here, not only at the end of `batches`: an iterator that is kept, as by `waltz.sync`,
            # does not end, and the requests would go on.
            self._ranges.end()
            self._ranges = None
        self._changed.set()
        self._dependencies.on_end(self)
        if self._links is not None:
            await self._links.close()

    def attached(self, partition: int, link: ServerLink, generation: int) -> None:
        """See LinkUser."""
        self._link_of[partition] = link
        self._feeds[partition].attach(generation, link.seq, link.version)
        self._perform(partition)
        self._ticker.start()

    def detached(self, partition: int) -> None:
        """See LinkUser."""
        self._link_of.pop(partition, None)
        self._feeds[partition].detach()

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """See LinkUser."""
        for item in decode_received(parse, bodies, link.version):
            partition = item.partition if isinstance(item, FeedRun) else item.req_id.partition
            if self._link_of.get(partition) is not link:
                continue  # The partition has another link by now: the message is out of date.
            if isinstance(item, FeedRun):
                self._feeds[partition].feed_received(item.records)
            else:
                self._feeds[partition].received(item)
                self._check_feed(partition)
            self._perform(partition)
        # The ticker stops when all partitions are mounted. If an answer then ends a mount, only a
        # tick mounts the partition again: so start the ticker. This is a precaution, because so far
        # only the denial of a feed request ends a mount, and then the stream fails (`_check_feed`).
        self._ticker.start()
        if self._buffered >= self._dependencies.buffer:
            self._pause()

    async def _from_ranges_or_feeds(self) -> AsyncIterator[list[Transaction[Any]]]:
        """Yield the transactions: those with data from ranges, those without data from feeds.

        If a server is too old for ranges, continue with feeds, and read the data of each
        transaction by a separate request.
        """
        if not self._with_data:
            await self._start_feeds(self._after)
            async for batch in self._from_feeds():
                yield batch
            return
        ranges = self._ranges = StreamRanges(
            self._dependencies.request_client, self._after, self._until, wake=self._changed.set
        )
        batches = read_batches(
            ranges,
            wait_for_change=self._wait_unless_failed,
            deserializer=self._dependencies.deserializer,
        )
        async with aclosing(batches) as arriving:
            async for batch in arriving:
                yield batch
        if ranges.unsupported is not None:
            await self._start_feeds(ranges.positions)
            async for batch in self._from_feeds_with_data():
                yield batch

    async def _start_feeds(self, after: Mapping[int, int]) -> None:
        """Take a client id, and begin the feeds of the partitions that are not complete.

        ``after`` maps each partition to the transaction after which its feed begins. Raises the
        error of a stream that has failed or was closed meanwhile.
        """
        client_id = await self._dependencies.new_client_id()
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise ClientClosed
        dependencies = self._dependencies
        self._links = Links(dependencies.directory, dependencies.dialer, self)
        for partition, mark in after.items():
            if partition not in self._until or mark < self._until[partition]:
                self._feeds[partition] = PartitionFeed(RequestIds(client_id, partition), mark)
        for partition in self._feeds:
            self._links.want(partition)

    def _buffer_records(self, partition: int, records: list[FeedRecord]) -> None:
        """Buffer fed transactions, except those after the partition's last one in ``_until``."""
        last_id = self._until.get(partition)
        if last_id is not None and records and records[-1][FEED_TRANSACTION_ID] > last_id:
            records = [record for record in records if record[FEED_TRANSACTION_ID] <= last_id]
        if records:
            self._dependencies.request_client.note_mark(partition, records[-1][FEED_TRANSACTION_ID])
            self._buffer.append(records)
            self._buffered += len(records)
            self._changed.set()

    def _count_received(self, batch: list[Transaction[Any]]) -> None:
        """Count the transactions of a batch for the metrics of their partitions."""
        counts = Counter(transaction.partition for transaction in batch)
        for partition, count in counts.items():
            self._dependencies.count_received(partition, count)

    @property
    def _complete(self) -> bool:
        """Whether every partition has a last transaction in ``_until``, and it was fed."""
        return all(
            partition in self._until and feed.position >= self._until[partition]
            for partition, feed in self._feeds.items()
        )

    async def _next_records(self) -> list[FeedRecord] | None:
        """Wait for fed transactions; remove and return up to `BATCH_TRANSACTIONS` of them.

        Returns None at the end of the stream. Raises the error of a stream that has failed, after
        all buffered transactions were returned.
        """
        while not self._buffer:
            if self._complete and self._failure is None:
                return None
            await self._wait_unless_failed()
        records: list[FeedRecord] = []
        while self._buffer and len(records) < BATCH_TRANSACTIONS:
            run = self._buffer.popleft()
            room = BATCH_TRANSACTIONS - len(records)
            if len(run) > room:
                self._buffer.appendleft(run[room:])
                run = run[:room]
            records += run
        self._buffered -= len(records)
        # Not before half of the buffer is free: otherwise a few transactions would fill it again,
        # and the stream would pause and resume for each batch.
        if self._paused and self._buffered <= self._dependencies.buffer // 2:
            self._resume()
        return records

    async def _wait(self) -> None:
        """Wait until ``_changed`` is set next. Raises ClientClosed if the stream is closed."""
        if self._closed:
            raise ClientClosed
        self._changed.clear()
        await self._changed.wait()

    async def _wait_unless_failed(self) -> None:
        """Raise the error of a stream that has failed; otherwise do the same as `_wait`."""
        if self._failure is not None:
            raise self._failure
        await self._wait()

    async def _from_feeds(self) -> AsyncIterator[list[Transaction[Any]]]:
        """Yield the fed transactions without data."""
        while (records := await self._next_records()) is not None:
            yield [fed_transaction(record, None) for record in records]

    async def _from_feeds_with_data(self) -> AsyncIterator[list[Transaction[Any]]]:
        """Yield the fed transactions in order, with data that is read ahead in limited memory."""
        dependencies = self._dependencies
        reads = FedData(
            dependencies.request_client,
            dependencies.deserializer,
            on_answer=self._changed.set,
            end_error=lambda: self._failure or ClientClosed(),
        )
        while (records := await self._next_records()) is not None:
            unread = deque(records)
            while unread or reads:
                while unread and reads.has_room():
                    reads.request(unread.popleft())
                if reads.can_take():
                    batch = reads.take()
                    if batch:  # It is empty if all its transactions are skipped.
                        yield batch
                else:
                    # Not `_wait_unless_failed`: if the stream has failed, the transactions whose
                    # data have arrived are yielded first. Then `reads.take` or `_next_records`
                    # raises the error.
                    await self._wait()

    def _check_feed(self, partition: int) -> None:
        """Make the stream fail if a feed was denied, or the log ends before the feed's position."""
        feed = self._feeds[partition]
        if feed.denial is not None and self._failure is None:
            self._failure = PermissionDenied(partition, feed.denial)
            self._changed.set()
        if feed.log_mark_behind is not None and self._failure is None:
            self._failure = ClientAhead(partition, feed.position, feed.log_mark_behind)
            self._changed.set()

    def _pause(self) -> None:
        """Send no more feed requests and stop reading, because the buffer is full.

        TCP then makes the servers wait, so that the buffer does not grow further.
        """
        self._paused = True
        for feed in self._feeds.values():
            feed.want(False)
        for link in set(self._link_of.values()):
            link.pause()

    def _resume(self) -> None:
        """Send feed requests and read again, because the buffer has room."""
        self._paused = False
        for partition, feed in self._feeds.items():
            feed.want(True)
            self._perform(partition)
        for link in set(self._link_of.values()):
            link.resume()

    def _perform(self, partition: int) -> None:
        """Send the messages that a feed has produced, and buffer its new transactions."""
        effects, link = self._feeds[partition].effects, self._link_of.get(partition)
        messages = effects.take_messages()
        # Without a link, drop the messages: `attach` produces again those that are still needed.
        if messages and link is not None:
            link.send(messages)
        self._buffer_records(partition, effects.take_results())

    def _tick(self, now: float) -> bool:
        """Mount partitions again if that is due; return whether a partition is not mounted."""
        for partition, feed in self._feeds.items():
            feed.tick(now)
            self._perform(partition)
        return any(feed.mount.phase is not Phase.MOUNTED for feed in self._feeds.values())
