"""Read requests are sent until they are answered: after errors, timeouts, lost connections."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.support.served_partition import ServedPartition
from waltz.client.core.codec import FeedRun, encode_message, parse
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
    CHECKSUM_ATTEMPTS,
    DATA_TIMEOUTS_SECONDS,
    ERROR_BACKOFF,
    MARK_TIMEOUTS_SECONDS,
    PartitionRequests,
)
from waltz.protocol.client_server import (
    HighWaterMarkResponse,
    Message,
    RecordsResponse,
    TransactionDataResponse,
)
from waltz.protocol.frames import HEAD_BYTES
from waltz.protocol.records import EMPTY_BATCH, ReqId

VERSION = 5


class Wire:
    """The requests to a partition, and its server, which answers at once.

    ``lost_answers`` and ``damaged_answers`` are how many of the next answers do not arrive, or
    arrive with other bytes. The server refuses the next ``refusals`` requests, because the
    partition is not there.
    """

    def __init__(self, count: int = 3) -> None:
        self.requests = PartitionRequests(RequestIds(5, 0))
        self.server = ServedPartition()
        self.server.fill(count)
        self.connection = self.server.connect(self._answer, VERSION)
        self.lost_answers = self.damaged_answers = self.refusals = 0
        self.now = 0.0
        self.sent_at: list[float] = []

    def _answer(self, body: bytes) -> None:
        if self.lost_answers:
            self.lost_answers -= 1
            return
        if self.damaged_answers:
            self.damaged_answers -= 1
            body = body[:-1] + bytes((body[-1] ^ 1,))
        (message,) = parse([body], VERSION)
        assert not isinstance(message, FeedRun)
        self.requests.received(message)

    def exchange(self) -> list[Answer]:
        while self.requests.effects.messages:
            for message in self.requests.effects.take_messages():
                self.sent_at.append(self.now)
                self.server.is_hosted = not self.refusals
                self.refusals = max(0, self.refusals - 1)
                self.connection.receive([encode_message(message, VERSION)[HEAD_BYTES:]])
        return self.requests.effects.take_results()

    def wait(self, seconds: float) -> list[Answer]:
        answers = []
        for _ in range(round(seconds * 100)):
            self.requests.tick(self.now)
            answers += self.exchange()
            self.now += 0.01
        return answers


def test_request_before_a_connection_is_sent_on_it() -> None:
    wire = Wire()
    wire.requests.add("data", ReadData(1))
    wire.requests.add("mark", ReadMark())
    assert wire.exchange() == []
    wire.requests.attach(1, VERSION)
    assert wire.exchange() == [
        Answer("data", AnswerKind.DATA, b"00000001"),
        Answer("mark", AnswerKind.MARK, mark=2),
    ]
    assert wire.requests.idle


def test_open_request_is_sent_again_on_the_next_connection() -> None:
    wire = Wire()
    wire.requests.attach(1, VERSION)
    wire.lost_answers = 1
    wire.requests.add("data", ReadData(1))
    assert wire.exchange() == []
    wire.requests.detach()
    assert wire.lost_answers == 0
    wire.requests.attach(2, VERSION)
    assert [answer.data for answer in wire.exchange()] == [b"00000001"]


def test_failed_request_is_retried_with_backoff() -> None:
    wire = Wire()
    wire.refusals = 5
    wire.requests.attach(1, VERSION)
    wire.requests.add("data", ReadData(0))
    assert [answer.data for answer in wire.wait(0.5)] == [b"00000000"]
    pauses = [later - earlier for earlier, later in pairwise(wire.sent_at)]
    assert len(pauses) == 5
    assert all(second > 1.3 * first for first, second in pairwise(pauses[1:]))


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        (ReadMark(), lambda req_id: RecordsResponse(req_id, None, 2, EMPTY_BATCH)),
        (ReadHeaders(0, 10), lambda req_id: RecordsResponse(req_id, None, 2, EMPTY_BATCH)),
        (ReadData(0), lambda req_id: HighWaterMarkResponse(req_id, 2)),
        (ReadRecords(0, 10, 100, 0), lambda req_id: TransactionDataResponse(req_id, 0, b"")),
    ],
)
def test_request_with_an_answer_of_another_type_is_sent_again(
    request_: ReadRequest, wrong: Callable[[ReqId], Message]
) -> None:
    wire = Wire()
    wire.requests.attach(1, VERSION)
    wire.requests.add("read", request_)
    [sent] = wire.requests.effects.take_messages()
    wire.requests.received(wrong(sent.req_id))
    assert not wire.requests.effects.take_results()
    assert len(wire.wait(1.0)) == 1


def test_backoff_ends_at_its_longest_delay() -> None:
    wire = Wire()
    wire.refusals = 10**6
    wire.requests.attach(1, VERSION)
    wire.requests.add("data", ReadData(0))
    wire.wait(60.0)
    handled_before = len(wire.server.handled)
    wire.wait(10 * ERROR_BACKOFF.longest_seconds)
    assert 9 <= len(wire.server.handled) - handled_before <= 11


def test_checksum_failure_is_retried_a_bounded_number_of_times() -> None:
    wire = Wire()
    wire.requests.attach(1, VERSION)
    wire.damaged_answers = CHECKSUM_ATTEMPTS - 1
    wire.requests.add("good in the end", ReadData(0))
    assert [answer.kind for answer in wire.exchange()] == [AnswerKind.DATA]
    wire.damaged_answers = CHECKSUM_ATTEMPTS
    wire.requests.add("bad", ReadData(0))
    assert [answer.kind for answer in wire.exchange()] == [AnswerKind.CORRUPT]
    assert wire.damaged_answers == 0


@pytest.mark.parametrize("hindrance", ["silent", "elsewhere"])
def test_unanswered_mark_request_is_sent_again(hindrance: str) -> None:
    """A server without the partition answers that the mark is not known."""
    wire = Wire()
    wire.requests.attach(1, VERSION)
    if hindrance == "silent":
        wire.lost_answers = 2
    else:
        wire.refusals = 10**6
    wire.requests.add("mark", ReadMark())
    assert wire.wait(MARK_TIMEOUTS_SECONDS.first_seconds * 1.5) == []
    wire.refusals = 0
    assert [answer.mark for answer in wire.wait(MARK_TIMEOUTS_SECONDS.first_seconds * 2)] == [2]


def test_unanswered_data_request_is_sent_again() -> None:
    wire = Wire()
    wire.requests.attach(1, VERSION)
    wire.lost_answers = 1
    wire.requests.add("data", ReadData(0))
    wire.exchange()
    assert wire.lost_answers == 0
    assert len(wire.wait(DATA_TIMEOUTS_SECONDS.first_seconds + 0.1)) == 1


def test_cancelled_request_gets_no_answer() -> None:
    wire = Wire()
    wire.requests.add("gone", ReadData(0))
    wire.requests.add("stays", ReadData(1))
    wire.requests.cancel("gone")
    wire.requests.cancel("never was")
    wire.requests.attach(1, VERSION)
    assert [answer.token for answer in wire.exchange()] == ["stays"]


def test_close_returns_the_open_tokens() -> None:
    wire = Wire()
    wire.requests.add("a", ReadData(0))
    wire.requests.add("b", ReadMark())
    assert wire.requests.close() == ["a", "b"]
    assert wire.requests.idle
