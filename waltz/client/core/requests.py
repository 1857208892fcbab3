"""Questions to the server of one partition: data, headers, records, the log's mark. Pure.

They need no mount, may be answered in any order, and are asked again until they are answered: on
the next connection, after an error, after a silence (spec/behaviour.md section 8). A server that
does not have the partition leaves a question for the mark unanswered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, assert_never

from waltz.client.core.mount import AHEAD_CONFIRMATIONS, RequestIds
from waltz.protocol.client_numbers import RANGES_SINCE
from waltz.protocol.client_server import (
    HeadersRequest,
    HeadersResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    RecordsRequest,
    RecordsResponse,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz.protocol.records import NO_TRANSACTION, RecordBatch, RecordHeader, ReqId, checksum

MARK_SILENCE_SECONDS = 1.0
DATA_SILENCE_SECONDS = 10.0
"""How long an answer may take before the question is asked again."""

FIRST_PAUSE_SECONDS = 0.01
LAST_PAUSE_SECONDS = 5.0
"""Between an error and the next attempt; doubles from the first to the last."""

CHECKSUM_ATTEMPTS = 5


class Verdict(Enum):
    """How a question ends."""

    DATA = "the transaction's data"
    MARK = "the log's mark"
    RECORDS = "records of a range, perhaps none"
    HEADERS = "headers of a range, perhaps none"
    CORRUPT = "the data did not match its checksum, too often"
    AHEAD = "the log is shorter than the asker believes"
    UNSUPPORTED = "the server's version does not know the question"


class Answer(NamedTuple):
    """The end of a question.

    ``data`` is of DATA, ``records`` of RECORDS, ``headers`` of HEADERS; ``mark`` is the log's in
    those two, in MARK and in AHEAD, the damaged transaction in CORRUPT, and the server's version
    in UNSUPPORTED.
    """

    token: object
    verdict: Verdict
    data: bytes = b""
    mark: int = NO_TRANSACTION
    records: RecordBatch | None = None
    headers: tuple[RecordHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class Data:
    """What is the data of this transaction?"""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """What is the log's mark?"""


@dataclass(frozen=True, slots=True)
class Records:
    """Which records follow from ``first_id`` on? Waits up to ``wait_ms`` for the first."""

    first_id: int
    max_records: int
    max_bytes: int
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class Headers:
    """Which headers follow from ``first_id`` on?"""

    first_id: int
    max_headers: int


What = Data | HighWaterMark | Records | Headers


@dataclass(slots=True)
class _Question:
    token: object
    what: What
    errors: int = 0
    too_short: int = 0
    mismatches: int = 0
    asked: bool = False
    since: float | None = None


