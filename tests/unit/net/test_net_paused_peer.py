"""A connection that is not read: its peer is noticed to leave, and is not closed before."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.eventually import eventually
from waltz.net import PLAINTEXT, FrameConnection, Listener, dial, paused_peer
from waltz.net.paused_peer import has_left
from waltz.protocol import CLIENT_SERVER, ReqId, client_server
from waltz.protocol.client_server import FeedRequest

FRAME = client_server.encode(FeedRequest(ReqId(1, 2, 3, 4), 5), max(CLIENT_SERVER.versions))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
    with closing(one), closing(other):
        yield one, other


def test_peer_that_is_connected_has_not_left(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    assert not has_left(other)
    one.sendall(b"unread")
    assert not has_left(other)


@pytest.mark.parametrize("unread", [b"", b"unread"])
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_peer_that_has_closed_its_side_has_left(
    pair: tuple[socket.socket, socket.socket], how: str, unread: bytes
) -> None:
    one, other = pair
    one.sendall(unread)
    if how == "reset":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
    assert has_left(other)


class Recorder:
    """A handler that records how its connection ends."""

    def __init__(self) -> None:
        self.connection: FrameConnection | None = None
        self.received_chunks = 0
        self.reasons: list[str] = []

    def ready(self, connection: FrameConnection) -> None:
        self.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        self.received_chunks += 1

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)

    def congested(self) -> None:
        return

    def writable(self) -> None:
        return


async def test_client_that_leaves_a_paused_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its requests that were not read are dropped, because no client waits for the answers."""
    checks = 0
    original = paused_peer.has_left

    def counted(peer_socket: paused_peer.Pollable) -> bool:
        nonlocal checks
        checks += 1
        return original(peer_socket)

    monkeypatch.setattr(paused_peer, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(paused_peer, "has_left", counted)
    accepted = Recorder()
    listener = Listener(CLIENT_SERVER, lambda: accepted, PLAINTEXT)
    listener.start("127.0.0.1", 0)
    try:
        connection = await dial("127.0.0.1", listener.port, CLIENT_SERVER, Recorder(), PLAINTEXT)
        await eventually(lambda: accepted.connection is not None)
        assert accepted.connection is not None
        accepted.connection.pause_reading()
        connection.send(FRAME)
        await eventually(lambda: checks >= 3)
        assert accepted.reasons == []
        connection.close()
        await eventually(lambda: accepted.reasons)
        assert accepted.reasons == ["closed by the peer"]
        assert accepted.received_chunks == 0
    finally:
        await asyncio.wait_for(listener.close(), 10)
