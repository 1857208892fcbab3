"""Connections end when their peers have vanished: the TCP options of both sides."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from waltz.net import PLAINTEXT, FrameConnection, FrameHandler, Listener, TlsConfig, dial
from waltz.net.keep_alive import DEAD_PEER_SECONDS, IDLE_SECONDS, PROBE_SECONDS, set_keep_alive
from waltz.protocol import STORAGE


class Quiet(FrameHandler):
    """Keeps its connection and ignores messages."""

    def __init__(self) -> None:
        self.connection: FrameConnection | None = None

    def ready(self, connection: FrameConnection) -> None:
        self.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        return

    def lost(self, reason: str) -> None:
        return


def option(connection: FrameConnection | None, level: int, number: int) -> int:
    assert connection is not None
    assert connection._transport is not None
    raw = connection._transport.get_extra_info("socket")
    return int(raw.getsockopt(level, number))


@pytest.fixture(params=["plaintext", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> TlsConfig:
    if request.param == "plaintext":
        return PLAINTEXT
    return Authority(tmp_path, "authority").issue("node", server_name="node")


async def test_options_are_set_on_both_sides_of_a_connection(tls: TlsConfig) -> None:
    accepted, dialing = Quiet(), Quiet()
    listener = Listener(STORAGE, lambda: accepted, tls)
    listener.start("127.0.0.1", 0)
    await dial("127.0.0.1", listener.port, STORAGE, dialing, tls)
    await eventually(lambda: accepted.connection and dialing.connection)
    for connection in (accepted.connection, dialing.connection):
        assert option(connection, socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert option(connection, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE_SECONDS
        assert option(connection, socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == PROBE_SECONDS
        assert option(connection, socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 4
        user_timeout = option(connection, socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert user_timeout == DEAD_PEER_SECONDS * 1000
    await listener.close()


def test_socket_that_is_closed_already_is_left_alone() -> None:
    closed = socket.socket()
    closed.close()
    set_keep_alive(closed)
