"""A storage node with its ports, in this process: requests, bad input, back-pressure, HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.storage_settings import storage_settings
from waltz.admin import StorageAdmin
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.store import MetadataStore, SessionState
from waltz.metadata.zookeeper_access import ZooKeeperAccess
from waltz.net import PLAINTEXT, TCP, FrameHandler, ListenFailed, RemoteFailure, RpcConnection
from waltz.protocol import ADMIN, STORAGE, FrameDecoder, UnsupportedByPeer, admin, storage
from waltz.protocol.frames import encode_frame
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz.runtime.configuration import ConfigError, TlsSettings, read_settings
from waltz.testing.zookeeper import MemoryZooKeeper
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.log.segment_format import HEADER_BYTES
from waltz_storage.core.wal.checksums import DEFAULT
from waltz_storage.core.wal.ring import BLOCK_BYTES
from waltz_storage.core.wal.wal_header import WalHeader
from waltz_storage.shell import connections
from waltz_storage.shell.config import LARGEST_WAL_BYTES, StorageConfig
from waltz_storage.shell.connections import ClusterIdentity
from waltz_storage.shell.environment import StorageEnvironment, learn_cluster
from waltz_storage.shell.node import StorageNode

CLUSTER = ClusterIdentity(uuid.UUID(int=9), 3)
IDENTITY = (CLUSTER.key, CLUSTER.num_partitions)
OLD_STORAGE, OLD_ADMIN = STORAGE.limited_to(0), ADMIN.limited_to(0)
"""The protocol version that Waltz 0.13.2 offers."""


def settings(path: Path, engine: str = "files") -> StorageConfig:
    return storage_settings(
        path,
        http_port=0,
        engine=engine,
        wal_bytes=1 << 20,
        segment_threshold=1_000_000,
        open_segments=5,
        scrub_bytes_per_second=4 << 20,
    )


@pytest.fixture(params=["files", "wal"])
async def node(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[StorageNode]:
    node = StorageNode(settings(tmp_path, request.param))
    await node.start(CLUSTER)
    yield node
    await node.stop()


@pytest.fixture
async def admin_port(node: StorageNode) -> AsyncIterator[RpcConnection]:
    connection = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
    await connection.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (0, 1), True, False),
        admin.AdminSuccessResponse,
    )
    yield connection
    connection.close()


@pytest.fixture
async def server(node: StorageNode, admin_port: RpcConnection) -> AsyncIterator[RpcConnection]:
    connection = await RpcConnection.open_storage(address(node), PLAINTEXT, IDENTITY)
    yield connection
    connection.close()


def address(node: StorageNode) -> tuple[str, int]:
    assert node.listener is not None
    return "127.0.0.1", node.listener.port


def admin_address(node: StorageNode) -> tuple[str, int]:
    assert node.admin_listener is not None
    return "127.0.0.1", node.admin_listener.port


def batch(first_id: int, count: int, data: bytes = b"data") -> RecordBatch:
    return RecordBatch.of(
        Record(n, ReqId(1, 2, 0, n), 0, data, 5) for n in range(first_id, first_id + count)
    )


async def test_identity_of_the_cluster_is_read_and_the_session_closed(tmp_path: Path) -> None:
    zookeeper = MemoryZooKeeper()
    key, opened = uuid.uuid4(), zookeeper.connect()
    await create_cluster(zookeeper.connect(), "/unused", "flights", 3, key=key)

    async def open_store(
        _address: str, _session_timeout_ms: int, _access: ZooKeeperAccess
    ) -> MetadataStore:
        return opened

    environment = StorageEnvironment(open_store=open_store)
    assert await learn_cluster(settings(tmp_path), environment) == ClusterIdentity(key, 3)
    assert opened.health.state is SessionState.CLOSED


async def test_appended_records_are_read_back(server: RpcConnection) -> None:
    done = await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(1, seq, 0, -1), storage.SuccessResponse
    )
    assert isinstance(done, storage.SuccessResponse)
    await server.call(
        lambda seq: storage.AppendRequest(1, seq, 0, batch(0, 5)), storage.SuccessResponse
    )
    found = await server.call(
        lambda seq: storage.RecordListRequest(1, seq, 0, 1, 3), storage.RecordListResponse
    )
    assert found.records == batch(1, 3)
    header = await server.call(
        lambda seq: storage.RecordHeaderRequest(1, seq, 0, 4), storage.RecordHeaderResponse
    )
    assert header.header is not None
    assert header.header.req_id == ReqId(1, 2, 0, 4)
    with pytest.raises(RemoteFailure, match="not assigned"):
        await server.call(
            lambda seq: storage.MaxTransactionIdRequest(1, seq, 2), storage.MaxTransactionIdResponse
        )


async def test_connection_of_another_cluster_is_refused(node: StorageNode) -> None:
    for identity in ((uuid.UUID(int=1), 3), (CLUSTER.key, 4)):
        with pytest.raises(RemoteFailure, match="inconsistent"):
            await RpcConnection.open_storage(address(node), PLAINTEXT, identity)
        with pytest.raises(RemoteFailure, match="inconsistent"):
            await RpcConnection.open_admin(admin_address(node), PLAINTEXT, identity)


class SilentPeer(FrameHandler):
    """The end of a connection that sends no request."""

    def __init__(self) -> None:
        self.is_lost = asyncio.Event()

    def received(self, bodies: list[bytes]) -> None:
        """Ignore what the storage sends."""
        return

    def lost(self, reason: str) -> None:
        """Note the end of the connection."""
        self.is_lost.set()


async def test_peer_is_refused_on_the_port_that_does_not_allow_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("storage")
    secured = TlsSettings(certificate=own.certificate, key=own.key, ca=own.ca)
    (tmp_path / "data").mkdir()
    node = StorageNode(
        settings(tmp_path / "data").model_copy(
            update={
                "tls_settings": secured,
                "allowed_names": ("server", "operator"),
                "admin_allowed_names": ("operator",),
            }
        )
    )
    await node.start(CLUSTER)
    server, operator, client = (
        authority.issue(name, server_name="storage") for name in ("server", "operator", "client")
    )
    try:
        for tls in (server, operator):
            (await RpcConnection.open_storage(address(node), tls, IDENTITY)).close()
        caplog.set_level("INFO")
        port = await RpcConnection.open_admin(admin_address(node), operator, IDENTITY)
        await port.call(
            lambda seq: admin.PartitionAssignmentRequest(seq, (0,), True, False),
            admin.AdminSuccessResponse,
        )
        port.close()
        assert "refused" not in caplog.text
        assert "(certificate of operator): assign partitions 0: done" in caplog.text
        with pytest.raises(RemoteFailure, match=r"has client; storage\.allowedNames must contain"):
            await RpcConnection.open_storage(address(node), client, IDENTITY)
        for tls in (server, client):
            with pytest.raises(RemoteFailure, match=r"; storage\.admin\.allowedNames must contain"):
                await RpcConnection.open_admin(admin_address(node), tls, IDENTITY)
        assert caplog.text.count("refused a storage admin connection from 127.0.0.1:") == 2
        monkeypatch.setattr(connections, "_REFUSED_SECONDS", 0.0)
        silent = SilentPeer()
        await TCP.dial(*address(node), STORAGE, silent, client)
        async with asyncio.timeout(30):
            await silent.is_lost.wait()
    finally:
        await node.stop()


@pytest.mark.parametrize("name", ["storage.allowedNames", "storage.admin.allowedNames"])
def test_allowed_names_without_verified_certificates_are_an_error(
    tmp_path: Path, name: str
) -> None:
    required = {
        "zookeeper.connectString": "z:1",
        "zookeeper.sessionTimeout": 6000,
        "cluster.root": "/c",
        "storage.port": 0,
        "storage.admin.port": 0,
        "storage.directory": "/data",
    }
    file = tmp_path / "storage.yml"
    file.write_text(json.dumps(required | {name: "server, operator"}))
    with pytest.raises(ConfigError, match=f"{name} needs storage.tls.enabled and storage.tls.ca"):
        read_settings(StorageConfig, file, {})
    file.write_text(json.dumps(required | {name: "server, operator", "storage.tls.ca": "/ca"}))
    config = read_settings(StorageConfig, file, {})
    chosen = config.allowed_servers.names, config.allowed_administrators.names
    assert sorted(chosen, key=bool) == [None, ("server", "operator")]


async def test_administrative_change_is_logged_with_its_peer_and_outcome(
    node: StorageNode, admin_port: RpcConnection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await admin_port.call(
        lambda seq: admin.PartitionAvailableRequest(seq, (0,), True), admin.AdminSuccessResponse
    )
    with pytest.raises(RemoteFailure):
        await admin_port.call(
            lambda seq: admin.PartitionAssignmentRequest(seq, (7,), True, False),
            admin.AdminSuccessResponse,
        )
    await admin_port.call(
        admin.AssignedPartitionStatusRequest, admin.AssignedPartitionStatusResponse
    )
    changes = [text for text in caplog.messages if text.startswith("administrative change")]
    assert len(changes) == 2
    assert changes[0].startswith("administrative change by 127.0.0.1:")
    assert changes[0].endswith(": switch on reads and writes of partitions 0: done")
    assert ": assign partitions 7: refused: " in changes[1]


async def test_admin_requests_are_answered(
    server: RpcConnection, admin_port: RpcConnection
) -> None:
    status = await admin_port.call(
        admin.AssignedPartitionStatusRequest, admin.AssignedPartitionStatusResponse
    )
    assert status.available == {0: True, 1: True}
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(6, seq, 1, 3), storage.SuccessResponse
    )
    info = await admin_port.call(
        lambda seq: admin.LastSessionInfoRequest(seq, 1), admin.LastSessionInfoResponse
    )
    assert (info.last_session_id, info.low_water_mark, info.local_low_water_mark) == (6, 3, -1)
    metrics = json.loads((await admin_port.call(admin.MetricsRequest, admin.MetricsResponse)).json)
    assert metrics["gauges"]["waltz-storage.partition-1.session-id"] == {"value": 6}


async def read_to_end(port: int, *frames: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(frames))
    async with asyncio.timeout(60):
        received = await reader.read()
    writer.close()
    return received


@pytest.mark.parametrize(
    "frames",
    [
        (b"GET / HTTP/1.1\r\n\r\n",),
        (b"\x16\x03\x01\x02\x00\x01\x00",),
        (OLD_STORAGE.hello(dialer=True), encode_frame(STORAGE.magic, 0, b"\x63")),
        (OLD_STORAGE.hello(dialer=True), encode_frame(STORAGE.magic, 0, b"\x0d\x00")),
        (OLD_STORAGE.hello(dialer=True), b"S\x00\x00\x7f\xff\xff\xff"),
    ],
    ids=["http", "tls", "unknown type", "short body", "huge frame"],
)
async def test_garbage_closes_only_its_connection(
    node: StorageNode, server: RpcConnection, frames: tuple[bytes, ...]
) -> None:
    received = await read_to_end(address(node)[1], *frames)
    assert received == STORAGE.hello(dialer=False)
    answer = await server.call(
        lambda seq: storage.MaxTransactionIdRequest(1, seq, 0), storage.MaxTransactionIdResponse
    )
    assert answer.transaction_id == -1


async def test_admin_request_unanswerable_in_version_0_closes_connection(
    node: StorageNode,
) -> None:
    request = admin.PartitionAvailableRequest(6, (99,), available=True)
    frames = (OLD_ADMIN.hello(dialer=True), admin.encode(request, 0))
    assert await read_to_end(admin_address(node)[1], *frames) == ADMIN.hello(dialer=False)


async def test_impossible_admin_request_since_version_1_is_answered(
    admin_port: RpcConnection,
) -> None:
    assert admin_port.version == max(ADMIN.versions)
    for request in (
        lambda seq: admin.PartitionAvailableRequest(seq, (99,), available=True),
        lambda seq: admin.PartitionSwitchRequest(seq, (0, 99), admin.Switch.READ, on=False),
        lambda seq: admin.PartitionAssignmentRequest(seq, (-1,), True, False),
    ):
        with pytest.raises(RemoteFailure, match=r"partition (99|-1) is outside 0\.\.2"):
            await admin_port.call(request, admin.AdminSuccessResponse)
    with pytest.raises(RemoteFailure, match="not assigned"):
        await admin_port.call(
            lambda seq: admin.RangeChecksumRequest(seq, 2, 0, 5), admin.RangeChecksumResponse
        )
    states = (
        await admin_port.call(admin.PartitionStatesRequest, admin.PartitionStatesResponse)
    ).states
    assert [(s.partition, s.available) for s in states] == [(0, True), (1, True)]


async def test_committed_reader_gets_records_and_refusals(
    server: RpcConnection, admin_port: RpcConnection
) -> None:
    await server.call(
        lambda seq: storage.SetLowWaterMarkRequest(1, seq, 0, -1), storage.SuccessResponse
    )
    await server.call(
        lambda seq: storage.AppendRequest(1, seq, 0, batch(0, 5)), storage.SuccessResponse
    )
    assert server.version == 3
    size = len(batch(0, 2).wire) + 2 * 4
    found = await server.call(
        lambda seq: storage.BoundedRecordListRequest(1, seq, 0, 1, 9, size),
        storage.RecordListResponse,
    )
    assert found.records == batch(1, 2)
    found = await server.call(
        lambda seq: storage.CommittedRecordListRequest(1, seq, 0, 1, 3, 9, 1 << 20),
        storage.RecordListResponse,
    )
    assert found.records == batch(1, 3)
    stored = await server.call(
        lambda seq: storage.StoredRecordListRequest(1, seq, 0, 1, 3, 9, 1 << 20),
        storage.StoredRecordListResponse,
    )
    assert stored.records.count == 3
    assert [bytes(stored.records.raw)[at : at + 8] for at in (0, size // 2)] == [
        n.to_bytes(8) for n in (1, 2)
    ]
    await admin_port.call(
        lambda seq: admin.PartitionSwitchRequest(seq, (0,), admin.Switch.READ, False),
        admin.AdminSuccessResponse,
    )
    with pytest.raises(RemoteFailure, match="read for partition=0 has been disabled"):
        await server.call(
            lambda seq: storage.RecordListRequest(1, seq, 0, 0, 9), storage.RecordListResponse
        )
    await server.call(
        lambda seq: storage.AppendRequest(1, seq, 0, batch(5, 1)), storage.SuccessResponse
    )


async def test_partition_with_one_switch_on_is_closed_to_version_0(
    node: StorageNode, admin_port: RpcConnection
) -> None:
    await admin_port.call(
        lambda seq: admin.PartitionSwitchRequest(seq, (0,), admin.Switch.READ, False),
        admin.AdminSuccessResponse,
    )
    request = storage.MaxTransactionIdRequest(1, 7, 0)
    reader, writer = await asyncio.open_connection(*address(node))
    writer.write(OLD_STORAGE.hello(dialer=True) + storage.encode(request, 0))
    decoder = FrameDecoder(OLD_STORAGE)
    bodies: list[bytes] = []
    async with asyncio.timeout(60):
        while not bodies:
            bodies += decoder.feed(await reader.read(1 << 16))
    writer.close()
    (answer,) = (storage.decode(body, 0) for body in bodies)
    assert isinstance(answer, storage.FailureResponse)
    assert "read and write for partition=0" in (answer.failure.message or "")


async def test_node_of_version_0_gets_only_requests_of_version_0(tmp_path: Path) -> None:
    old = StorageNode(settings(tmp_path), OLD_STORAGE, OLD_ADMIN)
    await old.start(CLUSTER)
    admin_port = await RpcConnection.open_admin(admin_address(old), PLAINTEXT, IDENTITY)
    server = await RpcConnection.open_storage(address(old), PLAINTEXT, IDENTITY)
    try:
        assert (admin_port.version, server.version) == (0, 0)
        await admin_port.call(
            lambda seq: admin.PartitionAssignmentRequest(seq, (1,), True, False),
            admin.AdminSuccessResponse,
        )
        await server.call(
            lambda seq: storage.SetLowWaterMarkRequest(3, seq, 1, -1), storage.SuccessResponse
        )
        (held,) = await StorageAdmin(admin_port).states()
        assert (held.partition, held.session_id, held.max_transaction_id) == (1, 3, -1)
        with pytest.raises(UnsupportedByPeer, match="upgrade it"):
            await StorageAdmin(admin_port).switch((1,), admin.Switch.READ, on=False)
        with pytest.raises(UnsupportedByPeer, match="upgrade it"):
            await server.call(
                lambda seq: storage.BoundedRecordListRequest(3, seq, 1, 0, 9, 9),
                storage.RecordListResponse,
            )
    finally:
        admin_port.close()
        server.close()
        await old.stop()


async def test_requests_of_peer_that_does_not_read_are_paused(
    node: StorageNode, server: RpcConnection
) -> None:
    records = batch(0, 8, bytes(1 << 17))
    await server.call(
        lambda seq: storage.AppendRequest(-1, seq, 0, records), storage.SuccessResponse
    )
    num_requests = 80
    requests = (storage.RecordListRequest(-1, seq, 0, 0, 8) for seq in range(num_requests))
    reader, writer = await asyncio.open_connection(*address(node), limit=1 << 16)
    writer.write(OLD_STORAGE.hello(dialer=True))
    writer.write(b"".join(storage.encode(request, 0) for request in requests))

    async def lists_read() -> int:
        admin_port = await RpcConnection.open_admin(admin_address(node), PLAINTEXT, IDENTITY)
        counters = json.loads(
            (await admin_port.call(admin.MetricsRequest, admin.MetricsResponse)).json
        )["counters"]
        admin_port.close()
        count: int = counters["waltz-storage.partition-0.record-list-request"]["count"]
        return count

    # The answers fill only the socket's buffers; meanwhile the node serves other peers.
    for _ in range(50):
        await server.call(
            lambda seq: storage.MaxTransactionIdRequest(-1, seq, 0),
            storage.MaxTransactionIdResponse,
        )
    assert await lists_read() < num_requests / 2
    answer = storage.encode(storage.RecordListResponse(-1, 0, 0, records), 0)
    expected = len(STORAGE.hello(dialer=False)) + num_requests * len(answer)
    async with asyncio.timeout(30):
        while expected:
            expected -= len(await reader.read(1 << 20))
    assert await lists_read() == num_requests
    writer.close()


async def test_health_names_file_and_offset_of_damage(tmp_path: Path) -> None:
    first = StorageNode(settings(tmp_path))
    await first.start(CLUSTER)
    admin_port = await RpcConnection.open_admin(admin_address(first), PLAINTEXT, IDENTITY)
    await admin_port.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (0, 1), True, False),
        admin.AdminSuccessResponse,
    )
    await first.stop()
    (tmp_path / "1" / "0000000000000000000.idx").unlink()
    second = StorageNode(settings(tmp_path))
    await second.start(CLUSTER)
    try:
        async with second.http() as port, aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/health") as answer:
                assert answer.status == 500
                check = (await answer.json())["storage-health-check"]
            assert check["healthy"] is False
            assert check["refused"]["1"]["file"] == "1/0000000000000000000.idx"
            assert check["refused"]["1"]["offset"] == 0
            async with http.get(f"http://127.0.0.1:{port}/ready") as answer:
                assert answer.status == 503, "a storage that is not healthy is not ready"
            async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
                gauges = (await answer.json())["gauges"]
            assert list(gauges["waltz-storage.refused-partitions"]["value"]) == ["1"]
            assert gauges["waltz-storage.waltz-storage-partition-ids"]["value"] == [0]
    finally:
        await second.stop()


async def test_scrubber_reports_damaged_records_and_storage_serves_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = StorageNode(settings(tmp_path))
    await first.start(CLUSTER)
    admin_port = await RpcConnection.open_admin(admin_address(first), PLAINTEXT, IDENTITY)
    await admin_port.call(
        lambda seq: admin.PartitionAssignmentRequest(seq, (1,), True, False),
        admin.AdminSuccessResponse,
    )
    first.directory.partition(1).log.append(batch(0, 2000))
    await first.stop()
    with (tmp_path / "1" / "0000000000000000000.seg").open("r+b") as segment:
        segment.seek(HEADER_BYTES + 20)
        segment.write(b"rot")
    caplog.set_level(logging.INFO)
    second = StorageNode(settings(tmp_path))
    await second.start(CLUSTER)
    try:
        async with second.http() as port, aiohttp.ClientSession() as http:

            async def gauges() -> Any:
                async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    return (await answer.json())["gauges"]

            await eventually(lambda: "pass 1 is complete" in caplog.text)
            found = await gauges()
            assert found["waltz-storage.scrub-passes"]["value"] == 1
            assert found["waltz-storage.damaged-records"]["value"] == 1
            assert found["waltz-storage.scrub-progress"]["value"] == 1
            assert found["waltz-storage.scrubbed-bytes"]["value"] > 2000
            async with http.get(f"http://127.0.0.1:{port}/health") as answer:
                assert answer.status == 200
                check = (await answer.json())["storage-health-check"]
            assert (check["healthy"], check["damaged-records"]) == (True, {"1": ["0"]})
        assert "partition 1 has damaged records: 0;" in caplog.text
    finally:
        await second.stop()


async def test_free_bytes_and_size_of_the_disk_are_metrics(tmp_path: Path) -> None:
    environment = StorageEnvironment(disk_space=lambda directory: (30, 100))
    node = StorageNode(settings(tmp_path), environment=environment)
    await node.start(CLUSTER)
    try:
        async with (
            node.http() as port,
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{port}/metrics") as answer,
        ):
            gauges = (await answer.json())["gauges"]
    finally:
        await node.stop()
    assert gauges["waltz-storage.disk-free-bytes"]["value"] == 30
    assert gauges["waltz-storage.disk-size-bytes"]["value"] == 100


def test_disk_with_reserved_space_has_the_size_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(total=100, used=5, free=30)
    )
    assert StorageEnvironment().disk_space(tmp_path) == (30, 35)


async def test_used_port_or_missing_directory_fails_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        node = StorageNode(settings(tmp_path).model_copy(update={"port": taken.getsockname()[1]}))
        with pytest.raises(ListenFailed, match="another process listens"):
            await node.start(CLUSTER)
        await node.stop()
    node = StorageNode(settings(tmp_path / "missing"))
    with pytest.raises(DirectoryRefused, match="does not exist"):
        await node.start(CLUSTER)
    await node.stop()


async def test_start_with_the_directory_of_another_cluster_names_the_directory(
    tmp_path: Path,
) -> None:
    node = StorageNode(settings(tmp_path))
    await node.start(CLUSTER)
    await node.stop()
    node = StorageNode(settings(tmp_path))
    with pytest.raises(DirectoryRefused, match=f"the storage directory {tmp_path} cannot be used"):
        await node.start(ClusterIdentity(uuid.UUID(int=8), 3))
    await node.stop()


async def test_control_file_is_in_configured_meta_directory(tmp_path: Path) -> None:
    data, meta = tmp_path / "data", tmp_path / "meta"
    data.mkdir()
    config = settings(data).model_copy(update={"meta_directory": meta})
    node = StorageNode(config)
    with pytest.raises(DirectoryRefused, match=f"{meta} does not exist"):
        await node.start(CLUSTER)
    meta.symlink_to(data)
    with pytest.raises(
        DirectoryRefused, match="set it to another directory, or remove the setting"
    ):
        await node.start(CLUSTER)
    meta.unlink()
    meta.mkdir()
    await node.start(CLUSTER)
    await node.stop()
    assert (meta / "waltz-storage.ctl").exists()
    assert [each.name for each in data.iterdir()] == ["waltz-storage.data"]


async def test_write_ahead_log_is_created_in_wal_directory(tmp_path: Path) -> None:
    data, home = tmp_path / "data", tmp_path / "log"
    data.mkdir()
    config = settings(data, "wal").model_copy(update={"wal_directory": home})
    node = StorageNode(config)
    with pytest.raises(DirectoryRefused, match=f"{home} does not exist"):
        await node.start(CLUSTER)
    home.symlink_to(data)
    with pytest.raises(DirectoryRefused, match=r"storage\.wal\.directory is storage.directory"):
        await node.start(CLUSTER)
    home.unlink()
    home.mkdir()
    await node.start(CLUSTER)
    assert (home / "waltz-storage.wal").exists()
    assert not (data / "waltz-storage.wal").exists()
    await node.stop()
    other = StorageNode(settings(tmp_path / "data", "files"))
    await other.start(CLUSTER)
    await other.stop()


GOOD = """
zookeeper: {connectString: "localhost:1", sessionTimeout: 6000}
cluster.root: /waltz
storage.port: 4000
storage: {admin: {port: 4001}, directory: /data, segment.size.threshold: "2000"}
"""


def test_nested_and_dotted_settings_are_equal(tmp_path: Path) -> None:
    file = tmp_path / "storage.yml"
    file.write_text(GOOD)
    config = read_settings(StorageConfig, file)
    assert (config.port, config.admin_port, config.http_port) == (4000, 4001, None)
    assert (config.segment_threshold, config.open_segments) == (2000, 5)
    assert config.tls.enabled


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("storage.jetty.port: 4001", "must all differ"),
        ("storage.directori: /x", "did you mean storage.directory"),
        ("storage.segment.cache.capacity: none", "segment.cache.capacity"),
        ("storage.scrub.bytesPerSecond: -1", "expected a number from 0 on"),
        ("storage.wal.size: 17592186044417", "wal.size must be at most 17592186044416 bytes"),
    ],
)
def test_invalid_settings_are_reported(tmp_path: Path, more: str, message: str) -> None:
    file = tmp_path / "storage.yml"
    file.write_text(GOOD + more)
    with pytest.raises(ConfigError, match=message):
        read_settings(StorageConfig, file)


def test_segments_beyond_the_offsets_of_the_write_ahead_log_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "storage.yml"
    too_large = GOOD.replace("2000", "1073741824001")
    file.write_text(too_large)
    assert read_settings(StorageConfig, file).segment_threshold == 1_073_741_824_001
    file.write_text(too_large + "storage.engine: wal")
    with pytest.raises(ConfigError, match=r"at most 1073741824000 bytes with storage\.engine"):
        read_settings(StorageConfig, file)


def test_largest_write_ahead_log_has_the_last_block_number() -> None:
    ring = WalHeader.new(uuid.UUID(int=9), LARGEST_WAL_BYTES // BLOCK_BYTES, DEFAULT).ring
    assert ring.first + ring.count == 1 << 32


def test_command_with_bad_settings_fails_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "storage.yml"
    file.write_text(GOOD + "nonsense: 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "waltz_storage", str(file)], capture_output=True, text=True
    )
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("waltz-storage: ")
    assert "unknown setting nonsense" in line


async def test_admin_requests_of_one_chunk_are_all_answered(node: StorageNode) -> None:
    num_requests = 3000
    reader, writer = await asyncio.open_connection(*admin_address(node))
    requests = b"".join(admin.encode(admin.MetricsRequest(n), 0) for n in range(num_requests))
    writer.write(OLD_ADMIN.hello(dialer=True) + requests)
    decoder = FrameDecoder(OLD_ADMIN)
    answered = 0
    async with asyncio.timeout(30):
        while answered < num_requests:
            answered += len(decoder.feed(await reader.read(1 << 20)))
    writer.close()
