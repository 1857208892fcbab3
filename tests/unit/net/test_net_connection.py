"""Connections: handshake, framing, writes, keep-alives, backpressure and their end."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import cast

import pytest

from tests.support.eventually import eventually
from tests.support.garbage import collector_off
from tests.support.recording_handler import RecordingHandler
from waltz.net import (
    PLAINTEXT,
    DialFailed,
    FrameConnection,
    Listener,
    ListenFailed,
    dial,
    join_address,
    split_address,
)
from waltz.net.connection import HANDSHAKE_SECONDS, KEEP_ALIVE_SECONDS, LINGER_SECONDS
from waltz.protocol import (
    ADMIN,
    CLIENT_SERVER,
    STORAGE,
    MalformedMessage,
    ProtocolSpec,
    ReqId,
    client_server,
)
from waltz.protocol.client_server import FeedRequest
from waltz.protocol.frames import HEAD_BYTES, encode_frame

NEWEST = max(CLIENT_SERVER.versions)
FRAME = client_server.encode(FeedRequest(ReqId(1, 2, 3, 4), 5), NEWEST)
BODY = FRAME[HEAD_BYTES:]
HELLO = CLIENT_SERVER.hello(dialer=True)
STORAGE_HELLO = STORAGE.hello(dialer=True)
KEEP_ALIVE = encode_frame(CLIENT_SERVER.magic, NEWEST)


class Recorder(RecordingHandler):
    """Also counts the other callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.congestions = 0
        self.writables = 0
        self.refuse = False

    def received(self, bodies: list[bytes]) -> None:
        if self.refuse:
            raise MalformedMessage("this handler takes nothing")
        self.calls += 1
        super().received(bodies)

    def congested(self) -> None:
        self.congestions += 1

    def writable(self) -> None:
        self.writables += 1


class Port:
    """A listener with a recorder per accepted connection."""

    def __init__(self, spec: ProtocolSpec = CLIENT_SERVER) -> None:
        self.handlers: list[Recorder] = []
        self.listener = Listener(spec, self._accept, PLAINTEXT)

    def _accept(self) -> Recorder:
        self.handlers.append(Recorder())
        return self.handlers[-1]


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


@asynccontextmanager
async def listening(spec: ProtocolSpec = CLIENT_SERVER) -> AsyncIterator[Port]:
    port = Port(spec)
    port.listener.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await port.listener.close()


async def dialed(
    port: Port, spec: ProtocolSpec = CLIENT_SERVER
) -> tuple[Recorder, FrameConnection, Recorder]:
    """Return the dialing handler, its connection, and the listening handler, all ready."""
    handler = Recorder()
    connection = await dial("127.0.0.1", port.listener.port, spec, handler, PLAINTEXT)
    await eventually(lambda: handler.connection and port.handlers and port.handlers[-1].connection)
    return handler, connection, port.handlers[-1]


async def test_connection_negotiates_a_version_and_exchanges_frames() -> None:
    async with listening() as port:
        dialing, connection, accepted = await dialed(port)
        assert accepted.connection is not None
        assert connection.version == accepted.connection.version == max(CLIENT_SERVER.versions)
        assert connection.peer_text == "Waltz Server"
        assert accepted.connection.peer_text == "Waltz Client"
        assert connection.peer == f"127.0.0.1:{port.listener.port}"
        connection.send(FRAME)
        accepted.connection.send(FRAME + FRAME)
        await eventually(lambda: accepted.bodies == [BODY] and dialing.bodies == [BODY, BODY])


@pytest.mark.parametrize("version", CLIENT_SERVER.versions)
async def test_connection_to_an_old_peer_uses_its_version(version: int) -> None:
    async with listening() as port:
        _, connection, _ = await dialed(port, CLIENT_SERVER.limited_to(*range(version + 1)))
        assert connection.version == version


