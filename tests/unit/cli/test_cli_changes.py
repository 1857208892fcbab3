"""Verbs that change something: what they did as JSON, and as a sentence for people."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.replica_model import Model
from waltz.admin import ObservationScope, OrderExecutor, ReplicaObservation
from waltz.admin.core.steps import Step
from waltz.admin.offline_copy import MayContinue
from waltz.admin.order_progress import ReplicaRefused
from waltz.cli.access import commands as access
from waltz.cli.app import app
from waltz.cli.cluster import commands as cluster_commands
from waltz.cli.cluster import metadata as cluster_metadata
from waltz.cli.cluster_options import Target
from waltz.cli.local import commands as local
from waltz.cli.server import commands as server
from waltz.cli.storage import commands as storage
from waltz.cli.storage import orders, partitions, replicas, single_replica, unassign
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import ConnectionMetadata
from waltz.metadata.core.storage_maps import StorageMaps, add_storage_node
from waltz.metadata.lifecycle import create_cluster
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT, KEY, PARTITIONS = "/waltz/orders", uuid.UUID(int=7), 2
A, B, C, D = "a:1", "b:1", "c:1", "d:1"
MAPS = add_storage_node(StorageMaps.empty(), A, 0, 2)
MODULES = (
    access,
    cluster_commands,
    cluster_metadata,
    server,
    storage,
    orders,
    partitions,
    replicas,
    single_replica,
    unassign,
)


@pytest.fixture
def zookeeper(monkeypatch: pytest.MonkeyPatch) -> MemoryZooKeeper:
    """A ZooKeeper in memory that has a cluster with one storage; every verb finds it."""
    memory = MemoryZooKeeper()

    @asynccontextmanager
    async def open_cluster(where: Target) -> AsyncIterator[Cluster]:
        yield Cluster(memory.connect(), where.root)

    for module in MODULES:
        monkeypatch.setattr(module, "open_cluster", open_cluster)
    created = create_cluster(memory.connect(), ROOT, "orders", PARTITIONS, key=KEY, storages=MAPS)
    asyncio.run(created)
    return memory


class ModelExecutor(OrderExecutor):
    """Observes and changes a model of a cluster."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        return self.model.observed()

    async def perform(self, step: Step, may_continue: MayContinue = lambda: True) -> None:
        self.model.perform(step)
        self.model.append(1)


class ModelWithPorts(Model):
    """A model whose storages have admin ports in ZooKeeper."""

    def _maps(self) -> StorageMaps:
        return replace(
            super()._maps(), connections=ConnectionMetadata(dict.fromkeys(self.groups, 2))
        )


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, zookeeper: MemoryZooKeeper) -> Model:
    """Two partitions on the storages a, b and c; d is in the group of c, and empty."""
    everywhere = frozenset({A, B, C})
    made = ModelWithPorts({A: 0, B: 1, C: 2, D: 2}, {0: everywhere, 1: everywhere})
    made.append(100)
    for module in (orders, unassign, single_replica):
        monkeypatch.setattr(module, "OrderExecutor", lambda *_, **__: ModelExecutor(made))
    return made


def waltz(*command: str) -> Result:
    return CliRunner().invoke(app, [*command, "-z", "127.0.0.1:1", "-r", ROOT])


