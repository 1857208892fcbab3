"""Connections of frames in memory, and the faults of their network."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.eventually import eventually
from waltz.net import (
    PLAINTEXT,
    AcceptedConnections,
    ConnectionLost,
    DialFailed,
    FrameConnection,
    FrameHandler,
    ListenFailed,
)
from waltz.net.network import ListeningPort
from waltz.protocol import CLIENT_SERVER, ReqId, client_server
from waltz.protocol.client_server import FeedRequest
from waltz.testing import FrameFault, FrameReplacement, FrameRule, MemoryNetwork, run
from waltz.testing.frames import split_frames
from waltz.testing.transport import MemoryTransport

NEWEST = max(CLIENT_SERVER.versions)
FRAME = client_server.encode(FeedRequest(ReqId(1, 2, 3, 4), 5), NEWEST)
BODY = FRAME[7:]
PORT = 7
FULL = 4 << 20
"""More bytes than the buffers of a connection hold."""


class Recorder(FrameHandler):
    """A handler that records its callbacks."""

    def __init__(self) -> None:
        self.connection: FrameConnection | None = None
        self.bodies: list[bytes] = []
        self.arrived: list[float] = []
        self.reasons: list[str] = []
        self.events: list[str] = []

    def ready(self, connection: FrameConnection) -> None:
        self.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        self.bodies += bodies
        self.arrived.append(asyncio.get_running_loop().time())

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)

    def congested(self) -> None:
        self.events.append("congested")

    def writable(self) -> None:
        self.events.append("writable")


class World:
    """A network with a listener on one host, and connections of another."""

    def __init__(self) -> None:
        self.network = MemoryNetwork(seed=1)
        self.accepted: list[Recorder] = []
        self.listener = self.listen("server")

    def listen(self, host: str) -> ListeningPort:
        listener = self.network.host(host).listener(CLIENT_SERVER, self._accept, PLAINTEXT)
        listener.start(None, PORT)
        return listener

    async def dial(self, port: int = PORT) -> Recorder:
        handler = Recorder()
        host = self.network.host("client")
        connection = await host.dial("server", port, CLIENT_SERVER, handler, PLAINTEXT)
        await connection.handshake()
        return handler

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.listener.close()


def connection_of(handler: Recorder) -> FrameConnection:
    assert handler.connection is not None
    return handler.connection


async def test_frames_arrive_in_both_directions(world: World) -> None:
    dialed = await world.dial()
    [accepted] = world.accepted
    assert connection_of(dialed).version == connection_of(accepted).version == NEWEST
    assert connection_of(dialed).peer == f"server:{PORT}"
    connection_of(dialed).send(FRAME, FRAME)
    connection_of(accepted).send(FRAME)
    await eventually(lambda: accepted.bodies == [BODY, BODY] and dialed.bodies == [BODY])


async def test_closed_side_delivers_what_it_sent_before(world: World) -> None:
    dialed = await world.dial()
    [accepted] = world.accepted
    connection_of(dialed).send(FRAME)
    connection_of(dialed).close("done")
    await eventually(lambda: accepted.reasons)
    assert accepted.bodies == [BODY]
    assert accepted.reasons == ["closed by the peer"]
    assert dialed.reasons == ["done"]
    assert world.network.cut("client") == 0


async def test_aborted_side_resets_the_other(world: World) -> None:
    dialed = await world.dial()
    [accepted] = world.accepted
    connection_of(dialed).abort("broken")
    await eventually(lambda: accepted.reasons)
    assert accepted.reasons == ["connection reset by the peer"]


async def test_slow_reader_congests_the_writer_until_it_reads(world: World) -> None:
    dialed = await world.dial()
    [accepted] = world.accepted
    connection_of(accepted).pause_reading()
    frames = FULL // len(FRAME)
    connection_of(dialed).send(*[FRAME] * frames)
    await eventually(lambda: dialed.events == ["congested"])
    await asyncio.sleep(0)
    assert accepted.bodies == []
    connection_of(accepted).resume_reading()
    await eventually(lambda: dialed.events == ["congested", "writable"])
    assert len(accepted.bodies) == frames


async def test_close_of_a_congested_connection_waits_for_the_reader(world: World) -> None:
    dialed = await world.dial()
    [accepted] = world.accepted
    connection_of(accepted).pause_reading()
    frames = FULL // len(FRAME)
    connection_of(dialed).send(*[FRAME] * frames)
    connection_of(dialed).close("done")
    connection_of(accepted).resume_reading()
    await eventually(lambda: accepted.reasons)
    assert len(accepted.bodies) == frames


def test_peer_that_never_reads_is_aborted_after_the_linger_time() -> None:
    async def work() -> float:
        world = World()
        dialed = await world.dial()
        [accepted] = world.accepted
        connection_of(accepted).pause_reading()
        connection_of(dialed).send(*[FRAME] * (FULL // len(FRAME)))
        connection_of(dialed).close("done")
        await eventually(lambda: accepted.reasons)
        return asyncio.get_running_loop().time()

    assert 10 <= run(work()) < 11


async def test_exception_of_a_handler_closes_the_connection(world: World) -> None:
    class Broken(Recorder):
        def received(self, bodies: list[bytes]) -> None:
            raise ZeroDivisionError

    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    handler = Broken()
    host = world.network.host("client")
    connection = await host.dial("server", PORT, CLIENT_SERVER, handler, PLAINTEXT)
    await connection.handshake()
    connection_of(world.accepted[0]).send(FRAME)
    await eventually(lambda: world.accepted[0].reasons)
    assert [type(error) for error in reported] == [ZeroDivisionError]


async def test_dial_without_a_listener_is_refused(world: World) -> None:
    with pytest.raises(DialFailed, match="cannot reach server:8: Connection refused"):
        await world.dial(8)
    await world.listener.close()
    with pytest.raises(DialFailed, match="refused"):
        await world.dial()


async def test_second_listener_of_a_port_is_refused(world: World) -> None:
    with pytest.raises(ListenFailed, match="server:7 is down or in use"):
        world.listen("server")
    world.listen("other")


async def test_cut_connection_is_lost_on_both_sides(world: World) -> None:
    dialed, other = await world.dial(), await world.dial()
    assert world.network.cut("server", "unknown") == 0
    assert world.network.cut("client", "server") == 2
    await eventually(lambda: all(each.reasons for each in (dialed, other, *world.accepted)))


async def test_cut_can_end_a_connection_within_a_frame(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    dialed = await world.dial()
    [accepted] = world.accepted
    connection_of(dialed).send(FRAME, FRAME)
    connection_of(dialed)._flush()
    world.network.cut("client", bytes_arriving=len(FRAME) + 3)
    await eventually(lambda: accepted.reasons)
    assert accepted.bodies == [BODY]


async def test_host_that_is_down_is_unreachable_until_it_is_up(world: World) -> None:
    dialed = await world.dial()
    world.network.take_down("server")
    await eventually(lambda: dialed.reasons)
    with pytest.raises(DialFailed, match="refused"):
        await world.dial()
    with pytest.raises(ListenFailed):
        world.listen("server")
    world.network.bring_up("server")
    world.listen("server")
    await world.dial()


def test_partition_delivers_nothing_until_it_is_healed() -> None:
    async def work() -> None:
        world = World()
        loop = asyncio.get_running_loop()
        dialed = await world.dial()
        [accepted] = world.accepted
        world.network.partition("client", "server")
        connection_of(dialed).send(FRAME)
        await asyncio.sleep(60)
        assert accepted.bodies == []
        begun = loop.time()
        with pytest.raises(DialFailed, match="no answer within 10 s"):
            await world.dial()
        assert 10 <= loop.time() - begun < 11
        world.network.heal()
        await eventually(lambda: accepted.bodies == [BODY])
        await world.dial()

    run(work())


async def test_heal_of_two_hosts_leaves_other_partitions(world: World) -> None:
    dialed = await world.dial()
    world.network.partition("client", "server")
    world.network.partition("client", "other")
    connection_of(dialed).send(FRAME)
    world.network.heal("client", "server")
    [accepted] = world.accepted
    await eventually(lambda: accepted.bodies == [BODY])
    assert world.network.blocked(frozenset(("client", "other")))
    assert not world.network.blocked(frozenset(("client", "server")))


def test_torn_chunk_arrives_in_two_parts() -> None:
    async def work() -> None:
        world = World()
        world.network.torn, world.network.torn_seconds = 1.0, 2.0
        loop = asyncio.get_running_loop()
        dialed = await world.dial()
        [accepted] = world.accepted
        begun = loop.time()
        for _ in range(3):
            connection_of(dialed).send(FRAME)
        await eventually(lambda: accepted.bodies == [BODY] * 3)
        # The second part of each chunk arrives 2 s after its first part, and a chunk that is torn
        # at its first byte arrives as a whole.
        assert accepted.arrived[-1] - begun in (2.0, 4.0, 6.0)

    run(work())


def test_delayed_chunks_arrive_late_and_in_order() -> None:
    async def work() -> list[float]:
        world = World()
        loop = asyncio.get_running_loop()
        dialed = await world.dial()
        [accepted] = world.accepted
        world.network.delay_seconds = (1.0, 2.0)
        arrivals: list[float] = []
        for number in range(1, 6):
            begun = loop.time()
            accepted.arrived.clear()
            connection_of(dialed).send(FRAME)
            await asyncio.sleep(3)
            assert len(accepted.bodies) == number
            arrivals.append(accepted.arrived[0] - begun)
        frames = [
            client_server.encode(FeedRequest(ReqId(1, 2, 3, 4), mark), NEWEST) for mark in range(9)
        ]
        for frame in frames:
            connection_of(dialed).send(frame)
            await asyncio.sleep(0)
        await eventually(lambda: len(accepted.bodies) == 14)
        assert accepted.bodies[5:] == [frame[7:] for frame in frames]
        return arrivals

    arrivals = run(work())
    assert all(1.0 <= each < 2.0 for each in arrivals)
    assert arrivals == run(work())


def frame_of(mark: int) -> bytes:
    return client_server.encode(FeedRequest(ReqId(1, 2, 3, 4), mark), NEWEST)


async def send_under(world: World, rule: FrameRule) -> tuple[Recorder, Recorder]:
    """Send the marks 0 to 4 in one chunk under a rule; return both ends of the connection."""
    dialed = await world.dial()
    [accepted] = world.accepted
    world.network.frame_rules["client", "server"] = rule
    connection_of(dialed).send(*map(frame_of, range(5)))
    return dialed, accepted


def marks(recorder: Recorder) -> list[int]:
    decoded: list[Any] = [client_server.decode(body, NEWEST) for body in recorder.bodies]
    return [each.client_high_water_mark for each in decoded]


async def test_dropped_frame_does_not_arrive(world: World) -> None:
    _, accepted = await send_under(
        world, lambda m: FrameFault.DROP if m.client_high_water_mark == 2 else None
    )
    await eventually(lambda: marks(accepted) == [0, 1, 3, 4])


async def test_held_frames_arrive_when_they_are_released(world: World) -> None:
    dialed, accepted = await send_under(
        world, lambda m: FrameFault.HOLD if m.client_high_water_mark < 3 else None
    )
    await eventually(lambda: marks(accepted) == [3, 4])
    assert world.network.release_frames(2) == 2
    await eventually(lambda: marks(accepted) == [3, 4, 0, 1])
    connection_of(dialed).close("done")
    await eventually(lambda: accepted.reasons)
    assert world.network.release_frames() == 1
    assert marks(accepted) == [3, 4, 0, 1], "the connection of the last held frame has ended"


async def test_replaced_message_arrives_in_place_of_the_sent_one(world: World) -> None:
    _, accepted = await send_under(
        world,
        lambda m: FrameReplacement(replace(m, client_high_water_mark=9 - m.client_high_water_mark)),
    )
    await eventually(lambda: marks(accepted) == [9, 8, 7, 6, 5])


async def test_connection_is_cut_between_two_frames(world: World) -> None:
    dialed, accepted = await send_under(
        world, lambda m: FrameFault.CUT if m.client_high_water_mark == 3 else None
    )
    await eventually(lambda: dialed.reasons and accepted.reasons)
    assert marks(accepted) == [0, 1, 2]
    assert world.network.connections("client", "server") == 0


async def test_rule_applies_to_its_direction_and_hosts_only(world: World) -> None:
    dialed = await world.dial()
    [accepted] = world.accepted
    for hosts in (("server", "client"), ("client", "other")):
        world.network.frame_rules[hosts] = lambda message: FrameFault.DROP
    connection_of(dialed).send(FRAME)
    connection_of(accepted).send(FRAME)
    await eventually(lambda: accepted.bodies == [BODY])
    del world.network.frame_rules["server", "client"]
    connection_of(accepted).send(FRAME)
    await eventually(lambda: dialed.bodies == [BODY])
    assert world.network.connections("server") == 1


async def test_connection_beyond_the_limit_of_a_port_is_refused(world: World) -> None:
    accepted = AcceptedConnections(limit=1)
    host = world.network.host("server")
    listener = host.listener(CLIENT_SERVER, world._accept, PLAINTEXT, accepted)
    listener.start(None, PORT + 1)
    first = await world.dial(PORT + 1)
    with pytest.raises(ConnectionLost):
        await world.dial(PORT + 1)
    assert (accepted.open, accepted.refused) == (1, 1)
    connection_of(first).close("done")
    await eventually(lambda: accepted.open == 0)
    await world.dial(PORT + 1)
    await listener.close()


class _Wire:
    """One direction of a connection whose chunks take the given times, and are torn as given."""

    def __init__(self, delays: list[float], tears: list[int]) -> None:
        self._delays = delays
        self._tears = tears
        self.written = self.arrived = bytes

    def blocked(self) -> bool:
        return False

    def delay(self) -> float:
        return self._delays.pop(0)

    def tear(self, size: int) -> tuple[int, float]:
        return self._tears.pop(0), 2.0


class _Arrivals(asyncio.Protocol):
    """Records what arrives, and when."""

    def __init__(self) -> None:
        self.chunks: list[tuple[float, bytes]] = []

    def data_received(self, data: bytes) -> None:
        self.chunks.append((asyncio.get_running_loop().time(), data))


@pytest.mark.parametrize("second", [1.0, 0.0], ids=["shorter delay", "no delay"])
def test_chunk_with_a_shorter_delay_arrives_after_the_one_before(second: float) -> None:
    """The delay between the two parts of the second chunk begins when its first part is due."""

    async def work() -> None:
        loop, lock, arrivals = asyncio.get_running_loop(), threading.RLock(), _Arrivals()
        sender = MemoryTransport(loop, ("receiver", 1), _Wire([], []), lock)
        wire = _Wire([5.0, second, 1.0], [0, 3, 0])
        receiver = MemoryTransport(loop, ("sender", 1), wire, lock)
        sender.peer, receiver.peer = receiver, sender
        sender.connect(asyncio.Protocol())
        receiver.connect(arrivals)
        begun = loop.time()
        for chunk in (b"first ", b"second ", b"third"):
            sender.write(chunk)
        await asyncio.sleep(20)
        assert [(at - begun, data) for at, data in arrivals.chunks] == [
            (5.0, b"first sec"),
            (7.0, b"ond third"),
        ]

    run(work())


class _Recording(asyncio.Protocol):
    """Records what arrives, and whether the connection is lost."""

    def __init__(self) -> None:
        self.received = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class _SwiftWire(_Wire):
    """One direction of a connection whose chunks are due at once."""

    def __init__(self) -> None:
        super().__init__([], [])

    def delay(self) -> float:
        return 0.0

    def tear(self, size: int) -> tuple[int, float]:
        return 0, 0.0


def connected_ends() -> tuple[MemoryTransport, MemoryTransport, _Recording, _Recording]:
    """Return both ends of a connection, and the protocol of each."""
    loop, lock = asyncio.get_running_loop(), threading.RLock()
    one = MemoryTransport(loop, ("other", 1), _SwiftWire(), lock)
    other = MemoryTransport(loop, ("one", 1), _SwiftWire(), lock)
    one.peer, other.peer = other, one
    protocols = _Recording(), _Recording()
    for end, protocol in zip((one, other), protocols, strict=True):
        end.connect(protocol)
    return one, other, *protocols


async def test_close_with_a_full_write_buffer_ends_when_the_peer_closes() -> None:
    one, other, protocol_of_one, protocol_of_other = connected_ends()
    other.pause_reading()
    one.write(bytes(FULL))
    one.close()
    await asyncio.sleep(0)
    assert not protocol_of_one.is_lost, "the peer has not taken the bytes yet"
    other.close()
    await eventually(lambda: protocol_of_one.is_lost and protocol_of_other.is_lost)


async def test_chunk_that_is_written_after_a_cut_does_not_arrive() -> None:
    one, other, _, protocol_of_other = connected_ends()
    one.write(b"in transit")
    for end in (one, other):
        end.cut(FULL)
    one.write(b", after the cut")
    await eventually(lambda: protocol_of_other.is_lost)
    assert protocol_of_other.received == b"in transit"


async def test_bytes_in_transit_arrive_when_their_closed_connection_is_cut() -> None:
    one, other, _, protocol_of_other = connected_ends()
    one.write(b"in transit")
    one.close()
    for end in (one, other):
        end.cut(FULL)
    await eventually(lambda: protocol_of_other.is_lost)
    assert protocol_of_other.received == b"in transit"


def test_bytes_that_begin_with_a_negative_length_are_not_split() -> None:
    part = FRAME[:3] + b"\xff\xff\xff\xf9" + FRAME
    assert [(frame.raw, frame.body) for frame in split_frames(FRAME + part)] == [
        (FRAME, BODY),
        (part, b""),
    ]


def transport_to_a_silent_peer() -> MemoryTransport:
    loop = asyncio.get_running_loop()
    return MemoryTransport(loop, ("peer", 1), _Wire([], []), threading.RLock())


@pytest.mark.parametrize(
    ("high", "low", "limits"),
    [
        (None, None, (16 << 10, 64 << 10)),
        (None, 100, (100, 400)),
        (None, 1 << 20, (1 << 20, 4 << 20)),
        (100, None, (25, 100)),
        (100, 30, (30, 100)),
        (0, None, (0, 0)),
    ],
)
async def test_write_buffer_limits_are_those_of_asyncio(
    high: int | None, low: int | None, limits: tuple[int, int]
) -> None:
    transport = transport_to_a_silent_peer()
    transport.set_write_buffer_limits(high, low)
    assert transport.get_write_buffer_limits() == limits


async def test_write_buffer_limits_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="low is 2 and high is 1"):
        transport_to_a_silent_peer().set_write_buffer_limits(high=1, low=2)
