"""Appends that a server of version 6 answers: their outcomes, and when the client needs a feed."""

from __future__ import annotations

from typing import Any

import pytest

from waltz.client.core.append_values import Append, AppendResult, Outcome
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.mount import NOT_READY_BACKOFF_SECONDS, RequestIds
from waltz.protocol.batches import LOG_MARK, AppendAnswer, BatchedOutcome, OutcomeKind
from waltz.protocol.client_server import (
    AnsweredAppendRequest,
    AppendAnswers,
    AppendBatchRequest,
    AppendBatchResponse,
    AppendRequest,
    FeedRequest,
    FeedSuspended,
    FlushRequest,
    FlushResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    MountState,
    RequestDenied,
)
from waltz.protocol.records import ReqId

CLIENT, GENERATION = 9, 3
START = 4
"""The end of the log when the client begins."""
LONG_WAIT = 5.0
COMMITTED, REFUSED, ABSENT, AHEAD = (
    OutcomeKind.COMMITTED,
    OutcomeKind.REFUSED,
    OutcomeKind.ABSENT,
    OutcomeKind.AHEAD,
)


class Scene:
    """The appends of client 9 to partition 0, mounted on a server of version 6."""

    def __init__(self) -> None:
        self.appends = PartitionAppends(RequestIds(CLIENT, 0), START, LONG_WAIT)
        self.sent: list[Any] = []
        """The messages of the client that `take` has not returned yet."""
        self.connections = 0
        self.mount()

    def attach(self, version: int = 6, generation: int = GENERATION) -> MountRequest:
        """Connect again; return the mount request."""
        self.appends.detach()
        self.sent = []
        self.appends.effects.take_messages()
        self.appends.attach(generation, self.connections, version)
        self.connections += 1
        request: MountRequest = self.take(MountRequest)
        return request

    def mount(self, version: int = 6, generation: int = GENERATION) -> MountRequest:
        """Connect again, and mount; return the mount request."""
        request = self.attach(version, generation)
        self.ready(request)
        return request

    def ready(self, request: MountRequest) -> None:
        self.appends.received(MountResponse(request.req_id, MountState.READY))

    def append(self, token: str, **more: Any) -> ReqId:
        """Append, and return the request id."""
        self.appends.append(token, Append(b"data", 0, **more))
        req_id: ReqId = self.take(AppendRequest).req_id
        return req_id

    def answer(self, mark: int, *answers: tuple[ReqId, OutcomeKind, int]) -> None:
        """Let the client receive answers with the log's mark ``mark``."""
        made = tuple(
            AppendAnswer(r.client_id, r.generation, r.partition, r.seq, kind, number)
            for r, kind, number in answers
        )
        self.appends.received(AppendAnswers(answers[0][0], mark, made))

    def feed(self, first_id: int, *req_ids: ReqId | None) -> None:
        """Feed transactions from ``first_id`` on; None: of another client."""
        other = ReqId(CLIENT + 1, GENERATION, 0, 0)
        self.appends.feed_received(
            [
                (r.client_id, r.generation, r.partition, r.seq, transaction_id, 0)
                for transaction_id, r in enumerate((r or other for r in req_ids), first_id)
            ]
        )

    def answer_flush(self, mark: int) -> None:
        self.appends.received(FlushResponse(self.take(FlushRequest).req_id, mark))

    def all_sent(self, kind: type) -> list[Any]:
        """Take all messages of one kind that the client has sent."""
        self.sent += self.appends.effects.take_messages()
        found = [message for message in self.sent if isinstance(message, kind)]
        self.sent = [message for message in self.sent if not isinstance(message, kind)]
        return found

    def take(self, kind: type) -> Any:
        """Take the only message of one kind."""
        (message,) = self.all_sent(kind)
        return message

    def results(self) -> list[AppendResult]:
        return self.appends.effects.take_results()

    def outcomes(self) -> dict[object, Outcome]:
        results = self.results()
        outcomes = {each.token: each.outcome for each in results}
        assert len(outcomes) == len(results), "settled twice"
        return outcomes


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_answers_settle_appends_without_a_feed(scene: Scene) -> None:
    ids = [scene.append(token) for token in "abcd"]
    scene.answer(5, (ids[0], COMMITTED, 5))
    scene.answer(5, (ids[1], REFUSED, 5))
    scene.answer(5, (ids[2], ABSENT, -1))
    scene.answer(5, (ids[3], AHEAD, 5))
    assert scene.results() == [
        AppendResult("a", Outcome.COMMITTED, 5),
        AppendResult("b", Outcome.LOCK_FAILED, 5),
        AppendResult("c", Outcome.ABSENT, -1),
        AppendResult("d", Outcome.AHEAD, 5),
    ]
    assert scene.all_sent(FeedRequest) == scene.all_sent(FlushRequest) == []
    assert scene.appends.log_mark == scene.appends.mark == 5
    assert scene.appends.idle


