"""Test that an outside address which two ports of storages have is not dialed."""

from __future__ import annotations

import pytest

from tests.support.outside import Outside, metadata, set_outside
from waltz.admin import query_storages
from waltz.client.outside import OutsideNetwork
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.outside_addresses import OutsideAddresses, storage_addresses
from waltz.metadata.core.storage_maps import StorageMaps, add_storage_node
from waltz.net import PLAINTEXT, DialFailed, RpcConnection, split_address
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ADMIN_PORT, ROOT
from waltz.testing.zookeeper import MemoryZooKeeper


async def open_storage(network: OutsideNetwork, cluster: Cluster, storage: str) -> None:
    """Open a connection to ``storage``, and close it."""
    params = await cluster.store_params()
    rpc = await RpcConnection.open_storage(
        split_address(storage), PLAINTEXT, (params.key, params.num_partitions), network=network
    )
    rpc.close()


@pytest.mark.parametrize("upper", [False, True])
async def test_storages_with_one_outside_address_are_both_not_dialed(upper: bool) -> None:
    async with InProcessCluster(storages=3) as running:
        first, second, third = (storage.address for storage in running.storages)
        outside, cluster = Outside(running), metadata(running)
        shared = outside.forward(first)
        wrong = shared.upper() if upper else shared
        await set_outside(running, {first: shared, second: wrong, third: outside.forward(third)})
        network = OutsideNetwork(cluster, outside)
        for storage, other in ((first, second), (second, first)):
            with pytest.raises(DialFailed, match=f"{storage} and {other} have the same outside"):
                await open_storage(network, cluster, storage)
        assert outside.dialed == []
        await open_storage(network, cluster, third)


async def test_outside_address_of_a_storage_that_is_gone_does_not_hinder_another() -> None:
    async with InProcessCluster() as running:
        storage = running.storages[0].address
        outside, cluster = Outside(running), metadata(running)
        address = outside.forward(storage)
        await set_outside(running, {storage: address, "gone:55280": address})
        await open_storage(OutsideNetwork(cluster, outside), cluster, storage)


async def test_replicas_of_storages_with_one_outside_address_are_not_counted_twice() -> None:
    async with InProcessCluster(storages=3) as running:
        ports = [f"{storage.host}:{ADMIN_PORT}" for storage in running.storages]
        outside, cluster = Outside(running), metadata(running)
        addresses = outside.forward_all()
        await set_outside(running, {**addresses, ports[1]: addresses[ports[0]]})
        answers = await query_storages(
            await cluster.storage_maps(),
            await cluster.store_params(),
            PLAINTEXT,
            timeout_seconds=5.0,
            network=OutsideNetwork(cluster, outside),
        )
        answered = [storage for storage, each in answers.items() if each.problem is None]
        assert answered == [running.storages[2].address]
        assert outside.dialed == [addresses[ports[2]]]


async def test_storages_of_a_backup_are_used_while_zookeeper_has_no_cluster() -> None:
    async with InProcessCluster() as running:
        outside = Outside(running)
        maps = await metadata(running).storage_maps()
        storage, other, _ = (each.address for each in running.storages)
        params = await metadata(running).store_params()
        address = outside.forward(storage)
        lost = Cluster(MemoryZooKeeper().connect(), ROOT)
        for shares_with, is_refused in ((other, True), ("gone:1", False)):
            known = OutsideAddresses({storage: address, shares_with: address})
            network = OutsideNetwork(lost, outside, known, storage_addresses(maps))
            opening = RpcConnection.open_storage(
                split_address(storage),
                PLAINTEXT,
                (params.key, params.num_partitions),
                network=network,
            )
            if is_refused:
                with pytest.raises(DialFailed, match="the same outside address"):
                    await opening
            else:
                (await opening).close()


def test_storage_addresses_are_those_of_both_ports() -> None:
    maps = add_storage_node(StorageMaps.empty(), "[::1]:55280", 0, 55281)
    assert storage_addresses(maps) == {"[::1]:55280", "[::1]:55281"}
