"""Test that mistakes of users and peers give one clear message, and harm no cluster."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sysconfig
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import waltz
from tests.support.load import client_of, read_log
from waltz.admin import inspect, verify
from waltz.local import LocalCluster, Shape
from waltz.metadata.kazoo_store import KazooStore
from waltz.metadata.lifecycle import create_cluster
from waltz.protocol import ADMIN, CLIENT_SERVER, STORAGE, ProtocolSpec
from waltz.protocol.frames import encode_frame

SCRIPTS = Path(sysconfig.get_path("scripts"))
CLOSED_PORT = "127.0.0.1:1"


async def run_script(name: str, *arguments: str) -> tuple[int, str]:
    """Run a command to its end; return its exit status and its standard error."""
    process = await asyncio.create_subprocess_exec(
        SCRIPTS / name, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(90):
        _, output = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def refused(name: str, *arguments: str) -> str:
    """Run a command that must fail; return its one error line."""
    status, output = await run_script(name, *arguments)
    assert status == 1, output
    assert "Traceback" not in output
    (line,) = [each for each in output.splitlines() if each.startswith(f"{name}:")]
    return line


def server_config(folder: Path, zookeeper: str, root: str, **more: Any) -> str:
    folder.mkdir(exist_ok=True)
    settings = {"server.port": 0, "server.bind.host": "127.0.0.1"}
    return write_config(folder / "server.yml", zookeeper, root, settings | more)


def storage_config(folder: Path, zookeeper: str, root: str, **more: Any) -> str:
    directory = folder / "data"
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "storage.port": 0,
        "storage.admin.port": 0,
        "storage.bind.host": "127.0.0.1",
        "storage.directory": str(directory),
    }
    return write_config(folder / "storage.yml", zookeeper, root, settings | more)


def write_config(path: Path, zookeeper: str, root: str, settings: dict[str, Any]) -> str:
    common = {
        "zookeeper.connectString": zookeeper,
        "zookeeper.sessionTimeout": 3000,
        "cluster.root": root,
    }
    path.write_text(yaml.safe_dump(common | settings))
    return str(path)


async def test_unknown_settings_are_refused_with_a_suggestion(tmp_path: Path) -> None:
    server = server_config(tmp_path, CLOSED_PORT, "/waltz", **{"server.feedCashSize": 1})
    storage = storage_config(tmp_path, CLOSED_PORT, "/waltz", **{"storage.directry": "x"})
    of_server, of_storage, of_absent = await asyncio.gather(
        refused("waltz-server", server),
        refused("waltz-storage", storage),
        refused("waltz-server", str(tmp_path / "absent.yml")),
    )
    assert "did you mean server.feedCacheSize?" in of_server
    assert "did you mean storage.directory?" in of_storage
    assert "cannot read" in of_absent


async def test_used_ports_are_named_in_the_error(cluster: LocalCluster, tmp_path: Path) -> None:
    where = cluster.zookeeper, cluster.root
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        servers = [
            server_config(tmp_path / key, *where, **{key: port})
            for key in ("server.port", "server.jetty.port")
        ]
        storages = [
            storage_config(tmp_path / key, *where, **{key: port})
            for key in ("storage.port", "storage.admin.port", "storage.jetty.port")
        ]
        lines = await asyncio.gather(
            *(refused("waltz-server", server) for server in servers),
            *(refused("waltz-storage", storage) for storage in storages),
        )
    assert [line for line in lines if str(port) not in line] == []


async def test_storage_directory_of_another_cluster_is_refused(
    cluster: LocalCluster, zookeeper: str, zk_root: str, tmp_path: Path
) -> None:
    store = await KazooStore.connect(zookeeper, 3000)
    await create_cluster(store, zk_root, "other", 3, key=uuid.uuid4())
    await store.close()
    foreign = storage_config(
        tmp_path, zookeeper, zk_root, **{"storage.directory": str(tmp_path / "used")}
    )
    (tmp_path / "used").mkdir()
    own = cluster.layout.data("storage/0") / "waltz-storage.ctl"
    (tmp_path / "used" / own.name).write_bytes(own.read_bytes())
    assert "key" in await refused("waltz-storage", foreign)


async def test_missing_cluster_is_reported_by_every_program(
    zookeeper: str, zk_root: str, tmp_path: Path
) -> None:
    server, storage, tool, log = await asyncio.gather(
        refused("waltz-server", server_config(tmp_path, zookeeper, zk_root)),
        refused("waltz-storage", storage_config(tmp_path, zookeeper, zk_root)),
        refused("waltz", "cluster", "show", "-z", zookeeper, "-r", zk_root),
        refused("waltz", "log", "tail", "0", "-z", zookeeper, "-r", zk_root),
    )
    assert all(f"no Waltz cluster at {zk_root}" in each for each in (server, storage, tool, log))


@pytest.mark.slow
async def test_unreachable_zookeeper_is_reported_by_every_program(tmp_path: Path) -> None:
    server, storage, tool, log = await asyncio.gather(
        refused("waltz-server", server_config(tmp_path, CLOSED_PORT, "/waltz")),
        refused("waltz-storage", storage_config(tmp_path, CLOSED_PORT, "/waltz")),
        refused("waltz", "cluster", "show", "-z", CLOSED_PORT),
        refused("waltz", "log", "append", "0", "x", "-z", CLOSED_PORT),
    )
    for text in (server, storage, tool, log):
        assert f"no ZooKeeper session was established at {CLOSED_PORT}" in text
        assert "refused" in text.lower()


def ports_of(cluster: LocalCluster) -> list[tuple[ProtocolSpec, int]]:
    storage, server = cluster.plan.storages[0], cluster.plan.servers[0]
    return [(CLIENT_SERVER, server.port), (STORAGE, storage.port), (ADMIN, storage.admin)]


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\x00" * 100, id="zeros"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(b"H\x00\x00\x7f\xff\xff\xff", id="endless hello"),
    ],
)
async def test_garbage_closes_the_connection(cluster: LocalCluster, garbage: bytes) -> None:
    for spec, port in ports_of(cluster):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(garbage)
        async with asyncio.timeout(60):
            try:
                received = await reader.read()
            except ConnectionResetError:
                received = spec.hello(dialer=False)
        assert received in (spec.hello(dialer=False), b"")
        writer.close()
    await still_healthy(cluster)


async def test_garbage_after_the_handshake_closes_the_connection(cluster: LocalCluster) -> None:
    for spec, port in ports_of(cluster):
        version = max(spec.versions)
        for body in (b"\xff", b"\x00", b"\x02" * 50):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(spec.hello(dialer=True) + encode_frame(spec.magic, version, body))
            async with asyncio.timeout(60):
                with_hello = await reader.read()
            assert with_hello == spec.hello(dialer=False)
            writer.close()
    await still_healthy(cluster)


async def test_half_a_frame_leaves_the_cluster_healthy(cluster: LocalCluster) -> None:
    for spec, port in ports_of(cluster):
        frame = spec.hello(dialer=True)
        for closed in (True, False):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame[: len(frame) // 2])
            await writer.drain()
            if not closed:
                await still_healthy(cluster)
            writer.close()
    await still_healthy(cluster)


async def still_healthy(cluster: LocalCluster) -> None:
    async with cluster.metadata() as metadata:
        findings = verify(await inspect(metadata, cluster.tls))
    assert [finding for finding in findings if finding.problem is not None] == []


@pytest.mark.slow
async def test_client_ahead_of_the_log_is_refused(cluster: LocalCluster) -> None:
    async with client_of(cluster) as client:
        with pytest.raises(waltz.ClientAhead, match="the mark is transaction 1000000000"):
            await anext(client.stream(0, after=10**9).batches())
    line = await refused(
        "waltz", "log", "read", "0", "1000000000", "-c", str(cluster.layout.description)
    )
    assert "its log ends at" in line


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """A cluster with one storage, so that all reads use its files."""
    shape = Shape(partitions=3, storages=1, servers=1)
    async with LocalCluster(tmp_path, shape, session_timeout_ms=2000) as running:
        yield running


async def test_torn_segment_is_truncated_and_shortened_one_closes_its_partition(
    single: LocalCluster,
) -> None:
    """A torn end is truncated; flushed records that are missing close only that partition.

    A damaged record is not served, and its partition continues without it.
    """
    async with client_of(single) as client:
        for number in range(15):
            await client.append(number % 3, b"%d" % number)
    # A new session records that everything before it was flushed.
    await single.stop_one("server/0")
    await single.start_one("server/0")
    async with client_of(single) as client:
        for partition in range(3):
            # The answer follows after the new session was written to the storage's disk.
            await client.mount(partition)
    await single.stop_one("storage/0")
    torn, shortened, damaged = (
        single.layout.data("storage/0") / partition / f"{0:019d}.seg" for partition in "012"
    )
    whole = torn.stat().st_size
    with torn.open("ab") as file:
        file.write((5).to_bytes(8, "big") + b"half a record")
    os.truncate(shortened, shortened.stat().st_size - 1)
    content = bytearray(damaged.read_bytes())
    content[-6] ^= 1
    damaged.write_bytes(content)

    await single.start_one("storage/0")
    assert torn.read_bytes()[whole:].strip(b"\0") == b""
    health = fetch_json(single.plan.storages[0].http, "/health", status=500)
    check = health["storage-health-check"]
    (refusal,) = check["refused"].items()
    assert refusal[0] == "1"
    assert refusal[1]["file"].endswith(f"1/{shortened.name}")
    assert 128 <= refusal[1]["offset"] < shortened.stat().st_size
    assert check["damaged-records"] == {"2": ["4"]}
    async with client_of(single) as client, asyncio.timeout(60):
        assert await client.append(0, b"goes on") == 5
        assert await read_log(client, 0) == [b"0", b"3", b"6", b"9", b"12", b"goes on"]
        assert await client.append(2, b"goes on") == 5


def fetch_json(port: int, path: str, *, status: int) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            found, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        found, body = error.code, error.read()
    assert found == status
    value: dict[str, Any] = json.loads(body)
    return value