def value(*command: str, status: int = 0) -> Any:
    """Return the JSON that a verb prints; standard output has nothing else."""
    result = waltz(*command, "-o", "json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def test_added_storage_is_a_change_with_its_step(zookeeper: MemoryZooKeeper) -> None:
    add = ("storage", "add", B, "--admin-port", "3", "--group", "1")
    planned = value(*add, "--dry-run")
    assert (planned["outcome"], len(planned["steps"])) == ("planned", 1)
    assert value(*add) == {
        "action": "storage add",
        "object": B,
        "partitions": [],
        "outcome": "changed",
        "steps": planned["steps"],
    }
    removed = value("storage", "remove", B)
    assert (removed["action"], removed["object"]) == ("storage remove", B)
    assert (removed["outcome"], len(removed["steps"])) == ("changed", 1)


def test_change_without_output_option_prints_only_a_sentence_to_standard_error(
    zookeeper: MemoryZooKeeper,
) -> None:
    shown = waltz("storage", "add", B, "--admin-port", "3", "--group", "1")
    assert shown.stdout == ""
    assert shown.stderr.startswith(f"storage {B} is in group 1; assign partitions with: ")
    json_too = waltz("storage", "remove", B, "-o", "json")
    assert json_too.stderr == ""


def test_template_takes_the_fields_of_a_change(zookeeper: MemoryZooKeeper) -> None:
    shown = waltz("storage", "remove", A, "-o", "template={action}: {object} {outcome}")
    assert shown.stdout == f"storage remove: {A} changed\n"


@pytest.mark.parametrize(
    ("command", "changed_object", "wanted"),
    [
        (("storage", "assign", D, "0-1"), D, [0, 1]),
        (("storage", "availability", A, "1", "off"), A, [1]),
        (("storage", "move", C, D, "1"), "partition 1", [1]),
        (("storage", "retire-group", "2", "--yes"), "group 2", []),
    ],
    ids=lambda each: each[1] if isinstance(each, tuple) else "",
)
def test_order_names_its_object_its_partitions_and_its_steps(
    model: Model, command: tuple[str, ...], changed_object: str, wanted: list[int]
) -> None:
    found = value(*command)
    assert found["action"] == " ".join(command[:2])
    assert (found["object"], found["partitions"]) == (changed_object, wanted)
    assert found["outcome"] == "changed"
    assert found["steps"]
    assert all(isinstance(step, str) for step in found["steps"])


def test_removed_replica_names_its_storage_and_its_partition(model: Model) -> None:
    assert value("storage", "assign", D, "0")["outcome"] == "changed"
    planned = value("storage", "unassign", C, "0", "--force", "--dry-run")
    assert (planned["object"], planned["partitions"]) == (C, [0])
    assert (planned["outcome"], len(planned["steps"]) > 0) == ("planned", True)
    model.serve()
    found = value("storage", "unassign", C, "0", "--force", "--only", "zookeeper")
    assert (found["action"], found["outcome"]) == ("storage unassign", "changed")


def test_steps_of_an_order_are_progress_on_standard_error(model: Model) -> None:
    result = waltz("storage", "move", C, D, "1", "-o", "json")
    assert result.stderr.splitlines() == json.loads(result.stdout)["steps"]


def test_order_that_has_nothing_to_do_is_unchanged(model: Model) -> None:
    found = value("storage", "switch", A, "0", "--read", "on", "--write", "on")
    assert (found["outcome"], found["steps"]) == ("unchanged", [])


def test_recovery_names_the_partitions_that_failed(model: Model) -> None:
    model.update(A, 0, readable=False, writable=False)
    failed = value("storage", "recover", A, "0,7", status=1)
    assert (failed["outcome"], failed["partitions"]) == ("failed", [0, 7])
    assert [each["partition"] for each in failed["failures"]] == [7]
    assert all(each["reason"] for each in failed["failures"])
    assert len(failed["steps"]) == 1


def test_recovery_without_failures_has_its_steps(model: Model) -> None:
    model.update(A, 0, readable=False, writable=False)
    found = value("storage", "recover", A, "0")
    assert (found["outcome"], found["partitions"], found["failures"]) == ("changed", [0], [])
    assert found["steps"]


@pytest.mark.parametrize(
    "problem",
    [
        ReplicaRefused("storage refuses partition 0"),
        MalformedMetadata("partition metadata", "no data"),
    ],
)
def test_failed_recovery_has_the_steps_that_were_begun(
    model: Model, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    model.update(A, 0, readable=False, writable=False)
    planned = value("storage", "recover", A, "0", "--dry-run")["steps"]

    async def refuse(*_: object) -> None:
        raise problem

    monkeypatch.setattr(ModelExecutor, "perform", refuse)
    found = value("storage", "recover", A, "0", status=1)
    assert (found["outcome"], found["steps"]) == ("failed", planned[:1])


def test_copy_into_a_switched_off_replica_names_its_destination(model: Model) -> None:
    model.update(A, 0, readable=False, writable=False)
    model.update(A, 0, max_transaction_id=-1, low_water_mark=-1, local_low_water_mark=-1)
    model.update(B, 0, low_water_mark=99, local_low_water_mark=99)
    found = value("storage", "recover-partition", B, A, "0")
    assert (found["object"], found["partitions"], found["outcome"]) == (A, [0], "changed")


def test_cluster_delete_reports_a_change_of_the_root(zookeeper: MemoryZooKeeper) -> None:
    planned = value("cluster", "delete", "orders", "--dry-run")
    assert planned["outcome"] == "planned"
    deleted = value("cluster", "delete", "orders", "--yes")
    assert (deleted["action"], deleted["object"]) == ("cluster delete", ROOT)
    assert (deleted["outcome"], len(deleted["steps"])) == ("changed", 1)
    assert ROOT not in zookeeper.dump()


def test_question_of_a_deletion_is_on_standard_error(zookeeper: MemoryZooKeeper) -> None:
    command = ["cluster", "delete", "orders", "-z", "127.0.0.1:1", "-r", ROOT, "-o", "json"]
    result = CliRunner().invoke(app, command, input="y\n")
    assert "Continue?" in result.stderr
    assert json.loads(result.stdout)["outcome"] == "changed"


@pytest.mark.parametrize("verb", ["prefer", "unprefer"])
def test_preference_of_a_server_is_a_change_of_the_server(
    monkeypatch: pytest.MonkeyPatch, zookeeper: MemoryZooKeeper, verb: str
) -> None:
    asked: list[bool] = []

    class Query:
        @classmethod
        async def open(cls, *_: object, **__: object) -> Query:
            return cls()

        async def __aenter__(self) -> Query:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def prefer(self, ids: tuple[int, ...], *, wanted: bool) -> bool:
            assert ids == (0, 1)
            asked.append(wanted)
            return True

    monkeypatch.setattr(server, "ServerQuery", Query)
    monkeypatch.setattr(server, "_check_member", lambda *_: None)
    found = value("server", verb, "host:99", "0-1")
    assert (found["action"], found["object"]) == (f"server {verb}", "host:99")
    assert (found["partitions"], found["outcome"]) == ([0, 1], "changed")
    assert asked == [verb == "prefer"]


def test_switched_off_access_rules_are_a_change(zookeeper: MemoryZooKeeper) -> None:
    assert waltz("access", "grant", "app", "read").exit_code == 0
    found = value("access", "disable", "--yes")
    assert (found["action"], found["outcome"]) == ("access disable", "changed")


def test_backup_names_its_file_and_its_partitions(
    zookeeper: MemoryZooKeeper, tmp_path: Path
) -> None:
    file = tmp_path / "backup.json"
    found = value("cluster", "metadata", "backup", str(file))
    assert found == {"file": str(file), "name": "orders", "num_partitions": PARTITIONS}
    assert json.loads(file.read_text())["name"] == "orders"
    refused = waltz("cluster", "metadata", "backup", str(tmp_path / "missing" / "b.json"))
    assert refused.exit_code == 1
    assert "cannot be written" in refused.stderr


def local_value(*command: str) -> Any:
    result = CliRunner().invoke(app, ["local", *command, "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("verb", ["kill", "start"])
def test_killed_or_started_process_is_a_change_of_the_process(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    async def send_control(*_: object) -> None:
        pass

    monkeypatch.setattr(local, "send_control", send_control)
    found = local_value(verb, "storage/1")
    assert (found["action"], found["object"]) == (f"local {verb}", "storage/1")
    assert (found["outcome"], found["steps"]) == ("changed", [f"{verb} storage/1"])


def test_started_local_cluster_names_its_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(local, "_up_in_background", lambda *_: None)
    processes = {"storage/0": {"pid": 11}, "server/0": {"pid": 12}}
    monkeypatch.setattr(local, "read_description", lambda _: {"processes": processes})
    found = local_value("up", "--detach", "--dir", str(tmp_path))
    assert (found["action"], found["object"]) == ("local up", str(tmp_path))
    assert found["steps"] == ["start storage/0 as process 11", "start server/0 as process 12"]


def test_start_of_a_local_cluster_refuses_a_wrong_template_before_it_begins(tmp_path: Path) -> None:
    command = ["local", "up", "--dir", str(tmp_path / "w"), "-o", "template={nothing}"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("ended", [[], ["server/0"]])
def test_stop_without_a_supervisor_names_the_processes_that_it_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ended: list[str]
) -> None:
    monkeypatch.setattr(local, "request_stop", lambda _: False)
    monkeypatch.setattr(local, "end_left_over", lambda _: ended)
    found = local_value("down", "--dir", str(tmp_path))
    assert found["outcome"] == ("changed" if ended else "unchanged")
    assert [name in step for name, step in zip(ended, found["steps"], strict=True)] == [
        True for _ in ended
    ]


def test_lines_of_logs_are_objects_with_their_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("one\ntwo\n")
    monkeypatch.setattr(local, "local_logs", lambda *_: {"server/0": tmp_path / "log"})
    result = CliRunner().invoke(app, ["local", "logs", "-o", "json"])
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"process": "server/0", "line": "one"},
        {"process": "server/0", "line": "two"},
    ]
