"""Keep the open feeds of one partition and decide which one is due. Pure.

Source: spec/behaviour.md section 7.

A real-time feed is close to the log's end. Real-time feeds are served at each commit, the feed with
the lowest position first; a feed whose connection is congested is passed over. A catch-up feed is
far behind. Catch-up feeds take turns, so that they never delay the real-time feeds. A catch-up feed
whose connection is congested is parked until the client has read enough.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from waltz.protocol.client_server import FeedSuspended, MountResponse, encode
from waltz_server.core.peer import Peer
from waltz_server.core.reads.feed_cache import FRAME_BYTES, in_version

TURN_TRANSACTIONS = 512
"""Transactions that a feed gets in one turn."""


@dataclass(eq=False, slots=True)
class Feed:
    """One client's feed, which has reached ``position``.

    The feed ends after ``remaining`` more transactions; then the client gets the message ``end``.
    """

    peer: Peer
    position: int
    remaining: int
    end: FeedSuspended | MountResponse


class FeedSchedule:
    """The open feeds, one per connection, and which of them is due."""

    def __init__(self, realtime_threshold: int) -> None:
        self._threshold = realtime_threshold
        self._feeds: dict[Peer, Feed] = {}
        self._real_time: list[Feed] = []
        self._catch_up: deque[Feed] = deque()
        self._parked: set[Feed] = set()
        self.added = {"real-time": 0, "catchup": 0}
        """For metrics: how often a feed was queued as a feed of this kind."""
        self.removed = {"real-time": 0, "catchup": 0}
        """For metrics: how many feeds of both kinds reached their end (as real-time), and after how
        many turns a feed was queued again (as catchup)."""

    def open(self, feed: Feed, high_water_mark: int) -> None:
        """Begin ``feed``, which replaces the earlier feed of its connection."""
        self.close(feed.peer)
        self._feeds[feed.peer] = feed
        self._enqueue(feed, high_water_mark)

    def close(self, peer: Peer) -> None:
        """End the feed of a connection, if it has one."""
        feed = self._feeds.pop(peer, None)
        if feed is not None:
            self._real_time = [f for f in self._real_time if f is not feed]
            self._parked.discard(feed)
            if feed in self._catch_up:
                self._catch_up.remove(feed)

    def is_open(self, feed: Feed) -> bool:
        """Whether ``feed`` is still the feed of its connection."""
        return self._feeds.get(feed.peer) is feed

    def real_time(self) -> list[Feed]:
        """Return the real-time feeds, the lowest position first."""
        return sorted(self._real_time, key=lambda feed: feed.position)

    def next_catch_up(self) -> Feed | None:
        """Take the catch-up feed whose turn it is; the caller passes it to `turned` afterwards."""
        while self._catch_up:
            feed = self._catch_up.popleft()
            if not feed.peer.congested:
                return feed
            self._parked.add(feed)
        return None

    def turned(self, feed: Feed, high_water_mark: int) -> None:
        """Queue a feed again after its turn, as a real-time or a catch-up feed."""
        if self.is_open(feed):
            self.removed["catchup"] += 1
            self._enqueue(feed, high_water_mark)

    def unpark(self, peer: Peer, high_water_mark: int) -> bool:
        """Queue the feed of a connection if that feed is parked.

        Return whether the connection has a feed, parked or not.
        """
        feed = self._feeds.get(peer)
        if feed is None:
            return False
        if feed in self._parked:
            self._parked.discard(feed)
            self._enqueue(feed, high_water_mark)
        return True

    @property
    def any_catch_up(self) -> bool:
        """Whether a catch-up feed waits for its turn."""
        return bool(self._catch_up)

    @property
    def peers(self) -> list[Peer]:
        """The connections that are being fed."""
        return list(self._feeds)

    def serve(self, feed: Feed, frames: bytes) -> bytes:
        """Advance ``feed`` by the transactions of ``frames``; return the bytes to send.

        A feed that has no remaining transactions ends: its end message follows the frames.
        """
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
            self._real_time.append(feed)
            self.added["real-time"] += 1
        else:
            self._catch_up.append(feed)
            self.added["catchup"] += 1
