"""The sessions with ZooKeeper and the files that the operator keeps for each cluster."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.operator_faults import Faults, FaultyKube
from tests.support.operator_world import World, cluster_resource
from waltz.admin import OrderExecutor
from waltz.metadata import ZooKeeperAccess
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_store import KazooStore
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.objects import ObjectKey
from waltz_operator.shell import environment as environment_module
from waltz_operator.shell.environment import NetworkEnvironment


class Health:
    unhealthy_since: float | None = None


class Session:
    """A session with ZooKeeper that a test can make unhealthy."""

    def __init__(self, address: str, session_ms: int, seconds: float | None) -> None:
        self.address = address
        self.session_ms = session_ms
        self.connect_seconds = seconds
        self.health = Health()
        self.closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """The sessions that were opened, in order."""
    opened: list[Session] = []

    async def connect(
        address: str, session_ms: int, access: ZooKeeperAccess, *, connect_timeout_s: float
    ) -> Session:
        opened.append(Session(address, session_ms, connect_timeout_s))
        return opened[-1]

    monkeypatch.setattr(KazooStore, "connect", connect)
    return opened


def cluster(name: str = "log", address: str = "zk:2181", **spec: Any) -> DesiredCluster:
    resource = cluster_resource(zookeeper={"external": {"connectString": address}}, **spec)
    resource["metadata"]["name"] = name
    return World(resource, []).desired()


def files_below(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def new_environment(folder: Path, world: World | None = None) -> NetworkEnvironment:
    return NetworkEnvironment(FaultyKube(world or World(cluster_resource(), []), Faults()), folder)


async def test_session_is_kept_for_each_cluster(tmp_path: Path, sessions: list[Session]) -> None:
    environment = new_environment(tmp_path)
    first = await environment.metadata_store(cluster())
    assert await environment.metadata_store(cluster()) is first
    other = await environment.metadata_store(cluster("other"))
    assert other is not first
    assert len(sessions) == 2
    assert (sessions[0].address, sessions[0].session_ms) == ("zk:2181", 10_000)
    assert sessions[0].connect_seconds == 5.0


@pytest.mark.parametrize("why", ["unhealthy", "another address"])
async def test_session_is_replaced_if_it_is_unhealthy_or_of_another_address(
    tmp_path: Path, sessions: list[Session], why: str
) -> None:
    environment = new_environment(tmp_path)
    await environment.metadata_store(cluster())
    if why == "unhealthy":
        sessions[0].health.unhealthy_since = 3.0
        await environment.metadata_store(cluster())
    else:
        await environment.metadata_store(cluster(address="zk-2:2181"))
    assert len(sessions) == 2
    assert [each.closed for each in sessions] == [True, False]


async def test_disconnect_closes_the_session_of_one_cluster(
    tmp_path: Path, sessions: list[Session]
) -> None:
    environment = new_environment(tmp_path)
    for name in ("log", "other"):
        await environment.metadata_store(cluster(name))
    await environment.disconnect(cluster("log").namespace, "log")
    assert [each.closed for each in sessions] == [True, False]
    await environment.metadata_store(cluster("log"))
    assert len(sessions) == 3


async def test_close_closes_every_session(tmp_path: Path, sessions: list[Session]) -> None:
    environment = new_environment(tmp_path)
    for name in ("log", "other"):
        await environment.metadata_store(cluster(name))
    await environment.close()
    await environment.close()
    assert [each.closed for each in sessions] == [True, True]


async def test_replica_access_verifies_the_name_of_the_cluster(tmp_path: Path) -> None:
    world = World(cluster_resource(tls={"mode": "Operator"}), [])
    parts = ("ca.crt", "tls.crt", "tls.key")
    data = {part: base64.b64encode(part.encode()).decode() for part in parts}
    world.objects[ObjectKey("Secret", "log-tls")] = {"metadata": {"name": "log-tls"}, "data": data}
    desired = world.desired()
    access = await new_environment(tmp_path, world).replica_access(
        desired, Cluster(MemoryZooKeeper().connect(), desired.root)
    )
    tls = cast(OrderExecutor, access).tls
    assert tls.enabled
    assert tls.server_name == "log.logs.waltz"
    files = (tls.ca, tls.certificate, tls.key)
    assert [file.read_text() for file in files if file is not None] == list(parts)
    assert all(file is not None and file.stat().st_mode & 0o077 == 0 for file in files)


@pytest.mark.parametrize("mode", ["None", "Operator"])
async def test_replica_access_without_a_secret_uses_no_tls(tmp_path: Path, mode: str) -> None:
    """With TLS, the secret does not exist before its certificates are issued."""
    world = World(cluster_resource(tls={"mode": mode}), [])
    desired = world.desired()
    access = await new_environment(tmp_path, world).replica_access(
        desired, Cluster(MemoryZooKeeper().connect(), desired.root)
    )
    assert not cast(OrderExecutor, access).tls.enabled


async def test_progress_of_a_proof_is_noted_for_its_cluster(tmp_path: Path) -> None:
    """Otherwise a proof that reads a large log for an hour looks like a stuck reconcile."""
    noted: list[tuple[str, str]] = []
    world = World(cluster_resource(), [])
    environment = NetworkEnvironment(
        FaultyKube(world, Faults()), tmp_path, lambda *cluster: noted.append(cluster)
    )
    desired = world.desired()
    access = await environment.replica_access(
        desired, Cluster(MemoryZooKeeper().connect(), desired.root)
    )
    cast(OrderExecutor, access)._on_compared(0, 7)
    assert noted == [(desired.namespace, desired.name)]


async def test_disconnect_removes_the_files_of_one_cluster(tmp_path: Path) -> None:
    """Otherwise the private keys of deleted clusters stay, and fill the volume."""
    world = World(cluster_resource(tls={"mode": "Operator"}), [])
    world.objects[ObjectKey("Secret", "log-tls")] = {"metadata": {"name": "log-tls"}, "data": {}}
    desired = world.desired()
    environment = new_environment(tmp_path, world)
    await environment.replica_access(desired, Cluster(MemoryZooKeeper().connect(), desired.root))
    other = tmp_path / "logs" / "other" / "tls.key"
    other.parent.mkdir()
    other.touch()
    await environment.disconnect("logs", "log")
    assert files_below(tmp_path) == [other]
    await environment.disconnect("logs", "unknown")


async def test_changed_secret_replaces_the_files(tmp_path: Path) -> None:
    world = World(cluster_resource(tls={"mode": "Operator"}), [])
    secret: dict[str, Any] = {"metadata": {"name": "log-tls"}, "data": {}}
    world.objects[ObjectKey("Secret", "log-tls")] = secret
    desired = world.desired()
    environment = new_environment(tmp_path, world)
    for content in (b"first", b"second"):
        secret["data"]["tls.key"] = base64.b64encode(content).decode()
        environment.forget_certificates(desired)
        await environment.replica_access(
            desired, Cluster(MemoryZooKeeper().connect(), desired.root)
        )
        assert (tmp_path / "logs" / "log" / "tls.key").read_bytes() == content


@pytest.mark.parametrize(
    ("leader", "pod"),
    [("log-zookeeper-1.log-zookeeper.logs.svc", "log-zookeeper-1"), (None, None)],
)
async def test_leader_of_zookeeper_is_named_by_its_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: str | None, pod: str | None
) -> None:
    asked: list[tuple[str, int]] = []

    async def find_leader(members: list[tuple[str, int]]) -> str | None:
        asked.extend(members)
        return leader

    monkeypatch.setattr(environment_module, "find_leader", find_leader)
    desired = cluster(address="a:2181,b:2182")
    assert await new_environment(tmp_path).zookeeper_leader(desired) == pod
    assert asked == [("a", 2181), ("b", 2182)]
