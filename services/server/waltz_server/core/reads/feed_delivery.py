"""Deliver the feeds of one partition from the feed cache; read missing headers first. Pure.

A *feed* sends the committed transactions to a client, in order. `feed_schedule` explains real-time
feeds and catch-up feeds, and decides which feed is due. Headers that the cache lacks are read from
a replica, one read at a time. The feeds that need these headers wait and do not delay other feeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from waltz_server.core.effects import (
    LogLevel,
    Ready,
    RetryFeeds,
    ScheduleTurn,
    SendToClient,
    StartTimer,
    WriteLog,
)
from waltz_server.core.peer import Peer
from waltz_server.core.reads.feed_cache import (
    BLOCK_TRANSACTIONS,
    FRAME_BYTES,
    FeedCache,
    frames_of_headers,
)
from waltz_server.core.reads.feed_schedule import TURN_TRANSACTIONS, Feed, FeedSchedule
from waltz_server.core.reads.read_purposes import FeedHeaders
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone

_RETRY_SECONDS = 1.0
_HEADER_BLOCKS = 8
"""One read of headers covers at most this many blocks of the cache."""


@dataclass(slots=True)
class _HeaderRead:
    """A read of headers in progress.

    A storage may return fewer headers than requested. Then the rest is requested, until the headers
    reach ``needed_id``. Only then are all headers cached, together. If each part were cached when
    it arrived, commits could evict it before the feed is served, and the same headers would be read
    again and again. If the read fails, the headers that have arrived are cached: the next read
    begins after those that are still in the cache.
    """

    first_id: int
    """The first transaction to read."""
    needed_id: int
    """The transaction for which a feed waits."""
    end: int
    """The id after the last transaction to read."""
    frames: bytes = b""
    """The frames of the headers that have arrived."""

    @property
    def next_id(self) -> int:
        """The first transaction whose header has not arrived."""
        return self.first_id + len(self.frames) // FRAME_BYTES


class FeedDelivery:
    """Sends the due transactions to each feed."""

    def __init__(
        self,
        partition: int,
        feeds: FeedSchedule,
        cache: FeedCache,
        replicas: ReplicaReads,
        ready: Ready,
    ) -> None:
        self.feeds = feeds
        self.cache_misses = 0
        """Number of times that a feed needed headers that the cache lacked."""
        self._partition = partition
        self._cache = cache
        self._replicas = replicas
        self._ready = ready
        self._mark = -1
        """The log's high-water mark."""
        self._reading: _HeaderRead | None = None
        """The read of headers in progress."""
        self._failed_id: int | None = None
        """`_HeaderRead.needed_id` of a failed read, until its retry is due."""
        self._waiting: list[Feed] = []
        """Catch-up feeds in their turn, which wait for the read in progress or for a retry. Then
        `resume` serves them and ends their turn."""

    def open(self, feed: Feed) -> None:
        """Begin ``feed``, which replaces the earlier feed of its connection."""
        self.feeds.open(feed, self._mark)
        self.serve()

    def opened(self, mark: int) -> None:
        """Note that a store session has opened at ``mark``. The caller then calls `serve`."""
        self._mark = mark

    def committed(self, mark: int, first_id: int, frames: bytes) -> None:
        """Note that the log has grown to ``mark``, by ``frames``. The caller then calls `serve`."""
        self._mark = mark
        self._cache.put(first_id, frames)

    def writable(self, peer: Peer) -> None:
        """Continue the feed of a connection that is no longer congested."""
        if self.feeds.unpark(peer, self._mark):
            self.serve()

    def turn(self) -> None:
        """Give one catch-up feed its turn."""
        feed = self.feeds.take_catch_up()
        if feed is not None:
            is_served = self._serve_feed(feed, {})
            waits_for_retry = feed.position + 1 == self._failed_id
            if not is_served and (self._reading is not None or waits_for_retry):
                # The feed got nothing, and a read of headers is in progress or will be retried. The
                # feed's turn ends after that. Otherwise, it would take turns without a result.
                self._waiting.append(feed)
            else:
                self.feeds.end_turn(feed, self._mark)
        # The feed may have become a real-time feed. Without this call, it would wait for a commit.
        self.serve()

    def serve(self, fresh: dict[int, bytes] | None = None) -> None:
        """Serve the real-time feeds, and request a turn if a catch-up feed waits.

        ``fresh`` has the frames of the transactions just committed, by their first id; None: there
        are none.
        """
        known = dict(fresh or {})
        for feed in self.feeds.real_time():
            while feed.remaining and self._serve_feed(feed, known):
                pass
        if self.feeds.any_catch_up:
            self._ready.add(ScheduleTurn())

    def read_done(self, done: ReadDone) -> None:
        """Note the result of a request for headers.

        Request the headers that are still missing. If the read is complete, serve the feeds that
        waited for it. If it failed, start the timer of a retry.
        """
        read = self._reading
        assert read is not None, "headers arrived that were not requested"
        read.frames += frames_of_headers(done.headers or ())
        if done.error is None and read.next_id <= read.needed_id:
            self._request_headers(read)
            return
        self._reading = None
        self._cache.put(read.first_id, read.frames)
        if done.error is not None:
            self._failed_id = read.needed_id
            self._ready.add(
                WriteLog(
                    LogLevel.ERROR,
                    f"partition {self._partition}: cannot read headers for feeds: {done.error};"
                    f" retrying in {_RETRY_SECONDS:g} s",
                )
            )
            self._ready.add(StartTimer(_RETRY_SECONDS, RetryFeeds()))
        else:
            self.resume()

    def resume(self) -> None:
        """Serve the feeds that waited for headers, and end their turn.

        Meanwhile no other read begins (``may_read``): its headers could evict those that were read
        for these feeds. This is also the retry after a failed read. Then the cache may lack the
        headers, and the next turns of these feeds read them.
        """
        self._failed_id = None
        waiting = [feed for feed in self._waiting if self.feeds.is_open(feed)]
        self._waiting = []
        for feed in waiting:
            self._serve_feed(feed, {}, may_read=False)
        for feed in waiting:
            self.feeds.end_turn(feed, self._mark)
        self.serve()

    def _serve_feed(self, feed: Feed, known: dict[int, bytes], *, may_read: bool = True) -> bool:
        """Serve ``feed`` from memory; return whether it was served.

        A feed at the log's end, a feed of a congested connection, and a feed whose next header is
        not in memory are not served. In the last case, the missing headers are read, if
        ``may_read``. ``known`` has frames by their first id; this function adds those that it finds
        in the cache, so that feeds at the same position share a lookup.
        """
        first_id = feed.position + 1
        if first_id > self._mark or feed.peer.congested:
            return False
        frames = known.get(first_id) or self._cache.get(
            first_id, min(TURN_TRANSACTIONS, self._mark - feed.position)
        )
        if not frames:
            if may_read:
                self.cache_misses += 1
                self._fetch(first_id)
            return False
        known[first_id] = frames
        self._ready.add(SendToClient(feed.peer, self.feeds.advance(feed, frames)))
        return True

    def _fetch(self, first_id: int) -> None:
        """Read headers up to ``first_id`` and further, unless a read is under way.

        Do nothing either while a failed read of this header waits for its retry. The read begins
        with the first header that is not cached in the block of ``first_id``, because a block of
        the cache has no gap.
        """
        if self._reading is not None or first_id == self._failed_id:
            return
        # The start is at most ``first_id``, because ``first_id`` is not cached.
        start = self._cache.first_uncached_in_block(first_id)
        block_start = first_id - first_id % BLOCK_TRANSACTIONS
        # More blocks than the cache holds would evict each other.
        count = min(_HEADER_BLOCKS, self._cache.capacity_blocks) * BLOCK_TRANSACTIONS
        end = min(block_start + count, self._mark + 1)
        self._reading = _HeaderRead(start, first_id, end)
        self._request_headers(self._reading)

    def _request_headers(self, read: _HeaderRead) -> None:
        """Request the headers that ``read`` still lacks."""
        self._replicas.read_headers(read.next_id, read.end - read.next_id, FeedHeaders())
