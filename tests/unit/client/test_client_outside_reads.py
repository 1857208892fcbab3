"""Test how often the outside addresses are read while ZooKeeper does not answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.support.outside import Outside, metadata, set_outside
from waltz.client import outside as client_outside
from waltz.client.outside import OutsideNetwork
from waltz.metadata.cluster import Cluster, VersionedValue
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.outside import read_outside_addresses
from waltz.metadata.store import OnChange, StoreError
from waltz.net import PLAINTEXT, DialFailed, FrameHandler
from waltz.protocol import CLIENT_SERVER
from waltz.testing import InProcessCluster

SERVER = ("server-0", 55180)


class Ignore(FrameHandler):
    """The handler of a connection of which nothing is expected."""

    def received(self, bodies: list[bytes]) -> None:
        """Ignore messages."""

    def lost(self, reason: str) -> None:
        """Ignore the end."""


class Reads:
    """Takes the place of `read_outside_addresses`: counts the reads, which fail if ``fails``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails = False
        monkeypatch.setattr(client_outside, "read_outside_addresses", self._read)

    async def _read(
        self, cluster: Cluster, on_change: OnChange | None = None
    ) -> VersionedValue[OutsideAddresses] | None:
        self.count += 1
        if self.fails:
            await asyncio.sleep(0)  # The other connections begin to wait.
            raise StoreError("no connection to ZooKeeper")
        return await read_outside_addresses(cluster, on_change)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count the reads."""
    return Reads(monkeypatch)


async def dial(network: OutsideNetwork) -> None:
    """Open a connection to the server, and close it."""
    (await network.dial(*SERVER, CLIENT_SERVER, Ignore(), PLAINTEXT)).close()


async def test_reconnects_wait_for_one_failed_read_and_then_for_none(
    reads: Reads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        await set_outside(running, {"server-0:55180": outside.forward("server-0:55180")})
        network = OutsideNetwork(metadata(running), outside)
        await dial(network)
        network._changed()
        reads.count, reads.fails = 0, True
        with caplog.at_level(logging.WARNING):
            await asyncio.gather(*(dial(network) for _ in range(5)))
            await dial(network)
            assert reads.count == 1
            monkeypatch.setattr(client_outside, "_REREAD_SECONDS", 0.0)
            await dial(network)
            assert reads.count == 2
        assert caplog.text.count("failed to read the outside addresses") == 1
        reads.fails = False
        await dial(network)
        await dial(network)
        assert reads.count == 3


async def test_first_connections_share_one_failed_read_and_the_next_one_reads_again(
    reads: Reads,
) -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        await set_outside(running, {"server-0:55180": outside.forward("server-0:55180")})
        network = OutsideNetwork(metadata(running), outside)
        reads.fails = True
        ended = await asyncio.gather(*(dial(network) for _ in range(5)), return_exceptions=True)
        assert [type(each) for each in ended] == [DialFailed] * 5
        assert reads.count == 1
        reads.fails = False
        await dial(network)
        assert reads.count == 2
