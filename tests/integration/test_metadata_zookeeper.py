"""A cluster in a real ZooKeeper: znodes, membership, lost sessions, a restart."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from waltz.local.zookeeper import ZooKeeperNotStarted, ZooKeeperProcess, find_jars
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import OwnedPartition
from waltz.metadata.core.membership_steps import Endpoint
from waltz.metadata.kazoo_store import ConnectFailed, KazooStore
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.membership import ClientMembership, ServerMembership
from waltz.metadata.store import OperationTimedOut, SessionState, StoreConnectionLost


@pytest.fixture
async def store(zookeeper: str) -> AsyncIterator[KazooStore]:
    connected = await KazooStore.connect(zookeeper, 4000)
    yield connected
    await connected.close()


async def test_changes_of_storages_are_read_back(store: KazooStore, zk_root: str) -> None:
    await create_cluster(store, zk_root, "test", 3, key=uuid.uuid4())
    cluster = Cluster(store, zk_root)
    await asyncio.gather(*(cluster.add_storage_node(f"host{n}:1", n, 9000) for n in range(3)))
    for group in range(3):
        await cluster.auto_assign(group)
    assignments = (await cluster.replica_assignments()).value
    assert assignments.storages_of(2) == tuple(assignments.partitions)
    assert (await cluster.partition_metadata(1)).version == 0
    ids = await asyncio.gather(*(cluster.next_client_id() for _ in range(5)))
    assert sorted(ids) == [1, 2, 3, 4, 5]
    await delete_cluster(store, zk_root, "test")
    assert await store.get(zk_root) is None


async def test_membership_after_a_lost_session_is_restored(
    store: KazooStore,
    zookeeper: str,
    zk_root: str,
    end_session: Callable[[KazooStore], Awaitable[None]],
) -> None:
    await create_cluster(store, zk_root, "test", 4, key=uuid.uuid4())
    own: list[Mapping[int, int]] = [{}, {}]

    def owning(place: int) -> Callable[[Mapping[int, int]], None]:
        return lambda partitions: own.__setitem__(place, partitions)

    seen: list[Mapping[Endpoint, tuple[OwnedPartition, ...]]] = [{}]
    stores = [await KazooStore.connect(zookeeper, 4000) for _ in own]
    servers = [
        ServerMembership(Cluster(s, zk_root), ("localhost", 6001 + n), owning(n))
        for n, s in enumerate(stores)
    ]
    client = ClientMembership(Cluster(store, zk_root), seen.append)
    client.start()
    for server in servers:
        await server.join()
    await eventually(lambda: [len(p) for p in own] == [2, 2])
    await eventually(lambda: len(seen[-1]) == 2)

    before = dict(own[1])
    await end_session(stores[0])
    await eventually(lambda: own[1] != before or own[0] == {})
    await eventually(lambda: [len(p) for p in own] == [2, 2])
    membership = await Cluster(store, zk_root).membership()
    assert sorted(membership.servers()) == [1, 2]
    assert membership.cversion >= 4

    await servers[0].leave()
    await eventually(lambda: len(own[1]) == 4)
    await eventually(lambda: seen[-1].keys() == {("localhost", 6002)})
    await servers[1].leave()
    await client.stop()
    for connected in stores:
        await connected.close()


async def test_session_survives_a_restart_of_zookeeper(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "waltz.metadata.kazoo_log")
    process = ZooKeeperProcess(tmp_path)
    process.start()
    now = [100.0]
    store = await KazooStore.connect(process.connect_string, 60_000, clock=lambda: now[0])
    states: list[SessionState] = []
    try:
        session = store.health.session_id
        await store.create("/kept", b"data", ephemeral=True)
        store.health.on_change(states.append)
        process.kill()
        await eventually(lambda: store.health.state is SessionState.SUSPENDED)
        assert store.health.unhealthy_since == 100.0
        now[0] = 200.0
        process.start()
        await eventually(lambda: store.health.state is SessionState.CONNECTED, seconds=60.0)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.health.session_id == session
        assert store.health.state is SessionState.CONNECTED
        node = await store.get("/kept")
        assert node is not None
        assert (node.data, node.owner) == (b"data", session)
        address = process.connect_string
        assert [record.getMessage() for record in caplog.records] == [
            f"ZooKeeper at {address}: connection lost; reconnecting",
            f"ZooKeeper at {address}: reconnected",
        ]
    finally:
        await store.close()
        process.stop()
    assert process.pid is None


async def test_session_survives_a_server_that_accepts_but_does_not_answer(
    zookeeper: str,
) -> None:
    # A ZooKeeper that is starting can do this: it loses a connection but does not close it.
    host, port = zookeeper.split(":")
    forwarded: list[asyncio.Task[None]] = []
    held = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal held
        task = asyncio.current_task()
        assert task is not None
        if len(forwarded) == 1 and held < 2:
            held += 1
            await reader.read(-1)  # until the client closes the connection
        else:
            forwarded.append(task)
            there, back = await asyncio.open_connection(host, int(port))
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
            back.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    store = await KazooStore.connect(address, 8_000)
    states: list[SessionState] = []
    store.health.on_change(states.append)
    session = store.health.session_id
    try:
        forwarded[0].cancel()
        await eventually(lambda: store.health.state is not SessionState.CONNECTED)
        await eventually(lambda: store.health.state is SessionState.CONNECTED, seconds=60.0)
        assert held == 2
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.health.session_id == session
    finally:
        await store.close()
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until the sender closes, and close the other side then."""
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def test_operations_without_zookeeper_time_out(tmp_path: Path) -> None:
    process = ZooKeeperProcess(tmp_path)
    process.start()
    store = await KazooStore.connect(process.connect_string, 1000)
    process.kill()
    with pytest.raises((OperationTimedOut, StoreConnectionLost)):
        await store.get("/")
    await store.close()


