"""When a connection reads its socket: neither its handler nor a slow peer is ignored."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from waltz.net import FrameConnection, FrameHandler
from waltz.protocol import STORAGE


class Transport:
    """A transport that records whether it is read."""

    reading = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class Handler(FrameHandler):
    def __init__(self) -> None:
        self.losses: list[str] = []

    def received(self, bodies: list[bytes]) -> None:
        raise AssertionError("nothing is received")

    def lost(self, reason: str) -> None:
        self.losses.append(reason)


def connection_over(transport: Transport, *, dialer: bool) -> FrameConnection:
    connection = FrameConnection(STORAGE, Handler(), dialer=dialer)
    connection.connection_made(cast(asyncio.Transport, transport))
    return connection


@pytest.mark.parametrize("dialer", [False, True])
async def test_connection_paused_by_its_handler_stays_paused_when_its_peer_reads_again(
    dialer: bool,
) -> None:
    transport = Transport()
    connection = connection_over(transport, dialer=dialer)
    connection.pause_reading()
    assert not transport.reading
    connection.pause_writing()
    connection.resume_writing()
    assert not transport.reading
    connection.resume_reading()
    assert transport.reading
    connection.abort("done")


async def test_connection_reports_its_loss_once() -> None:
    connection = connection_over(Transport(), dialer=True)
    handler = cast(Handler, connection.handler)
    connection.abort("first")
    connection.connection_lost(None)
    connection.close("second")
    assert handler.losses == ["first"]
    with pytest.raises(ConnectionError, match="first"):
        await connection.handshake()
