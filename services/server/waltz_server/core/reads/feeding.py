"""Feeds one partition's clients from the cache, and reads into the cache what is missing. Pure.

`Feeds` knows who is due; here is what they get. Headers that are not in the cache are read from a
replica, one read at a time, and feeds that need them wait without holding up the others.
"""

from __future__ import annotations

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
from waltz_server.core.reads.feed_cache import BLOCK_TRANSACTIONS, FeedCache, frames_of_headers
from waltz_server.core.reads.feeds import TURN_TRANSACTIONS, Feed, Feeds
from waltz_server.core.reads.read_purposes import FeedHeaders
from waltz_server.core.replication.replica_reads import ReplicaReads
from waltz_server.core.store_reports import ReadDone

_RETRY_SECONDS = 1.0
_HEADER_BLOCKS = 8


class Feeding:
    """Delivers to feeds what is due."""

    def __init__(
        self,
        partition: int,
        feeds: Feeds,
        cache: FeedCache,
        replicas: ReplicaReads,
        ready: Ready,
    ) -> None:
        self.feeds = feeds
        self.cache_misses = 0
        self._partition = partition
        self._cache = cache
        self._replicas = replicas
        self._ready = ready
        self._mark = -1
        self._fetching = False
        self._waiting: list[Feed] = []
        """Feeds that have had their turn as soon as the headers under way are here."""

    def open(self, feed: Feed) -> None:
        """Begin ``feed``, in place of the connection's former one."""
        self.feeds.open(feed, self._mark)
        self.serve()

    def opened(self, mark: int) -> None:
        """The log ends at ``mark``: a store session has opened there. `serve` must follow."""
        self._mark = mark

    def committed(self, mark: int, first_id: int, frames: bytes) -> None:
        """The log has grown to ``mark``, by what is in ``frames``. `serve` must follow."""
        self._mark = mark
        self._cache.put(first_id, frames)

    def writable(self, peer: Peer) -> None:
        """A congested connection drains again."""
        if self.feeds.unpark(peer, self._mark):
            self.serve()

    def turn(self) -> None:
        """Give one far-behind feed its turn."""
        feed = self.feeds.next_far()
        if feed is not None:
            served = self._serve(feed, {})
            if served or not self._fetching:
                self.feeds.turned(feed, self._mark)
            else:
                self._waiting.append(feed)
        # The turn may have brought the feed near the end, where nobody else comes to serve it.
        self.serve()

    def serve(self, fresh: dict[int, bytes] | None = None) -> None:
        """Serve the feeds near the end of the log; ``fresh`` are frames by their first id."""
        known = dict(fresh or {})
        for feed in self.feeds.near():
            while feed.remaining and self._serve(feed, known):
                pass
        if self.feeds.any_far:
            self._ready.add(ScheduleTurn())

    def read_done(self, done: ReadDone) -> None:
        """The headers that were read have come, or could not be read."""
        self._fetching = False
        if done.headers:
            first_id = done.headers[0].transaction_id
            self._cache.put(first_id, frames_of_headers(done.headers))
        if done.error is not None:
            self._ready.add(WriteLog(LogLevel.ERROR, f"partition {self._partition}: {done.error}"))
            self._ready.add(StartTimer(_RETRY_SECONDS, RetryFeeds()))
        else:
            self.resume()

    def resume(self) -> None:
        """Serve who waited for headers, before another read displaces them."""
        waiting = [feed for feed in self._waiting if self.feeds.is_open(feed)]
        self._waiting = []
        for feed in waiting:
            self._serve(feed, {}, may_read=False)
        for feed in waiting:
            self.feeds.turned(feed, self._mark)
        self.serve()

    def _serve(self, feed: Feed, known: dict[int, bytes], *, may_read: bool = True) -> bool:
        """Serve one feed from the cache, or ask for what is missing; returns whether it moved."""
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
        self._ready.add(SendToClient(feed.peer, self.feeds.serve(feed, frames)))
        return True

    def _fetch(self, first_id: int) -> None:
        """Read the headers of the blocks from that of ``first_id`` on, unless a read is on."""
        if self._fetching:
            return
        self._fetching = True
        start = first_id - first_id % BLOCK_TRANSACTIONS
        count = min(_HEADER_BLOCKS, self._cache.capacity_blocks) * BLOCK_TRANSACTIONS
        self._replicas.headers(start, min(count, self._mark + 1 - start), FeedHeaders())
