"""A partition's store against scripted storages: sessions open, end, and lose nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.scripted_storages import ScriptedStorage, World, append, kind_of
from waltz.metadata.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import storage as st
from waltz_server.effects import Append, Committed, Failed, Fetched, Opened, Unresolved
from waltz_server.replication import ReplicationLimits
from waltz_server.store import RetryLimits, StorePartition

LIMITS = ReplicationLimits(batch_records=2, batches_in_flight=2, copy_records=20)
NAMES = ("a", "b", "c")


def new_world(limits: ReplicationLimits = LIMITS, names: tuple[str, ...] = NAMES) -> World:
    core = StorePartition(0, limits, RetryLimits(0.1, 1.0))
    return World(core, [ScriptedStorage(name) for name in names])


def start(world: World, generation: int = 1) -> World:
    world.core.set_generation(generation)
    world.core.set_replicas(world.storages)
    world.settle()
    return world


def opened(limits: ReplicationLimits = LIMITS, names: tuple[str, ...] = NAMES) -> World:
    world = start(new_world(limits, names))
    world.connect()
    assert world.core.is_open
    world.calls.clear()
    world.take_events()
    return world


def put(world: World, *texts: str, generation: int = 1) -> None:
    for text in texts:
        world.core.append(append(text, generation=generation))
    world.core.pump()
    world.settle()


def wake_any(world: World) -> None:
    world.wake(next(k for k in map(kind_of, world.wakes) if k not in ("forgive", "patience")))


def reopen(world: World) -> None:
    while not world.core.is_open:
        wake_any(world)


def everywhere(world: World) -> list[str]:
    """Return what all storages hold, which must be the same."""
    held = [storage.texts for storage in world.storages.values()]
    assert all(each == held[0] for each in held)
    return held[0]


def texts(appends: list[Append]) -> list[str]:
    return [a.record_tail[8:-4].decode() for a in appends]


def kinds(world: World, name: str) -> list[str]:
    return [type(request).__name__ for storage, request, _ in world.calls if storage == name]


def states(world: World) -> dict[str, tuple[int, int]]:
    return {n: (s.session_id, s.closing_mark) for n, s in world.metadata.replicas.items()}


# ---- opening


def test_a_new_partition_opens_with_a_quorum_and_takes_in_the_last_replica_later() -> None:
    world = start(new_world())
    world.connect("a")
    assert not world.core.is_open
    world.connect("b")
    assert world.core.is_open
    assert states(world) == {"a": (0, UNRESOLVED), "b": (0, UNRESOLVED), "c": (-1, -1)}
    put(world, "x", "y", "z")
    assert world.committed() == [(0, "x"), (1, "y"), (2, "z")]
    world.connect("c")
    assert states(world)["c"] == (0, UNRESOLVED)
    assert everywhere(world) == ["x", "y", "z"]
    assert world.core.session_id == 0, "joining needs no new session"


def test_nothing_is_asked_of_a_storage_before_the_session_is_in_the_metadata() -> None:
    world = new_world()
    world.metadata_held = True
    start(world)
    world.connect()
    world.let_metadata()
    assert world.calls == []
    world.let_metadata()
    assert (world.metadata.generation, world.metadata.session_id) == (1, 0)
    assert [request.session_id for _, request, _ in world.calls if request.session_id != 0] == []
    assert not world.core.is_open, "its end state is not in the metadata yet"
    world.let_metadata()
    assert world.core.is_open


def test_a_later_generation_elsewhere_ends_the_attempt() -> None:
    world = new_world()
    world.metadata = PartitionMetadata(7, 4, {})
    start(world, generation=6)
    world.connect()
    assert world.calls == []
    assert (world.metadata.generation, world.metadata.session_id) == (7, 4)
    assert "7 has begun elsewhere" in world.notes[-1]
    world.core.set_generation(8)
    world.settle()
    assert world.core.is_open
    assert (world.metadata.generation, world.metadata.session_id) == (8, 5)


def test_metadata_conflicts_back_off_and_are_tried_again() -> None:
    world = new_world()
    world.metadata_held = True
    start(world)
    pauses = []
    for _ in range(6):
        world.let_metadata()
        world.version += 1
        world.let_metadata()
        pauses.append(world.wake("retry"))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    world.metadata_held = False
    while world.metadata_orders:
        world.let_metadata()
    world.connect()
    assert world.core.is_open


def test_a_conflict_when_recovery_ends_closes_the_session() -> None:
    world = start(new_world())
    world.metadata_held = True
    world.connect()
    world.version += 1
    session = world.core.session_id
    while world.metadata_orders:
        world.let_metadata()
    assert not world.core.is_open
    world.metadata_held = False
    world.wake("retry")
    assert world.core.is_open
    assert world.core.session_id > session


def test_the_answer_to_an_ended_sessions_write_does_not_begin_the_next_session() -> None:
    world = start(new_world())
    world.metadata_held = True
    world.connect("a", "b")
    (late,) = world.metadata_orders
    world.metadata_orders.clear()
    world.cut("a")
    world.wake("retry")
    world.let_metadata()
    assert world.core.session_id == -1, "the next session's write is on its way"
    world.core.metadata_failed(f"no answer to {late}")
    world.settle()
    (begin,) = world.metadata_orders
    world.metadata_orders.clear()
    calls = len(world.calls)
    world.core.metadata_written(world.version)
    world.settle()
    assert world.calls[calls:] == [], f"{begin} was never done"


def test_an_unhealthy_start_shows_and_ends_with_the_first_session() -> None:
    world = start(new_world())
    assert world.core.healthy, "before the first session nobody knows better"
    world.hold("a")
    world.connect("a")
    world.let_one("a")
    world.cut("a")
    assert not world.core.healthy
    world.held.clear()
    world.wake("retry")
    world.connect("b", "c")
    assert world.core.is_open
    assert world.core.healthy


def test_a_recovery_that_waits_too_long_is_unhealthy_and_says_for_whom() -> None:
    world = start(new_world())
    world.connect("a")
    assert world.core.waiting_for is not None
    assert world.core.healthy, "a replica may be a little late"
    world.wake("patience")
    assert not world.core.healthy
    assert "absent: b, c" in world.notes[-1]
    world.wake("patience")
    assert not world.core.healthy, "it goes on saying so"
    world.connect("b")
    assert world.core.is_open
    assert world.core.healthy
    assert world.core.waiting_for is None
    world.wake("patience")
    assert world.core.healthy


# ---- appends


def test_commits_need_a_quorum_and_keep_the_order() -> None:
    world = opened()
    world.hold("b", "c")
    put(world, "1", "2", "3", "4", "5")
    assert world.committed() == []
    assert world.core.queued == 1, "two batches of two are under way"
    world.let_one("b")
    assert world.committed() == [(0, "1"), (1, "2")]
    world.release("b")
    assert [t for _, t in world.committed()] == ["1", "2", "3", "4", "5"]
    world.release("c")
    assert everywhere(world) == ["1", "2", "3", "4", "5"]


def test_answers_out_of_step_never_commit_what_one_replica_alone_holds() -> None:
    world = opened()
    world.hold("a", "b", "c")
    put(world, "1", "2", "3", "4")
    world.release("a")
    assert world.committed() == []
    world.let_one("b")
    assert [i for i, _ in world.committed()] == [0, 1]


def test_a_failing_replica_rests_longer_each_time_and_comes_back_in_a_new_session() -> None:
    world = opened()
    rests = []
    for round_ in range(3):
        session = world.core.session_id
        world.cut("c")
        put(world, f"{round_}")
        assert world.core.session_id == session, "a quorum goes on in the same session"
        world.connect("c")
        assert "c" not in world.core.active_replicas
        rests.append(world.wake("rested"))
        assert world.core.session_id == session + 1
        assert world.core.active_replicas == {"a", "b", "c"}
    assert rests == [0.1, 0.2, 0.4]
    assert everywhere(world) == ["0", "1", "2"]


def test_a_replica_that_behaved_for_a_while_is_forgiven() -> None:
    world = opened()
    for _ in range(3):
        world.cut("c")
        world.connect("c")
        world.wake("rested")
    while "forgive" in map(kind_of, world.wakes):
        world.wake("forgive")
    world.cut("c")
    world.connect("c")
    assert world.wake("rested") == 0.1


def test_a_refused_append_costs_the_replica_its_place() -> None:
    world = opened()
    world.storages["c"].refusing[st.AppendRequest] = "disk full"
    put(world, "1")
    assert world.core.active_replicas == {"a", "b"}
    world.storages["c"].refusing.clear()
    world.wake("rested")
    assert world.core.active_replicas == {"a", "b", "c"}
    assert everywhere(world) == ["1"]


def test_appends_of_a_broken_session_end_as_the_log_says() -> None:
    world = opened()
    world.hold(*NAMES)
    put(world, "1", "2", "3", "4", "5")
    world.let_one("a")
    for name in ("b", "c", "a"):
        world.cut(name)
    assert not world.core.is_open
    assert world.events == [], "nobody knows their fate yet"
    world.held.clear()
    world.connect()
    reopen(world)
    assert world.committed() == [(0, "1"), (1, "2"), (2, "5")]
    assert [texts(e.appends) for e in world.events if isinstance(e, Failed)] == [["3", "4"]]
    while world.core.active_replicas != set(NAMES):
        wake_any(world)
    assert everywhere(world) == ["1", "2", "5"]


def test_appends_that_reached_nobody_fail_and_those_not_sent_are_sent() -> None:
    world = opened()
    world.hold(*NAMES)
    put(world, "1", "2", "3", "4", "5")
    for name in NAMES:
        world.cut(name)
    world.held.clear()
    world.connect()
    reopen(world)
    assert world.committed() == [(0, "5")]
    assert [texts(e.appends) for e in world.events if isinstance(e, Failed)] == [list("1234")]


def test_fates_stay_open_through_sessions_that_do_not_open() -> None:
    world = opened()
    world.hold(*NAMES)
    put(world, "1")
    world.let_one("a")
    world.storages["b"].handle(world.waiting("b")[0])
    for name in NAMES:
        world.cut(name)
    for _ in range(3):
        world.connect("a")
        if world.waiting("a"):
            world.let_one("a")
        world.cut("a")
        assert world.events == []
        wake_any(world)
    world.held.clear()
    world.connect()
    reopen(world)
    assert world.committed() == [(0, "1")]


def test_a_new_generation_leaves_what_was_sent_unresolved_and_drops_what_was_not() -> None:
    world = opened()
    world.hold("a", "b", "c")
    put(world, "1", "2", "3", "4", "5")
    world.core.append(append("6"))
    world.core.set_generation(2)
    world.core.append(append("fresh", generation=2))
    world.core.pump()
    world.settle()
    world.release("a", "b", "c")
    assert world.core.is_open
    ends: list[Any] = [
        e for e in world.events if isinstance(e, Unresolved | Failed | Committed | Opened)
    ]
    assert [type(e) for e in ends[:3]] == [Unresolved, Failed, Opened]
    assert texts(ends[0].appends) == ["1", "2", "3", "4"]
    assert texts(ends[1].appends) == ["5", "6"]
    assert [t for _, t in world.committed()] == ["fresh"]


def test_a_checkpoint_drains_raises_the_marks_and_goes_on() -> None:
    world = opened(replace(LIMITS, checkpoint_interval=4))
    put(world, *(str(i) for i in range(11)))
    assert [t for _, t in world.committed()] == [str(i) for i in range(11)]
    assert world.core.session_id == 2
    assert {s.low for s in world.storages.values()} == {7}
    assert not any(isinstance(e, Failed | Unresolved) for e in world.events)


@pytest.mark.parametrize("in_flight", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [3, 4, 5, 8, 9])
def test_a_checkpoint_in_the_middle_of_a_burst_leaves_nothing_behind(
    in_flight: int, count: int
) -> None:
    world = opened(replace(LIMITS, batches_in_flight=in_flight, checkpoint_interval=4))
    put(world, *(str(i) for i in range(count)))
    assert [t for _, t in world.committed()] == [str(i) for i in range(count)]
    assert world.core.queued == 0


def test_changed_replicas_take_effect_without_losing_an_append() -> None:
    world = opened(names=("a", "b", "c"))
    world.storages["d"] = ScriptedStorage("d")
    world.hold("b", "c")
    put(world, "1", "2")
    world.core.set_replicas(("b", "c", "d"))
    world.settle()
    assert world.watched == {"a", "b", "c", "d"}, "the old session still needs its replicas"
    world.connect("d")
    world.release("b", "c")
    assert world.watched == {"b", "c", "d"}
    assert [t for _, t in world.committed()] == ["1", "2"]
    assert set(world.metadata.replicas) == {"b", "c", "d"}
    assert world.storages["d"].texts == ["1", "2"]


def test_closing_leaves_appends_unresolved_and_watches_nobody() -> None:
    world = opened()
    world.hold("a", "b", "c")
    put(world, "1")
    world.core.close()
    world.release("a", "b", "c")
    assert world.events == []
    assert world.watched == frozenset()
    world.core.set_generation(9)
    world.core.set_replicas(("a",))
    world.settle()
    assert world.metadata.generation == 1


# ---- replicas that lag


def test_a_slow_replica_is_fed_from_memory() -> None:
    world = opened()
    world.hold("c")
    put(world, *(str(i) for i in range(20)))
    assert len(world.waiting("c")) == LIMITS.batches_in_flight
    world.release("c")
    assert world.storages["c"].texts == [str(i) for i in range(20)]
    assert kinds(world, "a") == kinds(world, "b") == kinds(world, "c")
    assert set(kinds(world, "c")) == {"AppendRequest"}


def test_a_replica_beyond_the_memory_copies_from_its_peers() -> None:
    world = opened(replace(LIMITS, tail_bytes=1))
    world.hold("c")
    put(world, *(str(i) for i in range(300)))
    world.release("c")
    assert world.storages["c"].texts == [str(i) for i in range(300)]
    assert "RecordListRequest" in kinds(world, "a") + kinds(world, "b")
    put(world, "more")
    assert world.storages["c"].texts[-1] == "more"
    assert world.core.active_replicas == set(NAMES)


def test_a_failed_copy_costs_the_lagging_replica_its_place_not_the_session() -> None:
    world = opened(replace(LIMITS, tail_bytes=1))
    for name in "ab":
        world.storages[name].refusing[st.RecordListRequest] = "unreadable"
    world.hold("c")
    put(world, *(str(i) for i in range(30)))
    session = world.core.session_id
    world.release("c")
    assert world.core.session_id == session
    assert world.core.active_replicas == {"a", "b"}
    put(world, "more")
    assert [t for _, t in world.committed()][-1] == "more"


def test_recovery_copies_in_portions() -> None:
    world = new_world(replace(LIMITS, copy_records=3))
    world.storages = {
        "a": ScriptedStorage("a", last=9, session=0),
        "b": ScriptedStorage("b", last=9, session=0),
        "c": ScriptedStorage("c", last=1, session=0),
    }
    state = ReplicaState(0, UNRESOLVED)
    world.metadata = PartitionMetadata(1, 0, dict.fromkeys(NAMES, state))
    start(world)
    world.connect()
    copies = [
        request.records.count
        for name, request, _ in world.calls
        if name == "c" and isinstance(request, st.AppendRequest)
    ]
    assert copies == [3, 3, 2]
    assert world.core.active_replicas == set(NAMES)
    assert everywhere(world) == [str(i) for i in range(10)]


def test_a_replica_that_is_not_assigned_yet_is_asked_again_later() -> None:
    world = start(new_world())
    world.storages["c"].refusing[st.LastSessionInfoRequest] = "not assigned"
    world.connect()
    assert world.core.active_replicas == {"a", "b"}
    session = world.core.session_id
    assert any("c is not ready: not assigned" in note for note in world.notes)
    assert [world.wake("rested"), world.wake("rested")] == [0.1, 0.2]
    world.storages["c"].refusing.clear()
    world.wake("rested")
    assert world.core.active_replicas == set(NAMES)
    assert world.core.session_id == session


# ---- reads


def test_reads_go_to_another_replica_when_one_cannot() -> None:
    world = opened()
    put(world, "1", "2", "3")
    world.storages["a"].refusing[st.RecordListRequest] = "damaged"
    world.take_events()
    for _ in range(4):
        world.core.fetch_records(0, 2, "token")
        world.settle()
    fetched = [e for e in world.events if isinstance(e, Fetched)]
    assert len(fetched) == 4
    for each in fetched:
        assert each.records is not None
        assert [r.data for r in each.records] == [b"1", b"2"]


def test_a_read_that_nobody_can_answer_says_who_was_tried() -> None:
    world = opened()
    put(world, "1")
    for storage in world.storages.values():
        storage.refusing[st.RecordListRequest] = "damaged"
    world.take_events()
    world.core.fetch_records(0, 1, "token")
    world.settle()
    (fetched,) = world.events
    assert fetched.token == "token"
    assert "a, b, c" in fetched.error


def test_reads_never_reach_beyond_the_mark() -> None:
    world = opened()
    put(world, "1", "2")
    world.hold("b", "c")
    put(world, "uncommitted")
    world.core.fetch_records(0, 10, "token")
    world.core.fetch_headers(1, 10, "headers")
    world.release("b", "c")
    records, headers = (e for e in world.events if isinstance(e, Fetched))
    assert records.records is not None
    assert records.records.count == 2
    assert headers.headers is not None
    assert [h.transaction_id for h in headers.headers] == [1]


def test_reads_wait_for_the_next_session() -> None:
    world = opened()
    put(world, "1")
    world.cut("a")
    world.cut("b")
    world.core.fetch_records(0, 1, "token")
    world.settle()
    assert not any(isinstance(e, Fetched) for e in world.events)
    world.connect("a", "b")
    reopen(world)
    assert [e.token for e in world.events if isinstance(e, Fetched)] == ["token"]


def test_a_read_whose_storage_is_lost_is_read_elsewhere() -> None:
    world = opened()
    put(world, "1")
    world.hold("a", "b", "c")
    world.core.fetch_records(0, 1, "token")
    world.settle()
    (asked,) = [name for name in NAMES if world.waiting(name)]
    world.held.clear()
    world.cut(asked)
    (fetched,) = [e for e in world.events if isinstance(e, Fetched)]
    assert fetched.records is not None


def test_a_slow_replica_is_asked_less_often() -> None:
    world = opened()
    put(world, "1")
    asked = []
    for _ in range(60):
        world.hold(*NAMES)
        world.core.fetch_records(0, 1, "token")
        world.settle()
        (name,) = [n for n in NAMES if world.waiting(n)]
        request = world.waiting(name)[0]
        world.held.clear()
        world._asked.clear()
        answer = world.storages[name].handle(request)
        world.core.answered(name, request, answer, 500.0 if name == "a" else 1.0)
        world.settle()
        asked.append(name)
    assert asked.count("a") < 6 < asked.count("b")
