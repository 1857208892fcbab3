"""A reconnecting link: the calls of its handler, and the times at which it dials again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from waltz.net import Backoff, DialFailed, ReconnectingLink


class FakeConnection:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def close(self) -> None:
        self._handler.closed += 1
        self._handler.link.lost("closed")


class Handler:
    """Opens connections that the test ends; records its calls."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.closed = 0
        self.problem: Exception | None = None
        self.lost_while_opening = False
        self.link: ReconnectingLink[FakeConnection] = ReconnectingLink(
            "peer", self, Backoff(0.001, 0.008)
        )

    async def open(self) -> FakeConnection:
        self.events.append("open")
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        if self.lost_while_opening:
            self.link.lost("gone with the handshake")
        return FakeConnection(self)

    def up(self) -> None:
        self.events.append("up")

    def down(self) -> None:
        self.events.append("down")


@pytest.fixture
async def handler() -> AsyncIterator[Handler]:
    handler = Handler()
    yield handler
    await asyncio.wait([handler.link.stop()])


async def test_link_after_a_loss_opens_the_next_connection(handler: Handler) -> None:
    await eventually(lambda: handler.link.connection)
    handler.link.lost("power cut")
    assert handler.link.connection is None
    assert handler.events == ["open", "up", "down"]
    await eventually(lambda: handler.link.connection)
    assert handler.events == ["open", "up", "down", "open", "up"]


async def test_link_lost_while_opening_is_neither_up_nor_down(handler: Handler) -> None:
    await eventually(lambda: handler.link.connection)
    handler.lost_while_opening = True
    handler.link.lost("power cut")
    await eventually(lambda: len(handler.events) >= 6)
    assert handler.events[:6] == ["open", "up", "down", "open", "open", "open"]
    assert handler.link.connection is None


async def test_link_stopped_while_up_closes_without_a_callback(handler: Handler) -> None:
    await eventually(lambda: handler.link.connection)
    await asyncio.wait([handler.link.stop()])
    assert handler.events == ["open", "up"]
    assert handler.link.connection is None
    assert handler.closed == 1


async def test_link_with_the_same_problem_again_logs_it_once(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    handler.problem = DialFailed("cannot reach it")
    await eventually(lambda: handler.link.connection or len(handler.events) >= 2)
    handler.link.lost("power cut")
    await eventually(lambda: handler.events.count("open") >= 5)
    lines = [r for r in caplog.records if "cannot reach it" in r.message]
    assert lines[0].message.startswith("peer: cannot reach it; retrying in 0.00")
    assert [r.levelno for r in lines[:3]] == [logging.WARNING, logging.DEBUG, logging.DEBUG]


@pytest.mark.parametrize(("useful", "delays"), [(False, [1, 2, 4, 8, 8]), (True, [1, 1, 1, 1, 1])])
async def test_link_backoff_is_reset_only_by_a_useful_connection(
    handler: Handler, useful: bool, delays: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for _ in delays:
        await eventually(lambda: handler.link.connection)
        if useful:
            handler.link.mark_useful()
        handler.link.lost("dropped")
    await eventually(lambda: handler.link.connection)
    lines = [r.message for r in caplog.records if "dropped" in r.message]
    assert [line.split(" in ")[1].split(" s,")[0] for line in lines] == [f"0.00{d}" for d in delays]
