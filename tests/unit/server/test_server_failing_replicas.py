"""Test that sessions open without a replica that refuses, and that it may return later."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World
from tests.support.store_world import LIMITS, NAMES, put, states
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.net.core.backoff import Backoff
from waltz.protocol import storage as st
from waltz_server.core.effects import StartTimer

HOUR = 3600.0


@dataclass
class Timed:
    """A simulated partition whose timers expire in order, and whose metadata is slower than its
    storages.
    """

    world: World
    now: float = 0.0
    pauses: list[tuple[float, int, StartTimer]] = field(default_factory=list)
    count: int = 0

    def settle(self) -> None:
        self.world.settle()
        while self.world.metadata_orders:
            self.world.let_metadata()
        for wake in self.world.wakes:
            heapq.heappush(self.pauses, (self.now + wake.seconds, self.count, wake))
            self.count += 1
        self.world.wakes.clear()

    def start(self, *names: str) -> None:
        self.world.core.set_generation(2)
        self.world.core.set_replicas(self.world.storages)
        self.connect(*names)

    def connect(self, *names: str) -> None:
        for name in names:
            self.world.up.add(name)
            self.world.store.storage_up(name)
        self.settle()

    def live(self, seconds: float) -> None:
        end = self.now + seconds
        while self.pauses and self.pauses[0][0] <= end:
            self.now, _, wake = heapq.heappop(self.pauses)
            self.world.core.timer_expired(wake.timer)
            self.settle()
        self.now = end


def cold(names: tuple[str, ...] = NAMES, last: int = 9) -> Timed:
    """Return a partition whose replicas all took part in a session that is over."""
    storages = [MemoryStorage(name, last, 0, 0) for name in names]
    world = World.of_store(LIMITS, Backoff(0.1, 20.0), storages)
    world.metadata = PartitionMetadata(1, 0, dict.fromkeys(names, ReplicaState(0, UNRESOLVED)))
    world.metadata_held = True
    return Timed(world)


RECOVERY = (st.MaxTransactionIdRequest, st.TruncateRequest, st.SetLowWaterMarkRequest)


@pytest.mark.parametrize("names", ["abc", "abcde"])
@pytest.mark.parametrize("refused", RECOVERY)
def test_cold_start_opens_without_a_refusing_replica(refused: type, names: str) -> None:
    timed = cold(tuple(names))
    bad = timed.world.storages["c"]
    bad.refusing[refused] = "no space"
    timed.start(*names)
    assert timed.world.core.is_open
    assert timed.world.active == set(names) - {"c"}
    assert any("c refused: no space" in note for note in timed.world.notes)
    assert states(timed.world)["c"] == (0, 9), "known up to the mark"
    bad.refusing.clear()
    timed.live(60.0)
    assert timed.world.active == set(names), "it is taken back in"


@pytest.mark.parametrize("refused", RECOVERY)
def test_replica_that_keeps_refusing_causes_few_sessions(refused: type) -> None:
    timed = cold()
    timed.world.storages["c"].refusing[refused] = "no space"
    timed.start(*NAMES)
    timed.live(HOUR)
    assert timed.world.core.is_open
    put(timed.world, "x")
    assert [text for _, text in timed.world.committed()] == ["x"]
    assert timed.world.core.session_id < HOUR / 20 + 20


@pytest.mark.parametrize("refused", RECOVERY)
def test_session_opens_only_after_an_absent_or_refusing_replica_recovers(
    refused: type,
) -> None:
    timed = cold()
    timed.world.storages["c"].refusing[refused] = "no space"
    timed.start("a", "c")
    timed.live(HOUR)
    assert not timed.world.core.is_open
    timed.world.storages["c"].refusing.clear()
    timed.live(21.0)
    assert timed.world.active == {"a", "c"}, "no longer than the longest rest"


def test_session_opens_when_the_absent_replica_returns() -> None:
    timed = cold()
    timed.world.storages["c"].refusing[st.SetLowWaterMarkRequest] = "no space"
    timed.start("a", "c")
    timed.live(HOUR)
    timed.connect("b")
    timed.live(21.0)
    assert timed.world.active == {"a", "b"}


def test_busy_recovery_is_not_ended_for_a_returning_replica() -> None:
    timed = cold()
    world = timed.world
    world.storages["c"].refusing[st.TruncateRequest] = "no space"
    world.hold("b")
    timed.start(*NAMES)
    world.storages["c"].refusing.clear()
    timed.live(1.0)
    assert world.core.session_id == 1, "b is at work"
    world.held.clear()
    timed.settle()
    assert world.core.session_id == 1
    assert world.active == {"a", "b"}, "c rests once more, so that appends flow"
    timed.live(0.2)
    assert world.core.session_id == 2
    assert world.active == set(NAMES)


def test_stuck_vote_readmits_a_failed_replica_at_once() -> None:
    timed = cold()
    world = timed.world
    timed.start("a")
    world.hold("c")
    timed.connect("c")
    world.let_one("c")
    world.cut("c")
    timed.settle()
    assert world.core.session_id == 1, "b may come, and would do"
    world.held.clear()
    timed.connect("c")
    assert not world.core.is_open, "c rests"
    timed.live(0.1)
    assert world.active == {"a", "c"}


def test_session_ends_when_no_quorum_is_possible() -> None:
    timed = cold()
    world = timed.world
    world.hold(*NAMES)
    timed.start(*NAMES)
    for name in NAMES:
        world.let_one(name)
    world.cut("a")
    timed.settle()
    assert world.core.session_id == 1
    world.cut("c")
    assert world.core.session_id == -1
    assert world.active == frozenset()


def test_replica_copies_from_another_source_when_its_source_fails() -> None:
    timed = cold(tuple("abcde"))
    world = timed.world
    world.storages["a"] = MemoryStorage("a", 3, 0, 0)
    timed.start("a")
    world.hold("b")
    timed.connect("b")
    while not _is_read(world.waiting("b")[0]):
        world.let_one("b")
    timed.connect("c")
    world.cut("b")
    timed.settle()
    assert not world.core.is_open, "the vote needs one more"
    timed.connect("d")
    assert world.active == {"a", "c", "d"}
    assert world.core.session_id == 1
    assert states(world)["b"] == (0, 9)


def test_vote_of_a_failed_replica_is_not_counted() -> None:
    timed = cold()
    world = timed.world
    world.storages["b"] = MemoryStorage("b", 5, 0, 0)
    world.storages["c"] = MemoryStorage("c", 9, 0, 0)
    timed.start("c")
    world.cut("c")
    timed.connect("b")
    assert not world.core.is_open
    assert world.core.session_id == 1
    timed.connect("a")
    assert world.core.high_water_mark == 9
    assert {world.storages[name].last for name in "ab"} == {9}


def test_replica_that_fails_before_the_metadata_is_written_does_not_open_the_session() -> None:
    timed = cold()
    world = timed.world
    world.core.set_generation(2)
    world.core.set_replicas(world.storages)
    world.settle()
    while world.metadata_orders:
        world.let_metadata()
    world.connect("a", "b")
    assert len(world.metadata_orders) == 1
    world.cut("b")
    timed.settle()
    assert not world.core.is_open, "a alone is no quorum"
    timed.connect("c")
    assert world.active == {"a", "c"}
    assert states(world) == {"a": (1, UNRESOLVED), "b": (1, 9), "c": (1, UNRESOLVED)}


def test_replica_named_in_the_metadata_may_fail_before_the_session_opens() -> None:
    timed = cold()
    world = timed.world
    world.core.set_generation(2)
    world.core.set_replicas(world.storages)
    world.settle()
    while world.metadata_orders:
        world.let_metadata()
    world.connect("a", "b")
    world.cut("b")
    timed.settle()
    assert world.active == {"a"}
    world.cut("a")
    timed.settle()
    assert world.core.session_id == -1
    timed.connect("a", "b")
    timed.live(1.0)
    put(world, "x")
    timed.settle()
    assert world.core.high_water_mark == 10


def _is_read(request: object) -> bool:
    return isinstance(request, st.BoundedRecordListRequest)
