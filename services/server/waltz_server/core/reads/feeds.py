"""Who is fed from where: the feeds of one partition (spec/behaviour.md section 7). Pure.

A feed near the log's end is served as soon as something is committed, the one furthest behind
first; one that is far behind takes turns with others like it, so that it never delays them. A feed
whose client does not drain is parked until it does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from waltz.protocol.client_server import FeedSuspended, MountResponse, encode
from waltz_server.core.peer import Peer
from waltz_server.core.reads.feed_cache import FRAME_BYTES, in_version

TURN_TRANSACTIONS = 512
"""How much one feed gets in one turn."""


@dataclass(eq=False, slots=True)
class Feed:
    """One client's position: ``remaining`` transactions until its end message."""

    peer: Peer
    position: int
    remaining: int
    end: FeedSuspended | MountResponse


class Feeds:
    """The open feeds, one per connection, and which of them is due."""

    def __init__(self, realtime_threshold: int) -> None:
        self._threshold = realtime_threshold
        self._feeds: dict[Peer, Feed] = {}
        self._near: list[Feed] = []
        self._far: deque[Feed] = deque()
        self._parked: set[Feed] = set()
        self.added = {"real-time": 0, "catchup": 0}
        self.removed = {"real-time": 0, "catchup": 0}

    def open(self, feed: Feed, high_water_mark: int) -> None:
        """Begin ``feed``, in place of the connection's former one."""
        self.close(feed.peer)
        self._feeds[feed.peer] = feed
        self._enqueue(feed, high_water_mark)

    def close(self, peer: Peer) -> None:
        """End the feed of a connection, if it has one."""
        feed = self._feeds.pop(peer, None)
        if feed is not None:
            self._near = [f for f in self._near if f is not feed]
            self._parked.discard(feed)
            if feed in self._far:
                self._far.remove(feed)

    def is_open(self, feed: Feed) -> bool:
        """Whether ``feed`` is still its connection's."""
        return self._feeds.get(feed.peer) is feed

    def near(self) -> list[Feed]:
        """Return the feeds near the end of the log, least position first."""
        return sorted(self._near, key=lambda feed: feed.position)

    def next_far(self) -> Feed | None:
        """Take the feed whose turn it is to catch up; give it back with `turned`."""
        while self._far:
            feed = self._far.popleft()
            if not feed.peer.congested:
                return feed
            self._parked.add(feed)
        return None

    def turned(self, feed: Feed, high_water_mark: int) -> None:
        """A feed has had its turn; it queues again, near or far."""
        if self.is_open(feed):
            self.removed["catchup"] += 1
            self._enqueue(feed, high_water_mark)

    def unpark(self, peer: Peer, high_water_mark: int) -> bool:
        """The connection drains again; returns whether it has a feed."""
        feed = self._feeds.get(peer)
        if feed is None:
            return False
        if feed in self._parked:
            self._parked.discard(feed)
            self._enqueue(feed, high_water_mark)
        return True

    @property
    def any_far(self) -> bool:
        """Whether a feed waits for its turn to catch up."""
        return bool(self._far)

    @property
    def peers(self) -> list[Peer]:
        """The connections that are being fed."""
        return list(self._feeds)

    def serve(self, feed: Feed, frames: bytes) -> bytes:
        """Move ``feed`` over ``frames``, at most its remaining ones; return what to send."""
        wanted = min(len(frames) // FRAME_BYTES, feed.remaining)
        feed.position += wanted
        feed.remaining -= wanted
        out = in_version(frames[: wanted * FRAME_BYTES], feed.peer.version)
        if feed.remaining == 0:
            out += encode(feed.end, feed.peer.version)
            self.removed["real-time"] += 1
            self.close(feed.peer)
        return out

    def _enqueue(self, feed: Feed, high_water_mark: int) -> None:
        if high_water_mark - feed.position < self._threshold:
            self._near.append(feed)
            self.added["real-time"] += 1
        else:
            self._far.append(feed)
            self.added["catchup"] += 1
