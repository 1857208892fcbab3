"""One chunk with many requests for the same large record: few answers are in memory at a time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.support.partition_world import mounted, opened, put
from tests.support.replication_world import World, append
from waltz.net import FrameConnection
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.frames import CLIENT_SERVER
from waltz_server.core.partition import PartitionSettings
from waltz_server.core.peer import Peer
from waltz_server.core.reads.read_purposes import MAX_ANSWER_BYTES
from waltz_server.shell.client_connection import ClientConnection
from waltz_server.shell.hosted_partition import HostedPartition

MEGABYTE = 1 << 20
CHUNK_BYTES = 64 << 10
VERSION = 4
SETTINGS = PartitionSettings(feed_cache_bytes=MEGABYTE, recent_bytes=8 * MEGABYTE)
MOST_BYTES = MAX_ANSWER_BYTES + 2 * MEGABYTE
"""One portion of answers, with the answers that were sent before the connection was congested."""


class UnreadTransport(asyncio.Transport):
    """A transport whose peer reads only in `drain`. It counts the bytes that wait to be written."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: FrameConnection | None = None
        self.waiting_bytes = 0
        self.most_waiting_bytes = 0
        self.read_bytes = 0
        self.reading = True
        self._high = 0
        self._full = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.waiting_bytes += len(data)
        self.most_waiting_bytes = max(self.most_waiting_bytes, self.waiting_bytes)
        if self.waiting_bytes > self._high and not self._full:
            self._full = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def drain(self) -> None:
        """Let the peer read all that waits."""
        self.read_bytes += self.waiting_bytes
        self.waiting_bytes = 0
        if self._full:
            self._full = False
            assert self.protocol is not None
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Host:
    """A server with one partition. It records which connections it must not read."""

    def __init__(self, world: World) -> None:
        self.connections: dict[Peer, FrameConnection] = {}
        self.hosted = HostedPartition(
            world.core, cast(Any, None), cast(Any, None), self.connections
        )
        self.paused: list[FrameConnection] = []

    def partition(self, partition: int) -> HostedPartition:
        return self.hosted

    def partitions(self) -> list[HostedPartition]:
        return [self.hosted]

    def connected(self, peer: Peer, connection: FrameConnection) -> None:
        self.connections[peer] = connection

    def pause_client(self, connection: FrameConnection, overloaded: int | None = None) -> None:
        if connection not in self.paused:
            self.paused.append(connection)


def world_with_megabyte() -> World:
    world = opened(SETTINGS, data_bytes=16 * MEGABYTE)
    put(world, mounted(world, 1), append("x" * MEGABYTE))
    world.take_events()
    return world


@pytest.mark.parametrize("reader", ["reads", "does not read"])
async def test_chunk_of_requests_for_a_megabyte_queues_few_answers(reader: str) -> None:
    host, transport = Host(world_with_megabyte()), UnreadTransport()
    spec = CLIENT_SERVER.limited_to(VERSION)
    connection = FrameConnection(spec, ClientConnection(cast(Any, host)), dialer=False)
    transport.protocol = connection
    connection.connection_made(transport)
    connection.data_received(spec.hello(dialer=True))
    request = cs.encode(cs.TransactionDataRequest(ReqId(1, 1, 0, 0), 0), VERSION)
    count = CHUNK_BYTES // len(request)
    assert count > 1000, "answered at once, they would have more than a gigabyte"
    connection.data_received(request * count)
    (peer,) = host.connections
    assert host.paused == [connection]
    assert peer.has_long_queue
    for _ in range(30):
        await asyncio.sleep(0)
        if reader == "reads":
            transport.drain()
    assert transport.most_waiting_bytes < MOST_BYTES
    answered = (transport.read_bytes + transport.waiting_bytes) // MEGABYTE
    assert peer.queued_reads == count - answered
    if reader == "reads":
        assert answered >= 30, "it gets answers as fast as it reads"
    else:
        assert not transport.reading
        assert answered <= MOST_BYTES // MEGABYTE