def test_first_mount_requests_no_feed() -> None:
    scene = Scene()
    assert scene.mount() == MountRequest(ReqId(CLIENT, GENERATION, 0, 1), START, 1, fed=False)
    assert scene.all_sent(FeedRequest) == scene.all_sent(FlushRequest) == []


def test_append_without_a_mark_has_the_mark_of_the_log(scene: Scene) -> None:
    scene.appends.append("default", Append(b"data", 0))
    scene.appends.append("given", Append(b"data", 0, mark=2))
    requests = scene.all_sent(AnsweredAppendRequest)
    assert [request.client_high_water_mark for request in requests] == [LOG_MARK, 2]


def test_batch_is_settled_by_its_answer(scene: Scene) -> None:
    draft = Append(b"data", 0)
    scene.appends.append_batch("abcd", (draft,) * 4)
    request = scene.take(AppendBatchRequest)
    assert request.client_high_water_mark == LOG_MARK
    kinds = (OutcomeKind.REFUSED, OutcomeKind.COMMITTED, OutcomeKind.ABSENT, OutcomeKind.UNKNOWN)
    outcomes = tuple(
        BatchedOutcome(kind, number) for kind, number in zip(kinds, (3, 5, -1, -1), strict=True)
    )
    scene.appends.received(AppendBatchResponse(request.req_id, outcomes))
    assert scene.outcomes() == {
        "a": Outcome.LOCK_FAILED,
        "b": Outcome.COMMITTED,
        "c": Outcome.ABSENT,
    }
    assert scene.mount(generation=GENERATION + 1).fed, "the unknown one is looked up in the log"


def test_batch_of_a_client_that_is_ahead_is_settled(scene: Scene) -> None:
    scene.appends.append_batch("ab", (Append(b"data", 0, mark=99),) * 2)
    request = scene.take(AppendBatchRequest)
    outcomes = (BatchedOutcome(AHEAD, 4),) * 2
    scene.appends.received(AppendBatchResponse(request.req_id, outcomes))
    assert scene.results() == [AppendResult(token, Outcome.AHEAD, 4) for token in "ab"]


def test_lost_answer_is_found_in_the_feed(scene: Scene) -> None:
    first = scene.append("a")
    scene.answer(5, (first, COMMITTED, 5))
    lost = scene.append("lost")
    mount = scene.attach()
    assert mount.fed
    assert mount.client_high_water_mark == 5
    scene.feed(6, None, lost)
    scene.ready(mount)
    assert scene.results()[-1] == AppendResult("lost", Outcome.COMMITTED, 7)
    assert scene.all_sent(FeedRequest) == scene.all_sent(FlushRequest) == []


def test_append_that_neither_feed_nor_flush_has_found_is_absent(scene: Scene) -> None:
    scene.append("lost")
    mount = scene.attach()
    scene.feed(5, None)
    scene.ready(mount)
    assert scene.take(FeedRequest).client_high_water_mark == 5
    scene.answer_flush(6)
    assert scene.outcomes() == {}, "transaction 6 may be the append"
    scene.feed(6, None)
    assert scene.outcomes() == {"lost": Outcome.ABSENT}


def test_mark_does_not_pass_an_append_in_doubt() -> None:
    """Otherwise the feed would not show the append, and it would be in the log twice."""
    scene = Scene()
    in_doubt = scene.append("in doubt")  # It is committed as 5, and the answer is lost.
    other = scene.append("other")
    scene.answer(9, (other, REFUSED, 9))
    assert scene.appends.log_mark == 9
    assert scene.appends.mark == START
    mount = scene.attach()
    assert mount == MountRequest(mount.req_id, START, 1, fed=True)
    scene.feed(5, in_doubt, None, None, None, None)
    scene.ready(mount)
    assert scene.outcomes() == {"other": Outcome.LOCK_FAILED, "in doubt": Outcome.COMMITTED}


def test_mark_advances_to_the_log_mark_of_the_oldest_append_in_doubt(scene: Scene) -> None:
    old = scene.append("old")
    scene.answer(7, (old, COMMITTED, 7))
    young = scene.append("young")
    newest = scene.append("newest")
    scene.answer(12, (newest, REFUSED, 12))
    assert (scene.appends.mark, scene.appends.log_mark) == (7, 12)
    scene.answer(13, (young, COMMITTED, 13))
    assert (scene.appends.mark, scene.appends.log_mark) == (13, 13)


def test_later_commit_does_not_settle_earlier_appends_but_looks_for_them(scene: Scene) -> None:
    skipped, later = scene.append("skipped"), scene.append("later")
    scene.answer(6, (later, COMMITTED, 6))
    assert scene.outcomes() == {"later": Outcome.COMMITTED}
    assert scene.take(FeedRequest).client_high_water_mark == START
    scene.feed(5, skipped, later)
    assert scene.outcomes() == {"skipped": Outcome.COMMITTED}
    scene.answer_flush(6)
    assert scene.outcomes() == {}


