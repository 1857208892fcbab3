"""Which feed is due, and which feeds are left after one has ended."""

from __future__ import annotations

import pytest

from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer
from waltz_server.core.reads.feed_cache import FRAME_BYTES, feed_frames
from waltz_server.core.reads.feed_schedule import Feed, FeedKind, FeedSchedule

MARK = 1000
THRESHOLD = 100


def feed(position: int, remaining: int = 1000, peer: Peer | None = None) -> Feed:
    end = cs.FeedSuspended(ReqId(1, 1, 0, 0))
    return Feed(Peer(7) if peer is None else peer, position, remaining, end)


def opened(*positions: int) -> tuple[FeedSchedule, list[Feed]]:
    schedule = FeedSchedule(THRESHOLD)
    feeds = [feed(position) for position in positions]
    for each in feeds:
        schedule.open(each, MARK)
    return schedule, feeds


def frames(first_id: int, count: int) -> bytes:
    return feed_frames(first_id, [(bytes(16), bytes(4))] * count)


@pytest.mark.parametrize(
    ("behind", "kind"),
    [(0, FeedKind.REAL_TIME), (99, FeedKind.REAL_TIME), (100, FeedKind.CATCH_UP)],
)
def test_feed_is_a_real_time_feed_below_the_threshold(behind: int, kind: FeedKind) -> None:
    schedule, (only,) = opened(MARK - behind)
    assert only.kind is kind
    assert schedule.real_time() == ([only] if kind is FeedKind.REAL_TIME else [])
    assert schedule.any_catch_up is (kind is FeedKind.CATCH_UP)


def test_real_time_feeds_are_served_from_the_lowest_position() -> None:
    schedule, (first, second, third) = opened(MARK - 5, MARK - 9, MARK - 1)
    assert schedule.real_time() == [second, first, third]


def test_catch_up_feeds_take_turns_in_their_order() -> None:
    schedule, (first, second) = opened(0, 1)
    assert schedule.take_catch_up() is first
    schedule.end_turn(first, MARK)
    assert schedule.take_catch_up() is second
    assert schedule.take_catch_up() is first
    assert schedule.take_catch_up() is None


@pytest.mark.parametrize("position", [0, MARK])
def test_closed_feed_is_not_due_any_more(position: int) -> None:
    schedule, (closed, other) = opened(position, position)
    schedule.close(closed.peer)
    assert not schedule.is_open(closed)
    assert schedule.peers == [other.peer]
    assert closed not in schedule.real_time()
    due = [schedule.take_catch_up() for _ in range(3)]
    assert closed not in due
    schedule.end_turn(closed, MARK)
    assert closed not in schedule.real_time()
    assert schedule.take_catch_up() is not closed


def test_closed_parked_feed_is_not_queued_when_its_connection_drains() -> None:
    schedule, (parked,) = opened(0)
    parked.peer.congested = True
    assert schedule.take_catch_up() is None
    schedule.close(parked.peer)
    parked.peer.congested = False
    assert not schedule.unpark(parked.peer, MARK)
    assert not schedule.any_catch_up
    again = feed(MARK, peer=parked.peer)
    schedule.open(again, MARK)
    assert schedule.unpark(parked.peer, MARK), "the connection has a feed, which is not parked"
    assert schedule.real_time() == [again], "and it is queued once"


def test_new_feed_of_a_connection_replaces_the_earlier_one() -> None:
    schedule, (early, real_time) = opened(0, MARK)
    late, later = feed(5, peer=early.peer), feed(MARK - 1, peer=real_time.peer)
    schedule.open(late, MARK)
    schedule.open(later, MARK)
    assert schedule.take_catch_up() is late
    assert schedule.take_catch_up() is None
    assert schedule.real_time() == [later]
    assert schedule.removed == {FeedKind.REAL_TIME: 1, FeedKind.CATCH_UP: 1}


def test_feed_that_is_replaced_during_its_turn_is_not_queued_again() -> None:
    schedule, (early,) = opened(0)
    assert schedule.take_catch_up() is early
    late = feed(5, peer=early.peer)
    schedule.open(late, MARK)
    schedule.end_turn(early, MARK)
    assert schedule.take_catch_up() is late
    assert schedule.take_catch_up() is None


def test_bounded_feed_ends_after_its_remaining_transactions() -> None:
    schedule = FeedSchedule(THRESHOLD)
    only = feed(MARK - 50, remaining=3)
    schedule.open(only, MARK)
    out = schedule.advance(only, frames(MARK - 49, 2))
    assert out == frames(MARK - 49, 2)
    assert (only.position, only.remaining) == (MARK - 48, 1)
    assert schedule.is_open(only)
    out = schedule.advance(only, frames(MARK - 47, 5))
    assert out == frames(MARK - 47, 1) + cs.encode(only.end_message, 7)
    assert len(out) > FRAME_BYTES
    assert (only.position, only.remaining) == (MARK - 47, 0)
    assert not schedule.is_open(only)
    assert schedule.real_time() == []
    assert schedule.removed == {FeedKind.REAL_TIME: 1, FeedKind.CATCH_UP: 0}
