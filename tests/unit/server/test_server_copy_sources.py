"""Test which replica a copy is read from, if some sources refuse reads, are damaged or are gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from tests.support.store_world import LIMITS, NAMES, everywhere, new_world, opened, put, start
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import storage as st
from waltz_server.core.effects import BackoffOver, RetryCopies
from waltz_server.core.replication.recovery_steps import Copy, Mark
from waltz_server.core.replication.session_recovery import SessionRecovery

_SHORT_COPIES = replace(LIMITS, copy_records=3)
_ALL = [str(i) for i in range(30)]


def _world(ends: dict[str, int], last: str = "") -> World:
    """Return a started world with logs up to ``ends``; ``last`` took part in the last session."""
    world = new_world(_SHORT_COPIES, tuple(ends))
    for name, end in ends.items():
        world.storages[name] = MemoryStorage(name, last=end, session=0 if end >= 0 else -1)
    states = dict.fromkeys(last or ends, ReplicaState(0, UNRESOLVED))
    world.metadata = PartitionMetadata(1, 0, states)
    return start(world)


def _reads(world: World) -> Counter[str]:
    return Counter(
        name for name, request, _ in world.calls if isinstance(request, st.BoundedRecordListRequest)
    )


def _warnings(world: World) -> list[str]:
    return [note for note in world.notes if "cannot be read from" in note]


def test_source_that_refuses_all_reads_is_asked_and_logged_once() -> None:
    """A copy has at most 1 MiB: otherwise 100 GB would cost 100,000 refusals and warnings."""
    world = _world({"a": 29, "b": 29, "c": -1})
    world.storages["a"].refusing[st.BoundedRecordListRequest] = "reading is off"
    world.connect()
    assert everywhere(world) == _ALL
    assert _reads(world) == {"a": 1, "b": 10}
    assert len(_warnings(world)) == 1


def test_source_that_still_refuses_after_a_retry_is_asked_and_logged_once_more() -> None:
    world = _world({"a": 29, "b": 29, "c": -1})
    world.storages["a"].refusing[st.BoundedRecordListRequest] = "reading is off"
    world.connect("a", "b")
    world.hold("c")
    world.connect("c")
    while world.core.session.recovery.unreadable.failures == set():
        world.let_one("c")
    world.wake(RetryCopies)
    world.release("c")
    assert everywhere(world) == _ALL
    assert _reads(world)["a"] == len(_warnings(world)) == 2


def test_lagging_replica_asks_a_peer_that_refuses_all_reads_once_per_timer() -> None:
    world = opened(replace(_SHORT_COPIES, tail_bytes=1))
    world.hold("c")
    world.storages["a"].refusing[st.BoundedRecordListRequest] = "reading is off"
    put(world, *_ALL)
    world.release("c")
    assert world.active == set(NAMES)
    assert everywhere(world) == _ALL
    assert _reads(world)["a"] == len(_warnings(world)) == 1
    world.wake(RetryCopies)
    assert world.core.session.recovery.unreadable.failures == set(), "a is tried again"


def test_damaged_sources_are_preferred_to_one_that_refuses_all_reads() -> None:
    world = _world({"a": 29, "b": 29, "c": 29, "d": 29, "e": -1})
    world.storages["a"].refusing[st.BoundedRecordListRequest] = "reading is off"
    world.storages["b"].damage(4)
    world.storages["c"].damage(10)
    world.storages["d"].damage(16)
    world.connect()
    assert world.storages["e"].texts == _ALL
    assert _reads(world)["a"] <= 2
    assert len(_warnings(world)) == 4


def test_replica_that_failed_in_an_open_session_is_no_source() -> None:
    """It may be connected again and answer nothing: each copy would wait until its time limit."""
    world = _world({"a": 29, "b": 29, "c": 29, "d": 29, "e": -1})
    world.connect("a", "b", "c", "d")
    world.cut("a")
    world.hold("a")
    world.up.add("a")
    world.store.storage_up("a")
    world.connect("e")
    assert world.waiting("a") == []
    assert world.active == {"b", "c", "d", "e"}
    assert world.storages["e"].texts == _ALL


def test_recovered_new_replicas_are_sources_after_the_last_old_one_has_failed() -> None:
    world = _world({"a": 29, "b": -1, "c": -1, "d": -1, "e": -1}, last="a")
    world.connect("a", "b")
    assert not world.core.is_open
    world.cut("a")
    world.connect("c", "d")
    assert world.core.session_id == 1
    assert world.active == {"b", "c", "d"}
    assert world.core.high_water_mark == 29
    put(world, "x")
    world.connect("e")
    assert world.active == {"b", "c", "d", "e"}
    world.connect("a")
    world.wake(BackoffOver)
    assert world.active == set("abcde")
    assert everywhere(world) == [*_ALL, "x"]


def test_new_replica_is_no_source_before_it_has_recovered() -> None:
    recovery = SessionRecovery(9, 1, tuple("abc"), {"a": ReplicaState(8, UNRESOLVED)}, 4)
    for name, session in (("a", 8), ("b", -1), ("c", -1)):
        recovery.introduced(name, session, -1, -1)
    recovery.take_steps()
    recovery.measured("a", 9)
    assert recovery.mark == 9
    for name in "bc":
        recovery.cut(name, -1)
    assert dict(recovery.take_steps())["b"] == Mark(9)
    for name in "bc":
        recovery.marked(name)
    assert dict(recovery.take_steps())["b"] == Copy("a", 0, 4)
    recovery.copied("b", 3)
    recovery.failed("a")
    recovery.not_copied("c", "a")
    assert recovery.take_steps() == [], "b has a part of the log only"


def test_copy_from_a_source_that_is_not_the_nearest_ends_at_the_nearest_position() -> None:
    """The vote may resolve this position: records copied beyond it would have to be cut."""
    last = {name: ReplicaState(8, UNRESOLVED) for name in "abcde"}
    recovery = SessionRecovery(9, 1, tuple("abcde"), last, 20)
    for name in "abc":
        recovery.introduced(name, 8, 3, -1)
    recovery.take_steps()
    for name, end in (("a", 5), ("b", 9), ("c", 1)):
        recovery.measured(name, end)
    assert recovery.mark is None
    assert dict(recovery.take_steps())["c"] == Copy("a", 2, 4)
    recovery.not_copied("c", "a")
    assert dict(recovery.take_steps())["c"] == Copy("b", 2, 4)
