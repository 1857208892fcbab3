"""What a client leaves behind when it is closed: no task, no connection, no session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.eventually import eventually
from waltz import ClientClosed
from waltz.testing import InProcessCluster


async def test_closed_client_leaves_no_task_and_no_follower() -> None:
    async with InProcessCluster(partitions=2) as cluster:
        async with cluster.connect() as warm:
            await warm.append(0, b"first")
        await eventually(lambda: not connections(cluster))
        before = asyncio.all_tasks()
        client = await cluster.connect()
        await client.append(0, b"x")
        await client.append(1, b"y")
        assert connections(cluster)
        stream = client.stream({0: -1, 1: -1}, data=True)
        batches = stream.batches()
        await anext(batches)
        await client.close()
        await eventually(lambda: not connections(cluster))
        await eventually(lambda: asyncio.all_tasks() <= before)
        with pytest.raises(ClientClosed):
            await rest(batches)
        for call in (client.append(0, b"z"), client.high_water_mark(0), client.flush()):
            with pytest.raises(ClientClosed):
                await call
        await client.close()


async def rest(batches: AsyncIterator[object]) -> None:
    """Take the batches that have arrived, until there are no more."""
    while True:
        await anext(batches)


def connections(cluster: InProcessCluster) -> int:
    """Return the number of open connections of clients to the server."""
    node = cluster.servers[0].node
    assert node is not None
    return len(node._connections)


async def test_client_as_a_context_is_closed_also_after_an_error() -> None:
    async with InProcessCluster() as cluster:
        opened = []

        async def fail() -> None:
            async with cluster.connect() as client:
                opened.append(client)
                await client.append(0, b"x")
                raise RuntimeError("of the application")

        with pytest.raises(RuntimeError, match="of the application"):
            await fail()
        (client,) = opened
        with pytest.raises(ClientClosed):
            await client.append(0, b"y")
        await eventually(lambda: not connections(cluster))
