"""Opening a client by arguments or by a file, and its errors."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import waltz
from tests.support.certificates import Authority
from tests.support.client_cluster import ClientCluster, connected
from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.client.settings import read_client_settings
from waltz.client.stream_ranges import OBJECT_LIMITS
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.membership_steps import Membership
from waltz.metadata.store import MetadataStore, OnChange, StoreClosed
from waltz.metadata.zookeeper_access import AccessDenied, ZooKeeperAccess
from waltz.net import (
    PLAINTEXT,
    TCP,
    AcceptedConnections,
    FrameConnection,
    FrameHandler,
    Network,
    TlsConfig,
    TlsConfigError,
)
from waltz.net.network import ListeningPort, NewHandler
from waltz.protocol import ProtocolSpec
from waltz.protocol.client_server import (
    AppendRequest,
    HighWaterMarkResponse,
    RecordsRequest,
    TransactionDataRequest,
)
from waltz.runtime.configuration import ConfigError, TlsSettings
from waltz.testing import FrameFault, FrameReplacement
from waltz.testing.nodes import ROOT, SESSION_MS
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_server.shell.config import ServerConfig
from waltz_server.shell.node import ServerEnvironment, ServerNode


class TcpForClients:
    """The network of a server: TCP for its clients, with ``tls``, and memory for its storages."""

    def __init__(self, tls: TlsConfig, storages: Network) -> None:
        self._tls = tls
        self._storages = storages

    async def dial(
        self, host: str, port: int, spec: ProtocolSpec, handler: FrameHandler, tls: TlsConfig
    ) -> FrameConnection:
        return await self._storages.dial(host, port, spec, handler, tls)

    def listener(
        self,
        spec: ProtocolSpec,
        new_handler: NewHandler,
        tls: TlsConfig,
        accepted: AcceptedConnections | None = None,
    ) -> ListeningPort:
        return TCP.listener(spec, new_handler, self._tls, accepted)


@asynccontextmanager
async def tcp_cluster(tls: TlsConfig) -> AsyncIterator[ClientCluster]:
    """Start a cluster whose only server listens on a socket, with ``tls``."""
    async with ClientCluster() as cluster:
        await cluster.kill_server()

        async def open_store(
            address: str, timeout_ms: int, access: ZooKeeperAccess
        ) -> MetadataStore:
            return cluster.zookeeper.connect()

        config = ServerConfig(
            zookeeper="in memory",
            session_timeout_ms=SESSION_MS,
            cluster_root=ROOT,
            port=0,
            advertised="127.0.0.1",
            tls_settings=TlsSettings(enabled=False),
        )
        network = TcpForClients(tls, cluster.network.host("tcp-server"))
        node = ServerNode(config, environment=ServerEnvironment(network, open_store))
        await node.start()
        yield cluster
        await node.stop()


def new_metadata(cluster: ClientCluster) -> Cluster:
    """Return the metadata in a session of its own."""
    return Cluster(cluster.zookeeper.connect(), ROOT)


async def client_over(cluster: ClientCluster, metadata: Cluster) -> waltz.Client[bytes]:
    """Open a client that uses ``metadata``, which the test can make fail."""
    options, network = waltz.ClientOptions(tls=PLAINTEXT), cluster.network.host("client")
    return await waltz.Client.over(metadata, options, network=network)


@on_virtual_time
async def test_opened_client_has_the_cluster_parameters() -> None:
    async with ClientCluster(3) as cluster:
        one, other = await cluster.client(), await cluster.client()
        assert (one.num_partitions, one.cluster_name) == (3, "testing")
        assert 0 < one.client_id < other.client_id


async def test_missing_root_raises_cluster_not_found() -> None:
    cluster = Cluster(MemoryZooKeeper().connect(), "/nowhere/to/be-found")
    with pytest.raises(waltz.ClusterNotFound, match=r"/nowhere/to/be-found.*WALTZ_ROOT") as caught:
        await waltz.Client.over(cluster, waltz.ClientOptions())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_unreachable_zookeeper_raises_cluster_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(waltz.ClusterUnreachable, match=f"{address} .*Connection refused"):
        await waltz.connect(address, root="/r", connect_timeout=0.3)
    with pytest.raises(waltz.ClusterUnreachable):
        async with waltz.connect(address, root="/r", connect_timeout=0.3):
            pass


async def test_unusable_tls_files_raise_before_connecting(tmp_path: Path) -> None:
    tls = TlsConfig(ca=tmp_path / "missing.pem")
    with pytest.raises(TlsConfigError, match=r"missing\.pem"):
        await waltz.connect("127.0.0.1:1", root="/r", tls=tls)


async def test_client_appends_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    async with tcp_cluster(authority.issue("server")) as cluster:
        tls = authority.issue("client", server_name="server")
        options = waltz.ClientOptions(tls=tls)
        client = await waltz.Client.over(new_metadata(cluster), options, owns_store=True)
        assert await client.append(0, b"secret") == 0
        assert await client.read(0, 0) == b"secret"
        await client.close()


async def test_server_of_the_wrong_kind_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with tcp_cluster(PLAINTEXT) as cluster:
        options = waltz.ClientOptions(tls=TlsConfig())
        client = await waltz.Client.over(new_metadata(cluster), options, owns_store=True)
        with pytest.raises(waltz.ClusterUnreachable):
            await client.append(0, b"x", timeout=0.3)
        await eventually(
            lambda: "seems to speak plaintext: turn TLS off on this side" in caplog.text
        )
        await client.close()


@on_virtual_time
async def test_server_without_common_version_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected(versions=(77,)) as (_, client):
        with pytest.raises(waltz.ClusterUnreachable):
            await client.append(0, b"x", timeout=0.3)
        assert "no common version" in caplog.text


@on_virtual_time
async def test_connection_attempts_back_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with ClientCluster() as cluster:
        store = cluster.servers[0].store
        assert store is not None
        session_id = store.health.session_id
        assert session_id is not None
        await cluster.kill_server(expire=False)
        caplog.clear()
        client = await cluster.client()
        with pytest.raises(waltz.ClusterUnreachable):
            await client.append(0, b"x", timeout=0.8)
        attempts = [r.getMessage() for r in caplog.records if "cannot reach" in r.getMessage()]
        assert 1 <= len(attempts) <= 4
        assert "retrying in 0.1 s" in attempts[0]
        warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warnings) <= 2, "once per connection that is wanted"
        # The killed server would have to assign the partitions while its session lasts.
        cluster.zookeeper.end_session(session_id)
        await cluster.start_server()
        assert await client.append(0, b"x") == 0


FILE = """
zookeeper.connectString: "127.0.0.1:2181"
zookeeper: {sessionTimeout: 9000}
cluster.root: /r
client:
  maxConcurrentTransactions: 7
  longWaitThreshold: 1500
  autoMount: true
  numConsumerThreads: 3
  ssl.keyStore.location: /x.jks
  tls: {enabled: false}
