"""A server from its start to its stop, on a network and a ZooKeeper in memory."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.eventually import eventually
from tests.support.pausable_connection import PausableConnection
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import ReplicaAssignments
from waltz.metadata.core.storage_maps import ReplicaChange, assign_everything
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.store import MetadataStore, StoreClosed
from waltz.metadata.zookeeper_access import AccessDenied, ZooKeeperAccess
from waltz.net import PLAINTEXT, DialFailed, FrameHandler, ListenFailed
from waltz.protocol import CLIENT_SERVER
from waltz.runtime.configuration import TlsSettings
from waltz.runtime.process import PortsFileFailed
from waltz.testing.network import MemoryNetwork
from waltz.testing.zookeeper import MemoryStore, MemoryZooKeeper
from waltz_server.core.peer import Peer
from waltz_server.main import run_node
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.hosted_partition import HostedPartition
from waltz_server.shell.node import ServerEnvironment, ServerNode

ROOT = "/waltz"
PARTITIONS = 4
STORAGES = ("a:1", "b:1")


class Scene:
    """A cluster without running storages, and one server."""

    def __init__(self, **settings: Any) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.session: MemoryStore = self.zookeeper.connect()
        self.sessions: list[MemoryStore] = []
        network = self.network = MemoryNetwork()
        network.bring_up("server")
        config = ServerConfig(
            zookeeper="zookeeper:2181",
            session_timeout_ms=10_000,
            cluster_root=ROOT,
            port=55180,
            advertised="server",
            tls_settings=TlsSettings(enabled=False),
            **settings,
        )
        environment = ServerEnvironment(network.host("server"), self._open, lambda found: None)
        self.node = ServerNode(config, environment=environment)

    async def _open(self, address: str, ms: int, access: ZooKeeperAccess) -> MetadataStore:
        self.sessions.append(self.zookeeper.connect())
        return self.sessions[-1]

    async def create_cluster(self) -> None:
        maps = assign_everything(
            dict.fromkeys(STORAGES, 0), dict.fromkeys(STORAGES, 9001), PARTITIONS
        )
        key = uuid.UUID(int=1)
        await create_cluster(self.session, ROOT, "test", PARTITIONS, key=key, storages=maps)

    async def start(self) -> None:
        await self.create_cluster()
        await self.node.start()
        await eventually(lambda: len(self.node.partitions()) == PARTITIONS)

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.session, ROOT)


class Client(FrameHandler):
    """A client that only notes the end of its connection."""

    ended = False

    def received(self, bodies: list[bytes]) -> None:
        raise AssertionError

    def lost(self, reason: str) -> None:
        self.ended = True


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    await made.start()
    yield made
    await made.node.stop()


async def test_partitions_share_the_caches_of_the_server() -> None:
    """One share more than partitions: a partition that is closing still has its caches."""
    scene = Scene(feed_cache_bytes=50_000, data_cache_bytes=100_000)
    await scene.start()
    for hosted in scene.node.partitions():
        settings = hosted.core._settings
        assert (settings.feed_cache_bytes, settings.recent_bytes) == (10_000, 10_000)
    await scene.node.stop()


async def test_stop_ends_the_session_and_the_tasks_of_the_server() -> None:
    scene = Scene()
    await scene.start()
    node = scene.node
    before = asyncio.all_tasks() - {asyncio.current_task()}
    assert set(node._metadata_tasks) <= before
    assert (await scene.cluster.membership()).servers()
    await node.stop()
    assert not (await scene.cluster.membership()).servers()
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, "each task of the server has ended"
    with pytest.raises(StoreClosed):
        await scene.sessions[0].get(ROOT)


async def test_stopped_server_accepts_no_client_and_closes_its_links() -> None:
    scene = Scene()
    await scene.start()
    node, host = scene.node, scene.network.host("client")
    handler, port = Client(), node.listener.port
    connection = await host.dial("server", port, CLIENT_SERVER, handler, PLAINTEXT)
    await connection.handshake()
    assert node._links is not None
    # A link that no partition uses any more ends with the server, too.
    node._links.connect(cast(Any, object()), frozenset({"c:1"}))
    links = dict(node._links._links)
    assert set(links) == {*STORAGES, "c:1"}
    await node.stop()
    assert node._links._links == {}
    assert all(link._link.task.done() for link in links.values())
    await eventually(lambda: handler.ended)
    with pytest.raises(DialFailed, match="refused"):
        await host.dial("server", port, CLIENT_SERVER, handler, PLAINTEXT)


async def test_stop_waits_for_partitions_that_are_still_closing(scene: Scene) -> None:
    release = asyncio.Event()

    async def close() -> None:
        await release.wait()

    (hosted, *_) = scene.node.partitions()
    hosted.close = close  # type: ignore[method-assign]
    scene.node._set_owned({each.core.id: 1 for each in scene.node.partitions()[1:]})
    stopping = asyncio.create_task(scene.node.stop())
    done, _ = await asyncio.wait([stopping], timeout=0.2)
    assert not done
    release.set()
    await stopping


@pytest.mark.parametrize("ended", range(3))
async def test_wait_for_failure_raises_when_a_background_task_fails(
    scene: Scene, ended: int
) -> None:
    """The tasks follow the assignments, the access rules and the membership."""

    async def fail() -> None:
        raise RuntimeError("a defect")

    tasks = scene.node._metadata_tasks
    assert len(tasks) == 3
    tasks[ended].cancel()
    tasks[ended] = asyncio.create_task(fail())
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(scene.node.wait_for_failure(), 5)


async def test_observer_gets_the_partitions_that_the_server_has_already(scene: Scene) -> None:
    acquired: list[HostedPartition] = []
    scene.node.observe_partitions(acquired.append, lambda partition: None)
    assert [hosted.core.id for hosted in acquired] == list(range(PARTITIONS))


async def test_storages_without_partitions_are_not_checked(scene: Scene) -> None:
    scene.node._assignments = ReplicaAssignments({"a:1": (0,), "b:1": (), "c:1": (1,)})
    assert await scene.node.check_storages() == {"a:1": False, "c:1": False}


async def test_preferences_are_added_and_removed(scene: Scene) -> None:
    async def preferred() -> set[int]:
        found = (await scene.cluster.membership()).servers()
        return {each for server in found.values() for each in server.preferred}

    await scene.node.prefer((1, 2), preferred=True)
    await scene.node.prefer((3,), preferred=True)
    assert await preferred() == {1, 2, 3}
    await scene.node.prefer((1, 3), preferred=False)
    assert await preferred() == {2}


async def test_refused_preference_leaves_one_that_was_requested_meanwhile(scene: Scene) -> None:
    store = scene.sessions[0]
    write, denials = store.set, [AccessDenied("denied")]
    descriptors = f"{scene.cluster.paths.server_descriptors}/"

    async def deny_once(path: str, data: bytes, version: int) -> int:
        if denials and path.startswith(descriptors):
            raise denials.pop()
        return await write(path, data, version)

    store.set = deny_once  # type: ignore[method-assign]
    refused, accepted = await asyncio.gather(
        scene.node.prefer((1,), preferred=True),
        scene.node.prefer((2,), preferred=True),
        return_exceptions=True,
    )
    assert isinstance(refused, AccessDenied)
    assert accepted is None
    (server,) = (await scene.cluster.membership()).servers().values()
    assert server.preferred == (2,)


async def test_replicas_lists_the_storages_of_the_partitions_of_the_server(scene: Scene) -> None:
    assert scene.node.replicas() == {str(p): list(STORAGES) for p in range(PARTITIONS)}


async def test_changed_assignment_is_used_for_partitions_acquired_later(scene: Scene) -> None:
    """Otherwise a partition would be opened on the storages that it had at the server's start."""
    before, after = frozenset(STORAGES), frozenset({"b:1"})
    await scene.cluster.change_replicas([ReplicaChange(1, before, after)])
    await eventually(lambda: scene.node.replicas()["1"] == ["b:1"])
    scene.node._set_owned({})
    scene.node._set_owned({1: 9})
    (acquired,) = scene.node.partitions()
    assert acquired.core.store._replicas == ("b:1",)


