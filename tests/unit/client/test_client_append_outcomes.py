"""One client's appends to one partition: what counts as their outcome, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from waltz.client.core.append_values import Append, AppendResult, Outcome
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.mount import AHEAD_CONFIRMATIONS, RequestIds
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.client_server import (
    AppendBatchRequest,
    AppendBatchResponse,
    AppendRequest,
    FeedRequest,
    FeedSuspended,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    MountState,
)
from waltz.protocol.records import ReqId

CLIENT, GENERATION, VERSION = 9, 3, 5
APPEND = Append(b"data", 0, 0, (), (), (), None)


class Scene:
    """The appends of client 9 to partition 0, whose log ended at 4 when the client began."""

    def __init__(self) -> None:
        self.appends = PartitionAppends(RequestIds(CLIENT, 0), 4, 60.0)

    def mount(self, generation: int = GENERATION) -> None:
        self.appends.attach(generation, 0, VERSION)
        mount = self.sent(MountRequest)[-1]
        self.appends.received(MountResponse(mount.req_id, MountState.READY))

    def answer_mark(self, mark: int) -> None:
        """Answer the present mount and the request for the mark that follows; let time pass."""
        (mount,) = self.sent(MountRequest)
        self.appends.received(MountResponse(mount.req_id, MountState.CLIENT_AHEAD))
        (request,) = self.sent(HighWaterMarkRequest)
        self.appends.received(HighWaterMarkResponse(request.req_id, mark))
        self.appends.tick(0.0)
        self.appends.tick(1000.0)

    def sent(self, kind: type) -> list[Any]:
        """Return the messages of one kind, and forget all messages so far."""
        return [m for m in self.appends.effects.take_messages() if isinstance(m, kind)]

    def outcomes(self) -> list[tuple[object, Outcome]]:
        return [(each.token, each.outcome) for each in self.appends.effects.take_results()]


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.mount()
    return scene


def test_transaction_of_another_generation_is_not_an_append_of_this_one(scene: Scene) -> None:
    scene.appends.append("a", APPEND)
    (request,) = scene.sent(AppendRequest)
    seq = request.req_id.seq
    scene.appends.feed_received([(CLIENT, GENERATION - 1, 0, seq, 5, 0)])
    assert scene.outcomes() == []
    scene.appends.feed_received([(CLIENT, GENERATION, 0, seq, 6, 0)])
    assert scene.outcomes() == [("a", Outcome.COMMITTED)]


def test_answer_to_a_batch_of_another_generation_decides_nothing(scene: Scene) -> None:
    scene.appends.append_batch(["a", "b"], [APPEND, APPEND])
    (request,) = scene.sent(AppendBatchRequest)
    absent = (BatchedOutcome(OutcomeKind.ABSENT),) * 2
    first = request.req_id
    other = ReqId(CLIENT, GENERATION - 1, 0, first.seq)
    scene.appends.received(AppendBatchResponse(other, absent))
    assert scene.outcomes() == []
    scene.appends.received(AppendBatchResponse(first, absent))
    assert scene.outcomes() == [("a", Outcome.ABSENT), ("b", Outcome.ABSENT)]


def test_batch_that_was_not_sent_is_withdrawn_as_a_whole() -> None:
    scene = Scene()
    scene.appends.append_batch(["a", "b"], [APPEND, APPEND])
    scene.appends.append("c", APPEND)
    assert scene.appends.withdraw(["b"]) == [
        AppendResult("a", Outcome.UNSENT),
        AppendResult("b", Outcome.UNSENT),
    ]
    scene.mount()
    assert scene.sent(AppendBatchRequest) == []


def test_feed_is_requested_again_only_for_the_present_session(scene: Scene) -> None:
    session = scene.appends.mount.request_id
    assert session is not None
    scene.sent(FeedRequest)
    scene.appends.received(FeedSuspended(ReqId(CLIENT, GENERATION, 0, session.seq + 1)))
    assert scene.sent(FeedRequest) == []
    scene.appends.received(FeedSuspended(session))
    assert scene.sent(FeedRequest) == [FeedRequest(session, 4)]


def test_log_below_the_mark_is_reported_after_consecutive_answers() -> None:
    """A server that has not noticed yet that it lost the partition may answer with an old mark."""
    scene = Scene()
    scene.appends.attach(GENERATION, 1, VERSION)
    for mark in (*(2,) * (AHEAD_CONFIRMATIONS - 1), 4, *(2,) * (AHEAD_CONFIRMATIONS - 1)):
        scene.answer_mark(mark)
    assert scene.appends.mount.log_mark_behind is None
    scene.answer_mark(2)
    assert scene.appends.mount.log_mark_behind == 2


def test_appends_in_doubt_end_once_when_the_log_is_shorter_than_the_mark(scene: Scene) -> None:
    scene.appends.append("sent", APPEND)
    scene.appends.detach()
    scene.appends.append("waiting", APPEND)
    scene.appends.attach(GENERATION + 1, 1, VERSION)
    for _ in range(AHEAD_CONFIRMATIONS):
        scene.answer_mark(2)
    assert scene.outcomes() == [("waiting", Outcome.AHEAD), ("sent", Outcome.UNCERTAIN)]
    scene.appends.close()
    assert scene.outcomes() == []


def test_refused_append_ends_once_when_the_log_is_shorter_than_the_mark(scene: Scene) -> None:
    scene.appends.append("refused", APPEND)
    (request,) = scene.sent(AppendRequest)
    scene.appends.received(LockFailure(request.req_id, 6))
    assert scene.outcomes() == []
    scene.appends.detach()
    scene.appends.attach(GENERATION + 1, 1, VERSION)
    for _ in range(AHEAD_CONFIRMATIONS):
        scene.answer_mark(2)
    assert scene.appends.effects.take_results() == [AppendResult("refused", Outcome.LOCK_FAILED, 6)]
    scene.appends.close()
    assert scene.outcomes() == []
