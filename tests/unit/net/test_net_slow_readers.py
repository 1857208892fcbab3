"""The bound of what the peers of a port do not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.event_loops import NewLoop, both_loops, run_on
from tests.support.eventually import eventually
from tests.support.recording_handler import RecordingHandler
from waltz.net import (
    PLAINTEXT,
    AcceptedConnections,
    Listener,
    slow_readers,
)
from waltz.net.slow_readers import CHECK_SECONDS, LEAST_UNSENT_BYTES, SlowReaders
from waltz.protocol import CLIENT_SERVER
from waltz.protocol.frames import encode_frame
from waltz.testing import run

MB = 1 << 20
SIZE = 16 * MB
"""More than the buffers of two sockets take."""


def frame(size: int) -> bytes:
    return encode_frame(CLIENT_SERVER.magic, max(CLIENT_SERVER.versions), bytes([100]), bytes(size))


class Sender:
    """A connection with ``unsent_bytes``."""

    def __init__(self, slow: SlowReaders, unsent_bytes: int) -> None:
        self.peer = "10.0.0.7:1"
        self.unsent_bytes = unsent_bytes
        self.aborted = 0
        self._slow = slow
        slow.enter(self)

    def abort(self, reason: str) -> None:
        self.aborted += 1
        self._slow.leave(self)


def aborted_after(seconds: float, sizes: list[int], bound: int) -> list[int]:
    """Return the sizes of the connections that are closed if all fall behind at once."""

    async def wait() -> list[int]:
        slow = SlowReaders(bound)
        senders = [Sender(slow, size) for size in sizes]
        await asyncio.sleep(seconds)
        closed = [sender.unsent_bytes for sender in senders if sender.aborted]
        assert slow.closed == len(closed)
        return closed

    return run(wait())


@pytest.mark.parametrize(
    ("sizes", "closed"),
    [
        pytest.param([3 * MB, 7 * MB], [], id="at the bound"),
        pytest.param([3 * MB, 8 * MB], [8 * MB], id="the most unsent bytes first"),
        pytest.param([6 * MB, 7 * MB, 8 * MB, 2 * MB], [7 * MB, 8 * MB], id="as few as needed"),
        pytest.param([70 * MB], [], id="an answer larger than the bound"),
        pytest.param([20 * MB, 70 * MB], [70 * MB], id="one stays"),
        pytest.param([10 * MB] + [LEAST_UNSENT_BYTES] * 9, [], id="small rests are not counted"),
    ],
)
def test_slow_readers_are_closed_until_their_unsent_bytes_are_within_the_bound(
    sizes: list[int], closed: list[int]
) -> None:
    assert aborted_after(1.5 * CHECK_SECONDS, sizes, 10 * MB) == closed


def test_readers_with_a_small_rest_are_counted_when_they_fall_behind_again() -> None:
    """uvloop does not call `pause_writing` again before all is sent."""

    async def wait() -> None:
        slow = SlowReaders(10 * MB)
        senders = [Sender(slow, LEAST_UNSENT_BYTES) for _ in range(2)]
        await asyncio.sleep(1.5 * CHECK_SECONDS)
        for sender in senders:
            sender.unsent_bytes = 9 * MB
        await asyncio.sleep(CHECK_SECONDS)
        assert [sender.aborted for sender in senders] == [0, 0], "they are slow since a moment"
        await asyncio.sleep(CHECK_SECONDS)
        assert sorted(sender.aborted for sender in senders) == [0, 1]

    run(wait())


def test_readers_that_fall_behind_for_a_moment_are_not_closed() -> None:
    async def wait() -> None:
        slow = SlowReaders(MB)
        slowest = Sender(slow, 2 * MB)
        await asyncio.sleep(0.9 * CHECK_SECONDS)
        late, quick = Sender(slow, 9 * MB), Sender(slow, 9 * MB)
        await asyncio.sleep(0.2 * CHECK_SECONDS)
        assert (late.aborted, quick.aborted, slowest.aborted) == (0, 0, 0)
        slow.leave(quick)
        slow.enter(quick)
        await asyncio.sleep(CHECK_SECONDS)
        assert (late.aborted, quick.aborted, slowest.aborted) == (1, 0, 0)

    run(wait())


def test_closed_slow_readers_are_logged_once_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    aborted_after(1.5 * CHECK_SECONDS, [2 * MB, 3 * MB, 4 * MB, 5 * MB], MB)
    (line,) = caplog.messages
    assert "closing the connection with 10.0.0.7:1, which has not read 5242880 bytes" in line
    assert "more than maxUnsentBytes, 1048576" in line


class Quiet(RecordingHandler):
    """Has a peer that sends no message."""

    def received(self, bodies: list[bytes]) -> None:
        raise AssertionError("the peer sends nothing but its Hello")


@asynccontextmanager
async def two_unread_connections(
    accepted: AcceptedConnections,
) -> AsyncIterator[list[Quiet]]:
    """Yield the handlers of two connections whose peers read a few KiB."""
    handlers: list[Quiet] = []

    def accept() -> Quiet:
        handlers.append(Quiet())
        return handlers[-1]

    listener = Listener(CLIENT_SERVER, accept, PLAINTEXT, accepted)
    listener.start("127.0.0.1", 0)
    writers = []
    for _ in range(2):
        # The StreamReader stops reading when it holds twice its limit.
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
        writer.write(CLIENT_SERVER.hello(dialer=True))
        writers.append(writer)
    await eventually(lambda: len(handlers) == 2 and all(each.connection for each in handlers))
    yield handlers
    for writer in writers:
        writer.transport.abort()
    await listener.close()


@both_loops
def test_unsent_bytes_are_those_that_the_socket_has_not_taken(
    new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_readers, "CHECK_SECONDS", 0.05)

    async def send_and_wait() -> None:
        accepted = AcceptedConnections(max_unsent_bytes=10 * MB)
        async with two_unread_connections(accepted) as handlers:
            for handler in handlers:
                assert handler.connection is not None
                handler.connection.send(frame(SIZE))
            await eventually(lambda: accepted.slow_readers.closed == 1)
            ended, left = sorted(handlers, key=lambda handler: not handler.reasons)
            assert "slow readers together exceed the bound" in ended.reasons[0]
            assert not left.reasons
            assert left.connection is not None
            assert 5 * MB < left.connection.unsent_bytes < SIZE + MB

    run_on(new_loop, send_and_wait())


async def test_small_messages_that_are_not_read_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_readers, "CHECK_SECONDS", 0.05)
    accepted = AcceptedConnections(max_unsent_bytes=MB)
    async with two_unread_connections(accepted) as handlers:
        for handler in handlers:
            connection = handler.connection
            assert connection is not None
            while not (connection.congested or connection.closed):
                connection.send(frame(MB // 16))
                await asyncio.sleep(0)
        await eventually(lambda: accepted.slow_readers.closed == 1)
