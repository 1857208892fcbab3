"""Test that an open session whose end is due takes appends until ZooKeeper has answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World, append
from tests.support.store_world import LIMITS, new_world, opened, put, start, states
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata
from waltz_server.core.effects import BackoffOver, ReadMetadata, RetryMetadata, WriteMetadata
from waltz_server.core.store_reports import AppendsFailed, AppendsUnresolved


def checkpoint() -> World:
    world = opened(replace(LIMITS, checkpoint_interval=4))
    world.metadata_held = True
    put(world, "0", "1", "2", "3")
    return world


def readmission() -> World:
    world = opened()
    world.metadata_held = True
    world.cut("c")
    put(world, "0", "1", "2", "3")
    world.connect("c")
    world.wake(BackoffOver)
    return world


def changed_replicas() -> World:
    world = opened()
    world.storages["d"] = MemoryStorage("d")
    world.metadata_held = True
    put(world, "0", "1", "2", "3")
    world.core.set_replicas(("a", "b", "d"))
    world.settle()
    world.connect("d")
    return world


Due = Callable[[], World]
every_reason = pytest.mark.parametrize("due", [checkpoint, readmission, changed_replicas])


def fail(world: World, reason: str = "no answer") -> None:
    world.store.metadata_failed(world.metadata_orders.popleft(), reason)
    world.settle()


def committed_texts(world: World) -> list[str]:
    return [text for _, text in world.committed()]


@every_reason
def test_session_takes_appends_while_zookeeper_does_not_answer(due: Due) -> None:
    world = due()
    assert [type(order) for order in world.metadata_orders] == [ReadMetadata]
    for number in range(4, 20):
        fail(world)
        assert world.core.is_open
        put(world, str(number))
        assert world.wake(RetryMetadata) <= 10.0
    assert world.core.session_id == 0
    assert committed_texts(world) == [str(number) for number in range(20)]


@every_reason
def test_session_is_renewed_when_zookeeper_answers(due: Due) -> None:
    world = due()
    fail(world)
    world.wake(RetryMetadata)
    world.metadata_held = False
    world.let_metadata()
    assert world.core.is_open
    assert world.core.session_id == 1
    assert world.active == set(world.metadata.replicas)
    assert len(world.active) == 3
    put(world, "4")
    assert committed_texts(world) == list("01234")
    assert not any(isinstance(e, AppendsFailed | AppendsUnresolved) for e in world.events)


@every_reason
def test_attempts_to_reach_zookeeper_back_off(due: Due) -> None:
    world = due()
    pauses = []
    for _ in range(9):
        fail(world)
        assert not world.metadata_orders
        pauses.append(world.wake(RetryMetadata))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert "session 0 continues" in world.notes[-1]


@every_reason
def test_generation_of_another_server_ends_the_session(due: Due) -> None:
    world = due()
    world.hold("a", "b", "c")
    put(world, "4")
    world.metadata = PartitionMetadata(2, 1, world.metadata.replicas)
    world.version += 1
    world.metadata_held = False
    world.let_metadata()
    assert world.core.session is None
    assert world.metadata.session_id == 1, "no further session begins here"
    assert "generation 2 has begun on another server" in world.notes[-1]
    assert committed_texts(world) == list("0123"), "the append in flight is in doubt"


@every_reason
def test_new_generation_of_this_server_does_not_wait_for_the_answer(due: Due) -> None:
    world = due()
    late = world.metadata_orders.popleft()
    world.metadata_held = False
    world.core.set_generation(2)
    world.settle()
    assert world.core.is_open
    session = world.core.session_id
    world.store.metadata_read(late, world.metadata, world.version)
    world.settle()
    assert world.core.is_open
    assert world.core.session_id == session


@every_reason
def test_answer_after_the_session_has_ended_changes_nothing(due: Due) -> None:
    world = due()
    late = world.metadata_orders.popleft()
    world.cut("a")
    world.cut("b")
    assert world.core.session is None
    (begin,) = world.metadata_orders
    world.store.metadata_failed(late, "no answer")
    world.settle()
    assert list(world.metadata_orders) == [begin]
    assert not any(isinstance(wake.timer, RetryMetadata) for wake in world.wakes)


def test_metadata_backoff_of_an_ended_session_does_not_shorten_the_next_one() -> None:
    world = checkpoint()
    fail(world)
    world.metadata_held = False
    world.core.set_generation(2)
    world.settle()
    world.metadata_held = True
    put(world, *"4567", generation=2)
    fail(world)
    assert world.wake(RetryMetadata) == 0.1, "the pause of the ended session"
    assert not world.metadata_orders
    world.wake(RetryMetadata)
    assert len(world.metadata_orders) == 1


def test_replicas_that_change_back_renew_no_session() -> None:
    world = changed_replicas()
    world.core.set_replicas(("a", "b", "c"))
    world.settle()
    world.metadata_held = False
    world.let_metadata()
    assert world.core.session_id == 0
    assert world.core.is_open


def test_read_for_a_renewal_waits_for_a_pending_write() -> None:
    world = start(new_world(replace(LIMITS, checkpoint_interval=4)))
    world.connect("a", "b")
    world.metadata_held = True
    world.connect("c")
    (write,) = world.metadata_orders
    assert isinstance(write, WriteMetadata)
    put(world, "0", "1", "2", "3")
    assert list(world.metadata_orders) == [write]
    world.let_metadata()
    assert states(world)["c"] == (0, UNRESOLVED)
    assert [type(order) for order in world.metadata_orders] == [ReadMetadata]
    world.metadata_held = False
    world.let_metadata()
    assert world.core.session_id == 1
    assert world.active == {"a", "b", "c"}


def test_write_that_becomes_due_during_the_read_is_done_before_the_renewal() -> None:
    world = start(new_world(replace(LIMITS, checkpoint_interval=4)))
    world.connect("a", "b")
    world.metadata_held = True
    put(world, "0", "1", "2", "3")
    world.connect("c")
    orders = []
    while world.metadata_orders and world.core.session_id == 0:
        orders.append(type(world.metadata_orders[0]))
        world.let_metadata()
    assert orders == [ReadMetadata, WriteMetadata, ReadMetadata]
    assert states(world)["c"] == (0, UNRESOLVED)


@pytest.mark.parametrize("was_written", [False, True])
def test_failed_write_of_an_open_session_is_resolved_by_a_read(was_written: bool) -> None:
    world = start(new_world())
    world.connect("a", "b")
    world.metadata_held = True
    world.connect("c")
    write = world.metadata_orders[0]
    assert isinstance(write, WriteMetadata)
    if was_written:
        world.metadata, world.version = write.value, world.version + 1
    fail(world)
    put(world, "x")
    assert committed_texts(world) == ["x"]
    assert world.active == {"a", "b"}
    world.metadata_held = False
    world.wake(RetryMetadata)
    assert world.core.session_id == 0
    assert world.active == {"a", "b", "c"}
    assert states(world)["c"] == (0, UNRESOLVED)


def test_metadata_changed_by_another_process_end_the_session() -> None:
    world = start(new_world())
    world.connect("a", "b")
    world.metadata_held = True
    world.connect("c")
    world.version += 1
    world.let_metadata()
    assert world.core.is_open, "the write failed"
    world.wake(RetryMetadata)
    world.let_metadata()
    assert world.core.session is None
    assert any("another process has changed" in note for note in world.notes)


def test_session_that_has_not_opened_ends_when_its_write_fails() -> None:
    world = start(new_world())
    world.metadata_held = True
    world.connect()
    fail(world)
    assert world.core.session is None


def test_draining_session_sends_no_append_and_the_next_one_sends_it() -> None:
    world = opened(replace(LIMITS, checkpoint_interval=4))
    world.hold("a", "b", "c")
    put(world, "0", "1", "2", "3")
    world.core.append([append("4")])
    world.settle()
    assert world.core.queued == 1
    world.release("a", "b", "c")
    assert committed_texts(world) == list("01234")
    assert world.core.session_id == 1
