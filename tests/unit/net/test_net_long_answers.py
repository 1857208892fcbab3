"""Answers of megabytes that arrive in their place, between others, on both event loops."""

from __future__ import annotations

import asyncio
import weakref
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.event_loops import NewLoop, both_loops, run_on
from tests.support.eventually import eventually
from tests.support.recording_handler import RecordingHandler
from waltz.net import PLAINTEXT, FrameConnection, Listener, TlsConfig, dial
from waltz.net.long_answer import LongAnswerReceiver
from waltz.protocol import CLIENT_SERVER
from waltz.protocol.client_numbers import STORED_RECORDS_TYPE
from waltz.protocol.frames import LongAnswer, encode_frame

LONG = bytes((STORED_RECORDS_TYPE,)) + bytes(range(256)) * (12 << 10)
"""A body of 3 MiB, of a type that is received in its place."""
ANSWERS = [b"first", LONG, b"second", LONG[: 1 << 19], LONG, b"\x01" + LONG[1:], LONG, b"last"]


def frame(body: bytes) -> bytes:
    return encode_frame(CLIENT_SERVER.magic, max(CLIENT_SERVER.versions), body)


class Peer(RecordingHandler):
    """Sends ``answers`` as soon as it can; stops reading after ``pauses_at`` bodies, 0: never."""

    def __init__(self, answers: list[bytes], pauses_at: int = 0) -> None:
        super().__init__()
        self.pauses_at = pauses_at
        self._answers = answers

    def ready(self, connection: FrameConnection) -> None:
        super().ready(connection)
        connection.send(*map(frame, self._answers))

    def received(self, bodies: list[bytes]) -> None:
        super().received(bodies)
        if self.pauses_at and len(self.bodies) >= self.pauses_at:
            assert self.connection is not None
            self.connection.pause_reading()


async def answered(tls: tuple[TlsConfig, TlsConfig], pauses_at: int = 0) -> list[bytes]:
    """Return the bodies that a dialing side has received from a `Peer`."""
    listener = Listener(CLIENT_SERVER, lambda: Peer(ANSWERS), tls[0])
    listener.start("127.0.0.1", 0)
    dialer = Peer([], pauses_at)
    connection = await dial("127.0.0.1", listener.port, CLIENT_SERVER, dialer, tls[1])
    if pauses_at:
        await eventually(lambda: len(dialer.bodies) >= pauses_at)
        dialer.pauses_at = 0
        connection.resume_reading()
    await eventually(lambda: len(dialer.bodies) == len(ANSWERS) or dialer.reasons)
    connection.close()
    await listener.close()
    return dialer.bodies


@both_loops
def test_long_answers_arrive_between_others_in_their_order(
    new_loop: NewLoop,
) -> None:
    assert run_on(new_loop, answered((PLAINTEXT, PLAINTEXT))) == ANSWERS


@both_loops
def test_long_answers_arrive_encrypted(new_loop: NewLoop, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    both = authority.issue("server"), authority.issue("client", server_name="server")
    assert run_on(new_loop, answered(both)) == ANSWERS


@both_loops
@pytest.mark.parametrize("pauses_at", [1, 2])
def test_long_answers_arrive_after_a_pause_of_reading(new_loop: NewLoop, pauses_at: int) -> None:
    assert run_on(new_loop, answered((PLAINTEXT, PLAINTEXT), pauses_at)) == ANSWERS


@both_loops
def test_connection_that_ends_within_a_long_answer_is_lost(
    new_loop: NewLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def cut_off() -> list[bytes]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(len(CLIENT_SERVER.hello(dialer=True)))
            writer.write(CLIENT_SERVER.hello(dialer=False) + frame(b"x") + frame(LONG)[: 1 << 20])
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        dialer = Peer([])
        port = server.sockets[0].getsockname()[1]
        await dial("127.0.0.1", port, CLIENT_SERVER, dialer, PLAINTEXT)
        await eventually(lambda: dialer.reasons)
        server.close()
        return dialer.bodies

    assert run_on(new_loop, cut_off()) == [b"x"]
    assert any("ended within a frame" in message for message in caplog.messages)


class _Connection(asyncio.Protocol):
    """A connection that notes whether it was lost."""

    is_lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


@pytest.mark.parametrize("ends", ["complete", "lost"])
def test_receiver_refers_to_nothing_after_its_end(ends: str) -> None:
    """A transport keeps the receiver, and would keep megabytes and the ended connection with it."""
    answer, connection = LongAnswer(bytearray(4), 2), _Connection()
    done: list[bytearray] = []
    receiver = LongAnswerReceiver(connection, answer, lambda: done.append(answer.body))
    seen = weakref.ref(connection)
    if ends == "complete":
        receiver.buffer_updated(1)
        assert not done
        receiver.buffer_updated(1)
        assert done == [answer.body]
    else:
        receiver.connection_lost(None)
        assert connection.is_lost
    answer.body.append(0)  # BufferError if a view of the body exists
    del connection
    assert seen() is None


class _Transport(asyncio.Transport):
    """A transport that keeps its protocol."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def close(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol


async def test_connection_closed_within_a_long_answer_gets_its_transport_back() -> None:
    """Otherwise it would not learn that its transport has ended."""
    transport, handler = _Transport(), RecordingHandler()
    connection = FrameConnection(CLIENT_SERVER, handler, dialer=True)
    connection.connection_made(transport)
    connection.data_received(CLIENT_SERVER.hello(dialer=False) + frame(LONG)[:-1])
    receiver = transport.protocol
    assert isinstance(receiver, LongAnswerReceiver)
    connection.close("closed by its owner")
    receiver.buffer_updated(1)
    assert transport.protocol is connection
    assert not handler.bodies
    connection.connection_lost(None)
