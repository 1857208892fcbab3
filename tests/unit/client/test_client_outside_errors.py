"""Test what is reported of connections by outside addresses that end at once, or are not opened."""

from __future__ import annotations

from typing import cast

import pytest

from tests.support.outside import Outside, metadata, open_client, set_outside
from waltz.admin.server_query import ServerQuery, ServerUnreachable
from waltz.client import AnswerLate, ClusterUnreachable
from waltz.client.outside import OutsideNetwork, reachable_from_outside
from waltz.client.replica_reader import ReplicaReader, WantedRecords
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.store import StoreError
from waltz.net import (
    PLAINTEXT,
    DialFailed,
    FrameConnection,
    FrameHandler,
    RpcConnection,
    TlsConfig,
    split_address,
)
from waltz.protocol import ProtocolSpec
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT

SERVER = "server-0:55180"


class Closes(Outside):
    """A load balancer without a backend: it accepts connections, and closes them at once."""

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        """See Network."""
        connection = await super().dial(host, port, spec, handler, tls)
        connection.abort("closed by the peer")
        return connection


async def test_closed_connection_to_a_storage_is_named_by_both_addresses() -> None:
    async with InProcessCluster() as running:
        outside, storage = Closes(running), running.storages[0].address
        dialed = outside.forward(storage)
        await set_outside(running, {storage: dialed})
        params = await metadata(running).store_params()
        network = OutsideNetwork(metadata(running), outside)
        with pytest.raises(
            DialFailed, match=rf"^{storage} \(by its outside address {dialed}\) closed the"
        ):
            await RpcConnection.open_storage(
                split_address(storage),
                PLAINTEXT,
                (params.key, params.num_partitions),
                network=network,
            )


async def test_closed_connection_to_a_server_is_named_by_both_addresses() -> None:
    async with InProcessCluster() as running:
        outside = Closes(running)
        dialed = outside.forward(SERVER)
        await set_outside(running, {SERVER: dialed})
        network = OutsideNetwork(metadata(running), outside)
        note = rf"\(by its outside address {dialed}\)"
        with pytest.raises(ServerUnreachable, match=f"{SERVER} {note}: closed by the peer"):
            await ServerQuery.open(("server-0", 55180), PLAINTEXT, network=network)
        client, _ = await open_client(running, outside, seconds=0.5)
        with pytest.raises(AnswerLate, match=f"server {SERVER}: connection {note} closed during"):
            await client.high_water_mark(0)
        await client.close()


async def test_replicas_without_outside_addresses_are_not_dialed_and_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        async with running.connect() as client:
            last = await client.append(0, b"x")
        store = running.zookeeper.connect()
        replicas = ReplicaReader(cast(KazooStore, store), ROOT, PLAINTEXT, "outside", outside)
        wanted = WantedRecords(0, 0, last, max_records=10, max_bytes=1000)
        for _ in range(2):
            assert await replicas.read_records(wanted) is None
        assert outside.dialed == []
        for each in running.storages:
            assert caplog.text.count(f"no records are read from storage {each.address}: ") == 1
        await replicas.close()


async def test_opening_that_zookeeper_refuses_fails_with_cluster_unreachable() -> None:
    async with InProcessCluster() as running:
        cluster = metadata(running)
        refusal = f"ZooKeeper refused an operation on {cluster.paths.outside}"
        get = cluster.store.get

        async def refuse(path: str, *arguments: object) -> object:
            if path == cluster.paths.outside:
                raise StoreError(refusal)
            return await get(path, *arguments)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cluster.store, "get", refuse)
            with pytest.raises(ClusterUnreachable, match=refusal):
                await reachable_from_outside(cluster, None)
