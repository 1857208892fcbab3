"""Lose the metadata in ZooKeeper of a running cluster, and rebuild them from the storages."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.local import LocalCluster, Shape

pytestmark = pytest.mark.slow

PARTITIONS = 2
RECORDS = 40
SERVERS = ("server/0", "server/1")
CLOSED_WITHIN_S = 60


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    shape = Shape(partitions=PARTITIONS, storages=3, servers=2)
    cluster = LocalCluster(tmp_path_factory.mktemp("rescue"), shape, session_timeout_ms=3000)
    asyncio.run(cluster.start())
    for partition in range(PARTITIONS):
        text = "\n".join(f"{partition}/{number}" for number in range(RECORDS))
        assert _invoke(cluster, "log", "append", str(partition), stdin=text).exit_code == 0
    yield cluster
    asyncio.run(cluster.stop())


def _invoke(cluster: LocalCluster, *arguments: str, stdin: str | None = None) -> Result:
    where = ["--cluster", str(cluster.layout.description)]
    return CliRunner().invoke(app, [*arguments, *where], input=stdin)


async def _restart_servers(cluster: LocalCluster) -> None:
    for server in SERVERS:
        await cluster.stop_one(server)
    for server in SERVERS:
        await cluster.start_one(server)


async def _delete_partitions(cluster: LocalCluster) -> None:
    async with cluster.metadata() as metadata:
        for partition in range(PARTITIONS):
            await metadata.store.delete(metadata.paths.partition(partition))


def _health(cluster: LocalCluster) -> dict[str, str]:
    """Return why partitions wait, from the health reports of all servers."""
    waiting: dict[str, str] = {}
    for server in cluster.plan.servers:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{server.http}/health", timeout=5)
        except HTTPError as unhealthy:
            report = json.load(unhealthy)["server-health-check"]
            waiting |= report.get("waiting", {})
    return waiting


async def _closed(cluster: LocalCluster) -> dict[str, str]:
    """Wait until every partition is reported as closed; return the reasons."""
    for _ in range(CLOSED_WITHIN_S * 5):
        waiting = await asyncio.to_thread(_health, cluster)
        if len(waiting) == PARTITIONS:
            return waiting
        await asyncio.sleep(0.2)
    raise AssertionError(f"only partitions {sorted(waiting)} report that they wait")


def _ends(cluster: LocalCluster) -> list[int]:
    """Return the last transaction of each replica of each storage."""
    listed = _invoke(cluster, "storage", "list", "-o", "json")
    assert listed.exit_code == 0, listed.output
    replicas = (r for storage in json.loads(listed.stdout) for r in storage["partitions"])
    return [replica["max_transaction_id"] for replica in replicas]


def _data(cluster: LocalCluster, partition: int) -> list[Any]:
    read = _invoke(cluster, "log", "read", str(partition), "0-", "-o", "json")
    assert read.exit_code == 0, read.output
    return [json.loads(line)["data"] for line in read.stdout.splitlines()]


def _opens_with_all_transactions(cluster: LocalCluster, more: str) -> None:
    asyncio.run(cluster.wait_until_healthy())
    for partition in range(PARTITIONS):
        before = _data(cluster, partition)
        assert before[:RECORDS] == [f"{partition}/{number}" for number in range(RECORDS)]
        assert _invoke(cluster, "log", "append", str(partition), more).exit_code == 0
        assert _data(cluster, partition) == [*before, more]


def test_lost_partition_metadata_are_rebuilt(running: LocalCluster) -> None:
    asyncio.run(_delete_partitions(running))
    for _ in range(3):
        asyncio.run(_restart_servers(running))
        waiting = asyncio.run(_closed(running))
        assert all("waltz cluster rescue" in why for why in waiting.values()), waiting
    assert _ends(running) == [RECORDS - 1] * (3 * PARTITIONS), "no replica was cut"
    foreseen = _invoke(running, "cluster", "rescue", "--dry-run")
    assert foreseen.exit_code == 0, foreseen.output
    assert "would be written" in foreseen.output
    asyncio.run(_closed(running))
    rescued = _invoke(running, "cluster", "rescue", "--yes", "-o", "json")
    assert rescued.exit_code == 0, rescued.output
    _opens_with_all_transactions(running, "after the rescue")
    again = _invoke(running, "cluster", "rescue", "--yes")
    assert again.exit_code == 0, again.output
    assert "no partition needs other metadata" in again.output


def test_lost_cluster_is_created_from_its_backup(running: LocalCluster, tmp_path: Path) -> None:
    backup = tmp_path / "orders.json"
    assert _invoke(running, "cluster", "metadata", "backup", str(backup)).exit_code == 0
    saved = json.loads(backup.read_text())
    for server in SERVERS:
        asyncio.run(running.stop_one(server))
    deleted = _invoke(running, "cluster", "delete", saved["name"], "--yes")
    assert deleted.exit_code == 0, deleted.output
    without = _invoke(running, "cluster", "rescue", "--yes")
    assert without.exit_code == 1
    assert "waltz cluster metadata restore FILE" in without.output
    rescued = _invoke(running, "cluster", "metadata", "restore", str(backup), "--yes")
    assert rescued.exit_code == 0, rescued.output
    assert f"{PARTITIONS} partitions are written" in rescued.output
    for server in SERVERS:
        asyncio.run(running.start_one(server))
    _opens_with_all_transactions(running, "after the backup")


def test_cluster_created_again_with_its_key_is_rescued(running: LocalCluster) -> None:
    key = json.loads(_invoke(running, "cluster", "key", "-o", "json").stdout)["key"]
    for server in SERVERS:
        asyncio.run(running.stop_one(server))
    name = json.loads(_invoke(running, "cluster", "show", "-o", "json").stdout)["name"]
    assert _invoke(running, "cluster", "delete", name, "--yes").exit_code == 0
    made = _invoke(running, "cluster", "create", name, "-p", str(PARTITIONS), "--key", key)
    assert made.exit_code == 0, made.output
    for group, storage in enumerate(running.plan.storages):
        added = _invoke(
            running,
            *("storage", "add", storage.address),
            *("--admin-port", str(storage.admin), "--group", str(group)),
        )
        assert added.exit_code == 0, added.output
    rescued = _invoke(running, "cluster", "rescue", "--yes")
    assert rescued.exit_code == 0, rescued.output
    for server in SERVERS:
        asyncio.run(running.start_one(server))
    _opens_with_all_transactions(running, "after the new cluster")
