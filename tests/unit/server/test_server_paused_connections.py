"""Tests of the connections that a server does not read for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.pausable_connection import PausableConnection
from waltz.net import FrameConnection
from waltz_server.core.peer import Peer
from waltz_server.shell.paused_connections import PausedConnections


class Scene:
    """Paused connections, with timers that fire on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.overloaded: set[int] = set()
        self.connections: dict[Peer, FrameConnection] = {}
        self.timers: list[Callable[[], None]] = []
        self.paused = PausedConnections(self.connections, self.overloaded.__contains__, lambda: 0.0)
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self._call_later)

    def connect(self, unread_until: float = 0.0) -> PausableConnection:
        connection = PausableConnection()
        connection.peer.unread_until = unread_until
        self.connections[connection.peer] = connection.frames
        return connection

    def fire(self) -> None:
        """Fire the timers that are running."""
        timers, self.timers = self.timers, []
        for check in timers:
            check()

    def _call_later(self, seconds: float, check: Callable[[], None]) -> Any:
        self.timers.append(check)
        return object()


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_overloaded_partition_does_not_hold_connections_of_others(scene: Scene) -> None:
    scene.overloaded.update((1, 2))
    first, second, reader = scene.connect(), scene.connect(), scene.connect()
    scene.paused.pause(first.frames, 1)
    scene.paused.pause(second.frames, 2)
    scene.paused.pause(reader.frames, None)
    scene.overloaded.remove(2)
    scene.fire()
    assert [c.reading for c in (first, second, reader)] == [False, True, True]
    assert first.frames in scene.paused


async def test_pause_after_the_last_paused_connection_has_left_starts_no_second_timer(
    scene: Scene,
) -> None:
    for _ in range(3):
        scene.paused.pause(left := scene.connect(unread_until=1.0).frames, None)
        scene.paused.forget(left)
    scene.paused.pause(scene.connect(unread_until=1.0).frames, None)
    assert len(scene.timers) == 1
    scene.fire()
    assert len(scene.timers) == 1


async def test_timer_ends_with_the_last_paused_connection(scene: Scene) -> None:
    scene.paused.pause(left := scene.connect(unread_until=1.0).frames, None)
    scene.paused.forget(left)
    scene.fire()
    assert not scene.timers
    later = scene.connect(unread_until=1.0)
    scene.paused.pause(later.frames, None)
    assert len(scene.timers) == 1
