"""A partition and its clients: which appends are accepted, lock failures, flushes, mounts."""

from __future__ import annotations

from dataclasses import replace

from tests.support.partition_world import (
    NAMES,
    flush,
    log_of,
    mount,
    mounted,
    new_world,
    opened,
    put,
    take_messages,
)
from tests.support.replication_world import append
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.effects import DisconnectClient
from waltz_server.core.partition import PartitionSettings
from waltz_server.core.peer import Peer

# ---- permission to append


def test_append_before_any_mount_is_dropped() -> None:
    world = opened()
    put(world, Peer(4), append("1"))
    assert log_of(world) == []
    assert world.core.open_appends == 0


def test_newer_connection_replaces_the_stale_one() -> None:
    world = opened()
    old = mounted(world, 1)
    new = mount(world, 1, seq=1)
    assert take_messages(world, new)[-1].state is cs.MountState.READY
    put(world, old, append("stale"))
    put(world, new, append("current"))
    assert log_of(world) == ["current"]
    mount(world, 1, seq=0, peer=old)
    assert take_messages(world, old) == [], "a mount that lost the race gets no answer"
    world.core.feed(old, cs.FeedRequest(ReqId(1, 1, 0, 0), -1))
    world.settle()
    assert take_messages(world, old) == []


def test_mount_of_a_larger_generation_wins_over_a_larger_sequence_number() -> None:
    world = opened()
    old = mount(world, 1, seq=9)
    world.core.set_generation(2)
    world.settle()
    new = mounted(world, 1, generation=2)
    put(world, old, append("stale", generation=2))
    put(world, new, append("current", generation=2))
    assert log_of(world) == ["current"]


def test_any_connection_may_mount_after_the_former_is_lost() -> None:
    world = opened()
    first = mount(world, 1, seq=5)
    world.core.lost(first)
    second = mount(world, 1, seq=0)
    assert take_messages(world, second)[-1].state is cs.MountState.READY
    put(world, first, append("ghost"))
    put(world, second, append("real"))
    assert log_of(world) == ["real"]


def test_appends_of_another_generation_are_dropped() -> None:
    world = opened()
    peer = mounted(world, 1)
    put(world, peer, append("0", generation=0), append("1"), append("2", generation=2))
    assert log_of(world) == ["1"]


def test_flush_of_a_future_generation_is_answered_by_the_new_owner_only() -> None:
    """Another server may have committed what the client asks for: this log may end before it."""
    world = opened()
    peer = mounted(world, 1)
    flush(world, peer, 1, generation=2)
    assert take_messages(world, peer) == []
    flush(world, peer, 1, seq=1, generation=1)
    assert [each.req_id.seq for each in take_messages(world, peer)] == [1]


def test_mount_of_a_future_generation_is_not_ready() -> None:
    world = opened()
    peer = mount(world, 1, generation=2)
    assert [m.state for m in take_messages(world, peer)] == [cs.MountState.NOT_READY]


def test_mount_ahead_of_the_log_is_answered_client_ahead() -> None:
    world = opened(last=4)
    peers = [Peer(version) for version in (0, 2, 3, 4)]
    states = []
    for client, peer in enumerate(peers, 2):
        mount(world, client, 5, peer=peer)
        states.append(take_messages(world, peer)[-1].state)
    ahead = cs.MountState.CLIENT_AHEAD
    assert states == [cs.MountState.NOT_READY, cs.MountState.NOT_READY, ahead, ahead]


# ---- locks


def test_lock_failure_names_the_transaction_that_took_the_lock() -> None:
    world = opened()
    one, two = mounted(world, 1), mounted(world, 2)
    put(world, one, append("0"), append("1", write=(7,)), append("2"))
    take_messages(world, two)
    put(world, two, append("late", client=2, mark=0, write=(7,), seq=5))
    put(world, two, append("reader", client=2, mark=0, read=(7,), seq=6))
    failures = [m for m in take_messages(world, two) if isinstance(m, cs.LockFailure)]
    assert [(m.req_id.seq, m.transaction_id) for m in failures] == [(5, 1), (6, 1)]
    put(world, two, append("equal passes", client=2, mark=1, write=(7,)))
    put(world, two, append("unchecked", client=2, mark=-1, lock_only=(7,)))
    assert log_of(world) == ["0", "1", "2", "equal passes", "unchecked"]
    assert world.core.counters.refused == 2


def test_second_append_under_the_lock_of_an_undecided_append_waits() -> None:
    world = opened()
    one, two = mounted(world, 1), mounted(world, 2)
    world.hold(*NAMES)
    put(world, one, append("1", write=(7,)))
    put(world, two, append("2", client=2, write=(7,)), append("3", client=2))
    assert take_messages(world, two) == []
    world.release(*NAMES)
    (failure,) = (m for m in take_messages(world, two) if isinstance(m, cs.LockFailure))
    assert failure.transaction_id == 0
    assert log_of(world) == ["1", "3"]


def test_new_owner_treats_every_lock_as_taken_at_its_mark() -> None:
    world = opened(last=4)
    peer = mounted(world, 1, 4)
    put(world, peer, append("late", mark=3, write=(9,)))
    (failure,) = (m for m in take_messages(world, peer) if isinstance(m, cs.LockFailure))
    assert failure.transaction_id == 4


