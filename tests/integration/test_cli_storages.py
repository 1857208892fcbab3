"""Test the verbs that change which storage holds which replica, on a separate cluster."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.replicas import replicas_agree
from waltz.cli.app import app
from waltz.local import LocalCluster, Shape
from waltz.metadata.core.formats import GroupDescriptor

MANY = 40


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster that these tests change, and leave healthy."""
    shape = Shape(partitions=2, storages=3, servers=1)
    running = LocalCluster(tmp_path_factory.mktemp("changed"), shape, session_timeout_ms=3000)
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


def invoke(cluster: LocalCluster, *arguments: str, stdin: str | None = None) -> Result:
    where = ["--cluster", str(cluster.layout.description)]
    return CliRunner().invoke(app, [*arguments, *where], input=stdin)


def done(cluster: LocalCluster, *arguments: str) -> Result:
    result = invoke(cluster, *arguments)
    assert result.exit_code == 0, result.output
    return result


def value(cluster: LocalCluster, *arguments: str) -> Any:
    return json.loads(done(cluster, *arguments, "--output", "json").stdout)


def refused(cluster: LocalCluster, *arguments: str) -> str:
    result = invoke(cluster, *arguments)
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def wait_until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds:g} s"
        time.sleep(0.05)


def healthy(cluster: LocalCluster) -> bool:
    return invoke(cluster, "cluster", "verify").exit_code == 0


def append(cluster: LocalCluster, partition: int) -> None:
    load = ["-n", str(MANY), "--in-flight", "10", "--size", "20", "-p", str(partition)]
    done(cluster, "bench", "producers", "--yes", *load)


def storages(cluster: LocalCluster) -> list[str]:
    return [ports.address for ports in cluster.plan.storages]


def held(cluster: LocalCluster, storage: str, partition: int) -> dict[str, Any]:
    (entry,) = value(cluster, "storage", "list", storage)
    found: dict[str, Any] = next(p for p in entry["partitions"] if p["partition"] == partition)
    return found


@pytest.mark.slow
def test_replica_is_switched_off_filled_and_switched_on(changed: LocalCluster) -> None:
    source, destination, _ = storages(changed)
    append(changed, 0)
    assert "switched on at the destination" in refused(
        changed, "storage", "recover-partition", source, destination, "0"
    )
    done(changed, "storage", "availability", destination, "0", "off")
    assert not held(changed, destination, 0)["available"]
    assert refused(changed, "storage", "max-transaction-id", destination, "0")
    command_line = ["storage", "max-transaction-id", destination, "0", "--offline"]
    assert value(changed, *command_line)["max_transaction_id"] >= MANY - 1
    done(changed, "storage", "recover-partition", source, destination, "0", "--dry-run")
    same = done(changed, "storage", "recover-partition", source, destination, "0")
    assert "0 transactions copied" in same.stderr
    done(changed, "storage", "availability", destination, "0", "on")
    append(changed, 0)
    wait_until(lambda: healthy(changed))
    asyncio.run(replicas_agree(changed, 20))


def test_reading_and_writing_are_switched_separately(changed: LocalCluster) -> None:
    storage = storages(changed)[1]
    switch = ["storage", "switch", storage, "1"]
    done(changed, *switch, "--write", "off", "--dry-run")
    assert held(changed, storage, 1)["writable"]
    done(changed, *switch, "--write", "off")
    half = held(changed, storage, 1)
    assert (half["readable"], half["writable"], half["available"]) == (True, False, False)
    assert half["size_bytes"] > 0
    done(changed, *switch, "--write", "on", "--read", "on")
    assert held(changed, storage, 1)["available"]
    assert "does not hold partition 5" in refused(changed, *switch[:3], "5", "--read", "on")
    command_line = ["storage", "max-transaction-id", storage, "5"]
    assert "does not hold partition 5; it holds partitions 0-1" in refused(changed, *command_line)
    append(changed, 1)
    wait_until(lambda: healthy(changed))


@pytest.mark.slow
def test_replica_without_files_is_filled_offline(changed: LocalCluster) -> None:
    source, _, destination = storages(changed)
    append(changed, 1)
    # After the next session has begun, a copy may take these transactions.
    changed.kill("server/0")
    asyncio.run(changed.start_one("server/0"))
    wait_until(lambda: healthy(changed))
    mark = value(changed, "log", "high-water-mark", "1")[0]["high_water_mark"]
    drop = ["storage", "unassign", destination, "1", "--only", "storage", "--delete-files"]
    assert invoke(changed, *drop, stdin="n\n").exit_code == 1
    assert held(changed, destination, 1)
    done(changed, *drop, "--yes")
    assert "--force sends the request nevertheless" in refused(changed, *drop, "--yes")
    # The same at a second storage would remove the quorum.
    second = invoke(changed, "storage", "unassign", source, *drop[3:], "--yes", "-t", "0.1")
    assert second.exit_code == 1
    assert f"storage {destination} does not hold partition 1" in second.stderr
    assert held(changed, source, 1)
    done(changed, "storage", "unassign", source, *drop[3:], "--force", "--dry-run")
    done(changed, "storage", "assign", destination, "1", "--only", "storage")
    # No server has written to it since, so that none detects the loss.
    unaware = invoke(changed, "cluster", "verify", "--partition", "1")
    assert (unaware.exit_code, "reports that it is in no session" in unaware.stdout) == (1, True)
    done(changed, "storage", "availability", destination, "1", "off")
    copied = done(changed, "storage", "recover-partition", source, destination, "1", "-b", "7")
    assert f"{mark + 1} transactions copied" in copied.stderr
    command_line = ["storage", "max-transaction-id", destination, "1", "--offline"]
    assert value(changed, *command_line)["max_transaction_id"] == mark
    done(changed, "storage", "availability", destination, "1", "on")
    append(changed, 1)
    # The append follows the copied records: the storage accepts it, but is in no session yet.
    changed.kill("server/0")
    asyncio.run(changed.start_one("server/0"))
    wait_until(lambda: healthy(changed))
    asyncio.run(replicas_agree(changed, 20))


