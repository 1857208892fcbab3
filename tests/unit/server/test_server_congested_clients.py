"""A client that does not read: its partitions send nothing more until it reads again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from waltz_server.core.peer import Peer
from waltz_server.shell.client_connection import ClientConnection


class RecordingPartition:
    """A hosted partition that records which clients read again, and which are lost."""

    def __init__(self) -> None:
        self.core = self
        self.reading_again: list[Peer] = []
        self.lost_peers: list[Peer] = []
        self.performed = 0

    def writable(self, peer: Peer) -> None:
        assert not peer.congested
        self.reading_again.append(peer)

    def lost(self, peer: Peer) -> None:
        self.lost_peers.append(peer)

    def perform_effects(self) -> None:
        self.performed += 1


class Host:
    """A server with two partitions."""

    def __init__(self) -> None:
        self.hosted = [RecordingPartition(), RecordingPartition()]
        self.peers: list[Peer] = []

    def connected(self, peer: Peer, connection: object) -> None:
        self.peers.append(peer)

    def disconnected(self, peer: Peer) -> None:
        self.peers.remove(peer)

    def partitions(self) -> list[RecordingPartition]:
        return self.hosted


class FrameConnectionOfVersion4:
    version = 4


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def connection(host: Host) -> ClientConnection:
    connection = ClientConnection(cast(Any, host))
    connection.ready(cast(Any, FrameConnectionOfVersion4()))
    return connection


def test_congested_client_is_marked_until_it_reads_again(
    host: Host, connection: ClientConnection
) -> None:
    (peer,) = host.peers
    assert not peer.congested
    connection.congested()
    assert peer.congested
    connection.writable()
    assert not peer.congested


def test_client_no_longer_congested_is_reported_to_every_partition(
    host: Host, connection: ClientConnection
) -> None:
    connection.congested()
    connection.writable()
    for hosted in host.hosted:
        assert hosted.reading_again == host.peers
        assert hosted.performed == 1


def test_lost_client_is_reported_to_the_server_and_every_partition(
    host: Host, connection: ClientConnection
) -> None:
    (peer,) = host.peers
    connection.lost("closed by the peer")
    assert host.peers == []
    assert [hosted.lost_peers for hosted in host.hosted] == [[peer], [peer]]


def test_connection_lost_before_its_handshake_reports_nothing(host: Host) -> None:
    connection = ClientConnection(cast(Any, host))
    connection.congested()
    connection.writable()
    connection.lost("closed by the peer")
    assert [hosted.lost_peers for hosted in host.hosted] == [[], []]
