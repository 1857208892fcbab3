"""Questions to the server of one partition: a transaction's data, the log's mark. Pure.

They need no mount, may be answered in any order, and are asked again until they are answered: on
the next connection, after an error, after a silence (behaviour.md section 8). A server that does
not have the partition leaves a question for the mark unanswered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from waltz.client.mount import RequestIds
from waltz.protocol.client_server import (
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    Message,
    TransactionDataRequest,
    TransactionDataResponse,
)
from waltz.protocol.records import NO_TRANSACTION, checksum

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
    CORRUPT = "the data did not match its checksum, too often"


class Answer(NamedTuple):
    """The end of a question; ``data`` is of DATA, ``mark`` of MARK."""

    token: object
    verdict: Verdict
    data: bytes = b""
    mark: int = NO_TRANSACTION


@dataclass(slots=True)
class _Question:
    token: object
    transaction_id: int | None
    errors: int = 0
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
        self._open: dict[int, _Question] = {}

    def __len__(self) -> int:
        return len(self._open)

    def attach(self, generation: int) -> None:
        """The partition's server is connected: ask everything that is open."""
        self._generation = generation
        for question in self._take_all():
            self._ask(question)

    def detach(self) -> None:
        """The connection is gone; the questions stay."""
        self._generation = None

    def ask_data(self, token: object, transaction_id: int) -> None:
        """Ask for the data of a transaction that is in the log."""
        self._ask(_Question(token, transaction_id))

    def ask_mark(self, token: object) -> None:
        """Ask for the log's high-water mark."""
        self._ask(_Question(token, None))

    def withdraw(self, token: object) -> None:
        """Forget a question."""
        for seq, question in self._open.items():
            if question.token is token:
                del self._open[seq]
                return

    def received(self, message: Message) -> None:
        """Take an answer; one to a question that is not open is ignored."""
        match message:
            case TransactionDataResponse():
                question = self._open.pop(message.req_id.seq, None)
                if question is not None:
                    self._data(question, message)
            case HighWaterMarkResponse():
                question = self._open.pop(message.req_id.seq, None)
                if question is None:
                    return
                if message.transaction_id < NO_TRANSACTION:
                    self._pause(question)  # the partition is being opened
                else:
                    mark = message.transaction_id
                    self.answers.append(Answer(question.token, Verdict.MARK, mark=mark))

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
            question.mismatches += 1
            if question.mismatches >= CHECKSUM_ATTEMPTS:
                self.answers.append(Answer(question.token, Verdict.CORRUPT))
            else:
                self._ask(question)

    def _ask(self, question: _Question) -> None:
        req_id = self._ids.next(self._generation or 0)
        self._open[req_id.seq] = question
        question.since = None
        question.asked = self._generation is not None
        if not question.asked:
            return
        if question.transaction_id is None:
            self.outgoing.append(HighWaterMarkRequest(req_id))
        else:
            self.outgoing.append(TransactionDataRequest(req_id, question.transaction_id))

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
        return MARK_SILENCE_SECONDS if question.transaction_id is None else DATA_SILENCE_SECONDS

    def _take_all(self) -> list[_Question]:
        questions = list(self._open.values())
        self._open.clear()
        return questions
