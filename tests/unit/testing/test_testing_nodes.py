"""Nodes of a cluster in one process that end, restart and lose power, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import waltz
from tests.support.eventually import eventually
from waltz.testing import InProcessCluster, run
from waltz_storage.core.errors import DiskFailed

Scenario = Callable[[InProcessCluster, waltz.LogClient[bytes]], Awaitable[None]]


def play(scenario: Scenario, **options: Any) -> None:
    """Run a scenario with a cluster and one client."""

    async def work() -> None:
        async with InProcessCluster(**options) as cluster, cluster.connect() as client:
            await scenario(cluster, client)

    run(work())


def hold_next_start(process: Any) -> None:
    """Let the next start of a server or storage open its ports, and then not end."""
    new_node = process.new_node

    def new_held_node(*arguments: Any) -> Any:
        process.new_node = new_node
        node = new_node(*arguments)
        start = node.start

        async def start_and_wait(*arguments: Any) -> None:
            await start(*arguments)
            await asyncio.Event().wait()

        node.start = start_and_wait
        return node

    process.new_node = new_held_node


@pytest.mark.parametrize("kind", ["servers", "storages"])
def test_cluster_whose_first_start_is_cancelled_stops_all_nodes(kind: str) -> None:
    async def work() -> None:
        cluster = InProcessCluster(servers=2)
        hold_next_start(getattr(cluster, kind)[1])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await cluster.__aenter__()
        assert all(server.node is None for server in cluster.servers)
        assert all(storage.node is None for storage in cluster.storages)
        assert asyncio.get_running_loop().get_exception_handler() is None
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work())


@pytest.mark.parametrize("kind", ["server", "storage"])
def test_node_whose_start_was_cancelled_starts_again(kind: str) -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        assert await client.append(0, b"before") == 0
        await getattr(cluster, f"kill_{kind}")(0)
        process = getattr(cluster, f"{kind}s")[0]
        hold_next_start(process)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await process.start()
        assert process.node is None
        await process.start()
        await cluster.ready()
        assert await client.append(0, b"after") == 1

    play(scenario, storages=2)


def test_killed_server_is_replaced_by_another() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        assert await client.append(0, b"before") == 0
        await cluster.kill_server(0)
        assert await client.append(0, b"after") == 1
        await cluster.kill_server(1)
        with pytest.raises(waltz.WaltzError):
            await client.append(0, b"without a server", timeout=30)
        await cluster.start_server(0)
        await cluster.ready()
        tx = await client.append(0, b"with a server")
        assert [t.data for t in cluster.transactions(0)][:2] == [b"before", b"after"]
        assert cluster.transactions(0)[tx].data == b"with a server"

    play(scenario, servers=2)


def test_server_whose_session_stays_is_not_replaced_before_it_expires() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        await cluster.kill_server(0, expire=False)
        await cluster.kill_server(1, expire=False)
        with pytest.raises(waltz.ClusterUnreachable):
            await client.append(0, b"x", timeout=60)

    play(scenario, servers=2)


def test_append_needs_a_majority_of_the_storages() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        await cluster.kill_storage(0)
        assert await client.append(0, b"two of three") == 0
        await cluster.kill_storage(1)
        with pytest.raises(waltz.AppendUncertain):
            await client.append(0, b"one of three", timeout=10)
        await cluster.start_storage(0)
        await cluster.ready()
        mark = await client.append(0, b"two of three again")
        assert cluster.transactions(0)[mark].data == b"two of three again"

    play(scenario)


def test_committed_transactions_survive_the_power_loss_of_all_storages() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        for number in range(50):
            assert await client.append(0, b"%d" % number) == number
        for number in range(3):
            await cluster.kill_storage(number, power_loss=True)
        for number in range(3):
            await cluster.start_storage(number)
        await cluster.ready()
        assert await client.append(0, b"after") == 50
        expected = [b"%d" % number for number in range(50)] + [b"after"]
        assert [t.data for t in cluster.transactions(0)] == expected
        assert [t.data async for t in client.stream(0, until=50, data=True)] == expected

    play(scenario)


def test_storage_with_a_failed_flush_ends_and_recovers_after_its_restart() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        cluster.storages[1].disk.failing_flush = 1
        assert await client.append(0, b"x") == 0
        await asyncio.sleep(1)
        assert cluster.storages[1].node is None
        await cluster.start_storage(1)
        await cluster.kill_storage(0)
        assert await client.append(0, b"y") == 1

    play(scenario)


@pytest.mark.parametrize("engine", ["files", "wal"])
def test_storage_with_a_broken_invariant_fails_the_test(engine: str) -> None:
    cluster = InProcessCluster()
    num_changes = 0

    def break_invariant() -> None:
        nonlocal num_changes
        num_changes += 1
        # The second change of the disk is one that the write-ahead log makes.
        if num_changes == 2:
            raise AssertionError("an invariant is broken")

    async def work() -> None:
        new_node = cluster.storages[1].new_node
        vars(cluster.storages[1])["new_node"] = lambda config, environment: new_node(
            config.model_copy(update={"engine": engine}), environment
        )
        async with cluster, cluster.connect() as client:
            cluster.storages[1].disk.observer = break_invariant
            assert await client.append(0, b"x") == 0
            await eventually(lambda: cluster.storages[1].node is None)

    with pytest.raises((AssertionError, DiskFailed), match="an invariant is broken"):
        run(work())


def test_storage_with_a_full_disk_is_no_part_of_the_majority() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        disk = cluster.storages[0].disk
        disk.space = disk.space - disk.free_bytes()
        large = b"x" * 100_000
        assert await client.append(0, large) == 0
        cluster.storages[1].disk.space = disk.space
        with pytest.raises(waltz.AppendUncertain):
            await client.append(0, large, timeout=5)
        disk.space = 1 << 40
        await cluster.ready()
        mark = await client.append(0, b"fits")
        assert cluster.transactions(0)[mark].data == b"fits"

    play(scenario)


def test_partitioned_storage_delays_no_append() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        loop = asyncio.get_running_loop()
        cluster.network.partition("server-0", "storage-2")
        begun = loop.time()
        assert await client.append(0, b"x") == 0
        assert loop.time() - begun < 1
        await asyncio.sleep(60)
        cluster.network.heal()
        await asyncio.sleep(60)
        await cluster.kill_storage(0)
        assert await client.append(0, b"y") == 1

    play(scenario)


def test_cut_client_finds_its_appends_in_the_log() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        await client.mount(0)
        appends = [asyncio.ensure_future(client.append(0, b"%d" % n)) for n in range(200)]
        for _ in range(5):
            await asyncio.sleep(0)
            assert cluster.cut_clients() > 0
            await asyncio.sleep(0.3)
        ids = await asyncio.gather(*appends)
        data = {tx: b"%d" % number for number, tx in enumerate(ids)}
        assert [t.data for t in cluster.transactions(0)] == [data[n] for n in range(200)]

    play(scenario)


def test_appends_continue_while_a_replica_returns_and_zookeeper_does_not_answer() -> None:
    """The server may begin the session that readmits the replica only when ZooKeeper answers."""

    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        assert await client.append(0, b"before") == 0
        cluster.zookeeper.stop_answering()
        cluster.network.cut("server-0", "storage-2")
        for number in range(1, 7):
            assert await client.append(0, b"meanwhile", timeout=1) == number
            await asyncio.sleep(5)
        cluster.zookeeper.resume_answering()
        await asyncio.sleep(60)
        await cluster.kill_storage(1)
        assert await client.append(0, b"with the replica") == 7

    play(scenario)


def test_appends_continue_while_zookeeper_does_not_answer() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        assert await client.append(0, b"x") == 0
        cluster.zookeeper.stop_answering()
        await asyncio.sleep(60)
        assert await client.append(0, b"y") == 1
        cluster.zookeeper.resume_answering()
        await cluster.kill_storage(0)
        assert await client.append(0, b"z") == 2

    play(scenario)


def test_lost_answers_of_metadata_writes_stop_no_server() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        for executed in (True, False):
            store = cluster.servers[0].store
            assert store is not None
            store.lose_next_write(executed=executed)
            # The loss of two storages ends the store session; the next one is written to ZooKeeper.
            await cluster.kill_storage(0)
            await cluster.kill_storage(1)
            await asyncio.sleep(1)
            await cluster.start_storage(0)
            await cluster.start_storage(1)
            await cluster.ready()
            await client.append(0, b"x")
        assert len(cluster.transactions(0)) == 2

    play(scenario)


def test_server_with_late_watches_and_outdated_reads_recovers() -> None:
    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        cluster.zookeeper.watch_delay = 5.0
        store = cluster.servers[1].store
        assert store is not None
        cluster.zookeeper.lag(store)
        await cluster.kill_server(0)
        with pytest.raises(waltz.ClusterUnreachable):
            await client.append(0, b"x", timeout=60)
        cluster.zookeeper.catch_up(store)
        assert await client.append(0, b"y") == 0

    play(scenario, servers=2)


def test_storage_that_lost_a_partition_directory_is_not_counted() -> None:
    """Storages 0 and 1 acknowledged three appends; storage 1 is absent, storage 0 lost its log."""

    async def scenario(cluster: InProcessCluster, client: waltz.LogClient[bytes]) -> None:
        await cluster.kill_storage(2)
        for number in range(3):
            assert await client.append(0, b"acknowledged %d" % number) == number
        await cluster.kill_server()
        for number in (0, 1):
            await cluster.kill_storage(number)
        cluster.storages[0].disk.lose_directory("0")
        for number in (0, 2):
            await cluster.start_storage(number)
        await cluster.start_server()
        with pytest.raises(TimeoutError):
            await cluster.ready(60)
        node = cluster.storages[0].node
        assert node is not None
        assert "its directory is missing" in str(node.directory.refused[0])
        await cluster.start_storage(1)
        await cluster.ready()
        assert await client.append(0, b"after") == 3
        found = [transaction.data for transaction in cluster.transactions(0)]
        assert found == [b"acknowledged 0", b"acknowledged 1", b"acknowledged 2", b"after"]

    play(scenario)
