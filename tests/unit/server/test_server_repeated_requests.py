"""A client that repeats its mounts or flushes on one connection, because no session is open."""

from __future__ import annotations

from tests.support.partition_world import (
    NAMES,
    flush,
    mounted,
    new_world,
    opened,
    put,
    take_messages,
)
from tests.support.replication_world import World, append
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.peer import Peer


def mount_again(world: World, peer: Peer, seq: int, mark: int = -1) -> None:
    request = cs.MountRequest(ReqId(1, 1, 0, seq), mark, 0)
    world.core.mount(peer, request)
    world.settle()


def answered(world: World, peer: Peer) -> list[int]:
    """Return the sequence numbers of the mounts that are answered as ready."""
    messages = [m for m in take_messages(world, peer) if isinstance(m, cs.MountResponse)]
    assert all(m.state is cs.MountState.READY for m in messages)
    return [m.req_id.seq for m in messages]


def num_barriers(world: World) -> int:
    queue = world.core._queue
    return len(queue._placed_barriers) + len(queue._barriers_behind_waiters) + len(queue._arrived)


def test_mounts_that_are_repeated_on_one_connection_are_one_barrier() -> None:
    world, peer = new_world(last=2), Peer(4)
    for seq in range(1000):
        mount_again(world, peer, seq, mark=2)
    assert num_barriers(world) == 1
    world.connect()
    assert answered(world, peer) == [999]
    mount_again(world, peer, 1000, mark=2)
    assert answered(world, peer) == [1000]


def test_repeated_mount_waits_for_the_appends_before_it() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, append("1"))
    mount_again(world, peer, 1)
    put(world, peer, append("2"))
    mount_again(world, peer, 2)
    mount_again(world, peer, 3)
    assert num_barriers(world) == 2
    assert answered(world, peer) == []
    world.release(*NAMES)
    assert answered(world, peer) == [1, 3]
    assert num_barriers(world) == 0


def test_mount_on_a_newer_connection_does_not_replace_one_on_the_older_connection() -> None:
    world, old, new = new_world(last=2), Peer(4), Peer(4)
    mount_again(world, old, 1, mark=2)
    world.core.mount(new, cs.MountRequest(ReqId(1, 1, 0, 2), 2, 1))
    world.core.lost(old)
    world.connect()
    assert answered(world, new) == [2]


def flushed(world: World, peer: Peer) -> list[int]:
    """Return the sequence numbers of the flushes that are answered."""
    messages = take_messages(world, peer)
    return [m.req_id.seq for m in messages if isinstance(m, cs.FlushResponse)]


def test_flushes_that_are_repeated_are_one_barrier_and_are_all_answered() -> None:
    world = opened()
    peer, other = mounted(world, 1), mounted(world, 2)
    world.hold(*NAMES)
    put(world, peer, append("1"))
    for seq in range(100):
        flush(world, peer, 1, seq=seq)
    flush(world, other, 2)
    assert num_barriers(world) == 2
    world.release(*NAMES)
    assert flushed(world, peer) == list(range(100))
    assert flushed(world, other) == [0]
    flush(world, peer, 1, seq=100)
    assert flushed(world, peer) == [100]


def test_flush_after_an_append_waits_for_the_append() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, append("1"))
    flush(world, peer, 1, seq=1)
    put(world, peer, append("2"))
    flush(world, peer, 1, seq=2)
    flush(world, peer, 1, seq=3)
    assert num_barriers(world) == 2
    world.release(*NAMES)
    answers = [m for m in take_messages(world, peer) if isinstance(m, cs.FlushResponse)]
    assert [m.req_id.seq for m in answers] == [1, 2, 3]
    assert [m.transaction_id for m in answers][1:] == [1, 1]


def test_flush_after_a_mount_is_answered_after_the_mount() -> None:
    world, peer = new_world(last=2), Peer(4)
    mount_again(world, peer, 1, mark=2)
    flush(world, peer, 1, seq=2)
    mount_again(world, peer, 3, mark=2)
    flush(world, peer, 1, seq=4)
    world.connect()
    assert [m.req_id.seq for m in take_messages(world, peer)] == [3, 2, 4]
