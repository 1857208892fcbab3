"""Test that samples recover when a process does, end in time, and query each address once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
from typing_extensions import override

from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.admin import monitoring
from waltz.admin.core.sample import ServerSample, StorageSample
from waltz.admin.monitoring import Monitor
from waltz.admin.server_query import RequestRefused, ServerQuery, ServerUnreachable
from waltz.admin.storage_admin import StorageAdmin
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import UNRESOLVED
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.membership import ServerMembership
from waltz.metadata.store import StoreError
from waltz.net import PLAINTEXT, ConnectionLost, DialFailed, DialRefused
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


@asynccontextmanager
async def monitor_of_storage(
    monkeypatch: pytest.MonkeyPatch, open_admin: Callable[..., Awaitable[Admin]]
) -> AsyncIterator[Monitor]:
    """Yield a monitor of a cluster with one storage, to which ``open_admin`` connects."""
    monkeypatch.setattr(StorageAdmin, "open", open_admin)
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 1, key=uuid.UUID(int=1))
    await cluster.add_storage_node(A, 0, 9001)
    async with Monitor(cluster, PLAINTEXT, timeout_seconds=10) as monitor:
        yield monitor


async def test_storage_that_has_restarted_is_sampled_over_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Admin] = []

    async def open_admin(*_: object) -> Admin:
        opened.append(Admin())
        return opened[-1]

    async with monitor_of_storage(monkeypatch, open_admin) as monitor:
        assert (await monitor.sample()).storages == {A: StorageSample({}, damaged=())}
        assert (await monitor.sample()).storages == {A: StorageSample({}, damaged=())}
        assert len(opened) == 1
        opened[0].lost = True
        assert (await monitor.sample()).storages == {A: StorageSample({}, damaged=())}
    assert [each.lost for each in opened] == [True, True], "all are closed"


async def test_storage_that_has_ended_is_sampled_with_the_error_of_the_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Admin] = []

    async def open_admin(*_: object) -> Admin:
        if opened:
            raise DialFailed("no process listens")
        opened.append(Admin())
        return opened[-1]

    async with monitor_of_storage(monkeypatch, open_admin) as monitor:
        await monitor.sample()
        opened[0].lost = True
        assert (await monitor.sample()).storages[A].problem == "no process listens"


async def test_storage_that_ends_every_connection_is_dialed_once_per_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Admin] = []

    async def open_admin(*_: object) -> Admin:
        opened.append(Admin())
        opened[-1].lost = True
        return opened[-1]

    async with monitor_of_storage(monkeypatch, open_admin) as monitor:
        for dialed in (1, 2):
            assert (await monitor.sample()).storages[A].problem == "the storage has ended"
            assert len(opened) == dialed


async def test_sample_that_zookeeper_fails_leaves_no_query_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    class SlowAdmin(Admin):
        @override
        async def states(self) -> tuple[PartitionState, ...]:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return ()

    async def open_admin(*_: object) -> Admin:
        return SlowAdmin()

    async def fail(*_: object) -> None:
        await begun.wait()
        raise StoreError("no session")

    monkeypatch.setattr(monitoring, "read_nodes", fail)
    async with monitor_of_storage(monkeypatch, open_admin) as monitor:
        with pytest.raises(StoreError):
            await monitor.sample()
        assert ended.is_set()


class Server:
    """A connection to a server with two partitions, of which one has no open session."""

    def __init__(self) -> None:
        self.lost = False

    async def partitions(self) -> tuple[int, ...]:
        if self.lost:
            raise ServerUnreachable("server s:1: it has ended") from ConnectionLost("it has ended")
        return (0, 1)

    async def high_water_marks(self, partitions: Iterable[int]) -> dict[int, int]:
        return {partition: UNRESOLVED if partition else 7 for partition in partitions}

    def close(self) -> None:
        self.lost = True


@asynccontextmanager
async def samples_of_server(
    monkeypatch: pytest.MonkeyPatch, open_server: Callable[..., Awaitable[Server]]
) -> AsyncIterator[Callable[[], Awaitable[ServerSample]]]:
    """Yield a function that samples the only server of a cluster. ``open_server`` connects to it.

    The server has the address ``s:1``, and 10 s for each request.
    """
    monkeypatch.setattr(ServerQuery, "open", open_server)
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "log", 2, key=uuid.UUID(int=1))
    server = ServerMembership(cluster, ("s", 1), lambda _: None)
    server_id = await server.join()
    await eventually(lambda: server.has_joined)
    async with Monitor(cluster, PLAINTEXT, timeout_seconds=10) as monitor:

        async def sample() -> ServerSample:
            return (await monitor.sample()).servers[server_id]

        yield sample
    await server.leave()


async def test_mark_that_the_server_does_not_know_is_sampled_as_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_server(*_: object, **__: object) -> Server:
        return Server()

    async with samples_of_server(monkeypatch, open_server) as sample:
        assert (await sample()).marks == {0: 7, 1: None}


async def test_report_that_a_server_denies_is_sampled_as_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Denying(Server):
        @override
        async def high_water_marks(self, partitions: Iterable[int]) -> dict[int, int]:
            raise RequestRefused("server s:1 refused the request: no right to read")

    async def open_server(*_: object, **__: object) -> Server:
        return Denying()

    async with samples_of_server(monkeypatch, open_server) as sample:
        sampled = await sample()
    assert (sampled.denied, sampled.refused) == (True, False)


async def test_server_that_has_restarted_is_sampled_over_a_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Server] = []

    async def open_server(*_: object, **__: object) -> Server:
        opened.append(Server())
        return opened[-1]

    async with samples_of_server(monkeypatch, open_server) as sample:
        before = await sample()
        opened[0].lost = True
        assert await sample() == before
        assert before.problem is None
    assert [each.lost for each in opened] == [True, True], "all are closed"


async def test_server_that_has_ended_is_sampled_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Server] = []

    async def open_server(*_: object, **__: object) -> Server:
        if opened:
            raise ServerUnreachable("server s:1: refused") from DialRefused("refused")
        opened.append(Server())
        return opened[-1]

    async with samples_of_server(monkeypatch, open_server) as sample:
        await sample()
        opened[0].lost = True
        assert await sample() == ServerSample(problem="server s:1: refused", refused=True)


async def test_server_that_ends_every_connection_is_dialed_once_per_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Server] = []

    async def open_server(*_: object, **__: object) -> Server:
        opened.append(Server())
        opened[-1].lost = True
        return opened[-1]

    async with samples_of_server(monkeypatch, open_server) as sample:
        for dialed in (1, 2):
            assert (await sample()).problem == "server s:1: it has ended"
            assert len(opened) == dialed


@on_virtual_time
async def test_server_with_slow_answers_is_sampled_as_a_problem_after_two_timeouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sample that takes longer would be taken for a silence of ZooKeeper."""
    opened: list[Server] = []

    class Slow(Server):
        @override
        async def partitions(self) -> tuple[int, ...]:
            await asyncio.sleep(9)
            return (0, 1)

        @override
        async def high_water_marks(self, partitions: Iterable[int]) -> dict[int, int]:
            await asyncio.sleep(9)
            return await super().high_water_marks(partitions)

    async def open_server(*_: object, **__: object) -> Server:
        await asyncio.sleep(9)
        opened.append(Slow())
        return opened[-1]

    async with samples_of_server(monkeypatch, open_server) as sample:
        began = asyncio.get_running_loop().time()
        problem = (await sample()).problem
        assert asyncio.get_running_loop().time() - began == 20
    assert problem == "server s:1 did not answer all requests within 20 s"
    assert [each.lost for each in opened] == [True], "a late answer must not arrive later"


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
