"""A ZooKeeper with TLS: which processes get a session, and which may write a cluster's znodes."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from waltz.client import ClusterUnreachable, connect
from waltz.local.zookeeper import ZooKeeperProcess
from waltz.metadata.cluster import Cluster
from waltz.metadata.kazoo_handlers import TlsHandler
from waltz.metadata.kazoo_store import ConnectFailed, KazooStore
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.zookeeper_access import OPEN_ACCESS, AccessDenied, ZooKeeperAccess
from waltz.net import TlsConfig, split_address
from waltz.runtime.configuration import read_settings
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.node import ServerNode
from waltz_storage.shell.config import StorageConfig
from waltz_storage.shell.environment import learn_cluster

_SESSION_MS = 4000


@dataclass(frozen=True, slots=True)
class Secured:
    """A running ZooKeeper that requires certificates of ``authority``, and files for processes."""

    address: str
    authority: Authority
    folder: Path

    def certificate(self, subject: str) -> TlsConfig:
        """Return the TLS settings of a process with a certificate for ``subject``."""
        return self.authority.issue(subject, server_name="zookeeper")

    def user(self, name: str, password: str) -> ZooKeeperAccess:
        """Return the access of a process with the credentials of a user."""
        file = self.folder / f"{name}-{password}"
        file.write_text(f"{name}:{password}\n")
        return ZooKeeperAccess(self.certificate("process"), file)

    @asynccontextmanager
    async def session(self, access: ZooKeeperAccess) -> AsyncIterator[KazooStore]:
        """Open a session."""
        store = await KazooStore.connect(self.address, _SESSION_MS, access)
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder, "authority")
    own = authority.issue("zookeeper", server_name="zookeeper")
    process = ZooKeeperProcess(folder / "zookeeper", tls=own)
    process.start()
    yield Secured(process.connect_string, authority, folder)
    process.stop()


async def test_cluster_of_a_user_is_written_only_by_this_user(
    secured: Secured, zk_root: str
) -> None:
    owner = secured.user("waltz", "right")
    async with secured.session(owner) as store:
        await create_cluster(store, zk_root, "owned", 2, key=uuid.uuid4())
        assert await Cluster(store, zk_root).next_server_id() == 1
    strangers = [
        ZooKeeperAccess(secured.certificate("process")),
        secured.user("waltz", "wrong"),
        secured.user("other", "right"),
    ]
    for stranger in strangers:
        async with secured.session(stranger) as store:
            cluster = Cluster(store, zk_root)
            assert (await cluster.params()).name == "owned"
            for write in (
                cluster.next_server_id(),
                cluster.partition_metadata(0),
                store.set(zk_root, b"", -1),
                delete_cluster(store, zk_root, "owned"),
            ):
                with pytest.raises(AccessDenied, match=f"denied the access to {zk_root}"):
                    await write
    async with secured.session(owner) as store:
        assert await Cluster(store, zk_root).next_server_id() == 2
        await delete_cluster(store, zk_root, "owned")


async def test_client_without_zookeeper_credentials_gets_a_client_id(
    secured: Secured, zk_root: str
) -> None:
    async with secured.session(secured.user("waltz", "right")) as store:
        await create_cluster(store, zk_root, "owned", 2, key=uuid.uuid4())
    access = ZooKeeperAccess(secured.certificate("client"))
    async with connect(secured.address, root=zk_root, zookeeper_access=access) as client:
        assert (client.client_id, client.num_partitions) == (1, 2)


async def test_cluster_of_a_certificate_is_written_only_with_its_subject(
    secured: Secured, zk_root: str
) -> None:
    owner = ZooKeeperAccess(secured.certificate("server"), by_certificate=True)
    async with secured.session(owner) as store:
        await create_cluster(store, zk_root, "owned", 2, key=uuid.uuid4())
    renewed = ZooKeeperAccess(secured.certificate("server"))
    async with secured.session(renewed) as store:
        assert await Cluster(store, zk_root).next_server_id() == 1
    other = ZooKeeperAccess(secured.certificate("other"), by_certificate=True)
    async with secured.session(other) as store:
        with pytest.raises(AccessDenied, match=r"its subject must be that of the certificate"):
            await Cluster(store, zk_root).next_server_id()


def test_handshake_with_an_unexpected_certificate_fails_with_the_reason(
    secured: Secured, tmp_path: Path
) -> None:
    host, port = split_address(secured.address)
    right = secured.certificate("process")
    foreign = Authority(tmp_path, "foreign").issue("process", server_name="zookeeper")
    for tls, reason in (
        (replace(right, server_name="other"), "is not valid for 'other'"),
        (foreign, f"peers must show a certificate of {foreign.ca}"),
    ):
        handler = TlsHandler(4.0, tls)
        with pytest.raises(ssl.SSLError):
            handler.create_connection((host, port), host, 60.0)
        assert reason in handler.problem


async def test_session_that_zookeeper_refuses_fails_with_the_remedy(secured: Secured) -> None:
    unknown = replace(secured.certificate("process"), certificate=None, key=None)
    for access, remedy in (
        (ZooKeeperAccess(unknown), "it accepts the certificate of zookeeper.tls.certificate"),
        (OPEN_ACCESS, r"may use TLS; .* if its port uses TLS, set zookeeper.tls.\*"),
    ):
        with pytest.raises(ConnectFailed, match=remedy):
            await KazooStore.connect(secured.address, _SESSION_MS, access, connect_timeout_s=0.3)


async def test_server_and_storage_of_a_settings_file_use_the_secured_zookeeper(
    secured: Secured, zk_root: str, tmp_path: Path
) -> None:
    owner = secured.user("waltz", "right")
    async with secured.session(owner) as store:
        await create_cluster(store, zk_root, "owned", 2, key=uuid.uuid4())
    tls = owner.tls
    common: dict[str, object] = {
        "zookeeper.connectString": secured.address,
        "zookeeper.sessionTimeout": _SESSION_MS,
        "zookeeper.tls.enabled": True,
        "zookeeper.tls.certificate": str(tls.certificate),
        "zookeeper.tls.key": str(tls.key),
        "zookeeper.tls.ca": str(tls.ca),
        "zookeeper.tls.serverName": tls.server_name,
        "cluster.root": zk_root,
    }
    file = tmp_path / "settings.yml"
    own: dict[str, object] = {"storage.port": 0, "storage.admin.port": 0}
    file.write_text(yaml.safe_dump({**common, **own, "storage.directory": str(tmp_path)}))
    assert (await learn_cluster(read_settings(StorageConfig, file, {}))).num_partitions == 2
    # The server writes znodes, so it needs the credentials; the storage only reads.
    authentication = {"zookeeper.authentication.file": str(owner.credentials)}
    own = {"server.port": 0, "server.bind.host": "127.0.0.1"}
    file.write_text(yaml.safe_dump({**common, **own, **authentication}))
    node = ServerNode(read_settings(ServerConfig, file, {}))
    try:
        await node.start()
        await eventually(lambda: len(node.partitions()) == 2)
    finally:
        await node.stop()


async def test_client_with_unusable_credentials_names_the_file(tmp_path: Path) -> None:
    access = ZooKeeperAccess(credentials=tmp_path / "missing")
    with pytest.raises(ClusterUnreachable, match=r"credentials in .*missing"):
        await connect("127.0.0.1:1", root="/r", zookeeper_access=access)