def test_returning_owner_treats_every_lock_as_taken_at_the_new_mark() -> None:
    """Another server owned the partition in between; this server gets it back before it noticed the
    loss.
    """
    world = opened()
    mounted(world, 1)
    state = ReplicaState(1, UNRESOLVED)
    world.metadata = PartitionMetadata(2, 1, dict.fromkeys(NAMES, state))
    world.version += 1
    for storage in world.storages.values():
        storage.serve_former_server(1, "others took lock 7")
    world.core.set_generation(3)
    world.settle()
    peer = mounted(world, 1, generation=3)
    put(world, peer, append("late", generation=3, mark=-1, write=(7,)))
    failures = [m for m in take_messages(world, peer) if isinstance(m, cs.LockFailure)]
    assert [m.transaction_id for m in failures] == [0]
    assert log_of(world) == ["others took lock 7"]


def test_append_before_the_session_keeps_its_lock_through_a_new_generation() -> None:
    """Appends of the new generation that are sent before the mount's answer wait as well."""
    world = opened()
    one = mounted(world, 1)
    world.hold(*NAMES)
    put(world, one, append("unresolved", write=(8,)))
    world.core.set_generation(2)
    world.settle()
    one = mount(world, 1, generation=2)
    two = mount(world, 2, generation=2)
    put(world, one, append("first", generation=2, write=(7,)))
    put(world, two, append("second", client=2, generation=2, write=(7,)))
    world.release(*NAMES)
    world.core.writable(one)
    world.settle()
    assert "second" not in log_of(world)
    assert [m.transaction_id for m in take_messages(world, two) if isinstance(m, cs.LockFailure)]


def test_append_before_the_session_is_refused_by_locks_of_another_owner() -> None:
    world = opened()
    mounted(world, 1)
    world.metadata = PartitionMetadata(2, 1, dict.fromkeys(NAMES, ReplicaState(1, UNRESOLVED)))
    world.version += 1
    for storage in world.storages.values():
        storage.serve_former_server(1, "others took lock 7")
    world.hold(*NAMES)
    world.core.set_generation(3)
    world.settle()
    peer = mount(world, 1, generation=3)
    put(world, peer, append("eager", generation=3, mark=-1, write=(7,)))
    world.release(*NAMES)
    failures = [m for m in take_messages(world, peer) if isinstance(m, cs.LockFailure)]
    assert [m.transaction_id for m in failures] == [0]
    assert log_of(world) == ["others took lock 7"]


# ---- mount and flush


def test_mounts_wait_for_the_first_session() -> None:
    world = new_world(last=2)
    peer = mount(world, 1, 2)
    assert take_messages(world, peer) == []
    world.connect()
    assert [m.state for m in take_messages(world, peer)] == [cs.MountState.READY]


def test_flush_is_answered_when_earlier_appends_are_resolved() -> None:
    world = opened()
    one, two = mounted(world, 1), mounted(world, 2)
    world.hold(*NAMES)
    put(world, one, append("1"))
    flush(world, one, 1, seq=11)
    put(world, two, append("2", client=2))
    flush(world, two, 2, seq=12)
    assert take_messages(world, one) == take_messages(world, two) == []
    world.release(*NAMES)
    (answer,) = (m for m in take_messages(world, one) if isinstance(m, cs.FlushResponse))
    assert (answer.req_id.seq, answer.transaction_id >= 0) == (11, True)
    (answer,) = (m for m in take_messages(world, two) if isinstance(m, cs.FlushResponse))
    assert answer.transaction_id == 1


def test_flush_behind_refused_appends_is_answered_at_once() -> None:
    world = opened(last=4)
    peer = mounted(world, 1, 4)
    put(world, peer, append("late", mark=0, write=(1,)))
    flush(world, peer, 1)
    assert [type(m) for m in take_messages(world, peer)] == [cs.LockFailure, cs.FlushResponse]


def test_flush_is_not_answered_while_a_former_owner_may_still_write() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    world.core.set_generation(2)
    world.settle()
    flush(world, peer, 1, generation=1)
    flush(world, peer, 1, generation=2)
    assert take_messages(world, peer) == []
    world.release(*NAMES)
    assert len(take_messages(world, peer)) == 2


def test_mark_is_unresolved_before_the_first_session() -> None:
    world = new_world(last=2)
    peer = Peer(4)
    world.core.read_mark(peer, cs.HighWaterMarkRequest(ReqId(-1, 0, 0, 1)))
    world.settle()
    assert take_messages(world, peer)[0].transaction_id == UNRESOLVED
    world.connect()
    world.core.read_mark(peer, cs.HighWaterMarkRequest(ReqId(-1, 0, 0, 1)))
    world.settle()
    assert take_messages(world, peer)[0].transaction_id == 2


def test_overload_begins_and_ends_with_the_number_of_open_appends() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, *(append("x") for _ in range(10_001)))
    assert world.core.overloaded
    world.release(*NAMES)
    assert not world.core.overloaded
    assert world.core.open_appends == 0


def test_feed_request_beyond_the_log_disconnects_the_client() -> None:
    world = opened(last=2)
    peer = mounted(world, 1, 2)
    world.core.feed(peer, cs.FeedRequest(ReqId(1, 1, 0, 0), 3))
    world.settle()
    (drop,) = (e for e in world.events if isinstance(e, DisconnectClient))
    assert drop.peer is peer
    assert "3" in drop.reason


def test_close_ends_feeds_and_answers_nothing_more() -> None:
    world = opened(replace(PartitionSettings(), feed_cache_bytes=1), last=200)
    world.hold(*NAMES)
    peer = mount(world, 1, 2)
    world.core.close()
    world.release(*NAMES)
    assert not world.turn()
    assert take_messages(world, peer) == []
    assert world.watched == frozenset()
