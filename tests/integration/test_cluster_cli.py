"""Test the command line on a running cluster, and a local cluster that it runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.local import LocalCluster, Shape
from waltz.sync import connect


def invoke(cluster: LocalCluster | None, *arguments: str, stdin: bytes | None = None) -> Result:
    where = [] if cluster is None else ["--cluster", str(cluster.layout.description)]
    return CliRunner().invoke(app, [*arguments, *where], input=stdin)


def lines(cluster: LocalCluster, *arguments: str, stdin: bytes | None = None) -> list[Any]:
    """Run a verb that shows JSON, one value a line; return the values."""
    result = invoke(cluster, *arguments, "--output", "json", stdin=stdin)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def value(cluster: LocalCluster, *arguments: str) -> Any:
    """Run a verb that shows JSON; return the value."""
    result = invoke(cluster, *arguments, "--output", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def mark_of(cluster: LocalCluster, partition: int) -> int:
    (shown,) = value(cluster, "log", "high-water-mark", str(partition))
    mark: int = shown["high_water_mark"]
    return mark


def test_appended_transactions_are_read_back(cluster: LocalCluster) -> None:
    before = mark_of(cluster, 1)
    (appended,) = lines(cluster, "log", "append", "1", "schön", "--header", "9")
    assert appended == {"partition": 1, "id": before + 1}
    text = b"one\n\nthree"
    more = lines(cluster, "log", "append", "1", "--in-flight", "1", stdin=text)
    assert [each["id"] for each in more] == [before + 2, before + 3, before + 4]
    read = lines(cluster, "log", "read", "1", f"{before + 1}-{before + 4}")
    assert [each["data"] for each in read] == ["schön", "one", "", "three"]
    assert [each["header"] for each in read] == [9, 0, 0, 0]
    assert read[1]["data_base64"] == "b25l"
    assert lines(cluster, "log", "read", "1", f"{before + 2}-") == read[1:]
    assert lines(cluster, "log", "read", "1", f"{before + 5}-") == []
    raw = invoke(cluster, "log", "read", "1", str(before + 1), "--raw")
    assert raw.stdout_bytes == "schön".encode()
    tail = lines(cluster, "log", "tail", "1", "-n", "2")
    assert tail == read[-2:]
    shown = invoke(cluster, "log", "tail", "1", "-n", "1")
    assert shown.stdout.startswith(f"1/{before + 4} ")
    assert shown.stdout.endswith("three\n")


def test_refused_lock_fails_append(cluster: LocalCluster) -> None:
    (first,) = lines(cluster, "log", "append", "0", "a", "--lock", "cli:1")
    mark = str(first["id"] - 1)
    late = invoke(cluster, "log", "append", "0", "b", "--lock", "cli:1", "--mark", mark)
    assert late.exit_code == 1
    (line,) = late.stderr.splitlines()
    assert "a lock in partition 0 was taken" in line


def test_cluster_show_and_verify_print_results(cluster: LocalCluster) -> None:
    shown = value(cluster, "cluster", "show")
    assert shown["num_partitions"] == 3
    assert [partition["partition"] for partition in shown["partitions"]] == [0, 1, 2]
    assert all(len(partition["replicas"]) == 3 for partition in shown["partitions"])
    owned = sorted(p for server in shown["servers"] for p in server["partitions"])
    assert owned == [0, 1, 2]
    verified = value(cluster, "cluster", "verify")
    assert verified["passed"]
    assert len(verified["findings"]) == 7 * 3
    table = invoke(cluster, "cluster", "verify", "--partition", "1")
    assert table.exit_code == 0
    assert "FAILED" not in table.stdout
    assert invoke(cluster, "cluster", "verify", "--partition", "7").exit_code == 1


def test_storage_list_and_validate_print_results(cluster: LocalCluster) -> None:
    listed = value(cluster, "storage", "list")
    assert [each["problem"] for each in listed] == [None] * 3
    assert all([p["partition"] for p in each["partitions"]] == [0, 1, 2] for each in listed)
    synced = value(cluster, "storage", "sync", listed[0]["storage"])
    assert synced == [{"storage": listed[0]["storage"], "assigned": [], "unassigned": []}]
    again = invoke(cluster, "storage", "assign", listed[0]["storage"], "0-1")
    assert again.exit_code == 1
    assert "already has partitions 0, 1" in again.stderr
    unknown = invoke(cluster, "storage", "assign", "127.0.0.1:1", "0")
    assert unknown.exit_code == 1
    assert "not in the cluster" in unknown.stderr


def test_cluster_is_created_from_nothing(zookeeper: str, zk_root: str) -> None:
    where = ["-z", zookeeper, "-r", zk_root]
    made = invoke(None, "cluster", "create", "new", "--partitions", "5", *where, "-o", "json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["num_partitions"] == 5
    assert invoke(None, "cluster", "create", "new", "-p", "5", *where).exit_code == 1
    added = invoke(None, "storage", "add", "s:1", "-a", "2", "-g", "0", *where)
    assert added.exit_code == 0, added.output
    listed = json.loads(invoke(None, "storage", "list", *where, "-o", "json").stdout)
    assert [(each["storage"], each["group"]) for each in listed] == [("s:1", 0)]
    assert listed[0]["problem"] is not None
    refused = invoke(None, "storage", "auto-assign", "0", *where)
    assert refused.exit_code == 1
    failed = invoke(None, "cluster", "verify", *where)
    assert failed.exit_code == 1
    assert "it is assigned to no server" in failed.stdout


def waltz(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sysconfig.get_path("scripts")) / "waltz"), *arguments]
    return subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.slow
def test_local_cluster_runs_in_background(tmp_path: Path) -> None:
    def done(*arguments: str) -> str:
        result = waltz(tmp_path, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    shape = ["--partitions", "2", "--storages", "3", "--servers", "1"]
    done("local", "up", "--detach", *shape, "--session-timeout", "2000")
    try:
        # It is found without being named, because it is in the usual place.
        assert done("log", "append", "0", "hello").strip() == "0"
        done("local", "kill", "storage/1")
        status = json.loads(done("local", "status", "-o", "json"))
        assert status["processes"]["storage/1"]["pid"] is None
        assert done("log", "append", "0", "still here").strip() == "1"
        done("local", "start", "storage/1")
        status = json.loads(done("local", "status", "-o", "json"))
        pids = [each["pid"] for each in status["processes"].values()]
        assert all(pids)
        twice = waltz(tmp_path, "local", "up")
        assert (twice.returncode, twice.stderr.count("\n")) == (1, 1)
        assert "running already" in twice.stderr
        assert waltz(tmp_path, "local", "kill", "storage/9").returncode == 1
    finally:
        down = waltz(tmp_path, "local", "down")
    assert down.returncode == 0, down.stderr
    assert not any(is_running(pid) for pid in pids)
    assert waltz(tmp_path, "local", "status").returncode == 1
    assert waltz(tmp_path, "cluster", "show").returncode == 2


@pytest.mark.slow
def test_processes_of_killed_supervisor_are_ended(tmp_path: Path) -> None:
    shape = ["--partitions", "1", "--storages", "1", "--servers", "1"]
    up = waltz(tmp_path, "local", "up", "--detach", *shape)
    assert up.returncode == 0, up.stderr
    status = json.loads(waltz(tmp_path, "local", "status", "-o", "json").stdout)
    pids = {name: each["pid"] for name, each in status["processes"].items()}
    os.kill(status["supervisor"], signal.SIGKILL)
    orders = waltz(tmp_path, "local", "kill", "storage/0")
    assert orders.returncode == 1
    assert "does not answer" in orders.stderr
    dead = waltz(tmp_path, "local", "status")
    assert dead.returncode == 1
    assert "has ended" in dead.stderr
    again = waltz(tmp_path, "local", "up")
    assert again.returncode == 1
    assert f"still run: {', '.join(pids)}; end them with: waltz local down\n" in again.stderr
    down = waltz(tmp_path, "local", "down")
    assert down.returncode == 0, down.stderr
    assert all(name in down.stderr for name in pids)
    assert not any(is_running(pid) for pid in pids.values())


def is_running(pid: int) -> bool:
    """Return whether a process runs; a process that has ended may still be a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False


