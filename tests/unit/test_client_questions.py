"""Questions are asked until they are answered: after errors, silences and lost connections."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.fake_partition import FakeLog, FakePartition
from waltz.client.core.mount import RequestIds
from waltz.client.core.requests import (
    CHECKSUM_ATTEMPTS,
    DATA_SILENCE_SECONDS,
    LAST_PAUSE_SECONDS,
    MARK_SILENCE_SECONDS,
    Answer,
    Data,
    HighWaterMark,
    PartitionQuestions,
    Verdict,
)


class Wire:
    """The questions about a partition, and a server that answers at once."""

    def __init__(self, count: int = 3) -> None:
        log = FakeLog()
        log.fill(count)
        self.questions = PartitionQuestions(RequestIds(5, 0))
        self.server = FakePartition(log, 1, self._answer)
        self.lost = False
        self.now = 0.0
        self.asked_at: list[float] = []

    def _answer(self, _: Any, message: Any) -> None:
        if not self.lost:
            self.questions.received(message)

    def exchange(self) -> list[Answer]:
        while self.questions.outgoing:
            for message in self.questions.outgoing[:]:
                self.questions.outgoing.remove(message)
                self.asked_at.append(self.now)
                self.server.handle(0, message)
        answers, self.questions.answers = self.questions.answers, []
        return answers

    def wait(self, seconds: float) -> list[Answer]:
        answers = []
        for _ in range(round(seconds * 100)):
            self.questions.tick(self.now)
            answers += self.exchange()
            self.now += 0.01
        return answers


def test_questions_before_a_connection_are_asked_on_it() -> None:
    wire = Wire()
    wire.questions.ask("data", Data(1))
    wire.questions.ask("mark", HighWaterMark())
    assert wire.exchange() == []
    wire.questions.attach(1, 4)
    assert wire.exchange() == [
        Answer("data", Verdict.DATA, b"00000001"),
        Answer("mark", Verdict.MARK, mark=2),
    ]
    assert len(wire.questions) == 0


def test_open_questions_move_to_the_next_connection() -> None:
    wire = Wire()
    wire.questions.attach(1, 4)
    wire.lost = True
    wire.questions.ask("data", Data(1))
    assert wire.exchange() == []
    wire.questions.detach()
    wire.lost = False
    wire.questions.attach(2, 4)
    assert [answer.data for answer in wire.exchange()] == [b"00000001"]


def test_errors_are_retried_with_growing_pauses() -> None:
    wire = Wire()
    wire.server.data_errors = 5
    wire.questions.attach(1, 4)
    wire.questions.ask("data", Data(0))
    assert [answer.data for answer in wire.wait(0.5)] == [b"00000000"]
    pauses = [later - earlier for earlier, later in pairwise(wire.asked_at)]
    assert len(pauses) == 5
    assert all(second > 1.3 * first for first, second in pairwise(pauses[1:]))


def test_pauses_end_at_the_longest() -> None:
    wire = Wire()
    wire.server.data_errors = 10**6
    wire.questions.attach(1, 4)
    wire.questions.ask("data", Data(0))
    wire.wait(60.0)
    asked = len(wire.server.handled)
    wire.wait(10 * LAST_PAUSE_SECONDS)
    assert 9 <= len(wire.server.handled) - asked <= 11


def test_a_wrong_checksum_is_retried_a_few_times() -> None:
    wire = Wire()
    wire.questions.attach(1, 4)
    wire.server.spoil_data = CHECKSUM_ATTEMPTS - 1
    wire.questions.ask("good in the end", Data(0))
    assert [answer.verdict for answer in wire.exchange()] == [Verdict.DATA]
    wire.server.spoil_data = CHECKSUM_ATTEMPTS
    wire.questions.ask("bad", Data(0))
    assert [answer.verdict for answer in wire.exchange()] == [Verdict.CORRUPT]
    assert wire.server.spoil_data == 0


@pytest.mark.parametrize("hindrance", ["silent", "opening"])
def test_a_mark_that_is_not_told_is_asked_for_again(hindrance: str) -> None:
    wire = Wire()
    wire.questions.attach(1, 4)
    if hindrance == "silent":
        wire.server.silent_marks = 2
    else:
        wire.server.opening = True
    wire.questions.ask("mark", HighWaterMark())
    assert wire.wait(MARK_SILENCE_SECONDS * 1.5) == []
    wire.server.opening = False
    assert [answer.mark for answer in wire.wait(MARK_SILENCE_SECONDS * 2)] == [2]


def test_unanswered_data_is_asked_for_again() -> None:
    wire = Wire()
    wire.questions.attach(1, 4)
    wire.lost = True
    wire.questions.ask("data", Data(0))
    wire.exchange()
    wire.lost = False
    assert len(wire.wait(DATA_SILENCE_SECONDS + 0.1)) == 1


def test_withdrawn_questions_are_forgotten() -> None:
    wire = Wire()
    wire.questions.ask("gone", Data(0))
    wire.questions.ask("stays", Data(1))
    wire.questions.withdraw("gone")
    wire.questions.withdraw("never was")
    wire.questions.attach(1, 4)
    assert [answer.token for answer in wire.exchange()] == ["stays"]


def test_closing_returns_what_is_open() -> None:
    wire = Wire()
    wire.questions.ask("a", Data(0))
    wire.questions.ask("b", HighWaterMark())
    assert wire.questions.close() == ["a", "b"]
    assert len(wire.questions) == 0
