"""``waltz debug bundle`` writes one archive, also without a cluster, and only for its owner."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.admin.process_versions import query_versions, storage_versions
from waltz.cli.app import app
from waltz.local import ClusterLayout

WHERE = ("-z", "127.0.0.1:1", "--timeout", "0.1")


def contents(path: Path) -> dict[str, str]:
    """Return the files of an archive, by their paths below its directory."""
    found = {}
    with tarfile.open(path) as archive:
        for each in archive.getmembers():
            file = archive.extractfile(each)
            assert file is not None
            directory, _, name = each.name.partition("/")
            assert directory == "b"
            found[name] = file.read().decode()
    return found


def test_bundle_without_zookeeper_has_logs_settings_and_what_is_missing(tmp_path: Path) -> None:
    log, settings = tmp_path / "server.log", tmp_path / "server.yml"
    log.write_text("started\npassword=hunter2\n")
    settings.write_text("server.port: 1\nserver.tls.password: hunter2\n")
    bundle = tmp_path / "b.tar.gz"
    command = ["debug", "bundle", str(bundle), *WHERE, "--settings", str(settings)]
    command += ["--log", str(log), "--log", str(tmp_path / "missing.log")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "see errors.txt" in result.stderr
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    found = contents(bundle)
    assert found["logs/server.log"] == "started\npassword=(removed)\n"
    assert "server.port: 1" in found["settings/server.yml"]
    assert "hunter2" not in "".join(found.values())
    assert "missing.log" in found["errors.txt"]
    assert json.loads(found["health.json"])["state"] == "unknown"
    assert json.loads(found["versions.json"])["root"] == "/waltz"


def test_bundle_as_json_names_its_files_and_what_is_missing(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    command = ["debug", "bundle", str(bundle), *WHERE, "--log", str(tmp_path / "missing.log")]
    found = json.loads(CliRunner().invoke(app, [*command, "-o", "json"]).stdout)
    assert found["file"] == str(bundle)
    assert found["files"] == sorted(contents(bundle))
    assert any("missing.log" in each for each in found["missing"])


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    bundle.write_text("mine")
    result = CliRunner().invoke(app, ["debug", "bundle", str(bundle), *WHERE])
    assert result.exit_code == 2
    assert bundle.read_text() == "mine"


@pytest.mark.parametrize("place", ["missing/b.tar.gz", "."])
def test_file_that_cannot_be_written_fails_with_one_line(tmp_path: Path, place: str) -> None:
    result = CliRunner().invoke(app, ["debug", "bundle", str(tmp_path / place), *WHERE])
    assert result.exit_code != 0
    assert "Traceback" not in result.output


def test_bundle_that_cannot_be_completed_is_removed(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    without_space = ["bash", "-c", 'ulimit -f 0; exec "$@"', "-"]
    command = [sys.executable, "-m", "waltz.cli", "debug", "bundle", str(bundle), *WHERE]
    ended = subprocess.run(
        [*without_space, *command], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode != 0
    assert f"cannot write {bundle}: File too large" in ended.stderr
    assert not bundle.exists()


def test_bundle_of_a_local_cluster_has_the_files_and_versions_of_its_processes(
    tmp_path: Path,
) -> None:
    """A storage's HTTP port answers; the server is dead."""
    layout = ClusterLayout(tmp_path / "w")
    for name in ("storage/0", "server/0", "zookeeper"):
        for path in (layout.log(name), layout.config(name)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} has password=hunter2\n")
    answer = b'HTTP/1.0 200 OK\r\n\r\n{"service_name": "waltz-storage", "version": "7"}'
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        processes = {
            "storage/0": {"pid": 1, "address": "127.0.0.1:2", "http_port": port},
            "server/0": {"pid": None, "address": "127.0.0.1:3", "http_port": 1},
        }
        described = {"zookeeper": "127.0.0.1:1", "root": "/w", "tls": False}
        layout.description.write_text(json.dumps({**described, "processes": processes}))

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                assert connection.recv(1000).startswith(b"GET /buildinfo ")
                connection.sendall(answer)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        bundle = tmp_path / "b.tar.gz"
        command = ["debug", "bundle", str(bundle), "-c", str(layout.directory), "-t", "5"]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        serving.join(30)
    found = contents(bundle)
    assert found["logs/storage-0.log"] == "storage/0 has password=(removed)\n"
    assert {"logs/server-0.log", "logs/zookeeper.log", "settings/server-0.yml"} <= found.keys()
    versions = json.loads(found["versions.json"])["processes"]
    assert versions == {
        f"127.0.0.1:{port}": {"service_name": "waltz-storage", "version": "7"},
        "127.0.0.1:1": {"problem": "Connection refused"},
    }


def test_http_option_names_a_process_whose_version_is_added(tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    command = ["debug", "bundle", str(bundle), *WHERE, "--http", "127.0.0.1:2"]
    assert CliRunner().invoke(app, command).exit_code == 0
    processes = json.loads(contents(bundle)["versions.json"])["processes"]
    assert processes["127.0.0.1:2"]["problem"] == "Connection refused"


def test_versions_of_storages_are_in_their_metrics() -> None:
    gauges = {"waltz-storage.waltz-version-id": {"value": "0.1.0"}}
    metrics = {"a:1": {"gauges": gauges}, "b:1": {"problem": "refused"}, "c:1": {"gauges": []}}
    assert storage_versions(metrics) == {
        "a:1": {"service_name": "waltz-storage", "version": "0.1.0"},
        "b:1": {"problem": "refused"},
        "c:1": {"problem": "its metrics have no version"},
    }


async def test_version_query_of_port_out_of_range_reports_the_port() -> None:
    found = await query_versions("", ["127.0.0.1:99999"], timeout_seconds=5)
    assert "port must be 0-65535" in found["127.0.0.1:99999"]["problem"]


async def test_version_of_zookeeper_is_in_its_answer() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(4) == b"srvr"
        writer.write(b"Zookeeper version: 3.9.3-x, built on y\nMode: leader\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        found = await query_versions(address, [], timeout_seconds=5)
    version = "3.9.3-x, built on y"
    assert found == {address: {"service_name": "zookeeper", "version": version}}


@pytest.mark.parametrize("content", [b"{}", b'{"service_name": "other"}', b"[7]", b"7"])
async def test_answer_without_a_version_is_a_problem(content: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + content)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        found = await query_versions("", [address], timeout_seconds=5)
    assert found == {address: {"problem": "the answer has no version"}}