async def test_close_reports_the_loss_once_on_each_side() -> None:
    async with listening() as port:
        dialing, connection, accepted = await dialed(port)
        connection.send(FRAME)
        connection.close("enough")
        connection.close("again")
        connection.abort("again")
        connection.send(FRAME)
        await eventually(lambda: accepted.reasons)
        assert dialing.reasons == ["enough"]
        assert accepted.bodies == [BODY], "frames queued before the close are sent"
        assert accepted.reasons == ["closed by the peer"]


async def test_closed_listener_closes_its_connections() -> None:
    async with listening() as port:
        dialing, _, accepted = await dialed(port)
        await port.listener.close()
        await eventually(lambda: dialing.reasons)
        assert accepted.reasons == ["shutting down"]
        with pytest.raises(DialFailed, match=r"cannot reach 127\.0\.0\.1"):
            await dial("127.0.0.1", port.listener.port, CLIENT_SERVER, Recorder(), PLAINTEXT)


async def test_listener_forgets_connections_that_have_ended() -> None:
    async with listening() as port:
        dialing, connection = (await dialed(port))[:2]
        kept = weakref.ref(cast(FrameConnection, port.handlers[0].connection))
        with collector_off():
            connection.close()
            await eventually(lambda: port.handlers[0].reasons and dialing.reasons)
            port.handlers.clear()
            # The transport keeps the connection until a later turn of the event loop.
            await eventually(lambda: kept() is None)


async def test_connection_that_is_lost_keeps_no_buffers() -> None:
    """Its handler may still refer to the connection, but the buffers must be free."""
    async with listening() as port:
        dialing, connection, accepted = await dialed(port)
        assert accepted.connection is not None
        kept = weakref.ref(cast(asyncio.Transport, accepted.connection._transport))
        decoder = accepted.connection._decoder
        connection.send(encode_frame(CLIENT_SERVER.magic, connection.version, bytes(999))[:-1])
        await eventually(lambda: decoder.mid_frame)
        connection.close()
        await eventually(lambda: accepted.reasons and dialing.reasons)
        with collector_off():
            await eventually(lambda: kept() is None)
        assert accepted.connection.peer_certificate is None
        assert not decoder.mid_frame


async def _accept_without_free_file(log: pytest.LogCaptureFixture) -> None:
    loop = cast(SkippingLoop, asyncio.get_running_loop())
    async with listening() as port:
        with socket.socket() as peer:
            peer.setblocking(False)
            with no_free_file():
                peer.connect_ex(("127.0.0.1", port.listener.port))
                await eventually(lambda: "cannot accept client/server" in log.text)
                for _ in range(20):
                    await asyncio.sleep(0.001)
            assert log.text.count("cannot accept client/server connections") == 1
            assert not port.handlers
            loop.skipped += 1.1
            await eventually(lambda: port.handlers)


@contextmanager
def no_free_file() -> Iterator[None]:
    """Let this process open no file, socket or connection."""
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_listener_without_a_free_file_pauses_and_then_accepts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(_accept_without_free_file(caplog))


async def test_message_refused_by_its_handler_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening() as port:
        dialing, connection, accepted = await dialed(port)
        accepted.refuse = True
        connection.send(FRAME)
        await eventually(lambda: dialing.reasons and accepted.reasons)
        assert accepted.reasons == ["this handler takes nothing"]
        assert "this handler takes nothing" in caplog.text


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET /ping HTTP/1.1\r\n\r\n", "the peer speaks HTTP"),
        (bytes(range(64)), "not a client/server frame"),
        (HELLO + b"garbage" * 5, "not a client/server frame"),
        (HELLO * 2, "a second Hello"),
        (
            STORAGE.hello(dialer=True) + encode_frame(STORAGE.magic, 0, b"x"),
            "speaks the storage protocol",
        ),
        (b"\x16\x03\x01\x00\xa5\x01\x00", "the peer speaks TLS"),
    ],
)
async def test_garbage_closes_the_connection(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(sent)
        await eventually(lambda: port.handlers and port.handlers[0].reasons)
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 60)
        assert reason in caplog.text
        assert caplog.text.count("closing client/server connection with 127.0.0.1:") == 1
        writer.close()


