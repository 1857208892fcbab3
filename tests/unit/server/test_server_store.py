"""Test a partition's store with storages in memory: sessions open and end, no append is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import append
from tests.support.store_world import (
    LIMITS,
    NAMES,
    everywhere,
    new_world,
    opened,
    put,
    reopen,
    start,
    states,
    texts,
    wake_any,
)
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata
from waltz.protocol import storage as st
from waltz_server.core.effects import BackoffOver, RecoveryOverdue, ResetFailures, RetrySession
from waltz_server.core.store_reports import (
    AppendsCommitted,
    AppendsFailed,
    AppendsUnresolved,
    SessionOpened,
)

# ---- opening


def test_new_partition_opens_with_a_quorum_and_admits_the_last_replica_later() -> None:
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


def test_storage_lost_before_its_first_answer_is_asked_again_when_it_is_back() -> None:
    """The session would otherwise wait for that answer for ever."""
    world = start(new_world())
    world.hold("a", "b")
    world.connect("a", "b")
    world.cut("a")
    world.cut("b")
    world.release("a", "b")
    assert not world.core.is_open
    world.connect("a", "b")
    assert world.core.is_open


def test_no_request_is_sent_before_the_session_is_in_the_metadata() -> None:
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


def test_later_generation_in_the_metadata_ends_the_attempt() -> None:
    world = new_world()
    world.metadata = PartitionMetadata(7, 4, {})
    start(world, generation=6)
    world.connect()
    assert world.calls == []
    assert (world.metadata.generation, world.metadata.session_id) == (7, 4)
    assert "7 has begun on another server" in world.notes[-1]
    world.core.set_generation(8)
    world.settle()
    assert world.core.is_open
    assert (world.metadata.generation, world.metadata.session_id) == (8, 5)


def test_metadata_conflicts_are_retried_with_backoff() -> None:
    world = new_world()
    world.metadata_held = True
    start(world)
    pauses = []
    for _ in range(6):
        world.let_metadata()
        world.version += 1
        world.let_metadata()
        pauses.append(world.wake(RetrySession))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    world.metadata_held = False
    while world.metadata_orders:
        world.let_metadata()
    world.connect()
    assert world.core.is_open


def test_timer_of_an_outdated_attempt_begins_no_session() -> None:
    world = new_world()
    world.metadata_held = True
    start(world)
    world.store.metadata_failed(world.metadata_orders.popleft(), "no answer")
    world.settle()
    world.core.set_generation(2)
    world.settle()
    assert len(world.metadata_orders) == 1, "a new generation does not wait"
    world.store.metadata_failed(world.metadata_orders.popleft(), "no answer")
    world.settle()
    assert world.wake(RetrySession) == 0.1
    assert not world.metadata_orders, "the pause of the second failure is not over"
    assert world.wake(RetrySession) == 0.2
    assert len(world.metadata_orders) == 1


def test_metadata_conflict_at_the_end_of_recovery_closes_the_session() -> None:
    world = start(new_world())
    world.metadata_held = True
    world.connect()
    world.version += 1
    session = world.core.session_id
    while world.metadata_orders:
        world.let_metadata()
    assert not world.core.is_open
    world.metadata_held = False
    world.wake(RetrySession)
    assert world.core.is_open
    assert world.core.session_id > session


@pytest.mark.parametrize("done", [False, True])
def test_late_result_of_an_ended_sessions_write_is_ignored(done: bool) -> None:
    world = start(new_world())
    world.metadata_held = True
    world.connect("a", "b")
    (late,) = world.metadata_orders
    world.metadata_orders.clear()
    world.cut("a")
    world.cut("b")
    world.wake(RetrySession)
    world.let_metadata()
    (begin,) = world.metadata_orders
    calls, pauses = len(world.calls), len(world.wakes)
    if done:
        world.store.metadata_written(late, world.version)
    else:
        world.store.metadata_failed(late, "no answer")
    world.settle()
    assert world.core.session_id == -1, f"{begin} is on its way"
    assert world.calls[calls:] == []
    assert world.wakes[pauses:] == [], "nothing has failed that counts"
    world.let_metadata()
    assert world.core.session_id == 1


def test_partition_is_unhealthy_until_the_first_session_opens() -> None:
    world = start(new_world())
    assert world.core.healthy, "healthy is the default before the first session"
    world.hold("a", "b")
    world.connect("a", "b")
    for name in ("a", "b"):
        world.let_one(name)
        world.cut(name)
    assert not world.core.healthy
    world.held.clear()
    world.wake(RetrySession)
    world.connect("b", "c")
    world.wake(BackoffOver)
    world.wake(BackoffOver)
    assert world.core.is_open
    assert world.core.healthy


def test_overdue_recovery_is_unhealthy_and_logs_what_it_waits_for() -> None:
    world = start(new_world())
    world.connect("a")
    assert world.core.waiting_for is not None
    assert world.core.healthy, "a replica may be a little late"
    world.wake(RecoveryOverdue)
    assert not world.core.healthy
    assert "absent: b, c" in world.notes[-1]
    world.wake(RecoveryOverdue)
    assert not world.core.healthy, "it goes on saying so"
    world.connect("b")
    assert world.core.is_open
    assert world.core.healthy
    assert world.core.waiting_for is None
    world.wake(RecoveryOverdue)
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


def test_records_on_one_replica_alone_are_never_committed() -> None:
    world = opened()
    world.hold("a", "b", "c")
    put(world, "1", "2", "3", "4")
    world.release("a")
    assert world.committed() == []
    world.let_one("b")
    assert [i for i, _ in world.committed()] == [0, 1]


def test_failing_replica_backs_off_longer_each_time_and_returns_in_a_new_session() -> None:
    world = opened()
    rests = []
    for round_ in range(3):
        session = world.core.session_id
        world.cut("c")
        put(world, f"{round_}")
        assert world.core.session_id == session, "a quorum goes on in the same session"
        world.connect("c")
        assert "c" not in world.active
        rests.append(world.wake(BackoffOver))
        assert world.core.session_id == session + 1
        assert world.active == {"a", "b", "c"}
    assert rests == [0.1, 0.2, 0.4]
    assert everywhere(world) == ["0", "1", "2"]


def test_failure_count_is_reset_after_a_time_without_failures() -> None:
    world = opened()
    for _ in range(3):
        world.cut("c")
        world.connect("c")
        world.wake(BackoffOver)
    while any(isinstance(w.timer, ResetFailures) for w in world.wakes):
        world.wake(ResetFailures)
    world.cut("c")
    world.connect("c")
    assert world.wake(BackoffOver) == 0.1


def test_replica_that_refuses_an_append_is_dropped_from_the_session() -> None:
    world = opened()
    world.storages["c"].refusing[st.AppendRequest] = "disk full"
    put(world, "1")
    assert world.active == {"a", "b"}
    world.storages["c"].refusing.clear()
    world.wake(BackoffOver)
    assert world.active == {"a", "b", "c"}
    assert everywhere(world) == ["1"]


def test_in_doubt_appends_are_resolved_by_the_log() -> None:
    world = opened()
    world.hold(*NAMES)
    put(world, "1", "2", "3", "4", "5")
    world.let_one("a")
    for name in ("b", "c", "a"):
        world.cut(name)
    assert not world.core.is_open
    assert world.events == [], "their outcomes are not known yet"
    world.held.clear()
    world.connect()
    reopen(world)
    assert world.committed() == [(0, "1"), (1, "2"), (2, "5")]
    assert [texts(e.appends) for e in world.events if isinstance(e, AppendsFailed)] == [["3", "4"]]
    while world.active != set(NAMES):
        wake_any(world)
    assert everywhere(world) == ["1", "2", "5"]


def test_in_doubt_appends_on_no_replica_fail_and_queued_ones_are_sent() -> None:
    world = opened()
    world.hold(*NAMES)
    put(world, "1", "2", "3", "4", "5")
    for name in NAMES:
        world.cut(name)
    world.held.clear()
    world.connect()
    reopen(world)
    assert world.committed() == [(0, "5")]
    assert [texts(e.appends) for e in world.events if isinstance(e, AppendsFailed)] == [
        list("1234")
    ]


def test_batch_cut_in_two_by_a_broken_session_is_a_prefix_in_the_log() -> None:
    world = opened()
    world.hold(*NAMES)
    batch = [append(text) for text in "12345"]
    for each in batch:
        each.batch = b"one"
    world.core.append([append("0"), *batch, append("6")])
    world.settle()
    assert world.core.queued == 3, "0 to 3 are under way"
    world.let_one("a")
    for name in NAMES:
        world.cut(name)
    world.held.clear()
    world.connect()
    reopen(world)
    assert world.committed() == [(0, "0"), (1, "1"), (2, "6")]
    assert [texts(e.appends) for e in world.events if isinstance(e, AppendsFailed)] == [
        list("2345")
    ]


def test_in_doubt_appends_stay_open_through_sessions_that_do_not_open() -> None:
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


def test_new_generation_leaves_sent_appends_unresolved_and_fails_queued_ones() -> None:
    world = opened()
    world.hold("a", "b", "c")
    put(world, "1", "2", "3", "4", "5")
    world.core.append([append("6")])
    world.core.set_generation(2)
    world.core.append([append("fresh", generation=2)])
    world.settle()
    world.release("a", "b", "c")
    assert world.core.is_open
    ends: list[Any] = [
        e
        for e in world.events
        if isinstance(e, AppendsUnresolved | AppendsFailed | AppendsCommitted | SessionOpened)
    ]
    assert [type(e) for e in ends[:3]] == [AppendsUnresolved, AppendsFailed, SessionOpened]
    assert texts(ends[0].appends) == ["1", "2", "3", "4"]
    assert texts(ends[1].appends) == ["5", "6"]
    assert [t for _, t in world.committed()] == ["fresh"]


def test_checkpoint_drains_the_session_and_raises_the_marks() -> None:
    world = opened(replace(LIMITS, checkpoint_interval=4))
    put(world, *(str(i) for i in range(11)))
    assert [t for _, t in world.committed()] == [str(i) for i in range(11)]
    assert world.core.session_id == 2
    assert {s.marks[:2] for s in world.storages.values()} == {(2, 7)}
    assert not any(isinstance(e, AppendsFailed | AppendsUnresolved) for e in world.events)


@pytest.mark.parametrize("in_flight", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [3, 4, 5, 8, 9])
def test_checkpoint_during_a_burst_commits_every_append(in_flight: int, count: int) -> None:
    world = opened(replace(LIMITS, batches_in_flight=in_flight, checkpoint_interval=4))
    put(world, *(str(i) for i in range(count)))
    assert [t for _, t in world.committed()] == [str(i) for i in range(count)]
    assert world.core.queued == 0


def test_changed_replicas_take_effect_without_losing_an_append() -> None:
    world = opened(names=("a", "b", "c"))
    world.storages["d"] = MemoryStorage("d")
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


def test_close_leaves_appends_unresolved_and_connects_to_no_storage() -> None:
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
