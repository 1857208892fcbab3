"""Simulate a client that reads the log in ranges, with the real core of requests."""

from __future__ import annotations

from random import Random

from tests.sim.connected import Connected, Environment
from tests.sim.guarantees import Guarantee, Violation
from waltz.client.core.mount import RequestIds
from waltz.client.core.requests import (
    Answer,
    AnswerKind,
    PartitionRequests,
    ReadHeaders,
    ReadRecords,
)
from waltz.protocol.client_server import (
    HeadersRequest,
    HeadersResponse,
    Message,
    RecordsRequest,
    RecordsResponse,
)
from waltz_server.core.reads.range_reads import NOT_HERE, NOT_OPEN

RANGES_SINCE = 5
NEXT_SECONDS = 0.01
ELSEWHERE_SECONDS = 0.05
_UNSUPPORTED_SECONDS = 0.2
_REASONS = {NOT_HERE: "not here", NOT_OPEN: "not open"}
_FOLLOWING = "what comes next"


class RangeReader(Connected):
    """Reads the log from its beginning range by range, and some ranges of it again."""

    def __init__(
        self, client_id: int, partition: int, random: Random, environment: Environment
    ) -> None:
        self._random = random
        self.position = -1
        """The last transaction read."""
        self.requests = PartitionRequests(RequestIds(client_id, partition))
        self._asked: dict[int, tuple[RecordsRequest | HeadersRequest, int]] = {}
        """The open requests of this connection, and the position at each."""
        super().__init__(f"ranges{client_id}", RANGES_SINCE, environment)
        self.clock.after(NEXT_SECONDS, self._follow)
        self.clock.after(ELSEWHERE_SECONDS, self._look_elsewhere)

    def handle(self, message: Message) -> None:
        assert isinstance(message, RecordsResponse | HeadersResponse)
        wanted = self._asked.pop(message.req_id.seq, None)
        if wanted is None:
            raise Violation(Guarantee.RANGE, f"{self.name} receives an answer without a request")
        self._checker.ranges.check_answer(self.name, *wanted, message)
        if message.error is not None:
            why = _REASONS.get(message.error, "no replica could deliver")
            self._history.counters[f"client: range refused: {why}"] += 1
        self.requests.received(message)

    def attach(self) -> None:
        self.requests.attach(self._generation, self._version)

    def detach(self) -> None:
        self.requests.detach()
        self._asked.clear()

    def tick(self) -> None:
        self.requests.tick(self.clock.now)

    def outgoing(self) -> list[Message]:
        messages = self.requests.effects.take_messages()
        for message in messages:
            assert isinstance(message, RecordsRequest | HeadersRequest)
            self._asked[message.req_id.seq] = (message, self.position)
        return messages

    def settle(self) -> None:
        answers = self.requests.effects.take_results()
        for answer in answers:
            self._answered(answer)
        super().settle()

    def _answered(self, answer: Answer) -> None:
        following, pause = answer.token is _FOLLOWING, NEXT_SECONDS
        match answer.kind:
            case AnswerKind.RECORDS:
                assert answer.records is not None
                count = answer.records.count
                self._history.counters[
                    "client: records read" if count else "client: no records"
                ] += 1
                if following:
                    self.position += count
            case AnswerKind.HEADERS:
                found = "headers read" if answer.headers else "no headers"
                self._history.counters[f"client: {found}"] += 1
            case AnswerKind.UNSUPPORTED:
                self._history.counters["client: range not supported"] += 1
                pause = _UNSUPPORTED_SECONDS
            case _:
                raise Violation(
                    Guarantee.RANGE, f"{self.name} receives {answer.kind.name} at {self.position}"
                )
        if following:
            self.clock.after(self._random.expovariate(1 / pause), self._follow)

    def _follow(self) -> None:
        wait_ms = self._random.choice((0, 30, 300, 2000))
        most_bytes = self._random.choice((1, 500, 5_000, 1 << 20))
        most = self._random.choice((1, 10, 1000))
        self.requests.add(_FOLLOWING, ReadRecords(self.position + 1, most, most_bytes, wait_ms))
        self.settle()

    def _look_elsewhere(self) -> None:
        if self.position >= 0 and len(self.requests) < 3:
            first_id = self._random.randint(0, self.position + 1)
            most = self._random.choice((1, 10, 100))
            if self._random.random() < 0.5:
                self.requests.add("headers", ReadHeaders(first_id, most))
            else:
                self.requests.add("records", ReadRecords(first_id, most, 5_000))
            self.settle()
        self.clock.after(self._random.expovariate(1 / ELSEWHERE_SECONDS), self._look_elsewhere)
