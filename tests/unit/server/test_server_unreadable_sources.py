"""Copies whose sources cannot be read: they are tried again after a time, in the same session."""

from __future__ import annotations

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from tests.support.store_world import NAMES, everywhere, kinds, new_world, start
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import storage as st
from waltz_server.core.effects import RetryCopies

_ALL = [str(i) for i in range(10)]


def _unreadable(world: World, names: str) -> None:
    for name in names:
        world.storages[name].refusing[st.BoundedRecordListRequest] = "damaged"


def _repair(world: World) -> None:
    for storage in world.storages.values():
        storage.refusing.clear()


def _world_with_a_short_log() -> World:
    """Return a world whose last session has left 10 records on a and b, and 2 on c."""
    world = new_world()
    for name, last in zip(NAMES, (9, 9, 1), strict=True):
        world.storages[name] = MemoryStorage(name, last=last, session=0)
    world.metadata = PartitionMetadata(1, 0, dict.fromkeys(NAMES, ReplicaState(0, UNRESOLVED)))
    return world


def _timers(world: World) -> list[float]:
    return [wake.seconds for wake in world.wakes if isinstance(wake.timer, RetryCopies)]


def test_replica_copies_in_an_open_session_from_sources_that_were_repaired() -> None:
    """Without traffic the session may stay open for days: it ends only at a checkpoint."""
    world = start(_world_with_a_short_log())
    _unreadable(world, "ab")
    world.connect()
    session = world.core.session_id
    assert world.active == {"a", "b"}
    _repair(world)
    world.wake(RetryCopies)
    assert world.active == set(NAMES)
    assert everywhere(world) == _ALL
    assert world.core.session_id == session
    assert _timers(world) == [], "no timer runs without an unreadable source"


def test_recovery_that_waits_for_the_only_source_opens_after_its_repair() -> None:
    world = start(_world_with_a_short_log())
    _unreadable(world, "a")
    world.connect("a", "c")
    session = world.core.session_id
    assert not world.core.is_open
    assert "cannot be read: a" in (world.core.waiting_for or "")
    _repair(world)
    world.wake(RetryCopies)
    assert world.core.is_open
    assert world.core.session_id == session
    assert world.storages["c"].texts == _ALL


def test_sources_that_stay_unreadable_are_tried_again_later_each_time() -> None:
    world = start(_world_with_a_short_log())
    _unreadable(world, "ab")
    world.connect()
    pauses = []
    for _ in range(6):
        world.calls.clear()
        assert len(_timers(world)) == 1
        pauses.append(world.wake(RetryCopies))
        assert kinds(world, "a") == kinds(world, "b") == ["BoundedRecordListRequest"]
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert world.active == {"a", "b"}


def test_timer_of_an_earlier_session_begins_no_copy() -> None:
    world = start(_world_with_a_short_log())
    _unreadable(world, "ab")
    world.connect()
    world.core.set_generation(2)
    world.settle()
    assert len(_timers(world)) == 2, "one of each session"
    world.calls.clear()
    world.wake(RetryCopies)
    assert world.calls == []
    world.wake(RetryCopies)
    assert kinds(world, "a") == ["BoundedRecordListRequest"]


def test_timer_after_the_end_of_the_partition_begins_no_copy() -> None:
    world = start(_world_with_a_short_log())
    _unreadable(world, "ab")
    world.connect()
    world.core.close()
    world.calls.clear()
    world.wake(RetryCopies)
    assert world.calls == []
