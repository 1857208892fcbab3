"""Test that each client is fed every transaction once and in order, even a slow one."""

from __future__ import annotations

import pytest

from tests.support.feed_world import NAMES, Client, feed, is_ready, mount, put, run, world_with
from tests.support.replication_world import World, append
from tests.support.store_world import kinds
from waltz.protocol import FrameDecoder, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol import storage as storage_messages
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.core.effects import RetryFeeds
from waltz_server.core.reads.feed_schedule import TURN_TRANSACTIONS, FeedKind


@pytest.mark.parametrize("version", range(5))
def test_mount_behind_the_mark_feeds_up_to_it_before_ready(version: int) -> None:
    world, client = world_with(30), Client(1, version)
    mount(world, client, 12)
    run(world, client)
    assert client.got == list(range(13, 31))
    assert len(client.messages) == 1
    assert is_ready(client.messages[0])
    put(world, client, 3)
    run(world, client)
    assert client.got[-1] == 30, "no feed until the client asks"


def test_mount_at_the_mark_is_ready_at_once_and_ends_the_former_feed() -> None:
    world, client = world_with(5), Client(1)
    mount(world, client, 5)
    feed(world, client, 5)
    mount(world, client, 5)
    put(world, client, 1)
    run(world, client)
    assert [is_ready(m) for m in client.messages] == [True, True]
    assert client.got == []


@pytest.mark.parametrize(("behind", "fed"), [(0, 10), (3, 10), (10, 10), (11, 11), (25, 25)])
def test_feed_is_suspended_after_its_distance_or_the_minimum_fetch(behind: int, fed: int) -> None:
    world, client = world_with(40), Client(1)
    mount(world, client, 40)
    feed(world, client, 40 - behind)
    put(world, client, 60)
    run(world, client)
    first = 41 - behind
    assert client.got == list(range(first, first + fed))
    assert [type(m) for m in client.messages] == [cs.MountResponse, cs.FeedSuspended]


def test_feed_request_before_a_mount_is_ignored() -> None:
    world, client = world_with(40), Client(1)
    feed(world, client, 0)
    run(world, client)
    assert client.got == client.messages == []


def test_commits_reach_real_time_feeds_at_once() -> None:
    world, client = world_with(-1), Client(3)
    mount(world, client, -1)
    feed(world, client, -1)
    world.core.append(
        client.peer, [append("x", client=3, seq=seq, header=seq * 7 - 3) for seq in range(4)]
    )
    world.settle()
    sent = b"".join(e.frames for e in world.frames() if e.peer is client.peer)
    decoder = FrameDecoder(CLIENT_SERVER)
    decoder.version = 4
    messages = [cs.decode(body, 4) for body in decoder.feed(sent)]
    assert messages[1:] == [cs.FeedData(ReqId(3, 1, 0, seq), seq, seq * 7 - 3) for seq in range(4)]
    assert world.core.feed_cache_misses == 0


def test_headers_read_from_storages_equal_those_appended() -> None:
    world, client, late = world_with(-1), Client(3), Client(4)
    mount(world, client, -1)
    for start in range(0, 300, 50):
        world.core.append(
            client.peer,
            [append("x", client=3, seq=s, header=s ^ 5) for s in range(start, start + 50)],
        )
        world.settle()
    world.take_events()
    mount(world, late, -1)
    run(world)
    sent = b"".join(e.frames for e in world.frames() if e.peer is late.peer)
    decoder = FrameDecoder(CLIENT_SERVER)
    decoder.version = 4
    messages = [cs.decode(body, 4) for body in decoder.feed(sent)]
    assert messages[:-1] == [cs.FeedData(ReqId(3, 1, 0, s), s, s ^ 5) for s in range(300)]
    assert is_ready(messages[-1])


def test_catch_up_feeds_take_turns() -> None:
    world = world_with(5000)
    clients = [Client(n) for n in (1, 2, 3)]
    for client in clients:
        mount(world, client, -1)
    seen: list[int] = []
    while world.turn():
        for client in clients:
            before = len(client.got)
            client.take(world)
            if len(client.got) > before:
                seen.append(client.number)
                assert len(client.got) - before <= TURN_TRANSACTIONS or len(client.got) > 4800
        reach = [len(c.got) for c in clients]
        assert max(reach) - min(reach) <= TURN_TRANSACTIONS or max(reach) > 4800
    assert all(c.got == list(range(5001)) for c in clients)
    assert all(len(c.messages) == 1 and is_ready(c.messages[0]) for c in clients)