def test_skipped_append_that_is_not_in_the_log_is_absent(scene: Scene) -> None:
    scene.append("skipped")
    for number in (5, 6):
        later = scene.append(f"later {number}")
        scene.answer(number, (later, COMMITTED, number))
    scene.take(FeedRequest)
    scene.answer_flush(6)
    assert "skipped" not in scene.outcomes()
    scene.feed(5, None, None)
    assert scene.outcomes() == {"skipped": Outcome.ABSENT}


def test_refused_append_causes_no_search_for_earlier_ones(scene: Scene) -> None:
    """A server refuses an append at once, and answers a commit only when it is on disk."""
    scene.append("in flight")
    refused = scene.append("refused")
    scene.answer(START, (refused, REFUSED, 3))
    assert scene.all_sent(FeedRequest) == scene.all_sent(FlushRequest) == []


def test_append_without_an_answer_is_looked_for_after_a_flush(scene: Scene) -> None:
    scene.append("dropped")
    scene.appends.tick(0.0)
    scene.appends.tick(LONG_WAIT)
    assert scene.all_sent(FeedRequest) == []
    scene.answer_flush(5)
    assert scene.take(FeedRequest).client_high_water_mark == START
    scene.feed(5, None)
    assert scene.outcomes() == {"dropped": Outcome.ABSENT}


def test_feed_is_not_continued_when_no_append_needs_it(scene: Scene) -> None:
    lost = scene.append("lost")
    mount = scene.mount()
    scene.take(FeedRequest)
    scene.appends.received(FeedSuspended(mount.req_id))
    assert len(scene.all_sent(FeedRequest)) == 1, "the append is in doubt still"
    scene.feed(5, lost)
    scene.appends.received(FeedSuspended(mount.req_id))
    assert scene.all_sent(FeedRequest) == []
    assert not scene.mount().fed


def test_feed_is_requested_once_at_a_time(scene: Scene) -> None:
    scene.append("lost")
    scene.mount()
    scene.take(FeedRequest)
    scene.answer_flush(20)
    assert scene.all_sent(FeedRequest) == []


def test_feed_that_was_denied_is_requested_again_after_the_next_mount(scene: Scene) -> None:
    scene.append("lost")
    mount = scene.mount()
    scene.take(FeedRequest)
    scene.appends.received(RequestDenied(mount.req_id, "no right"))
    scene.appends.tick(0.0)
    scene.appends.tick(NOT_READY_BACKOFF_SECONDS)
    scene.ready(scene.take(MountRequest))
    assert len(scene.all_sent(FeedRequest)) == 1


def test_answers_to_settled_appends_are_ignored(scene: Scene) -> None:
    req_id = scene.append("a")
    for _ in range(2):
        scene.answer(5, (req_id, COMMITTED, 5))
    scene.answer(5, (req_id, ABSENT, -1))
    assert scene.results() == [AppendResult("a", Outcome.COMMITTED, 5)]


def test_answers_of_another_generation_are_ignored(scene: Scene) -> None:
    req_id = scene.append("a")
    other = ReqId(CLIENT, GENERATION - 1, 0, req_id.seq)
    scene.answer(5, (other, COMMITTED, 5))
    assert scene.outcomes() == {}


def test_answers_find_appends_whose_sequence_numbers_wrap(scene: Scene) -> None:
    scene.appends._ids.last = 2**31 - 3
    ids = [scene.append(token) for token in "abcd"]
    assert ids[0].seq > 0 > ids[-1].seq
    scene.answer(8, *((req_id, COMMITTED, n) for n, req_id in enumerate(ids, 5)))
    assert [result.number for result in scene.results()] == [5, 6, 7, 8]


def test_refused_append_of_an_older_server_waits_for_the_feed_of_a_newer_one(
    scene: Scene,
) -> None:
    scene.mount(version=5)
    scene.all_sent(FeedRequest)
    refused = scene.append("refused")
    scene.appends.received(LockFailure(refused, 6))
    assert scene.outcomes() == {}
    mount = scene.attach(version=6)
    assert mount.fed
    scene.feed(5, None, None)
    assert scene.outcomes() == {"refused": Outcome.LOCK_FAILED}
    scene.ready(mount)
    assert scene.all_sent(FeedRequest) == []


def test_older_server_gets_appends_without_an_answer_and_a_feed(scene: Scene) -> None:
    first = scene.append("answered")
    scene.answer(8, (first, COMMITTED, 8))
    scene.append("in doubt")
    mount = scene.attach(version=5)
    assert mount.client_high_water_mark == 8
    scene.ready(mount)
    assert scene.take(FeedRequest).client_high_water_mark == 8
    scene.appends.append("fed", Append(b"data", 0))
    request = scene.take(AppendRequest)
    assert type(request) is AppendRequest
    assert request.client_high_water_mark == 8
    scene.feed(9, request.req_id)
    assert scene.outcomes() == {
        "answered": Outcome.COMMITTED,
        "in doubt": Outcome.ABSENT,
        "fed": Outcome.COMMITTED,
    }
