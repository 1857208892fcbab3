"""Keep the open feeds of one partition and decide which one is due. Pure.

Source: spec/behaviour.md section 7.

A feed that is close to the log's end when it is queued is a *real-time* feed, and remains one until
it ends. Real-time feeds are served at each commit, the feed with the lowest position first. A
real-time feed whose connection is congested is passed over. The other feeds are *catch-up* feeds.
They take turns, so that they never delay the real-time feeds. After its turn, a catch-up feed is
queued again, and may become a real-time feed. A catch-up feed whose connection is congested is
*parked* until the client has read enough.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from waltz.protocol.client_server import FeedSuspended, MountResponse, encode
from waltz_server.core.peer import Peer
from waltz_server.core.reads.feed_cache import FRAME_BYTES, in_version

TURN_TRANSACTIONS = 512
"""Transactions that a feed gets in one turn."""


class FeedKind(Enum):
    """How a feed is served."""

    REAL_TIME = "real-time"
    CATCH_UP = "catch-up"


@dataclass(eq=False, slots=True)
class Feed:
    """One client's feed. ``position`` is the last transaction that the client has got.

    The feed ends after ``remaining`` more transactions. Then the client gets ``end_message``: the
    answer to the mount that opened the feed, or FeedSuspended after a FeedRequest.
    ``kind`` is None before `FeedSchedule.open` and after the feed has ended.
    """

    peer: Peer
    position: int
    remaining: int
    end_message: FeedSuspended | MountResponse
    kind: FeedKind | None = None


class FeedSchedule:
    """The open feeds, one per connection, and which of them is due."""

    def __init__(self, realtime_threshold: int) -> None:
        self._threshold = realtime_threshold
        self._feeds: dict[Peer, Feed] = {}
        """The open feed of each connection. A catch-up feed in its turn is only here."""
        self._real_time: list[Feed] = []
        """The real-time feeds, in any order."""
        self._catch_up: deque[Feed] = deque()
        """The catch-up feeds that wait for their turn, in order."""
        self._parked: set[Feed] = set()
        """The parked catch-up feeds; `unpark` queues them again."""
        self.added = dict.fromkeys(FeedKind, 0)
        """For metrics: how many feeds began with this kind, or changed to it."""
        self.removed = dict.fromkeys(FeedKind, 0)
        """For metrics: how many feeds of this kind ended, or changed to the other kind.

        ``added`` minus ``removed`` is the number of the open feeds of a kind. A feed that waits for
        headers or is parked is still open."""

    def open(self, feed: Feed, high_water_mark: int) -> None:
        """Begin ``feed``, which replaces the earlier feed of its connection."""
        self.close(feed.peer)
        self._feeds[feed.peer] = feed
        self._enqueue(feed, high_water_mark)

    def close(self, peer: Peer) -> None:
        """End the feed of a connection, if it has one."""
        feed = self._feeds.pop(peer, None)
        if feed is not None:
            self._set_kind(feed, None)
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

    def take_catch_up(self) -> Feed | None:
        """Take the catch-up feed whose turn it is; park the congested ones before it.

        After the turn the caller calls `end_turn`. Return None if no feed can have a turn.
        """
        while self._catch_up:
            feed = self._catch_up.popleft()
            if not feed.peer.congested:
                return feed
            self._parked.add(feed)
        return None

    def end_turn(self, feed: Feed, high_water_mark: int) -> None:
        """Queue a feed again after its turn, as a real-time or a catch-up feed."""
        if self.is_open(feed):
            self._enqueue(feed, high_water_mark)

    def unpark(self, peer: Peer, high_water_mark: int) -> bool:
        """Queue the feed of a connection if that feed is parked.

        Return whether the connection has a feed. A real-time feed is never parked, but the caller
        must serve it now, too.
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

    def advance(self, feed: Feed, frames: bytes) -> bytes:
        """Advance ``feed`` by the transactions of ``frames``; return the bytes to send.

        Frames beyond its remaining transactions are left out. Without remaining transactions, the
        feed ends, and its end message follows the frames.
        """
        wanted = min(len(frames) // FRAME_BYTES, feed.remaining)
        feed.position += wanted
        feed.remaining -= wanted
        out = in_version(frames[: wanted * FRAME_BYTES], feed.peer.version)
        if feed.remaining == 0:
            out += encode(feed.end_message, feed.peer.version)
            self.close(feed.peer)
        return out

    def _enqueue(self, feed: Feed, high_water_mark: int) -> None:
        """Queue ``feed``, as a real-time feed if it is less than the threshold behind the mark."""
        if high_water_mark - feed.position < self._threshold:
            self._set_kind(feed, FeedKind.REAL_TIME)
            self._real_time.append(feed)
        else:
            self._set_kind(feed, FeedKind.CATCH_UP)
            self._catch_up.append(feed)

    def _set_kind(self, feed: Feed, kind: FeedKind | None) -> None:
        """Count the change of a feed's kind; None: the feed ends."""
        if kind is feed.kind:
            return
        if feed.kind is not None:
            self.removed[feed.kind] += 1
        if kind is not None:
            self.added[kind] += 1
        feed.kind = kind