@pytest.mark.slow
def test_replica_is_unassigned_and_assigned_again(changed: LocalCluster) -> None:
    first, second, third = storages(changed)
    assert "the only replica of partition 0" in refused(changed, "storage", "unassign", third, "0")

    async def regroup(group: int) -> None:
        async with changed.metadata() as metadata:
            groups = await metadata.groups()
            new = GroupDescriptor({**groups.value.groups, third: group})
            await metadata.store.set(metadata.paths.group, new.encode(), groups.version)

    asyncio.run(regroup(1))
    done(changed, "storage", "unassign", third, "0", "--dry-run")
    assert [p["partition"] for p in value(changed, "storage", "list", third)[0]["partitions"]] == [
        0,
        1,
    ]
    done(changed, "storage", "unassign", third, "0", "--delete-files", "--yes")
    (left,) = value(changed, "storage", "list", third)
    assert ([p["partition"] for p in left["partitions"]], left["assigned"]) == ([1], [1])
    wait_until(lambda: healthy(changed))
    append(changed, 0)
    done(changed, "storage", "assign", third, "0")
    asyncio.run(regroup(2))
    wait_until(lambda: healthy(changed))
    asyncio.run(replicas_agree(changed, 20))
    assert {first, second, third} == {s["storage"] for s in value(changed, "storage", "list")}


def test_storage_is_added_and_removed(changed: LocalCluster) -> None:
    new = "127.0.0.1:9"
    done(changed, "storage", "add", new, "-a", "8", "-g", "7")
    failing = invoke(changed, "storage", "validate", "-o", "json")
    assert failing.exit_code == 1
    problems = {each["storage"]: each["admin_problem"] for each in json.loads(failing.stdout)}
    assert "cannot reach 127.0.0.1:8" in problems[new]
    assert "still has partitions 0, 1" in refused(
        changed, "storage", "remove", storages(changed)[0]
    )
    done(changed, "storage", "remove", new, "--dry-run")
    done(changed, "storage", "remove", new)
    assert "not in the cluster" in refused(changed, "storage", "remove", new)
    assert healthy(changed)


def test_server_prefers_partitions(changed: LocalCluster) -> None:
    server = value(changed, "server", "list")[0]["endpoint"]
    done(changed, "server", "prefer", server, "0-1")
    wait_until(lambda: value(changed, "server", "list")[0]["preferred"] == [0, 1])
    done(changed, "server", "unprefer", server, "1")
    wait_until(lambda: value(changed, "server", "list")[0]["preferred"] == [0])
    assert "there is no partition 5" in refused(changed, "server", "prefer", server, "5")


def test_stopped_storage_is_verified(changed: LocalCluster, tmp_path: Path) -> None:
    append(changed, 0)
    directory = changed.layout.data("storage/0")
    running = CliRunner().invoke(app, ["disk", "verify", str(directory)])
    assert "a storage is running" in running.stderr
    changed.kill("storage/0")
    copy = shutil.copytree(directory, tmp_path / "copy")
    for path in (directory, copy):
        result = CliRunner().invoke(app, ["disk", "verify", str(path), "-o", "json"])
        assert result.exit_code == 0, result.output
        assert [start["refused"] for start in json.loads(result.stdout)["start"]] == [None, None]
    asyncio.run(changed.start_one("storage/0"))
    append(changed, 0)
    wait_until(lambda: healthy(changed))


def test_log_commands_time_out_without_servers(changed: LocalCluster) -> None:
    changed.kill("server/0")
    for verb in (["tail", "0"], ["read", "0", "0-"]):
        assert "no server reported the high-water marks" in refused(
            changed, "log", *verb, "--timeout", "0.5"
        )
    late = refused(changed, "log", "append", "0", "x", "--timeout", "0.5")
    assert "within 0.5 s" in late
    asyncio.run(changed.start_one("server/0"))
    wait_until(lambda: healthy(changed))


def test_cluster_is_deleted_only_by_its_name(zookeeper: str, zk_root: str) -> None:
    where = ["-z", zookeeper, "-r", zk_root]

    def run(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, ["cluster", *arguments, *where], input=stdin)

    assert run("create", "new", "-p", "2", "--dry-run").exit_code == 0
    assert run("key").exit_code == 1
    assert run("create", "new", "-p", "2").exit_code == 0
    assert run("create", "new", "-p", "2", "--dry-run").exit_code == 1
    assert run("delete", "new", stdin="n\n").exit_code == 1
    for option in ("--yes", "--dry-run", "--ignore-servers"):
        other = run("delete", "other", option, stdin="y\n")
        assert other.exit_code == 1
        assert "is called 'new', not 'other'" in other.stderr
    assert run("key").exit_code == 0
    assert run("delete", "new", "--dry-run").exit_code == 0
    assert run("delete", "new", "--yes", "--ignore-servers").exit_code == 0
    for option in ("--yes", "--dry-run"):
        gone = run("delete", "new", option)
        assert gone.exit_code == 1
        assert "There is no cluster" in gone.stderr