class PartitionQuestions:
    """The open questions about one partition."""

    def __init__(self, ids: RequestIds) -> None:
        self.outgoing: list[Message] = []
        self.answers: list[Answer] = []
        self._ids = ids
        self._generation: int | None = None
        self._version = 0
        self._open: dict[int, _Question] = {}

    def __len__(self) -> int:
        return len(self._open)

    def attach(self, generation: int, version: int) -> None:
        """The partition's server is connected: ask everything that is open."""
        self._generation = generation
        self._version = version
        for question in self._take_all():
            self._ask(question)

    def detach(self) -> None:
        """The connection is gone; the questions stay."""
        self._generation = None

    def ask(self, token: object, what: What) -> None:
        """Ask; data only of a transaction that is in the log."""
        self._ask(_Question(token, what))

    def withdraw(self, token: object) -> None:
        """Forget a question."""
        for seq, question in self._open.items():
            if question.token is token:
                del self._open[seq]
                return

    def received(self, message: Message) -> None:
        """Take an answer; one to a question that is not open is ignored."""
        question = self._open.pop(message.req_id.seq, None)
        if question is None:
            return
        match message:
            case TransactionDataResponse():
                self._data(question, message)
            case HighWaterMarkResponse(transaction_id=mark):
                if mark < NO_TRANSACTION:
                    self._pause(question)  # the partition is being opened, or is not there
                else:
                    self.answers.append(Answer(question.token, Verdict.MARK, mark=mark))
            case RecordsResponse(error=error, high_water_mark=mark, records=records):
                if self._told(question, error, mark, records.count):
                    self._records(question, mark, records)
            case HeadersResponse(error=error, high_water_mark=mark, headers=headers):
                if self._told(question, error, mark, len(headers)):
                    answer = Answer(question.token, Verdict.HEADERS, mark=mark, headers=headers)
                    self.answers.append(answer)
            case _:
                self._pause(question)

    def tick(self, now: float) -> None:
        """Ask again what has waited long enough at ``now``."""
        if self._generation is None:
            return
        due = []
        for seq, question in self._open.items():
            if question.since is None:
                question.since = now
            if now - question.since >= self._patience(question):
                due.append(seq)
        for seq in due:
            self._ask(self._open.pop(seq))

    def close(self) -> list[object]:
        """Return the tokens of the questions that stay open for ever."""
        return [question.token for question in self._take_all()]

    def _data(self, question: _Question, message: TransactionDataResponse) -> None:
        if message.data is None:
            self._pause(question)
        elif checksum(message.data) == message.checksum:
            self.answers.append(Answer(question.token, Verdict.DATA, message.data))
        else:
            self._mismatch(question, message.transaction_id)

    def _records(self, question: _Question, mark: int, records: RecordBatch) -> None:
        assert isinstance(question.what, Records)
        wrong = records.mismatch(question.what.first_id)
        if wrong is None:
            answer = Answer(question.token, Verdict.RECORDS, mark=mark, records=records)
            self.answers.append(answer)
        else:
            self._mismatch(question, wrong)

    def _mismatch(self, question: _Question, transaction_id: int) -> None:
        question.mismatches += 1
        if question.mismatches >= CHECKSUM_ATTEMPTS:
            self.answers.append(Answer(question.token, Verdict.CORRUPT, mark=transaction_id))
        else:
            self._ask(question)

    def _told(self, question: _Question, error: str | None, mark: int, count: int) -> bool:
        """Whether the answer about a range counts; otherwise it is asked for again, or given up."""
        assert isinstance(question.what, Records | Headers)
        if error is not None:
            self._pause(question)
            return False
        if count == 0 and mark < question.what.first_id - 1:
            question.too_short += 1
            if question.too_short < AHEAD_CONFIRMATIONS:
                self._pause(question)
            else:
                self.answers.append(Answer(question.token, Verdict.AHEAD, mark=mark))
            return False
        return True

    def _ask(self, question: _Question) -> None:
        question.since = None
        question.asked = self._generation is not None
        if (
            question.asked
            and isinstance(question.what, Records | Headers)
            and self._version < RANGES_SINCE
        ):
            answer = Answer(question.token, Verdict.UNSUPPORTED, mark=self._version)
            self.answers.append(answer)
            return
        req_id = self._ids.next(self._generation or 0)
        self._open[req_id.seq] = question
        if question.asked:
            self.outgoing.append(_request(req_id, question.what))

    def _pause(self, question: _Question) -> None:
        """Keep the question without asking it; `tick` will."""
        self._open[self._ids.next(self._generation or 0).seq] = question
        question.errors += 1
        question.asked = False
        question.since = None

    def _patience(self, question: _Question) -> float:
        if not question.asked:
            pause = FIRST_PAUSE_SECONDS * 2.0 ** min(question.errors - 1, 20)
            return min(pause, LAST_PAUSE_SECONDS)
        match question.what:
            case HighWaterMark():
                return MARK_SILENCE_SECONDS
            case Records(wait_ms=wait_ms):
                return DATA_SILENCE_SECONDS + wait_ms / 1000
            case Data() | Headers():
                return DATA_SILENCE_SECONDS

    def _take_all(self) -> list[_Question]:
        questions = list(self._open.values())
        self._open.clear()
        return questions


def _request(req_id: ReqId, what: What) -> Message:
    match what:
        case Data(transaction_id):
            return TransactionDataRequest(req_id, transaction_id)
        case HighWaterMark():
            return HighWaterMarkRequest(req_id)
        case Records(first_id, max_records, max_bytes, wait_ms):
            return RecordsRequest(req_id, first_id, max_records, max_bytes, wait_ms)
        case Headers(first_id, max_headers):
            return HeadersRequest(req_id, first_id, max_headers)
        case _:
            assert_never(what)
