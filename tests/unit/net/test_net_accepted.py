"""Bounds of what a port accepts: connections, and the memory of incomplete messages."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest

from tests.support.eventually import eventually
from tests.support.recording_handler import RecordingHandler
from waltz.net import (
    PLAINTEXT,
    AcceptedConnections,
    ConnectionLost,
    FrameConnection,
    Listener,
    TlsConfig,
    dial,
)
from waltz.protocol import CLIENT_SERVER, ProtocolViolation, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.client_numbers import ANSWERED_APPEND_TYPE, APPEND_BATCH_TYPE, APPEND_TYPE
from waltz.protocol.frames import MAX_SMALL_FRAME_BYTES, FrameDecoder, encode_frame
from waltz.testing import run

NEWEST = max(CLIENT_SERVER.versions)
FEED_TYPE = cs.encode(cs.FeedRequest(ReqId(1, 2, 3, 4), 5), NEWEST)[7]


class Port:
    """A port with the given bounds; ``connect`` opens a connection to it."""

    def __init__(self, accepted: AcceptedConnections) -> None:
        self.accepted = accepted
        self.handlers: list[RecordingHandler] = []
        self.listener = Listener(CLIENT_SERVER, self._new_handler, PLAINTEXT, accepted)

    def _new_handler(self) -> RecordingHandler:
        self.handlers.append(RecordingHandler())
        return self.handlers[-1]

    async def connect(self) -> tuple[RecordingHandler, FrameConnection]:
        handler = RecordingHandler()
        connection = await dial("127.0.0.1", self.listener.port, CLIENT_SERVER, handler, PLAINTEXT)
        await connection.handshake()
        return handler, connection


@asynccontextmanager
async def listening(accepted: AcceptedConnections) -> AsyncIterator[Port]:
    port = Port(accepted)
    port.listener.start("127.0.0.1", 0)
    yield port
    await port.listener.close()
    assert accepted.incomplete_bytes == 0
    await eventually(lambda: accepted.open == 0)


def begun(message_type: int, length: int, sent: int) -> bytes:
    """Return the first ``sent`` bytes of the body of a frame, with its head."""
    frame = encode_frame(CLIENT_SERVER.magic, NEWEST, bytes([message_type]), bytes(length - 1))
    return frame[: 7 + sent]


async def test_connection_beyond_the_limit_is_closed_logged_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(AcceptedConnections(limit=2)) as port:
        (first, connection), (second, _) = await port.connect(), await port.connect()
        for _ in range(3):
            with pytest.raises(ConnectionLost):
                await port.connect()
        assert (port.accepted.open, port.accepted.refused) == (2, 3)
        refused = [r.getMessage() for r in caplog.records if "refused a" in r.getMessage()]
        assert len(refused) == 1
        assert "refused a client/server connection from 127.0.0.1:" in refused[0]
        assert not first.reasons
        assert not second.reasons
        connection.close()
        await eventually(lambda: port.accepted.open == 1)
        await port.connect()
        assert port.accepted.refused == 3


@pytest.mark.parametrize("sent", [1, 100])
async def test_large_message_of_another_type_than_appends_is_refused_at_its_first_byte(
    sent: int,
) -> None:
    async with listening(AcceptedConnections()) as port:
        handler, connection = await port.connect()
        connection.send(begun(FEED_TYPE, MAX_SMALL_FRAME_BYTES + 1, sent))
        await eventually(lambda: handler.reasons)
        assert f"message of type {FEED_TYPE} with" in port.handlers[0].reasons[0]


@pytest.mark.parametrize("append", [APPEND_TYPE, APPEND_BATCH_TYPE, ANSWERED_APPEND_TYPE])
async def test_large_append_is_received_if_large_requests_are_allowed(append: int) -> None:
    async with listening(AcceptedConnections()) as port:
        handler, connection = await port.connect()
        size = MAX_SMALL_FRAME_BYTES + 1
        connection.send(begun(append, size, size))
        await eventually(lambda: len(port.handlers[0].bodies) == 1)
        accepted = port.handlers[0].connection
        assert accepted is not None
        accepted.allow_large_requests(False)
        connection.send(begun(append, size, 1))
        await eventually(lambda: handler.reasons)


async def test_peer_that_is_refused_before_its_handshake_is_no_longer_counted() -> None:
    accepted = AcceptedConnections(limit=1)
    listener = Listener(CLIENT_SERVER, RecordingHandler, TlsConfig(), accepted)
    listener.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"plaintext")
    with suppress(ConnectionResetError):
        await reader.read()
    assert accepted.open == 0
    writer.close()
    await listener.close()


class OnePeer:
    """A listening socket that returns an accepted socket of the test."""

    def __init__(self, accepted: socket.socket) -> None:
        self._accepted = accepted

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        return self._accepted, ("127.0.0.1", 1)


async def test_socket_that_is_accepted_in_the_turn_of_the_close_is_closed() -> None:
    accepted = AcceptedConnections()
    listener = Listener(CLIENT_SERVER, RecordingHandler, PLAINTEXT, accepted)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        listener._accept(cast(socket.socket, OnePeer(ours)))
        assert accepted.open == 1
        await listener.close()
        assert ours.fileno() == -1
    assert accepted.open == 0


async def test_incomplete_messages_of_all_connections_together_are_bounded() -> None:
    async with listening(AcceptedConnections(max_incomplete_bytes=1000)) as port:
        opened = [await port.connect() for _ in range(3)]
        for _, connection in opened[:2]:
            connection.send(begun(APPEND_TYPE, 5000, 400))
        await eventually(lambda: port.accepted.incomplete_bytes == 2 * 407)
        handler, connection = opened[2]
        connection.send(begun(APPEND_TYPE, 5000, 400))
        await eventually(lambda: handler.reasons)
        assert port.accepted.incomplete_bytes == 2 * 407
        assert not opened[0][0].reasons
        first, rest = opened[0][1], begun(APPEND_TYPE, 5000, 5000)[407:]
        first.send(rest)
        await eventually(lambda: len(port.handlers[0].bodies) == 1)
        assert port.accepted.incomplete_bytes == 407


def agreed(large_types: frozenset[int] | None) -> FrameDecoder:
    decoder = FrameDecoder(CLIENT_SERVER, large_types=large_types)
    decoder.feed(CLIENT_SERVER.hello(dialer=True))
    return decoder


def in_bytes(decoder: FrameDecoder, data: bytes) -> int:
    """Feed ``data`` in chunks of one byte; return how many were fed before a violation."""
    for position in range(len(data)):
        try:
            decoder.feed(data[position : position + 1])
        except ProtocolViolation:
            return position + 1
    return -1


@pytest.mark.parametrize(
    ("large_types", "length", "fed"),
    [
        (frozenset((APPEND_TYPE,)), MAX_SMALL_FRAME_BYTES + 1, 8),
        (frozenset((APPEND_TYPE, FEED_TYPE)), MAX_SMALL_FRAME_BYTES + 1, -1),
        (frozenset((APPEND_TYPE,)), MAX_SMALL_FRAME_BYTES, -1),
        (None, MAX_SMALL_FRAME_BYTES + 1, -1),
    ],
)
def test_type_of_a_large_frame_is_checked_when_its_first_byte_arrives(
    large_types: frozenset[int] | None, length: int, fed: int
) -> None:
    decoder = agreed(large_types)
    assert in_bytes(decoder, begun(FEED_TYPE, length, 20)) == fed
    if fed < 0:
        assert decoder.incomplete_bytes == 27


def test_refused_connections_are_logged_once_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse() -> list[int]:
        accepted, lines = AcceptedConnections(limit=0), []
        for pause in (0.0, 9.9, 0.1, 9.9, 0.2):
            await asyncio.sleep(pause)
            assert not accepted.enter("storage", "10.0.0.7:1")
            lines.append(len(caplog.records))
        return lines

    assert run(refuse()) == [1, 1, 2, 2, 3]
    assert "(5 refused so far)" in caplog.messages[-1]


def test_incomplete_bytes_may_reach_their_bound_and_not_exceed_it() -> None:
    accepted = AcceptedConnections(max_incomplete_bytes=100)
    assert accepted.change_incomplete_bytes(100)
    assert not accepted.change_incomplete_bytes(1)
    assert accepted.change_incomplete_bytes(-1)