def test_catch_up_feed_does_not_delay_a_real_time_feed() -> None:
    world, far, near = world_with(5000), Client(1), Client(2)
    mount(world, near, 5000)
    feed(world, near, 5000)
    mount(world, far, -1)
    put(world, near, 3)
    near.take(world)
    assert near.got == [5001, 5002, 5003]
    run(world, far, near)
    assert far.got == list(range(5001)), "as far as the log went when it mounted"


def test_catch_up_feed_of_a_congested_client_is_parked_until_it_drains() -> None:
    world, slow, quick = world_with(2000), Client(1, congested=True), Client(2)
    mount(world, slow, -1)
    mount(world, quick, -1)
    run(world, slow, quick)
    assert slow.got == []
    assert quick.got == list(range(2001))
    slow.drain(world)
    run(world, slow)
    assert slow.got == list(range(2001))
    assert len(slow.messages) == 1


def test_real_time_feed_of_a_congested_client_resumes_when_it_drains() -> None:
    world, client = world_with(20), Client(1)
    mount(world, client, 20)
    feed(world, client, 20)
    client.congest()
    put(world, client, 3)
    client.take(world)
    assert client.got == []
    client.drain(world)
    client.take(world)
    assert client.got == [21, 22, 23]


def test_drain_during_a_read_of_headers_does_not_duplicate_the_feed() -> None:
    """It was congested by another partition's feed, so that this one was not parked."""
    world, client, writer = world_with(1000), Client(1), Client(2)
    mount(world, writer, 1000)
    world.hold(*NAMES)
    mount(world, client, 400)
    world.turn()
    (reading_from,) = (name for name in NAMES if world.waiting(name))
    for _ in range(3):
        world.core.writable(client.peer)
        world.settle()
        world.turn()
    world.held = {reading_from}
    world.settle()
    put(world, writer, 1500)
    world.release(reading_from)
    for _ in range(100):
        world.turn()
        client.take(world)
        if client.messages:
            break
    assert client.got == list(range(401, 1001))
    feed(world, client, 1000)
    run(world, client)
    assert client.got == list(range(401, 2501))
    assert [type(m) for m in client.messages] == [cs.MountResponse, cs.FeedSuspended]


@pytest.mark.parametrize("limit", [1, 5, 48, 100])
def test_feed_goes_on_although_storages_return_fewer_headers_than_requested(limit: int) -> None:
    """A storage reads few headers at a time if the records are large."""
    world, client = world_with(1000), Client(1)
    for storage in world.storages.values():
        storage.read_limit = limit
    mount(world, client, 303)
    run(world, client)
    assert client.got == list(range(304, 1001))


def test_feeds_go_on_although_each_evicts_the_incomplete_block_of_the_others() -> None:
    """The cache holds two blocks, and three feeds need many reads for one block."""
    world, clients = world_with(1000), [Client(n) for n in (1, 2, 3)]
    for storage in world.storages.values():
        storage.read_limit = 5
    for client, mark in zip(clients, (303, 567, 831), strict=True):
        mount(world, client, mark)
    run(world, *clients)
    assert [client.got[-1] for client in clients] == [1000, 1000, 1000]
    num_reads = sum(kinds(world, name).count("RecordHeaderListRequest") for name in NAMES)
    assert num_reads <= 350, "a list that ended early is continued, not read again"


def test_failed_read_of_headers_is_retried_after_a_pause() -> None:
    world, client = world_with(1000), Client(1)
    for storage in world.storages.values():
        storage.refusing[storage_messages.RecordHeaderListRequest] = "damaged"
    mount(world, client, 5)
    run(world, client)
    assert client.got == []
    for storage in world.storages.values():
        storage.refusing.clear()
    assert world.wake(RetryFeeds) == 1.0
    run(world, client)
    assert client.got == list(range(6, 1001))


