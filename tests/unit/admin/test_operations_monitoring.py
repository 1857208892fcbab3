"""Test that samples of a cluster recover when a process does, and query each address once."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from tests.support.eventually import eventually
from waltz.admin.core.sample import StorageSample
from waltz.admin.monitoring import Monitor
from waltz.admin.server_query import RequestRefused, ServerQuery
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import UNRESOLVED
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.membership import ServerMembership
from waltz.net import PLAINTEXT, ConnectionLost
from waltz.protocol.admin import PartitionState
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/log"
A = "a:1"


class Admin:
    """A connection to the admin port of a storage without partitions."""

    def __init__(self) -> None:
        self.lost = False

    async def states(self) -> tuple[PartitionState, ...]:
        if self.lost:
            raise ConnectionLost("the storage has ended")
        return ()

    async def damaged_ranges(self) -> tuple[DamagedRange, ...]:
        return ()

    def close(self) -> None:
        self.lost = True


async def test_storage_that_has_restarted_is_sampled_over_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Admin] = []

    async def open_admin(*_: object) -> Admin:
        opened.append(Admin())
        return opened[-1]

    monkeypatch.setattr(StorageAdmin, "open", open_admin)
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 1, key=uuid.UUID(int=1))
    await cluster.add_storage_node(A, 0, 9001)
    async with Monitor(cluster, PLAINTEXT, timeout_seconds=10) as monitor:
        assert (await monitor.sample()).storages == {A: StorageSample({}, damaged=())}
        assert (await monitor.sample()).storages == {A: StorageSample({}, damaged=())}
        assert len(opened) == 1
        opened[0].lost = True
        assert (await monitor.sample()).storages[A].problem == "the storage has ended"
        assert (await monitor.sample()).storages[A].problem is None
    assert [each.lost for each in opened] == [True, True], "all are closed"


class Server:
    """A connection to a server with two partitions, of which one has no open session."""

    async def partitions(self) -> tuple[int, ...]:
        return (0, 1)

    async def high_water_mark(self, partition: int) -> int:
        return UNRESOLVED if partition else 7

    def close(self) -> None:
        pass


async def test_mark_that_the_server_does_not_know_is_sampled_as_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_server(*_: object, **__: object) -> Server:
        return Server()

    monkeypatch.setattr(ServerQuery, "open", open_server)
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 2, key=uuid.UUID(int=1))
    server = ServerMembership(cluster, ("s", 1), lambda _: None)
    server_id = await server.join()
    await eventually(lambda: server.has_joined)
    async with Monitor(cluster, PLAINTEXT, timeout_seconds=10) as monitor:
        assert (await monitor.sample()).servers[server_id].marks == {0: 7, 1: None}
    await server.leave()


async def test_report_that_a_server_denies_is_sampled_as_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Denying(Server):
        async def high_water_mark(self, partition: int) -> int:
            raise RequestRefused("server s:1 refused the request: no right to read")

    async def open_server(*_: object, **__: object) -> Server:
        return Denying()

    monkeypatch.setattr(ServerQuery, "open", open_server)
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 2, key=uuid.UUID(int=1))
    server = ServerMembership(cluster, ("s", 1), lambda _: None)
    server_id = await server.join()
    await eventually(lambda: server.has_joined)
    async with Monitor(cluster, PLAINTEXT, timeout_seconds=10) as monitor:
        sampled = (await monitor.sample()).servers[server_id]
    assert (sampled.denied, sampled.refused) == (True, False)
    await server.leave()


async def test_members_with_the_same_address_are_sampled_by_one_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Server] = []

    async def open_server(*_: object, **__: object) -> Server:
        await asyncio.sleep(0)  # Both queries would find no connection, and open one.
        opened.append(Server())
        return opened[-1]

    monkeypatch.setattr(ServerQuery, "open", open_server)
    zookeeper = MemoryZooKeeper()
    cluster = Cluster(zookeeper.connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 2, key=uuid.UUID(int=1))
    # The first member was killed: its session has not timed out when its successor joins.
    members = [
        ServerMembership(Cluster(zookeeper.connect(), ROOT), ("s", 1), lambda _: None)
        for _ in range(2)
    ]
    server_ids = [await member.join() for member in members]
    await eventually(lambda: all(member.has_joined for member in members))
    async with Monitor(cluster, PLAINTEXT, timeout_seconds=10) as monitor:
        for _ in range(2):
            servers = (await monitor.sample()).servers
            assert {server: servers[server].marks for server in server_ids} == {
                server: {0: 7, 1: None} for server in server_ids
            }
    assert len(set(server_ids)) == 2
    assert len(opened) == 1
    for member in members:
        await member.leave()