def test_cluster_that_only_zookeeper_names_is_used_without_tls_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The servers use plaintext, and have declared it in ZooKeeper."""
    monkeypatch.chdir(tmp_path)
    # Its own cluster: a server with TLS that another test starts would change the declaration.
    running = LocalCluster(tmp_path / "own", Shape(partitions=3, storages=3, servers=1))
    asyncio.run(running.start())
    try:
        check_use_without_tls_settings(running)
    finally:
        asyncio.run(running.stop())


def check_use_without_tls_settings(cluster: LocalCluster) -> None:
    zookeeper, root = cluster.zookeeper, cluster.root
    with connect(zookeeper, root=root) as client:
        last = client.append(1, b"without TLS settings")
    where = ["--zookeeper", zookeeper, "--root", root]
    for verb in (
        ["log", "tail", "1", "-n", "1"],
        ["server", "list"],
        ["storage", "validate"],
        ["cluster", "verify"],
        ["doctor", "--min-disk-free", "0"],
    ):
        shown = CliRunner().invoke(app, [*verb, *where])
        assert shown.exit_code == 0, (verb, shown.output)
    full = CliRunner().invoke(app, ["doctor", "--min-disk-free", "100", *where])
    assert full.exit_code == 1, full.output
    assert full.output.count("WARNING  The disk of storage") == 3
    assert last >= 0
    refused = CliRunner().invoke(app, ["log", "tail", "1", *where, "--tls", "on"])
    assert refused.exit_code == 1
    assert "does not use TLS, and this client does" in refused.output
