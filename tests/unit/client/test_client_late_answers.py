"""Read requests whose answers arrive after the timeout, when they have been sent again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from waltz.client.core.mount import RequestIds
from waltz.client.core.read_values import (
    Answer,
    AnswerKind,
    ReadData,
    ReadHeaders,
    ReadMark,
    ReadRecords,
    ReadRequest,
)
from waltz.client.core.requests import (
    DATA_TIMEOUTS_SECONDS,
    PartitionRequests,
)
from waltz.protocol.client_server import (
    HeadersResponse,
    HighWaterMarkResponse,
    Message,
    RecordsResponse,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz.protocol.records import EMPTY_BATCH, ReqId, checksum

GENERATION, VERSION = 3, 7

DATA = b"data"

READS: list[tuple[ReadRequest, Callable[[ReqId], Message]]] = [
    (ReadMark(), lambda req_id: HighWaterMarkResponse(req_id, 2)),
    (ReadData(1), lambda req_id: data_answer(req_id)),
    (ReadRecords(3, 1, 100, 500), lambda req_id: RecordsResponse(req_id, None, 2, EMPTY_BATCH)),
    (ReadHeaders(3, 1), lambda req_id: HeadersResponse(req_id, None, 2, ())),
]


def data_answer(req_id: ReqId, data: bytes = DATA) -> TransactionDataResponse:
    return TransactionDataResponse(req_id, 1, data, checksum(data))


class Reads:
    """The reads of one client of partition 0."""

    def __init__(self) -> None:
        self.requests = PartitionRequests(RequestIds(9, 0))
        self.requests.attach(GENERATION, VERSION)
        self.now = 0.0

    def sent(self) -> list[ReqId]:
        return [message.req_id for message in self.requests.effects.take_messages()]

    def receive(self, message: Message) -> list[Answer]:
        self.requests.received(message)
        return self.requests.effects.take_results()

    def send_repeatedly(self, request: ReadRequest, times: int) -> list[ReqId]:
        """Send a request ``times`` times by letting its timeouts pass; return its ids."""
        self.requests.add("token", request)
        ids = self.sent()
        while len(ids) < times:
            self.requests.tick(self.now)
            self.now += 1000.0
            self.requests.tick(self.now)
            ids += self.sent()
        return ids


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.mark.parametrize("answered", range(3))
@pytest.mark.parametrize(("request_", "answer"), READS)
def test_first_answer_to_any_id_of_a_repeated_request_is_its_only_result(
    reads: Reads, request_: ReadRequest, answer: Callable[[ReqId], Message], answered: int
) -> None:
    ids = reads.send_repeatedly(request_, 3)
    assert len(set(ids)) == 3
    assert [each.token for each in reads.receive(answer(ids[answered]))] == ["token"]
    assert reads.requests.idle
    assert [result for each in ids for result in reads.receive(answer(each))] == []


@pytest.mark.parametrize(
    ("request_", "timeouts"),
    [
        (ReadMark(), [1, 2, 4, 8, 8, 8]),
        (ReadData(1), [10, 20, 40, 80, 160, 320, 640, 640]),
        (ReadHeaders(3, 1), [10, 20]),
        (ReadRecords(3, 1, 100, 30_000), [40, 50, 70]),
    ],
)
def test_timeout_of_an_unanswered_request_doubles_up_to_the_longest(
    reads: Reads, request_: ReadRequest, timeouts: list[float]
) -> None:
    reads.requests.add("token", request_)
    assert len(reads.sent()) == 1
    for timeout in timeouts:
        reads.requests.tick(reads.now)
        reads.requests.tick(reads.now + timeout - 0.1)
        assert reads.sent() == []
        reads.now += timeout
        reads.requests.tick(reads.now)
        assert len(reads.sent()) == 1


def test_slow_connection_carries_no_repetitions_after_the_first_reads(reads: Reads) -> None:
    """Each answer takes 100 s, and the answers to repetitions take the place of others."""
    queue: deque[ReqId] = deque()
    results: list[Answer] = []
    seconds, on_the_way = [], 0
    for _ in range(6):
        reads.requests.add("token", ReadData(1))
        begun, results = reads.now, []
        while not results:
            assert reads.now - begun < 2000
            reads.requests.tick(reads.now)
            queue.extend(reads.sent())
            reads.now += 1
            on_the_way += 1
            if on_the_way == 100:
                on_the_way = 0
                results = reads.receive(data_answer(queue.popleft()))
        assert [each.data for each in results] == [DATA]
        seconds.append(reads.now - begun)
    assert seconds[0] == 100
    assert seconds[-2:] == [100, 100]


def test_timeouts_of_a_new_connection_are_short_again(reads: Reads) -> None:
    ids = reads.send_repeatedly(ReadData(1), 4)
    reads.receive(data_answer(ids[0]))
    reads.requests.attach(GENERATION + 1, VERSION)
    reads.requests.add("next", ReadData(1))
    assert len(reads.sent()) == 1
    reads.requests.tick(reads.now)
    reads.requests.tick(reads.now + DATA_TIMEOUTS_SECONDS.first_seconds)
    assert len(reads.sent()) == 1


def test_cancelled_request_accepts_the_answer_to_none_of_its_ids(reads: Reads) -> None:
    ids = reads.send_repeatedly(ReadData(1), 3)
    reads.requests.cancel("token")
    assert reads.requests.idle
    assert [result for each in ids for result in reads.receive(data_answer(each))] == []


def test_repeated_request_is_sent_once_on_a_new_connection(reads: Reads) -> None:
    """The next connection has no answers to ids of an earlier one."""
    old = reads.send_repeatedly(ReadData(1), 3)
    reads.requests.attach(GENERATION + 1, VERSION)
    (new,) = reads.sent()
    assert [result for each in old for result in reads.receive(data_answer(each))] == []
    assert len(reads.receive(data_answer(new))) == 1


def test_close_returns_the_token_of_a_repeated_request_once(reads: Reads) -> None:
    reads.send_repeatedly(ReadData(1), 3)
    assert reads.requests.close() == ["token"]
    assert reads.requests.idle


@pytest.mark.parametrize(
    "wrong",
    [
        lambda req_id: TransactionDataResponse(req_id, 1, None),
        lambda req_id: TransactionDataResponse(req_id, 1, DATA, checksum(DATA) ^ 1),
        lambda req_id: HighWaterMarkResponse(req_id, 2),
    ],
    ids=["error", "wrong checksum", "another type"],
)
def test_repeated_request_is_sent_once_after_a_failed_answer(
    reads: Reads, wrong: Callable[[ReqId], Message]
) -> None:
    ids = reads.send_repeatedly(ReadData(1), 3)
    assert [result for each in ids for result in reads.receive(wrong(each))] == []
    reads.requests.tick(reads.now)
    reads.requests.tick(reads.now + DATA_TIMEOUTS_SECONDS.first_seconds - 1)
    (new,) = reads.sent()
    assert len(reads.receive(data_answer(new))) == 1


def test_answers_of_a_short_log_to_one_request_count_once(reads: Reads) -> None:
    ids = reads.send_repeatedly(ReadHeaders(9, 1), 5)
    short = [reads.receive(HeadersResponse(each, None, 2, ())) for each in ids]
    assert short == [[]] * 5
    assert not reads.requests.idle


def test_unanswered_request_keeps_a_bounded_number_of_ids(reads: Reads) -> None:
    ids = reads.send_repeatedly(ReadMark(), 100)
    assert reads.receive(HighWaterMarkResponse(ids[0], 2)) == []
    assert len(reads.receive(HighWaterMarkResponse(ids[-20], 2))) == 1
    assert reads.requests.idle


# ---- any order of events


class LateAnswers(RuleBasedStateMachine):
    """Requests are added, cancelled and sent again, and each message is answered at some time.

    The result of a request is the first good answer to any message that was sent for it since the
    last connection and the last failed answer. There is no other result.
    """

    some = st.integers(0, 9)

    def __init__(self) -> None:
        super().__init__()
        self.reads = Reads()
        self.added = 0
        self.accepted: dict[int, set[ReqId]] = {}
        """For each open request the ids whose answer it accepts."""
        self.unanswered: list[tuple[int, ReqId]] = []
        """The messages on the present connection, with the number of their request."""

    def collect(self) -> None:
        """Take the messages that were sent; each is for an open request."""
        for message in self.reads.requests.effects.take_messages():
            assert isinstance(message, TransactionDataRequest)
            self.accepted[message.transaction_id].add(message.req_id)
            self.unanswered.append((message.transaction_id, message.req_id))

    @rule()
    def add(self) -> None:
        self.accepted[self.added] = set()
        self.reads.requests.add(self.added, ReadData(self.added))
        self.added += 1
        self.collect()

    @rule(which=some)
    def cancel(self, which: int) -> None:
        self.reads.requests.cancel(which)
        self.accepted.pop(which, None)

    @rule(seconds=st.sampled_from((0.1, 10.0, 40.0, 1000.0)))
    def wait(self, seconds: float) -> None:
        self.reads.requests.tick(self.reads.now)
        self.reads.now += seconds
        self.reads.requests.tick(self.reads.now)
        self.collect()

    @rule(which=some, is_good=st.booleans())
    def answer(self, which: int, is_good: bool) -> None:
        if not self.unanswered:
            return
        number, req_id = self.unanswered.pop(which % len(self.unanswered))
        is_accepted = req_id in self.accepted.get(number, ())
        data = b"%d" % req_id.seq
        good, bad = data_answer(req_id, data), TransactionDataResponse(req_id, number, None)
        results = self.reads.receive(good if is_good else bad)
        if is_accepted and is_good:
            assert results == [Answer(number, AnswerKind.DATA, data)]
            del self.accepted[number]
        else:
            assert results == []
            if is_accepted:
                self.accepted[number].clear()
        self.collect()

    @rule(is_lost=st.booleans())
    def attach(self, is_lost: bool) -> None:
        """The connection is lost, or stays while the partition gets a new generation."""
        if is_lost:
            self.reads.requests.detach()
            self.unanswered.clear()
        for ids in self.accepted.values():
            ids.clear()
        self.reads.requests.attach(GENERATION, VERSION)
        self.collect()
        assert all(len(ids) == 1 for ids in self.accepted.values())

    @invariant()
    def open_requests_are_not_idle(self) -> None:
        assert self.reads.requests.idle == (not self.accepted)

    def teardown(self) -> None:
        self.wait(1000.0)
        while self.unanswered:
            self.answer(0, True)
        assert not self.accepted


TestLateAnswers = LateAnswers.TestCase
TestLateAnswers.settings = settings(max_examples=100, stateful_step_count=30)
