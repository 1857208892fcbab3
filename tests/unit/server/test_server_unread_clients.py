"""Which clients the server stops reading, and what it drops when a connection ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.support.raw_client import batched, new_append, req_id
from waltz.protocol import client_server as cs
from waltz.protocol.frames import HEAD_BYTES, MAX_RECORD_BYTES
from waltz_server.core.access.client_quotas import QuotaLimits
from waltz_server.core.peer import MOST_QUEUED_READS, Peer
from waltz_server.core.replication.log_tail import record_bytes
from waltz_server.shell.access_control import AccessControl
from waltz_server.shell.client_connection import ClientConnection

VERSION = 6
APPEND = new_append("a", 1)
BATCH = cs.AppendBatchRequest(req_id(2), -1, (batched("b"), batched("c")))


class RecordingPartition:
    """A hosted partition that only records what it gets."""

    def __init__(self) -> None:
        self.core = self
        self.overloaded = False
        self.appends: list[Any] = []
        self.performed = 0

    def append(self, peer: Peer, appends: list[Any]) -> None:
        self.appends += appends

    def append_batch(self, batch: Any) -> None:
        self.appends += batch.appends

    def read_data(self, peer: Peer, request: Any) -> None:
        pass

    def perform_effects(self) -> None:
        self.performed += 1

    def lost(self, peer: Peer) -> None:
        pass


class Host:
    """A server that owns partition 0."""

    num_partitions = 1

    def __init__(self) -> None:
        self.hosted = RecordingPartition()
        self.peers: list[Peer] = []
        self.paused: list[Any] = []
        self.checks = asyncio.Event()
        self.checked = False

    def partition(self, partition: int) -> RecordingPartition | None:
        return self.hosted if partition == 0 else None

    def partitions(self) -> list[RecordingPartition]:
        return [self.hosted]

    def connected(self, peer: Peer, connection: object) -> None:
        self.peers.append(peer)

    def disconnected(self, peer: Peer) -> None:
        self.peers.remove(peer)

    def pause_client(self, connection: object, overloaded: int | None = None) -> None:
        self.paused.append(connection)

    async def check_storages(self) -> dict[str, bool]:
        await self.checks.wait()
        self.checked = True
        return {}


class Connection:
    """The network side of a connection."""

    version = VERSION
    peer = "10.0.0.7:1"
    peer_certificate = None

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.closed: list[str] = []

    def send(self, *frames: bytes) -> None:
        self.sent += frames

    def close(self, reason: str) -> None:
        self.closed.append(reason)


class Scene:
    def __init__(self, control: AccessControl | None = None, most_bytes: int | None = None) -> None:
        self.host = Host()
        self.network = Connection()
        limit = MAX_RECORD_BYTES if most_bytes is None else most_bytes
        self.connection = ClientConnection(cast(Any, self.host), limit, control)
        self.connection.ready(cast(Any, self.network))

    def receive(self, *messages: Any) -> None:
        self.connection.received([cs.encode(each, VERSION)[HEAD_BYTES:] for each in messages])


@pytest.mark.parametrize("message", [APPEND, BATCH], ids=["append", "batch"])
@pytest.mark.parametrize("overloaded", [False, True])
def test_client_is_not_read_while_its_partition_is_overloaded(
    message: Any, overloaded: bool
) -> None:
    scene = Scene()
    scene.host.hosted.overloaded = overloaded
    scene.receive(message)
    assert scene.host.hosted.appends
    assert scene.host.hosted.performed == 1
    assert scene.host.paused == ([scene.network] if overloaded else [])


@pytest.mark.parametrize("queued", [MOST_QUEUED_READS, MOST_QUEUED_READS + 1])
def test_client_with_a_long_queue_of_reads_is_not_read(queued: int) -> None:
    scene = Scene()
    (peer,) = scene.host.peers
    peer.queued_reads = queued
    scene.receive(cs.TransactionDataRequest(req_id(1), 5))
    assert scene.host.hosted.performed == 1
    assert bool(scene.host.paused) is (queued > MOST_QUEUED_READS)


def test_only_appends_count_for_the_rate_of_a_client() -> None:
    control = AccessControl(lambda: 100.0, limits=QuotaLimits(append_bytes_per_second=1000))
    scene = Scene(control)
    (peer,) = scene.host.peers
    assert scene.connection._access is not None
    scene.connection._access.appended(1000)
    scene.receive(APPEND)
    until = peer.unread_until
    assert 100 < until < 101
    assert scene.host.paused == [scene.network]
    scene.receive(cs.TransactionDataRequest(req_id(1), 5))
    assert peer.unread_until == until
    assert scene.host.paused == [scene.network], "a read of data is no append"


def test_appends_before_another_message_are_passed_on_once() -> None:
    scene = Scene()
    scene.receive(APPEND, cs.TransactionDataRequest(req_id(1), 5), new_append("b", 2), BATCH)
    assert [each.req_id for each in scene.host.hosted.appends] == [
        req_id(n).encode() for n in (1, 2, 2, 3)
    ]


def test_append_of_the_largest_size_is_accepted_and_a_larger_one_is_not() -> None:
    scene = Scene()
    scene.receive(APPEND)
    size = record_bytes(scene.host.hosted.appends[0])
    for most_bytes, accepted in ((size, 1), (size - 1, 0)):
        scene = Scene(most_bytes=most_bytes)
        scene.receive(APPEND)
        assert len(scene.host.hosted.appends) == accepted


async def test_lost_connection_ends_its_requests_and_its_place_in_the_quota() -> None:
    control = AccessControl(lambda: 100.0, limits=QuotaLimits(connections=1))
    scene = Scene(control)
    scene.receive(cs.CheckStorageConnectivityRequest(req_id(1)))
    await asyncio.sleep(0)
    scene.connection.lost("closed by the peer")
    scene.host.checks.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not scene.host.checked
    assert Scene(control).network.closed == [], "another connection may take its place"


def test_connection_above_the_quota_is_closed_and_not_registered() -> None:
    control = AccessControl(lambda: 100.0, limits=QuotaLimits(connections=1))
    assert Scene(control).network.closed == []
    refused = Scene(control)
    assert len(refused.network.closed) == 1
    assert refused.host.peers == []