async def test_connecting_to_a_closed_port_fails() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConnectFailed, match=f"established at {address} within 0.2 s"):
            await KazooStore.connect(address, 1000, connect_timeout_s=0.2)


@pytest.mark.parametrize("address", ["", "host:port", ":2181"])
async def test_connecting_to_a_malformed_address_fails(address: str) -> None:
    with pytest.raises(ConnectFailed, match="not a ZooKeeper address"):
        await KazooStore.connect(address, 1000)


def test_zookeeper_at_a_used_port_fails(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ZooKeeperNotStarted, match=f"port {port} cannot be used"):
            ZooKeeperProcess(tmp_path, port).start()


def test_zookeeper_in_an_unusable_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a directory should be")
    with pytest.raises(ZooKeeperNotStarted, match=r"its directory .* cannot be used"):
        ZooKeeperProcess(tmp_path).start()


def test_zookeeper_start_with_damaged_data_directory_fails(tmp_path: Path) -> None:
    process = ZooKeeperProcess(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "version-2").write_text("a file where a directory should be")
    with pytest.raises(ZooKeeperNotStarted, match=r"exited with .* Its log, .*\.log"):
        process.start()
    assert process.pid is None


def test_zookeeper_without_java_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ZooKeeperNotStarted, match="no java in JAVA_HOME"):
        ZooKeeperProcess(tmp_path / "zk").start()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ZooKeeperNotStarted, match="no java in the PATH"):
        ZooKeeperProcess(tmp_path / "zk").start()


@pytest.mark.parametrize(
    ("banner", "reason"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11; install a newer"),
        ('java version "1.8.0_292"', "is Java 8; install a newer"),
        ("what?", "printed no version"),
    ],
)
def test_zookeeper_with_an_old_java_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, reason: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ZooKeeperNotStarted, match=reason):
        ZooKeeperProcess(tmp_path / "zk").start()


def test_zookeeper_without_pyspark_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ZooKeeperNotStarted, match="come with pyspark, which is not installed"):
        find_jars()