@pytest.mark.parametrize("behind", [False, True])
def test_failed_read_of_headers_is_not_repeated_by_commits_and_turns(behind: bool) -> None:
    world, client, other = world_with(1000), Client(1), Client(2)
    for storage in world.storages.values():
        storage.refusing[storage_messages.RecordHeaderListRequest] = "damaged"
    mount(world, other, 1000)
    for each in (client, Client(3)):
        mount(world, each, 5 if behind else 990)
        run(world, client)
    for _ in range(10):
        put(world, other, 1)
        run(world, client)
    errors = [note for note in world.notes if "cannot read headers for feeds" in note]
    assert len(errors) == 1
    assert world.wake(RetryFeeds) == 1.0
    run(world, client)
    errors = [note for note in world.notes if "cannot read headers for feeds" in note]
    assert len(errors) == 2


def test_lost_client_is_sent_no_more_feed() -> None:
    world, gone, other = world_with(1000), Client(1), Client(2)
    world.hold(*NAMES)
    mount(world, gone, 5)
    mount(world, other, 500)
    world.turn()
    world.core.lost(gone.peer)
    world.release(*NAMES)
    run(world, gone, other)
    assert gone.got == []
    assert other.got == list(range(501, 1001))


def open_feeds(world: World) -> dict[str, int]:
    """Return the number of open feeds of each kind, as the dashboard calculates it."""
    feeds = world.core.feeds
    return {kind.value: feeds.added[kind] - feeds.removed[kind] for kind in FeedKind}


def test_feed_counters_of_each_kind_balance_after_all_feeds_have_ended() -> None:
    world, clients = world_with(1500), [Client(n) for n in (1, 2)]
    for client in clients:
        mount(world, client, -1)
    assert open_feeds(world) == {"real-time": 0, "catch-up": 2}
    run(world, *clients)
    assert open_feeds(world) == {"real-time": 0, "catch-up": 0}
    assert world.core.feeds.added[FeedKind.CATCH_UP] == 2


def test_feed_counters_count_a_parked_feed_until_its_client_is_lost() -> None:
    world, client = world_with(1500), Client(1, congested=True)
    mount(world, client, -1)
    run(world, client)
    assert open_feeds(world) == {"real-time": 0, "catch-up": 1}
    client.drain(world)
    assert open_feeds(world) == {"real-time": 0, "catch-up": 1}
    world.core.lost(client.peer)
    assert open_feeds(world) == {"real-time": 0, "catch-up": 0}
    assert world.core.feeds.added[FeedKind.CATCH_UP] == 1


def test_feed_that_catches_up_is_counted_as_catch_up_and_as_real_time() -> None:
    world, client = world_with(1500), Client(1)
    mount(world, client, 1500)
    feed(world, client, -1)
    run(world, client)
    counts = {FeedKind.CATCH_UP: 1, FeedKind.REAL_TIME: 1}
    assert world.core.feeds.added == world.core.feeds.removed == counts


def test_feed_counters_count_one_feed_after_a_replacement() -> None:
    world, client = world_with(1500), Client(1)
    mount(world, client, 1500)
    for position in (1500, -1, 1500):
        feed(world, client, position)
    assert open_feeds(world) == {"real-time": 1, "catch-up": 0}
    world.core.lost(client.peer)
    assert open_feeds(world) == {"real-time": 0, "catch-up": 0}


def test_feeds_larger_than_the_cache_make_progress_in_turns() -> None:
    world = world_with(2000)
    clients = [Client(n) for n in range(1, 7)]
    for client in clients:
        mount(world, client, 300 * client.number - 301)
    for _ in range(2000):
        if not world.turn():
            break
    for client in clients:
        client.take(world)
        assert client.got == list(range(300 * client.number - 300, 2001))


def test_headers_for_two_feeds_are_read_one_read_after_the_other() -> None:
    """The answer to a read fits only the last request."""
    world, clients = world_with(3000), [Client(1), Client(2)]
    world.hold(*NAMES)
    mount(world, clients[0], 5)
    mount(world, clients[1], 2000)
    for _ in range(4):
        world.turn()
        world.settle()
    assert sum(len(world.waiting(name)) for name in NAMES) == 1
    world.release(*NAMES)
    run(world, *clients)
    assert [client.got for client in clients] == [list(range(6, 3001)), list(range(2001, 3001))]
    assert world.core.feed_cache_misses >= 2


def test_committed_transactions_are_fed_from_the_cache() -> None:
    world, writer, reader = world_with(100), Client(1), Client(2)
    mount(world, writer, 100)
    put(world, writer, 300)
    misses = world.core.feed_cache_misses
    mount(world, reader, 384)
    run(world, reader)
    assert reader.got == list(range(385, 401))
    assert world.core.feed_cache_misses == misses
