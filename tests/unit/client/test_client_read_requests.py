"""Read requests: when a log counts as too short, and how long an answer may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.stored_records import batch_of
from waltz.client.core.mount import AHEAD_CONFIRMATIONS, NOT_READY_BACKOFF_SECONDS, RequestIds
from waltz.client.core.read_values import AnswerKind, ReadRecords
from waltz.client.core.requests import DATA_TIMEOUTS_SECONDS, ERROR_BACKOFF, PartitionRequests
from waltz.protocol.client_server import (
    HighWaterMarkResponse,
    Message,
    RecordsRequest,
    RecordsResponse,
    StoredRecordsResponse,
)
from waltz.protocol.records import EMPTY_BATCH, ReqId
from waltz.protocol.stored import StoredBatch

GENERATION, VERSION = 3, 5


class Scene:
    """The reads of one client of partition 0."""

    def __init__(self) -> None:
        self.reads = PartitionRequests(RequestIds(9, 0))
        self.reads.attach(GENERATION, VERSION)
        self.now = 0.0

    def request(self) -> RecordsRequest:
        """Return the request that was sent since the last call."""
        (request,) = self.reads.effects.take_messages()
        assert isinstance(request, RecordsRequest)
        return request

    def answer_empty(self, mark: int) -> list[Any]:
        """Answer the request by no records up to ``mark``; return the answers to the caller."""
        self.reads.received(RecordsResponse(self.request().req_id, None, mark, EMPTY_BATCH))
        return list(self.reads.effects.take_results())

    def back_off(self) -> None:
        self.reads.tick(self.now)
        self.now += ERROR_BACKOFF.longest_seconds
        self.reads.tick(self.now)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_log_that_ends_right_before_the_range_is_an_empty_range(scene: Scene) -> None:
    scene.reads.add("token", ReadRecords(10, 5, 100))
    (answer,) = scene.answer_empty(mark=9)
    assert (answer.kind, answer.mark) == (AnswerKind.RECORDS, 9)


def test_log_shorter_than_the_range_is_reported_after_confirmations(scene: Scene) -> None:
    """A server that has not noticed yet that it lost the partition answers from an old log."""
    scene.reads.add("token", ReadRecords(10, 5, 100))
    for _ in range(AHEAD_CONFIRMATIONS - 1):
        assert scene.answer_empty(mark=8) == []
        scene.back_off()
    (answer,) = scene.answer_empty(mark=8)
    assert (answer.kind, answer.mark) == (AnswerKind.AHEAD, 8)


@pytest.mark.parametrize("wait_ms", [0, 500])
def test_confirmations_of_a_short_log_are_apart(scene: Scene, wait_ms: int) -> None:
    """A server that lost the partition would send all of them before it reads the assignment."""
    scene.reads.add("token", ReadRecords(10, 5, 100, wait_ms))
    for _ in range(AHEAD_CONFIRMATIONS - 1):
        assert scene.answer_empty(mark=8) == []
        scene.reads.tick(scene.now)
        scene.reads.tick(scene.now + NOT_READY_BACKOFF_SECONDS - 0.01)
        assert scene.reads.effects.take_messages() == []
        scene.now += NOT_READY_BACKOFF_SECONDS
        scene.reads.tick(scene.now)
    assert len(scene.answer_empty(mark=8)) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda req_id: RecordsResponse(req_id, "no such partition", -1, EMPTY_BATCH),
        lambda req_id: RecordsResponse(req_id, None, 10, batch_of(11, [b"not the record"])),
        lambda req_id: StoredRecordsResponse(req_id, 10, StoredBatch(1, b"no record")),
        lambda req_id: HighWaterMarkResponse(req_id, 10),
        None,
    ],
    ids=["error", "wrong records", "wrong stored records", "another type", "new connection"],
)
def test_confirmations_of_a_short_log_are_consecutive(
    scene: Scene, other: Callable[[ReqId], Message] | None
) -> None:
    scene.reads.add("token", ReadRecords(10, 5, 100))
    for _ in range(AHEAD_CONFIRMATIONS - 1):
        assert scene.answer_empty(mark=8) == []
        scene.back_off()
    interrupted = scene.request()
    if other is None:
        scene.reads.attach(GENERATION + 1, VERSION)
    else:
        scene.reads.received(other(interrupted.req_id))
        scene.back_off()
    for _ in range(AHEAD_CONFIRMATIONS - 1):
        assert scene.answer_empty(mark=8) == []
        scene.back_off()
    assert len(scene.answer_empty(mark=8)) == 1


@pytest.mark.parametrize("wait_ms", [0, 30_000])
def test_request_without_an_answer_is_repeated_after_its_wait_ms_plus_the_timeout(
    scene: Scene, wait_ms: int
) -> None:
    scene.reads.add("token", ReadRecords(10, 5, 100, wait_ms))
    first = scene.request()
    allowed = DATA_TIMEOUTS_SECONDS.first_seconds + wait_ms / 1000
    scene.reads.tick(0.0)
    scene.reads.tick(allowed - 0.1)
    assert scene.reads.effects.take_messages() == []
    scene.reads.tick(allowed)
    assert scene.request().req_id != first.req_id
