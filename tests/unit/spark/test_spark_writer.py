"""Test the writer of Spark against logs that became shorter and a ZooKeeper without an answer."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.support.client_cluster import ClientCluster
from tests.support.virtual_time import on_virtual_time
from waltz.metadata.kazoo_store import ConnectFailed
from waltz.net import PLAINTEXT
from waltz.spark.log_reader import ClusterLocation, LogEndsBefore
from waltz.spark.writer import WriterSession, fingerprints


@on_virtual_time
async def test_fingerprints_of_a_log_that_ends_too_early_raise_log_ends_before() -> None:
    async with asyncio.timeout(60), ClientCluster() as cluster:
        await cluster.fill(0, 3)
        client = await cluster.client()
        assert len(await fingerprints(client, 0, 0, 3)) == 3
        with pytest.raises(LogEndsBefore, match="partition 0 has no transaction 3 any more"):
            await fingerprints(client, 0, 0, 5)


def test_session_that_cannot_connect_closes_its_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    make = asyncio.new_event_loop

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loops.append(make())
        return loops[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", new_event_loop)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectFailed):
            WriterSession(ClusterLocation(address, "/waltz", PLAINTEXT, 0.1))
    (loop,) = loops
    assert loop.is_closed()
