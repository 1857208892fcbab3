"""The loss of a client's connection ends the work that the connection has begun."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tests.support.raw_client import req_id
from waltz.net import FrameConnection
from waltz.protocol import client_server as cs
from waltz_server.shell.client_connection import ClientConnection, PartitionHost

VERSION = 4


class Host:
    """A server whose check of its storages never ends by itself."""

    num_partitions = 1

    def __init__(self) -> None:
        self.checking = asyncio.Event()
        self.cancelled = False
        self.peers: list[Any] = []

    def connected(self, peer: Any, connection: FrameConnection) -> None:
        self.peers.append(peer)

    def disconnected(self, peer: Any) -> None:
        self.peers.remove(peer)

    def partitions(self) -> list[Any]:
        return []

    async def check_storages(self) -> dict[str, bool]:
        self.checking.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        raise AssertionError


class Connection:
    version = VERSION
    closed = False


async def test_lost_connection_cancels_the_requests_that_it_has_begun() -> None:
    host = Host()
    handler = ClientConnection(cast(PartitionHost, host))
    handler.ready(cast(FrameConnection, Connection()))
    request = cs.encode(cs.CheckStorageConnectivityRequest(req_id()), VERSION)
    handler.received([request[7:]])
    await host.checking.wait()
    [task] = handler._tasks
    handler.lost("closed by the peer")
    await asyncio.wait([task], timeout=20)
    assert task.cancelled()
    assert host.cancelled
    assert host.peers == []
