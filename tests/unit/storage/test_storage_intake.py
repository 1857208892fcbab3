"""Which requests of a connection begin, and when the connection is read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from waltz.net import FrameConnection
from waltz_storage.shell.request_intake import (
    MOST_WAITING_READS,
    RequestIntake,
    WeightedRequest,
)

FULL = 64 << 20


class Connection:
    def __init__(self) -> None:
        self.closed = False
        self.congested = False
        self.reading = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True


class Scene:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.connection = Connection()
        self.intake: RequestIntake[str] = RequestIntake(self.begun.extend)
        self.intake.connection = cast(FrameConnection, self.connection)

    def add(self, *names: str, weight: int = 1) -> None:
        """Add requests; the name of a read begins with r."""
        self.intake.add([WeightedRequest(each, weight, each.startswith("r")) for each in names])


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_requests_begin_in_order_while_the_bound_is_not_reached(scene: Scene) -> None:
    scene.add("a", "b", weight=FULL - 1)
    scene.add("c")
    assert scene.begun == ["a", "b"], "the second one exceeds the bound"
    assert not scene.connection.reading
    scene.intake.note_answer(FULL - 1)
    assert scene.begun == ["a", "b", "c"]
    assert scene.connection.reading


def test_read_that_waits_for_reads_begins_when_one_of_them_is_answered(scene: Scene) -> None:
    scene.add("r1", weight=FULL)
    scene.add("r2", "a")
    assert scene.begun == ["r1", "a"]
    assert scene.connection.reading, "few reads wait"
    scene.intake.note_answer(1)
    assert scene.begun == ["r1", "a"]
    scene.intake.note_read_answer(FULL)
    assert scene.begun == ["r1", "a", "r2"]


def test_connection_with_too_many_waiting_reads_is_not_read(scene: Scene) -> None:
    scene.add("r", weight=FULL)
    scene.add(*["r"] * MOST_WAITING_READS)
    assert scene.connection.reading
    scene.add("r")
    assert not scene.connection.reading


def test_congested_connection_begins_nothing_and_is_not_read(scene: Scene) -> None:
    scene.add("r1", weight=FULL)
    scene.add("r2")
    scene.connection.congested = True
    scene.intake.note_read_answer(FULL)
    assert scene.begun == ["r1"]
    assert not scene.connection.reading
    scene.add("a")
    assert scene.begun == ["r1"]
    scene.connection.congested = False
    scene.intake.proceed()
    assert scene.begun == ["r1", "r2", "a"]
    assert scene.connection.reading


def test_closed_connection_begins_none_of_its_waiting_requests(scene: Scene) -> None:
    scene.add("r1", "a", weight=FULL)
    scene.add("r2", "b")
    scene.connection.closed = True
    scene.intake.proceed()
    scene.connection.closed = False
    scene.intake.note_read_answer(FULL)
    scene.intake.note_answer(FULL)
    scene.intake.proceed()
    assert scene.begun == ["r1", "a"]


def test_requests_answered_at_once_begin_in_order() -> None:
    """An answer during the call that begins requests must not begin later ones first."""
    begun: list[str] = []
    active = 0

    def begin(requests: list[str]) -> None:
        nonlocal active
        active += 1
        assert active == 1, "requests begin within the call that begins others"
        for each in requests:
            begun.append(each)
            intake.note_answer(FULL)
        active -= 1

    intake: RequestIntake[str] = RequestIntake(begin)
    intake.connection = cast(Any, Connection())
    intake.add([WeightedRequest(each, FULL, is_read=False) for each in "abcd"])
    assert begun == ["a", "b", "c", "d"]
