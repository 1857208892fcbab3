"""Verbs about the whole cluster: a verification with dead storages, names of local processes."""

from __future__ import annotations

import asyncio
import fcntl
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from waltz.admin import ServerReport
from waltz.admin.core.verification import Check, Finding
from waltz.cli import local_names as names_module
from waltz.cli.app import app
from waltz.cli.cluster import commands as cluster_commands
from waltz.cli.cluster.rows import render_checks
from waltz.cli.cluster_options import named_cluster
from waltz.cli.local_names import LocalNames, local_names
from waltz.cli.server.rows import render_servers
from waltz.local import ClusterLayout, Shape
from waltz.local.core.plan import LocalClusterPlan, cluster_description
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import ReplicaAssignments, ServerDescriptor
from waltz.metadata.store import StoreError
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT

NAMES = LocalNames(Path("/w"), {"h:1": "server/0", "h:11": "server/1", "h:2": "storage/0"})
MEMBERS = {1: ServerDescriptor(1, "h", 1), 11: ServerDescriptor(11, "h", 11)}


@asynccontextmanager
async def verb_in_process(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Let ``waltz cluster verify`` run on the loop and the network of ``cluster``."""
    loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def open_cluster(*_: object) -> AsyncIterator[Cluster]:
        store = cluster.zookeeper.connect()
        yield Cluster(store, ROOT)
        await store.close()

    def run(work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(seconds)

    network = cluster.network.host("admin")
    monkeypatch.setattr(cluster_commands, "open_cluster", open_cluster)
    monkeypatch.setattr(cluster_commands, "run", run)
    monkeypatch.setattr(cluster_commands, "network_of", lambda *_: network)
    yield


async def test_verify_with_two_dead_storages_names_them_in_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with InProcessCluster(partitions=2) as cluster, verb_in_process(cluster, monkeypatch):
        command = ["cluster", "verify", "-z", "z:1", "--tls", "off", "--timeout", "1", "-o", "json"]
        healthy = await asyncio.to_thread(CliRunner().invoke, app, command)
        dead = [storage.address for storage in cluster.storages[:2]]
        await cluster.kill_storage(0)
        await cluster.kill_storage(1)
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert healthy.exit_code == 0, healthy.output
    assert json.loads(healthy.stdout)["passed"] is True
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert shown["passed"] is False
    failed = {
        (f["partition"], f["check"]): f["problems"] for f in shown["findings"] if f["problems"]
    }
    for partition in (0, 1):
        assert failed[partition, Check.QUORUM.value] == [
            "1 of 3 replicas are available, and 2 are needed"
        ]
        unreached = failed[partition, Check.STORAGES_AGREE.value]
        assert [any(address in text for text in unreached) for address in dead] == [True, True]


def test_tables_of_a_local_cluster_have_names_beside_ids_and_addresses() -> None:
    problem = "server 1 does not reach storage h:2; server 111, h:22 and server 2 are unknown"
    findings = [Finding(0, check, (problem,)) for check in Check]
    shown = NAMES.name_processes(render_checks(findings), MEMBERS)
    assert shown.value["findings"][0]["problem"] == problem
    _, failed = shown.tables
    assert failed.cells[0][-1] == (
        "server 1 (server/0) does not reach storage h:2 (storage/0); server 111, h:22 and "
        "server 2 are unknown"
    )


@pytest.mark.parametrize("is_local", [True, False])
def test_listed_server_has_its_local_name(is_local: bool) -> None:
    reports = dict.fromkeys(MEMBERS, ServerReport())
    names = NAMES if is_local else LocalNames()
    shown = render_servers(MEMBERS, reports, ReplicaAssignments({}), names)
    expected = ["server/0", "server/1"] if is_local else [None, None]
    assert [each["local_name"] for each in shown.value] == expected
    cell = "h:11 (server/1)" if is_local else "h:11"
    assert list(shown.tables[0].cells[1])[:2] == [11, cell]


@pytest.fixture
def layout(tmp_path: Path) -> ClusterLayout:
    """The directory of a running cluster of one storage and two servers, of which one has ended."""
    layout = ClusterLayout(tmp_path)
    plan = LocalClusterPlan.of(Shape(partitions=1, storages=1, servers=2), count(20_000))
    pids = {"zookeeper": 1, "storage/0": 2, "server/0": 3}
    layout.description.write_text(json.dumps(cluster_description(plan, layout, pids, "/s")))
    return layout


def test_local_names_come_from_the_description_file(layout: ClusterLayout) -> None:
    found = local_names(named_cluster(cluster=layout.directory))
    assert sorted(found.names.values()) == ["server/0", "server/1", "storage/0", "zookeeper"]
    assert found.ended == {"server/1": None}


@pytest.mark.parametrize("is_answering", [True, False])
def test_local_status_has_the_ids_of_servers_if_zookeeper_answers(
    layout: ClusterLayout, monkeypatch: pytest.MonkeyPatch, is_answering: bool
) -> None:
    processes = json.loads(layout.description.read_text())["processes"]
    address = processes["server/0"]["address"]

    @asynccontextmanager
    async def open_cluster(*_: object, **__: object) -> AsyncIterator[Any]:
        class Members:
            def servers(self) -> dict[int, ServerDescriptor]:
                host, _, port = address.rpartition(":")
                return {7: ServerDescriptor(7, host, int(port))}

        class Found:
            async def membership(self) -> Members:
                if not is_answering:
                    raise StoreError("no answer")
                return Members()

        yield Found()

    monkeypatch.setattr(names_module, "open_cluster", open_cluster)
    with layout.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["local", "status", "-o", "json", "--dir", str(layout.directory)]
        result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)["processes"]
    expected = 7 if is_answering else None
    assert [shown[name]["server_id"] for name in ("server/0", "server/1")] == [expected, None]
    assert "server_id" not in shown["storage/0"]