@pytest.mark.parametrize(("port", "expected"), [(None, 55180), (7000, 7000)])
async def test_clients_connect_to_the_advertised_port(port: int | None, expected: int) -> None:
    scene = Scene(advertised_port=port or 0)
    await scene.start()
    assert scene.node.endpoint == ("server", expected)
    await scene.node.stop()


async def test_connections_stay_paused_while_one_partition_is_overloaded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    overloaded = {1, 2}
    monkeypatch.setattr(
        type(scene.node.partitions()[0].core),
        "overloaded",
        property(lambda core: core.id in overloaded),
    )
    connection = PausableConnection.to(scene.node)
    scene.node.pause_client(connection.frames, 1)
    scene.node.pause_client(connection.frames, 2)
    overloaded.remove(1)
    await asyncio.sleep(0.05)
    assert not connection.reading
    overloaded.clear()
    await eventually(lambda: connection.reading)


@pytest.mark.parametrize("reason", ["queue", "quota"])
async def test_connection_with_a_reason_of_its_own_stays_paused_and_others_do_not(
    scene: Scene, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = PausableConnection.to(scene.node), PausableConnection.to(scene.node)
    if reason == "queue":
        long = {slow.peer}
        monkeypatch.setattr(Peer, "has_long_queue", property(lambda peer: peer in long))
    else:
        slow.peer.unread_until = scene.node.control.clock() + 1000
    scene.node.pause_client(slow.frames)
    scene.node.pause_client(other.frames)
    await eventually(lambda: other.reading)
    await asyncio.sleep(0.05)
    assert not slow.reading
    if reason == "queue":
        long.clear()
    else:
        slow.peer.unread_until = 0.0
    await eventually(lambda: slow.reading)
    assert (slow.resumed, other.resumed) == (1, 1)


async def test_closed_connection_is_not_resumed(scene: Scene) -> None:
    closed, other = PausableConnection.to(scene.node), PausableConnection.to(scene.node)
    for connection in (closed, other):
        connection.peer.unread_until = scene.node.control.clock() + 1000
        scene.node.pause_client(connection.frames)
    scene.node.disconnected(closed.peer)
    other.peer.unread_until = 0.0
    await eventually(lambda: other.reading)
    await asyncio.sleep(0.05)
    assert closed.resumed == 0
    assert not len(scene.node.paused)


async def test_slow_readers_have_the_bound_of_the_settings() -> None:
    scene = Scene(max_unsent_bytes=12_345)
    assert scene.node.accepted.slow_readers.max_unsent_bytes == 12_345


@pytest.mark.parametrize("unusable", ["http_port", "ports_file"])
async def test_server_that_cannot_use_its_ports_does_not_join(
    unusable: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        values = {"http_port": taken.getsockname()[1], "ports_file": tmp_path / "missing" / "ports"}
        scene = Scene(bind_host="127.0.0.1", **{unusable: values[unusable]})
        await scene.create_cluster()
        with pytest.raises((ListenFailed, PortsFileFailed), match="cannot"):
            await run_node(scene.node, asyncio.Event())
    assert not scene.node.server_id, "it has begun to join"
