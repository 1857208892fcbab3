"""Test the answers to single appends of protocol version 6, and mounts without a feed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.partition_world import (
    NAMES,
    flush,
    log_of,
    new_world,
    opened,
    put,
    take_messages,
)
from tests.support.replication_world import World, append
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import LOG_MARK, AppendAnswer, BatchedOutcome, OutcomeKind
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_answers import OutcomeAnswers
from waltz_server.core.appends.append_batches import AppendBatch
from waltz_server.core.effects import Ready, SendToClient
from waltz_server.core.peer import Peer

VERSION = 6


def mount(
    world: World, client: int, mark: int = -1, *, fed: bool = False, generation: int = 1,
    seq: int = 0, peer: Peer | None = None,
) -> Peer:  # fmt: skip
    """Mount as ``client``, on a new connection unless ``peer`` is given."""
    peer = peer or Peer(VERSION)
    request = cs.MountRequest(ReqId(client, generation, 0, 0), mark, seq, fed)
    world.core.mount(peer, request)
    world.settle()
    return peer


def mounted(world: World, client: int, mark: int = -1, *, generation: int = 1) -> Peer:
    peer = mount(world, client, mark, generation=generation)
    (answer,) = take_messages(world, peer)
    assert answer.state is cs.MountState.READY
    return peer


def answered(peer: Peer, text: str, seq: int, **more: Any) -> Append:
    """Return an append whose outcome is sent to ``peer``."""
    made = append(text, seq=seq, **more)
    made.answer_to = peer
    return made


def answers(world: World, peer: Peer) -> list[list[tuple[int, OutcomeKind, int]]]:
    """Take the answers: for each message, the sequence number and outcome of each append."""
    messages = take_messages(world, peer)
    assert all(isinstance(m, cs.AppendAnswers) for m in messages), messages
    return [[(a.seq, OutcomeKind(a.kind), a.transaction_id) for a in m.answers] for m in messages]


def test_commits_of_one_connection_are_answered_together_in_log_order() -> None:
    world = opened()
    one, two = mounted(world, 1), mounted(world, 2)
    world.hold(*NAMES)
    put(world, one, answered(one, "first", 1))
    put(world, one, answered(one, "a", 2))
    put(world, two, answered(two, "b", 1, client=2))
    put(world, one, answered(one, "c", 3))
    world.release(*NAMES)
    assert log_of(world) == ["first", "a", "b", "c"]
    flat = [answer for message in answers(world, one) for answer in message]
    committed = OutcomeKind.COMMITTED
    assert flat == [(1, committed, 0), (2, committed, 1), (3, committed, 3)]
    assert answers(world, two) == [[(1, committed, 2)]]


def test_appends_of_one_commit_are_one_message_with_the_mark() -> None:
    world = opened(last=4)
    peer = mounted(world, 1, 4)
    put(world, peer, *(answered(peer, f"{n}", n) for n in (7, 8, 9)))
    (message,) = take_messages(world, peer)
    assert message == cs.AppendAnswers(
        ReqId(1, 1, 0, 7),
        7,
        tuple(AppendAnswer(1, 1, 0, n, OutcomeKind.COMMITTED, n - 2) for n in (7, 8, 9)),
    )


def test_append_whose_lock_was_taken_is_answered_as_refused() -> None:
    world = opened()
    peer = mounted(world, 1)
    put(world, peer, answered(peer, "winner", 1, write=(7,)))
    put(world, peer, answered(peer, "loser", 2, write=(7,)))
    assert answers(world, peer) == [
        [(1, OutcomeKind.COMMITTED, 0)],
        [(2, OutcomeKind.REFUSED, 0)],
    ]
    assert world.core.open_appends == 0


def test_append_with_a_mark_beyond_the_log_is_answered_ahead_with_the_last_id() -> None:
    world = opened(last=4)
    peer = mounted(world, 1, 4)
    put(world, peer, answered(peer, "ahead", 1, mark=5), answered(peer, "at the end", 2, mark=4))
    assert answers(world, peer) == [
        [(1, OutcomeKind.AHEAD, 4)],
        [(2, OutcomeKind.COMMITTED, 5)],
    ]
    assert world.core.open_appends == 0


def test_append_before_version_6_with_a_mark_beyond_the_log_is_accepted() -> None:
    """Versions before 6 have no answer for it, and clients of these versions rely on that."""
    world = opened()
    peer = mounted(world, 1)
    put(world, peer, append("old", mark=1000))
    assert take_messages(world, peer) == []
    assert log_of(world) == ["old"]


@pytest.mark.parametrize(("version", "is_ahead"), [(5, False), (6, True)])
def test_batch_of_a_client_that_is_ahead_is_refused_on_version_6(
    version: int, is_ahead: bool
) -> None:
    world = opened(last=4)
    peer = mount(world, 1, 4, peer=Peer(version))
    take_messages(world, peer)
    appends = [append("a", mark=9, write=(1,)), append("b", mark=9)]
    world.core.append_batch(AppendBatch(peer, ReqId(1, 1, 0, 7), appends))
    world.settle()
    (answer,) = take_messages(world, peer)
    if is_ahead:
        assert answer.outcomes == (BatchedOutcome(OutcomeKind.AHEAD, 4),) * 2
    else:
        assert [each.transaction_id for each in answer.outcomes] == [5, 6]
    assert world.core.open_appends == 0
    assert len(log_of(world)) == (5 if is_ahead else 7)


def test_locks_of_a_log_mark_batch_are_checked_against_what_follows_its_arrival() -> None:
    world = opened(last=4)
    peer = mounted(world, 1, 4)
    world.hold(*NAMES)
    put(world, peer, answered(peer, "holder", 1, mark=4, write=(7,)))
    batch = [append("waits", mark=LOG_MARK, write=(7,)), append("free", mark=LOG_MARK, write=(8,))]
    world.core.append_batch(AppendBatch(peer, ReqId(1, 1, 0, 2), batch))
    world.settle()
    world.release(*NAMES)
    single, batched = take_messages(world, peer)
    assert single.answers[0].transaction_id == 5
    assert batched.outcomes == (
        BatchedOutcome(OutcomeKind.REFUSED, 5),
        BatchedOutcome(OutcomeKind.COMMITTED, 6),
    )


def test_mark_of_the_log_is_the_mark_when_the_append_arrives() -> None:
    """An append that waits for a busy lock is refused when the lock is taken meanwhile."""
    world = opened(last=4)
    one, two = mounted(world, 1, 4), mounted(world, 2, 4)
    world.hold(*NAMES)
    put(world, one, answered(one, "holder", 1, mark=LOG_MARK, write=(7,)))
    put(world, two, answered(two, "waits", 1, client=2, mark=LOG_MARK, write=(7,)))
    world.release(*NAMES)
    assert answers(world, one) == [[(1, OutcomeKind.COMMITTED, 5)]]
    assert answers(world, two) == [[(1, OutcomeKind.REFUSED, 5)]]
    put(world, two, answered(two, "later", 2, client=2, mark=LOG_MARK, write=(7,)))
    assert answers(world, two) == [[(2, OutcomeKind.COMMITTED, 6)]]


def test_log_mark_append_that_arrives_before_a_session_uses_the_mark_of_that_session() -> None:
    world = new_world(last=2)
    peer = mount(world, 1, 2)
    put(world, peer, answered(peer, "3", 1, mark=LOG_MARK, write=(7,)))
    world.connect()
    ready, answer = take_messages(world, peer)
    assert ready.state is cs.MountState.READY
    assert answer.answers == (AppendAnswer(1, 1, 0, 1, OutcomeKind.COMMITTED, 3),)


def test_appends_of_a_failed_session_are_answered_as_absent() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, *(answered(peer, f"{n}", n) for n in range(3)))
    for name in NAMES:
        world.cut(name)
    world.held.clear()
    world.connect()
    while not world.core.store.is_open:
        world.wake(type(next(w.timer for w in world.wakes)))
    flat = [answer for message in answers(world, peer) for answer in message]
    assert flat == [(n, OutcomeKind.ABSENT, -1) for n in range(3)]
    assert log_of(world) == []


def test_dropped_appends_are_not_answered() -> None:
    """An answer would make a client send them again before it knows the new generation."""
    world = opened()
    peer, other, stranger = mounted(world, 1), mounted(world, 2), Peer(VERSION)
    put(world, peer, answered(peer, "other generation", 1, generation=2))
    put(world, stranger, answered(stranger, "not mounted", 1))
    world.hold(*NAMES)
    put(world, peer, answered(peer, "sent", 2, write=(7,)))
    put(world, other, answered(other, "waits", 1, client=2, write=(7,)))
    world.core.set_generation(2)
    world.settle()
    for each in (peer, other, stranger):
        assert take_messages(world, each) == []


def test_appends_left_unresolved_are_not_answered() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, answered(peer, "in flight", 1))
    world.core.set_generation(2)
    world.settle()
    world.release(*NAMES)
    assert world.core.open_appends == 0
    assert take_messages(world, peer) == []


def test_released_partition_does_not_answer_its_open_appends() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, answered(peer, "in flight", 1))
    world.core.close()
    world.settle()
    assert take_messages(world, peer) == []


def test_append_in_flight_at_connection_close_is_committed() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, answered(peer, "in flight", 1))
    world.core.lost(peer)
    world.release(*NAMES)
    assert log_of(world) == ["in flight"]
    again = mount(world, 1, -1, fed=True, seq=1)
    fed, ready = take_messages(world, again)
    assert fed == cs.FeedData(ReqId(1, 1, 0, 1), 0, 0)
    assert ready.state is cs.MountState.READY


def test_answers_precede_the_answer_to_a_later_flush() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, answered(peer, "0", 1, write=(7,)), answered(peer, "1", 2, write=(7,)))
    flush(world, peer, 1, 3)
    world.release(*NAMES)
    kinds = [type(m).__name__ for m in take_messages(world, peer)]
    assert kinds == ["AppendAnswers", "AppendAnswers", "FlushResponse"]


def test_mount_without_a_feed_is_ready_at_once() -> None:
    world = opened(last=4)
    peer = mount(world, 1, -1)
    assert take_messages(world, peer) == [cs.MountResponse(ReqId(1, 1, 0, 0), cs.MountState.READY)]
    put(world, peer, answered(peer, "5", 1))
    assert answers(world, peer) == [[(1, OutcomeKind.COMMITTED, 5)]]


@pytest.mark.parametrize("fed", [False, True])
def test_mount_of_a_client_that_is_ahead_is_refused(fed: bool) -> None:
    world = opened(last=4)
    peer = mount(world, 1, 5, fed=fed)
    assert take_messages(world, peer) == [
        cs.MountResponse(ReqId(1, 1, 0, 0), cs.MountState.CLIENT_AHEAD)
    ]


def test_mount_without_a_feed_ends_the_feed_of_the_connection() -> None:
    world = opened(last=4)
    peer = mount(world, 1, 4, fed=True)
    world.core.feed(peer, cs.FeedRequest(ReqId(1, 1, 0, 0), 4))
    world.settle()
    mount(world, 1, 4, peer=peer)
    take_messages(world, peer)
    put(world, peer, answered(peer, "5", 1))
    assert answers(world, peer) == [[(1, OutcomeKind.COMMITTED, 5)]]


_INTS = st.integers(-(2**31), 2**31 - 1)
_APPENDS = st.lists(st.tuples(_INTS, _INTS, st.integers(0, 2)), min_size=1, max_size=8)


@given(_APPENDS, st.integers(0, 1 << 60))
def test_frames_of_answers_equal_those_of_the_codec(
    shapes: list[tuple[int, int, int]], first_id: int
) -> None:
    """Each append is of connection 0 or 1, or needs no answer (2)."""
    ready = Ready()
    peers = (Peer(6), Peer(6))
    appends = []
    for client, seq, receiver in shapes:
        made = append("x", client=client, seq=seq)
        made.answer_to = None if receiver == 2 else peers[receiver]
        appends.append(made)
    mark = first_id + len(appends) - 1
    OutcomeAnswers(ready).committed(appends, first_id, mark)
    sent = {
        effect.peer: effect.frames for effect in ready.take() if isinstance(effect, SendToClient)
    }
    for number, peer in enumerate(peers):
        expected = tuple(
            AppendAnswer(client, 1, 0, seq, OutcomeKind.COMMITTED, transaction_id)
            for transaction_id, (client, seq, receiver) in enumerate(shapes, first_id)
            if receiver == number
        )
        if expected:
            message = cs.AppendAnswers(ReqId(*expected[0][:4]), mark, expected)
            assert sent[peer] == cs.encode(message, 6)
        else:
            assert peer not in sent
