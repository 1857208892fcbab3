"""A client's link to a server: how soon it connects again. On virtual time."""

from __future__ import annotations

import asyncio

from tests.support.virtual_time import on_virtual_time
from waltz.testing import InProcessCluster


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