async def test_connection_that_ends_within_a_frame_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(HELLO + FRAME[:-3])
        writer.write_eof()
        await eventually(lambda: port.handlers and port.handlers[0].reasons)
        assert port.handlers[0].bodies == []
        assert "ended within a frame" in caplog.text
        writer.close()


async def test_connection_without_a_common_version_is_closed_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening(CLIENT_SERVER.limited_to(9)) as port:
        handler = Recorder()
        await dial("127.0.0.1", port.listener.port, CLIENT_SERVER, handler, PLAINTEXT)
        await eventually(lambda: handler.reasons)
        assert handler.connection is None
        assert "no common version" in caplog.text


async def test_peer_that_leaves_without_a_hello_is_reported_lost() -> None:
    async with listening() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.close()
        await eventually(lambda: port.handlers and port.handlers[0].reasons)
        assert port.handlers[0].connection is None


async def test_slow_reader_congests_the_connection_until_it_drains() -> None:
    async with listening() as port:
        dialing, connection, accepted = await dialed(port)
        assert accepted.connection is not None
        accepted.connection.pause_reading()
        large = encode_frame(CLIENT_SERVER.magic, NEWEST, bytes(1 << 20))
        count = 0
        while not connection.congested:
            connection.send(large)
            count += 1
            await asyncio.sleep(0)
            assert count < 200, "loopback never filled up"
        assert (dialing.congestions, dialing.writables) == (1, 0)
        accepted.connection.resume_reading()
        await eventually(lambda: len(accepted.bodies) == count)
        assert (dialing.congestions, dialing.writables) == (1, 1)
        assert not connection.congested


async def test_listener_at_a_used_port_fails() -> None:
    async with listening() as port:
        second = Listener(ADMIN, Recorder, PLAINTEXT)
        with pytest.raises(ListenFailed) as caught:
            second.start("127.0.0.1", port.listener.port)
        text = str(caught.value)
        assert text == (
            f"cannot listen for storage admin connections on 127.0.0.1:{port.listener.port}: "
            "Address already in use; another process listens there: stop it or choose another port"
        )
        await second.close()


async def test_listener_at_a_foreign_address_fails() -> None:
    listener = Listener(ADMIN, Recorder, PLAINTEXT)
    with pytest.raises(ListenFailed, match=r"this machine has no such address: check \*.bind.host"):
        listener.start("192.0.2.1", 0)


async def test_listener_at_the_wildcard_address_is_reachable() -> None:
    port = Port()
    port.listener.start(None, 0)
    try:
        await dialed(port)
    finally:
        await port.listener.close()


async def test_dial_of_a_closed_port_fails() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    with pytest.raises(DialFailed, match=f"cannot reach .*:{number}: "):
        await dial("127.0.0.1", number, CLIENT_SERVER, Recorder(), PLAINTEXT)


async def test_dial_of_a_silent_host_times_out() -> None:
    """A listener whose backlog is full never answers the connection."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        host, port = deaf.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex((host, port))
            with pytest.raises(DialFailed, match=r"no answer within 0\.05 s"):
                await dial(host, port, CLIENT_SERVER, Recorder(), PLAINTEXT, timeout_seconds=0.05)
        finally:
            for filler in fillers:
                filler.close()


class FakeTransport(asyncio.Transport):
    """A transport that records the writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.aborted = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def abort(self) -> None:
        self.aborted += 1

    def close(self) -> None:
        pass


async def test_frames_sent_in_one_turn_leave_in_one_write() -> None:
    transport = FakeTransport()
    connection = FrameConnection(CLIENT_SERVER, Recorder(), dialer=False)
    connection.connection_made(transport)
    assert transport.writes == [CLIENT_SERVER.hello(dialer=False)]
    for _ in range(100):
        connection.send(FRAME)
    assert len(transport.writes) == 1
    await asyncio.sleep(0)
    assert transport.writes[1:] == [FRAME * 100]