"""


def test_configuration_file_of_0_13_2_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "client.yml"
    path.write_text(FILE)
    zookeeper, root, options = read_client_settings(path)
    assert (zookeeper, root) == ("127.0.0.1:2181", "/r")
    assert options.session_timeout_ms == 9000
    assert options.max_in_flight == 7
    assert options.long_wait_seconds == 1.5
    assert options.tls is not None
    assert not options.tls.enabled
    for key in ("client.autoMount", "client.numConsumerThreads", "client.ssl.keyStore.location"):
        assert f"{key} has no effect" in caplog.text


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("cluster.rot: /x", r"unknown setting cluster\.rot; did you mean cluster\.root\?"),
        ("client.longWaitThreshold: never", r"longWaitThreshold is 'never'"),
    ],
)
def test_invalid_configuration_file_is_refused(tmp_path: Path, change: str, expected: str) -> None:
    path = tmp_path / "client.yml"
    path.write_text(
        f"zookeeper.connectString: z\nzookeeper.sessionTimeout: 1\ncluster.root: /r\n{change}\n"
    )
    with pytest.raises(ConfigError, match=expected):
        waltz.connect_as_configured(path)


def test_configuration_file_without_cluster_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "client.yml"
    path.write_text("zookeeper.sessionTimeout: 1\n")
    with pytest.raises(ConfigError, match=r"zookeeper\.connectString must be set"):
        waltz.connect_as_configured(str(path))


@on_virtual_time
async def test_client_survives_an_expired_zookeeper_session() -> None:
    """ZooKeeper is needed to learn of moves, not to append."""
    async with ClientCluster(servers=2) as cluster:
        store = cluster.zookeeper.connect()
        client = await client_over(cluster, Cluster(store, ROOT))
        await client.append(0, b"a")
        cluster.zookeeper.expire(store)
        assert await client.append(0, b"b") == 1
        cluster.zookeeper.resume(store)
        owner = cluster.owner(0)
        assert owner is not None
        await cluster.place(0, 1 - owner)
        assert await client.append(0, b"c") == 2
        await client.close()
        await store.close()


class LosableCluster(Cluster):
    """Metadata whose membership cannot be read any more when ``lost`` is set."""

    lost = False

    async def membership(self, on_change: OnChange | None = None) -> Membership:
        if self.lost:
            raise PermissionError("no access to the membership")
        return await super().membership(on_change)


@on_virtual_time
async def test_client_that_cannot_follow_the_servers_fails() -> None:
    async with ClientCluster(2) as cluster:
        await cluster.place(1, None)
        metadata = LosableCluster(cluster.zookeeper.connect(), ROOT)
        client = await client_over(cluster, metadata)
        await client.append(0, b"a")
        got: list[int] = []

        async def follow() -> None:
            async for transaction in client.stream(0, data=True):
                got.append(transaction.id)

        waiting = [
            asyncio.ensure_future(work)
            for work in (
                follow(),
                client.append(1, b"c"),
                client.high_water_mark(1),
                client.read(1, 0),
                client.flush(),
            )
        ]
        await eventually(lambda: got == [0])
        cluster.holding = (AppendRequest,)
        sent = asyncio.ensure_future(client.append(0, b"b"))
        await eventually(lambda: cluster.held)
        metadata.lost = True
        await cluster.place(0, 0)
        with pytest.raises(waltz.AppendUncertain, match="PermissionError: no access"):
            await sent
        for call in waiting:
            with pytest.raises(waltz.ClientFailed, match="PermissionError: no access"):
                await call
        for work in (client.append(0, b"d"), client.mount(0), client.read(0, 0), client.flush()):
            with pytest.raises(waltz.ClientFailed, match="close it and open another") as caught:
                await work
            assert not isinstance(caught.value, waltz.ClusterUnreachable), "to be tried again"
        with pytest.raises(waltz.ClientFailed):
            client.stream(0)
        await client.close()
        with pytest.raises(waltz.ClientClosed):
            await client.append(0, b"e")
        await metadata.store.close()


@on_virtual_time
async def test_mount_at_a_mark_beyond_the_log_changes_no_known_mark() -> None:
    async with ClientCluster() as cluster:
        await cluster.fill(0, 3)
        client = await cluster.client()
        await client.mount(0, mark=1000)
        await asyncio.sleep(1)  # The server answers that the log ends before this mark.
        with pytest.raises(waltz.TransactionNotFound):
            await client.read(0, 500, timeout=5)


@on_virtual_time
async def test_read_does_not_believe_a_single_old_end_of_the_log() -> None:
    """A server that has just lost the partition answers with it."""
    async with ClientCluster() as cluster:
        await cluster.fill(0, 5)
        client = await cluster.client()
        num_old = 0

        def answer(message: Any) -> FrameReplacement | None:
            nonlocal num_old
            if not isinstance(message, HighWaterMarkResponse) or num_old:
                return None
            num_old += 1
            return FrameReplacement(replace(message, transaction_id=2))

        cluster.set_answer_rule(answer)
        assert await client.read(0, 4)
        assert num_old == 1
        with pytest.raises(waltz.TransactionNotFound, match="its log ends at 4"):
            await client.read(0, 5)


@on_virtual_time
async def test_cancelled_close_still_closes_everything() -> None:
    async with ClientCluster() as cluster:
        client = await cluster.client()
        await client.append(0, b"a")
        batches = client.stream(0).batches()
        await anext(batches)
        node = cluster.servers[0].node
        assert node is not None
        connections = node._connections
        assert connections
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await client.close()
        await eventually(lambda: not connections)


class HoldingCluster(Cluster):
    """Metadata that assign no more client ids once ``held`` is set; callers wait."""

    held: asyncio.Event | None = None
    waiting_calls = 0

    async def next_client_id(self) -> int:
        if self.held is not None:
            self.waiting_calls += 1
            await self.held.wait()
            raise StoreClosed("the connection to ZooKeeper was closed")
        return await super().next_client_id()


class RefusingCluster(Cluster):
    """Metadata whose client ids cannot be read, with ``problem``."""

    problem: Exception

    async def next_client_id(self) -> int:
        raise self.problem


@pytest.mark.parametrize(
    "problem",
    [AccessDenied("/r/client_id: no right to write"), MalformedMetadata("id", "no number")],
)
@on_virtual_time
async def test_unusable_metadata_raise_cluster_unreachable(problem: Exception) -> None:
    async with ClientCluster() as cluster:
        metadata = RefusingCluster(cluster.zookeeper.connect(), ROOT)
        metadata.problem = problem
        with pytest.raises(waltz.ClusterUnreachable, match=str(problem)):
            await client_over(cluster, metadata)
        await metadata.store.close()


@on_virtual_time
async def test_stream_waiting_for_a_client_id_ends_when_its_client_closes() -> None:
    async with ClientCluster() as cluster:
        metadata = HoldingCluster(cluster.zookeeper.connect(), ROOT)
        client = await client_over(cluster, metadata)
        metadata.held = asyncio.Event()
        starting = asyncio.ensure_future(anext(aiter(client.stream(0))))
        await eventually(lambda: metadata.waiting_calls)
        await client.close()
        metadata.held.set()
        with pytest.raises(waltz.ClientClosed):
            await starting
        await metadata.store.close()


@on_virtual_time
async def test_stream_without_client_id_raises_cluster_unreachable() -> None:
    async with ClientCluster() as cluster:
        metadata = HoldingCluster(cluster.zookeeper.connect(), ROOT)
        client = await client_over(cluster, metadata)
        metadata.held = asyncio.Event()
        metadata.held.set()
        with pytest.raises(waltz.ClusterUnreachable, match="no client id to a stream"):
            await anext(aiter(client.stream(0)))
        await client.close()
        await metadata.store.close()


@on_virtual_time
async def test_client_fails_when_its_metadata_store_is_closed() -> None:
    async with ClientCluster() as cluster:
        await cluster.kill_server()
        store = cluster.zookeeper.connect()
        client = await client_over(cluster, Cluster(store, ROOT))
        append = asyncio.ensure_future(client.append(0, b"a"))
        await store.close()
        with pytest.raises(waltz.ClientFailed, match="connection to ZooKeeper was closed"):
            await append
        await client.close()


async def fail_client(
    cluster: ClientCluster, client: waltz.Client[bytes], metadata: LosableCluster
) -> None:
    """Let ``client`` fail: its ``metadata`` are lost when it looks up the servers."""
    waiting = asyncio.ensure_future(client.append(1, b"partition 1 has no server"))
    metadata.lost = True
    await cluster.place(0, 0)
    with pytest.raises(waltz.ClientFailed):
        await waiting


async def read_on(batches: AsyncIterator[Any], ids: list[int]) -> None:
    """Add the ids of all further batches of a stream to ``ids``, until the stream ends."""
    async for batch in batches:
        ids.extend(each.id for each in batch)


@on_virtual_time
async def test_stream_of_a_failed_client_yields_the_ranges_that_have_arrived() -> None:
    async with ClientCluster(2) as cluster:
        await cluster.place(1, None)
        await cluster.fill(0, 4 * OBJECT_LIMITS.records)
        metadata = LosableCluster(cluster.zookeeper.connect(), ROOT)
        client = await client_over(cluster, metadata)
        batches = aiter(client.stream(0, data=True).batches())
        ids = [each.id for each in await anext(batches)]
        await eventually(lambda: len(cluster.requests_of(RecordsRequest)) == 3)
        await client.high_water_mark(0)  # Its answer follows the third range on the connection.
        await fail_client(cluster, client, metadata)
        with pytest.raises(waltz.ClientFailed):
            await asyncio.wait_for(read_on(batches, ids), 60)
        assert ids == list(range(3 * OBJECT_LIMITS.records))
        await client.close()
        await metadata.store.close()


@on_virtual_time
async def test_stream_of_a_failed_client_yields_the_data_from_older_servers() -> None:
    """A server before version 5 has no ranges: the stream reads the data of each transaction."""

    def hold_from_300(message: Any) -> FrameFault | None:
        held = isinstance(message, TransactionDataRequest) and message.transaction_id >= 300
        return FrameFault.HOLD if held else None

    async with ClientCluster(2, versions=(4,)) as cluster:
        await cluster.place(1, None)
        await cluster.fill(0, 2000)
        metadata = LosableCluster(cluster.zookeeper.connect(), ROOT)
        client = await client_over(cluster, metadata)
        batches = aiter(client.stream(0, data=True).batches())
        cluster.on_request = hold_from_300
        ids = [each.id for each in await anext(batches)]
        cluster.release()
        await asyncio.sleep(1)  # The other answers arrive while the application is busy.
        requested = len(
            {each.transaction_id for each in cluster.requests_of(TransactionDataRequest)}
        )
        assert len(ids) <= 300 < requested < 1000, "the stream holds transactions without data"
        await fail_client(cluster, client, metadata)
        with pytest.raises(waltz.ClientFailed):
            await asyncio.wait_for(read_on(batches, ids), 60)
        assert ids == list(range(requested))
        await client.close()
        await metadata.store.close()


@on_virtual_time
async def test_stream_without_data_that_waits_ends_when_its_client_fails() -> None:
    async with ClientCluster(2) as cluster:
        await cluster.place(1, None)
        await cluster.fill(0, 3)
        metadata = LosableCluster(cluster.zookeeper.connect(), ROOT)
        client = await client_over(cluster, metadata)
        ids: list[int] = []
        reading = asyncio.ensure_future(read_on(aiter(client.stream(0).batches()), ids))
        await eventually(lambda: ids == [0, 1, 2])
        await fail_client(cluster, client, metadata)
        with pytest.raises(waltz.ClientFailed):
            await asyncio.wait_for(reading, 60)
        await client.close()
        await metadata.store.close()
