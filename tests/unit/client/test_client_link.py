"""A client's link to a server: how soon it connects again, what ends it. On virtual time."""

from __future__ import annotations

import asyncio
import itertools
from typing import cast

import pytest

from tests.support.failing_decoders import errors_of_event_loop, fails_once
from tests.support.virtual_time import on_virtual_time
from waltz.client.core.codec import parse
from waltz.client.core.directory import Directory
from waltz.client.link import ServerLink
from waltz.client.links import Links
from waltz.metadata.core.formats import OwnedPartition
from waltz.net import PLAINTEXT, Dialer
from waltz.protocol import CLIENT_SERVER
from waltz.testing import InProcessCluster
from waltz.testing.network import MemoryNetwork


@on_virtual_time
async def test_client_dials_soon_after_each_loss_of_a_connection_that_worked() -> None:
    """The delays grow only while no connection works: restarts of servers do not add up."""
    loop = asyncio.get_running_loop()
    async with InProcessCluster() as cluster, cluster.connect() as client:
        for number in range(8):
            assert await client.append(0, b"x") == number
            assert await client.read(0, number) == b"x"
            lost = loop.time()
            cluster.network.cut("client", cluster.servers[0].host)
            assert await client.high_water_mark(0) == number
            assert loop.time() - lost < 1


@pytest.mark.parametrize("receiver", ["appender", "request_client", "stream"])
@on_virtual_time
async def test_decoder_error_closes_only_the_connection(
    receiver: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unexpected = errors_of_event_loop()
    monkeypatch.setattr(f"waltz.client.{receiver}.parse", fails_once(parse))
    async with InProcessCluster() as cluster, cluster.connect() as client:
        assert await client.append(0, b"x") == 0
        assert await client.read(0, 0) == b"x"
        assert [each.id async for each in client.stream(0, until=0)] == [0]
    assert unexpected == []
    assert "IndexError" in caplog.text


class PassiveUser:
    """Ignores its links."""

    def attached(self, partition: int, link: ServerLink, generation: int) -> None:
        pass

    def detached(self, partition: int) -> None:
        pass

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        pass


@on_virtual_time
async def test_links_to_former_servers_are_forgotten() -> None:
    directory = Directory()
    network = MemoryNetwork(0).host("client")
    links = Links(directory, Dialer(PLAINTEXT, CLIENT_SERVER, network), PassiveUser())
    links.want(0)
    for number in range(10):
        directory.replace({(f"server-{number}", 1): (OwnedPartition(0, number),)})
        await asyncio.sleep(1.0)
    assert len(links._ending) <= 1
    await links.close()


class _SilentConnection:
    """A connection whose peer does not answer the handshake."""

    def __init__(self) -> None:
        self.in_handshake = asyncio.Event()
        self.reasons: list[str] = []

    async def handshake(self) -> None:
        self.in_handshake.set()
        await asyncio.Event().wait()

    def close(self, reason: str) -> None:
        self.reasons.append(reason)


class _SilentDialer:
    """Opens `_SilentConnection`."""

    def __init__(self) -> None:
        self.connection = _SilentConnection()

    async def dial(self, endpoint: object, handler: object) -> _SilentConnection:
        return self.connection


class _NoOwner:
    """An owner of a link that is never connected."""

    def up(self, link: ServerLink) -> None:
        raise AssertionError

    down = up

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        raise AssertionError


async def test_link_that_is_stopped_during_the_handshake_closes_its_connection() -> None:
    dialer = _SilentDialer()
    link = ServerLink(("server", 1), _NoOwner(), cast(Dialer, dialer), itertools.count())
    await dialer.connection.in_handshake.wait()
    task = link.stop()
    await asyncio.wait([task], timeout=20)
    assert task.cancelled()
    assert dialer.connection.reasons == ["no longer needed"]