async def test_frames_beyond_the_write_buffer_are_written_at_once() -> None:
    """Otherwise a handler could queue any number of answers before it learns of the congestion."""
    transport = FakeTransport()
    connection = FrameConnection(CLIENT_SERVER, Recorder(), dialer=False)
    connection.connection_made(transport)
    part = bytes(600 << 10)
    connection.send(part)
    assert len(transport.writes) == 1, "only the Hello is written"
    connection.send(part)
    assert transport.writes[1:] == [part, part]
    connection.send(FRAME)
    assert len(transport.writes) == 3
    await asyncio.sleep(0)
    assert transport.writes[3:] == [FRAME]


async def test_frames_of_one_chunk_are_handed_over_in_one_call() -> None:
    handler = Recorder()
    connection = FrameConnection(CLIENT_SERVER, handler, dialer=False)
    connection.connection_made(FakeTransport())
    connection.data_received(HELLO + FRAME * 10 + FRAME[:4])
    assert handler.calls == 1
    assert handler.bodies == [BODY] * 10
    connection.data_received(FRAME[4:])
    assert handler.bodies == [BODY] * 11


async def _idle_for_a_while(dialer: bool, writes: int) -> list[bytes]:
    loop = cast(SkippingLoop, asyncio.get_running_loop())
    transport = FakeTransport()
    connection = FrameConnection(CLIENT_SERVER, Recorder(), dialer=dialer)
    connection.connection_made(transport)
    connection.data_received(CLIENT_SERVER.hello(dialer=not dialer))
    transport.writes.clear()
    for turn in range(4):
        loop.skipped += KEEP_ALIVE_SECONDS * 0.6
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if turn < writes:
            connection.send(FRAME)
            await asyncio.sleep(0)
    connection.close()
    return transport.writes


