"""Test that a client without TLS settings does what the servers have declared in ZooKeeper."""

from __future__ import annotations

import pytest

from waltz.client import Client, ClientOptions, ClusterUnreachable
from waltz.metadata.cluster import Cluster
from waltz.metadata.transport import read_transport
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT


async def open_client(running: InProcessCluster) -> Client:
    """Open a client without TLS settings, through the network and ZooKeeper in memory."""
    cluster = Cluster(running.zookeeper.connect(), ROOT)
    network = running.network.host("other")
    return await Client.over(cluster, ClientOptions(), owns_store=True, network=network)


async def test_client_without_tls_settings_appends_at_plaintext_servers() -> None:
    async with InProcessCluster(servers=2) as running:
        stored = await read_transport(Cluster(running.zookeeper.connect(), ROOT))
        assert stored is not None
        assert len(stored.value.servers) == 2
        client = await open_client(running)
        assert await client.append(0, b"x") == 0
        await client.close()


async def test_client_without_tls_settings_names_a_malformed_declaration() -> None:
    async with InProcessCluster() as running:
        store = running.zookeeper.connect()
        stored = await store.get(f"{ROOT}/transport")
        assert stored is not None
        await store.set(f"{ROOT}/transport", b"{}", stored.version)
        with pytest.raises(ClusterUnreachable, match=f"ServerTransport at {ROOT}/transport"):
            await open_client(running)
