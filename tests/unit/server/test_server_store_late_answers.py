"""Test that late answers, unfit answers and old generations change nothing in a store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.replication_world import World
from tests.support.store_world import kinds, new_world, opened, put, start
from waltz.protocol import storage as st
from waltz.protocol.failures import RpcFailure
from waltz_server.core.effects import BackoffOver, RetrySession
from waltz_server.core.replication.session_state import SessionPhase


def context(request: Any) -> tuple[int, int, int]:
    return request.session_id, request.seq_num, request.partition


def success(request: Any) -> st.SuccessResponse:
    return st.SuccessResponse(*context(request))


def refusal(request: Any) -> st.FailureResponse:
    return st.FailureResponse(*context(request), RpcFailure("refused by the test"))


def answer(world: World, name: str, request: Any, response: Any) -> None:
    world.store.answered(name, request, response, 1.0)
    world.settle()


@pytest.mark.parametrize("generation", [3, 2, -1])
def test_generation_that_is_not_newer_keeps_the_session(generation: int) -> None:
    world = start(new_world(), generation=3)
    world.connect()
    session = world.core.session_id
    world.core.set_generation(generation)
    world.settle()
    assert world.core.is_open
    assert world.core.session_id == session


def test_generation_that_changes_during_recovery_begins_a_session_at_once() -> None:
    world = start(new_world())
    world.connect("a")
    assert world.core.session.phase is SessionPhase.RECOVERING
    world.core.set_generation(2)
    world.settle()
    assert world.core.session.generation == world.metadata.generation == 2
    assert world.core.healthy
    world.connect("b")
    assert world.core.is_open


@pytest.mark.parametrize("response", [success, refusal])
def test_answer_to_a_request_of_the_former_session_changes_nothing(response: Any) -> None:
    world = opened()
    world.hold("a")
    put(world, "x")
    (late,) = world.waiting("a")
    world._asked.remove(("a", late))
    world.core.set_generation(2)
    world.settle()
    world.release("a")
    assert world.active == {"a", "b", "c"}
    answer(world, "a", late, response(late))
    assert world.core.is_open
    assert world.core.session.failed == []
    assert world.active == {"a", "b", "c"}


def test_success_after_a_refusal_of_the_same_replica_is_not_counted() -> None:
    """A replica that refused an append may have a gap: nothing counts that follows it."""
    world = opened()
    world.hold("a", "b", "c")
    put(world, "1", "2", "3", "4")
    first, second = world.waiting("a")
    answer(world, "a", first, refusal(first))
    assert world.active == {"b", "c"}
    answer(world, "a", second, success(second))
    (at_b, _) = world.waiting("b")
    answer(world, "b", at_b, success(at_b))
    assert world.committed() == []
    assert world.core.session.failed == ["a"]


def test_replica_that_answers_out_of_order_is_dropped() -> None:
    """The later answer does not say that the earlier records are on the replica's disk."""
    world = opened()
    world.hold("a", "b", "c")
    put(world, "1", "2", "3", "4")
    first, second = world.waiting("a")
    answer(world, "a", second, success(second))
    answer(world, "a", first, success(first))
    assert world.core.session.failed == ["a"]
    for request in world.waiting("b"):
        answer(world, "b", request, success(request))
    assert world.committed() == []
    assert world.core.is_open


def test_second_refusal_of_the_same_replica_is_not_a_second_failure() -> None:
    world = opened()
    world.hold("a")
    put(world, "1", "2", "3", "4")
    for request in world.waiting("a"):
        answer(world, "a", request, refusal(request))
    assert world.core.session.failed == ["a"]
    assert world.core.is_open


def test_unfit_answer_to_the_first_request_lets_the_storage_back_off() -> None:
    world = start(new_world())
    world.hold("c")
    world.connect()
    (request,) = world.waiting("c")
    world._asked.clear()
    answer(world, "c", request, success(request))
    assert world.active == {"a", "b"}
    assert any("c is not ready: unexpected answer" in note for note in world.notes)
    world.release("c")
    world.wake(BackoffOver)
    assert world.active == {"a", "b", "c"}


def test_unfit_answer_to_an_append_is_no_acknowledgement() -> None:
    world = opened()
    world.hold("a", "b", "c")
    put(world, "x")
    (at_a,), (at_b,) = world.waiting("a"), world.waiting("b")
    answer(world, "a", at_a, st.MaxTransactionIdResponse(*context(at_a), 0))
    answer(world, "b", at_b, success(at_b))
    assert world.committed() == []
    assert world.core.session.failed == ["a"]
    assert world.active == {"b", "c"}


def test_answer_after_the_store_was_closed_changes_nothing() -> None:
    world = opened()
    world.hold("a", "b")
    put(world, "1")
    requests = {name: world.waiting(name)[0] for name in "ab"}
    world.core.close()
    for name, request in requests.items():
        answer(world, name, request, success(request))
    assert world.committed() == []
    assert world.core.session is None


def test_backoff_is_reset_after_a_session_has_opened() -> None:
    """Each attempt fails: another process writes the metadata after they were read."""

    def failed_attempt() -> float:
        world.metadata_held = True
        world.core.set_generation(world.core._generation + 1)
        world.settle()
        world.let_metadata()
        world.version += 1
        world.let_metadata()
        world.metadata_held = False
        pause = next(wake.seconds for wake in world.wakes if isinstance(wake.timer, RetrySession))
        world.wakes.clear()
        return pause

    world = start(new_world())
    world.connect()
    pauses = [failed_attempt(), failed_attempt()]
    assert pauses == [0.1, 0.2]
    world.core.set_generation(world.core._generation + 1)
    world.settle()
    assert world.core.is_open
    assert failed_attempt() == 0.1


def test_recovering_replica_that_fails_in_an_open_session_gets_no_further_request() -> None:
    world = start(new_world())
    world.connect("a", "b")
    put(world, "1", "2")
    world.hold("c")
    world.connect("c")
    world.let_one("c")
    sent = kinds(world, "c")
    (request,) = world.waiting("c")
    answer(world, "c", request, refusal(request))
    assert world.core.session.failed == ["c"]
    assert "failed: c" in world.core.session.recovery.waiting_for()
    assert world.active == {"a", "b"}
    assert kinds(world, "c") == sent


def test_storage_that_connects_to_a_draining_session_gets_no_request() -> None:
    world = start(new_world())
    world.connect("a", "b")
    world.hold("a", "b")
    put(world, "1", "2")
    world.core.set_replicas(("a", "b"))
    world.settle()
    assert not world.core.is_open
    session = world.core.session
    world.calls.clear()
    world.connect("c")
    assert world.core.session is session
    assert kinds(world, "c") == []