@pytest.mark.parametrize(
    ("dialer", "writes", "expected"),
    [
        (True, 0, [KEEP_ALIVE, KEEP_ALIVE]),
        (True, 2, [FRAME, FRAME, KEEP_ALIVE]),
        (True, 4, [FRAME] * 4),
        (False, 0, []),
    ],
)
def test_idle_dialer_sends_keep_alives(dialer: bool, writes: int, expected: list[bytes]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(_idle_for_a_while(dialer, writes)) == expected


async def _send_no_hello(seconds: float) -> list[str]:
    loop = cast(SkippingLoop, asyncio.get_running_loop())
    handler = Recorder()
    connection = FrameConnection(CLIENT_SERVER, handler, dialer=False)
    connection.connection_made(FakeTransport())
    loop.skipped += seconds
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reasons = list(handler.reasons)
    connection.abort("the test is over")
    return reasons


@pytest.mark.parametrize(
    ("seconds", "reasons"),
    [
        (HANDSHAKE_SECONDS * 0.9, []),
        (HANDSHAKE_SECONDS * 1.1, [f"no Hello within {HANDSHAKE_SECONDS:g} s"]),
    ],
)
def test_peer_without_a_hello_is_disconnected(seconds: float, reasons: list[str]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(_send_no_hello(seconds)) == reasons


async def test_listener_stops_reading_from_a_congested_peer() -> None:
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.listener.port)
        writer.write(HELLO)
        await eventually(lambda: port.handlers and port.handlers[0].connection)
        handler = port.handlers[0]
        connection = handler.connection
        assert connection is not None
        while not connection.congested:
            connection.send(bytes(1 << 20))
            await asyncio.sleep(0)
        writer.write(FRAME)
        await writer.drain()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not handler.bodies
        while not handler.bodies:
            await reader.read(1 << 20)
        writer.close()
        await writer.wait_closed()


async def _close_and_wait(seconds: float, drained: bool) -> int:
    """Close a connection whose peer reads the queued frames, or not; return how often it aborts."""
    loop = cast(SkippingLoop, asyncio.get_running_loop())
    handler = Recorder()
    transport = FakeTransport()
    connection = FrameConnection(CLIENT_SERVER, handler, dialer=False)
    connection.connection_made(transport)
    connection.close("enough")
    if drained:
        connection.connection_lost(None)
    loop.skipped += seconds
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    aborted = transport.aborted
    connection.connection_lost(None)
    assert handler.reasons == ["enough"]
    return aborted


@pytest.mark.parametrize(
    ("seconds", "drained", "aborted"),
    [
        (LINGER_SECONDS * 0.9, False, 0),
        (LINGER_SECONDS * 1.1, False, 1),
        (LINGER_SECONDS * 1.1, True, 0),
    ],
)
def test_closed_connection_is_aborted_after_the_linger_time(
    seconds: float, drained: bool, aborted: int
) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        assert runner.run(_close_and_wait(seconds, drained)) == aborted


class Ipv6Transport(FakeTransport):
    """A transport to a peer with an IPv6 address."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("2001:db8::1", 4711, 0, 0) if name == "peername" else default


async def test_connection_with_an_ipv6_peer_has_its_address_in_brackets() -> None:
    connection = FrameConnection(CLIENT_SERVER, Recorder(), dialer=False)
    connection.connection_made(Ipv6Transport())
    assert connection.peer == "[2001:db8::1]:4711"
    connection.abort("enough")


class ReadTransport(FakeTransport):
    """A transport that records whether it is read."""

    reading = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


@pytest.mark.parametrize("dialer", [True, False])
async def test_congested_dialer_keeps_reading_and_congested_listener_stops(dialer: bool) -> None:
    """If both sides stopped to read, each could wait for the other forever."""
    transport = ReadTransport()
    connection = FrameConnection(CLIENT_SERVER, Recorder(), dialer=dialer)
    connection.connection_made(transport)
    connection.pause_writing()
    assert transport.reading is dialer
    connection.resume_writing()
    assert transport.reading
    connection.abort("enough")


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ECONNREFUSED, "Connection refused"),
        (errno.EHOSTUNREACH, "No route to host"),
        (errno.ETIMEDOUT, "Connection timed out"),
    ],
)
async def test_dial_error_of_the_system_names_the_reason(
    number: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        """Raise the error of asyncio, whose text repeats the address and omits the reason."""
        raise OSError(number, "Connect call failed ('10.0.0.1', 1)")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", fail)
    with pytest.raises(DialFailed, match=rf"^cannot reach 10\.0\.0\.1:1: {reason}$"):
        await dial("10.0.0.1", 1, CLIENT_SERVER, Recorder(), PLAINTEXT)


async def test_dial_of_an_unknown_name_reports_it() -> None:
    with pytest.raises(DialFailed, match=r"^cannot reach no-host\.invalid:1: [A-Z]") as caught:
        await dial("no-host.invalid", 1, CLIENT_SERVER, Recorder(), PLAINTEXT)
    assert "Unknown error" not in str(caught.value)


async def test_dial_error_of_an_ipv6_address_has_it_in_brackets() -> None:
    with pytest.raises(DialFailed, match=r"^cannot reach \[::1\]:1: "):
        await dial("::1", 1, CLIENT_SERVER, Recorder(), PLAINTEXT)


@pytest.mark.parametrize(
    ("address", "host"),
    [("a:1", "a"), ("10.0.0.1:1", "10.0.0.1"), ("[2001:db8::1]:1", "2001:db8::1")],
)
def test_split_address_is_undone_by_join_address(address: str, host: str) -> None:
    assert split_address(address) == (host, 1)
    assert join_address(host, 1) == address


@pytest.mark.parametrize("address", ["abc", ":1", "[]:1", "a:", "a:x", "a:-1", "a:٣", "a:123456"])
def test_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(DialFailed, match="not an address of the form host:port"):
        split_address(address)


@pytest.mark.parametrize(("host", "port"), [("a", 99999), ("a\0b", 1), ("x" * 70, 1)])
async def test_dial_of_an_impossible_address_fails(host: str, port: int) -> None:
    with pytest.raises(DialFailed, match="cannot reach"):
        await dial(host, port, CLIENT_SERVER, Recorder(), PLAINTEXT)
