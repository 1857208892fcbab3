"""What a rescue has written to ZooKeeper when it is interrupted, or when its plan changes."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from waltz.admin import FencingFailed, PartitionRescue
from waltz.admin.core.rescue import RebuildDecision, Verdict
from waltz.cli.app import app
from waltz.cli.cluster import rescue
from waltz.cli.cluster.rescue_gaps import missing_transport
from waltz.cli.cluster.rescue_rows import render_rescue
from waltz.cli.cluster_options import Target
from waltz.cli.running import Failed
from waltz.metadata.cluster import Cluster, NoCluster
from waltz.metadata.core.cluster_backup import ClusterBackup, encode_backup
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.core.paths import Paths
from waltz.metadata.core.server_transport import ServerTransport, Transport
from waltz.metadata.core.storage_maps import StorageMaps, add_storage_node
from waltz.metadata.lifecycle import create_cluster
from waltz.metadata.outside import read_outside_addresses
from waltz.metadata.transport import read_transport
from waltz.net import PLAINTEXT, TCP, DialFailed, Network, RpcConnection, TlsConfig
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT, KEY, PARTITIONS = "/waltz/orders", uuid.UUID(int=7), 2
STORAGES = add_storage_node(StorageMaps.empty(), "a:1", 0, 2)
BACKUP = ClusterBackup("orders", ROOT, KEY, PARTITIONS, 0, 0, STORAGES, {}, {})


def use_cluster(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    """Let a rescue open ``cluster``, whatever it is to open."""

    @asynccontextmanager
    async def open_cluster(_: Target) -> AsyncIterator[Cluster]:
        yield cluster

    monkeypatch.setattr(rescue, "open_cluster", open_cluster)


@pytest.mark.parametrize(
    ("create_from", "assignments", "written"),
    [
        (None, {}, "nothing was written to ZooKeeper"),
        (BACKUP, {}, "ZooKeeper now has the cluster of the backup, but not"),
        (None, {"a:1": (0, 1)}, "ZooKeeper now has the assignment of partitions, but not"),
        (BACKUP, {"a:1": (1,)}, "has the cluster of the backup and the assignment of partitions"),
    ],
    ids=["nothing", "cluster", "assignment", "both"],
)
async def test_rescue_whose_storage_does_not_answer_says_what_was_written(
    monkeypatch: pytest.MonkeyPatch,
    create_from: ClusterBackup | None,
    assignments: Mapping[str, tuple[int, ...]],
    written: str,
) -> None:
    store = MemoryZooKeeper().connect()
    if create_from is None:
        await create_cluster(store, ROOT, "orders", PARTITIONS, key=KEY, storages=STORAGES)

    async def fence_replicas(*_: Any, **__: Any) -> None:
        raise FencingFailed("storage a:1: connection refused")

    use_cluster(monkeypatch, Cluster(store, ROOT))
    monkeypatch.setattr(rescue, "fence_replicas", fence_replicas)
    plan = rescue._RescuePlan([], create_from, assignments)
    with pytest.raises(
        Failed, match=f"^storage a:1: connection refused; .*{written}.*type the command again$"
    ):
        await rescue._write(Target("zk:1", ROOT, TlsConfig()), plan, create_from, 1.0)


async def test_rescue_assigns_all_partitions_of_all_storages_by_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Servers follow each write, and a repeated rescue keeps whatever is assigned."""
    storages = StorageMaps.empty()
    for group, storage in enumerate(("a:1", "b:1", "c:1")):
        storages = add_storage_node(storages, storage, group, 2)
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "orders", PARTITIONS, key=KEY, storages=storages)
    version = (await cluster.replica_assignments()).version

    async def write_metadata(*_: Any) -> None:
        pass

    use_cluster(monkeypatch, cluster)
    monkeypatch.setattr(rescue, "_write_metadata", write_metadata)
    held = {"a:1": (0, 1), "b:1": (1,), "c:1": (0,)}
    plan = rescue._RescuePlan([], None, held)
    await rescue._write(Target("zk:1", ROOT, TlsConfig()), plan, None, 1.0)
    written = await cluster.replica_assignments()
    assert (written.value.partitions, written.version) == (held, version + 1)


def rebuilt(session: int) -> PartitionRescue:
    """Return the rescue of partition 0 by the session ``session`` of its replica."""
    replicas = {"a:1": ReplicaState(session, UNRESOLVED)}
    metadata = PartitionMetadata(1, session + 1000, replicas)
    return PartitionRescue(0, (), RebuildDecision(Verdict.REBUILT, metadata, "rebuilt"))


@pytest.mark.parametrize("shown", [7, 8])
async def test_rescue_writes_only_the_decision_that_the_user_has_seen(
    monkeypatch: pytest.MonkeyPatch, shown: int
) -> None:
    """A server with an earlier session may change the replicas until they are fenced."""
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    await create_cluster(cluster.store, ROOT, "orders", PARTITIONS, key=KEY, storages=STORAGES)

    async def fence_replicas(*_: Any, **__: Any) -> None:
        pass

    async def plan_rescue(*_: Any, **__: Any) -> list[PartitionRescue]:
        return [rebuilt(8)]

    monkeypatch.setattr(rescue, "fence_replicas", fence_replicas)
    monkeypatch.setattr(rescue, "plan_rescue", plan_rescue)
    plan = rescue._RescuePlan([rebuilt(shown)], None, {})
    writing = rescue._write_metadata(cluster, Target("zk:1", ROOT, TlsConfig()), plan, None, 1.0)
    if shown == 8:
        await writing
    else:
        with pytest.raises(Failed, match=r"^partitions 0 changed .* no metadata are written;"):
            await writing
    written = (await cluster.partition_metadata(0)).value
    assert (written == rebuilt(8).decision.metadata) is (shown == 8)


def test_dry_run_of_a_restore_says_that_it_would_create_the_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def plan(*_: Any) -> rescue._RescuePlan:
        return rescue._RescuePlan([], BACKUP, {"a:1": (0, 1)})

    monkeypatch.setattr(rescue, "_plan", plan)
    file = tmp_path / "backup.json"
    file.write_text(encode_backup(BACKUP))
    command = ["cluster", "metadata", "restore", str(file), "-z", "127.0.0.1:1", "-r", ROOT]
    result = CliRunner().invoke(app, [*command, "--dry-run"])
    assert (
        "the cluster of the backup, the assignment of partitions and the metadata of 0 partitions "
        "would be written"
    ) in result.stderr


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_rescue_asks_and_writes_nothing_without_a_yes(
    monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    async def plan(*_: Any) -> rescue._RescuePlan:
        return rescue._RescuePlan([rebuilt(7)], None, {})

    async def write(*_: Any) -> None:
        raise AssertionError("the rescue wrote without a yes")

    monkeypatch.setattr(rescue, "_plan", plan)
    monkeypatch.setattr(rescue, "_write", write)
    command = ["cluster", "rescue", "-z", "127.0.0.1:1", "-r", ROOT]
    result = CliRunner().invoke(app, command, input=answer)
    assert (result.exit_code, "Continue?" in result.stderr) == (1, True)
    assert "aborted" in result.stderr


def test_table_of_a_rescue_shows_the_decision_in_words() -> None:
    kept = RebuildDecision(Verdict.KEPT, None, "the metadata name the partition's replicas")
    shown = render_rescue([PartitionRescue(0, (), kept)])
    assert shown.tables[0].cells[0][:2] == (0, "kept")
    assert shown.value[0]["metadata"] == "kept"


@pytest.mark.parametrize("answers", [["--yes"], ["--dry-run"]])
def test_rescue_with_preferences_in_its_backup_prints_the_commands_that_set_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: list[str]
) -> None:
    async def plan(*_: Any) -> rescue._RescuePlan:
        return rescue._RescuePlan([rebuilt(7)], None, {})

    async def write(*_: Any) -> None:
        pass

    monkeypatch.setattr(rescue, "_plan", plan)
    monkeypatch.setattr(rescue, "_write", write)
    preferred = {"server-1:55180": (1,), "[::1]:55180": (0,)}
    file = tmp_path / "backup.json"
    file.write_text(encode_backup(replace(BACKUP, preferred=preferred)))
    command = ["cluster", "metadata", "restore", str(file), "-z", "127.0.0.1:1", "-r", ROOT]
    result = CliRunner().invoke(app, [*command, *answers])
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    if answers == ["--dry-run"]:
        assert not any("waltz server prefer" in line for line in lines)
        return
    assert "preferred partitions are not restored" in lines[-3]
    where = f"--zookeeper 127.0.0.1:1 --root {ROOT}"
    assert lines[-2:] == [
        f"waltz server prefer '[::1]:55180' 0 {where}",
        f"waltz server prefer server-1:55180 1 {where}",
    ]


async def test_rescue_from_a_backup_uses_the_outside_addresses_in_it() -> None:
    cluster = Cluster(MemoryZooKeeper().connect(), ROOT)
    backup = replace(BACKUP, outside=OutsideAddresses({"a:1": "127.0.0.1:1"}))
    where = Target("z:1", ROOT, PLAINTEXT)
    assert rescue._network(cluster, where, backup) is TCP
    network = rescue._network(cluster, replace(where, access="outside"), backup)
    with pytest.raises(DialFailed, match=r"127\.0\.0\.1:1.* \(outside address of a:1\)"):
        await RpcConnection.open_storage(("a", 1), PLAINTEXT, (KEY, PARTITIONS), network=network)


async def test_repeated_restore_uses_and_writes_the_outside_addresses_of_the_backup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first restore created the cluster, and was interrupted before it wrote the addresses."""
    store = MemoryZooKeeper().connect()
    await create_cluster(store, ROOT, "orders", PARTITIONS, key=KEY, storages=STORAGES)
    backup = replace(BACKUP, outside=OutsideAddresses({"a:1": "127.0.0.1:1", "a:2": "127.0.0.1:2"}))
    where = Target("zk:1", ROOT, PLAINTEXT, access="outside")

    async def fence_replicas(*_: Any, network: Network, **__: Any) -> None:
        with pytest.raises(DialFailed, match=r"outside address of a:1\)"):
            await RpcConnection.open_storage(
                ("a", 1), PLAINTEXT, (KEY, PARTITIONS), network=network
            )
        raise FencingFailed("storage a:1: connection refused")

    use_cluster(monkeypatch, Cluster(store, ROOT))
    monkeypatch.setattr(rescue, "fence_replicas", fence_replicas)
    plan = await rescue._plan(where, backup, 1.0)
    assert (plan.create_from, plan.outside) == (None, backup.outside)
    assert plan.contents.startswith("the outside addresses of the backup")
    assert not plan.is_empty
    assert "no outside address" not in str(plan.partitions)
    with pytest.raises(Failed, match="ZooKeeper now has the outside addresses of the backup"):
        await rescue._write(where, plan, backup, 1.0)
    stored = await read_outside_addresses(Cluster(store, ROOT))
    assert stored is not None
    assert stored.value == backup.outside
    assert (await rescue._plan(where, backup, 1.0)).outside is None


@pytest.mark.parametrize("given", [None, TlsConfig(), PLAINTEXT])
@pytest.mark.parametrize("is_created", [False, True])
async def test_rescue_from_a_backup_uses_the_declaration_in_it(
    given: TlsConfig | None, is_created: bool
) -> None:
    """ZooKeeper has no declaration of the servers: it is empty, or a restore was interrupted."""
    store = MemoryZooKeeper().connect()
    cluster = Cluster(store, ROOT)
    if is_created:
        await create_cluster(store, ROOT, "orders", PARTITIONS, key=KEY, storages=STORAGES)
    where = Target("z:1", ROOT, given)
    for backup, expected in (
        (BACKUP, TlsConfig()),
        (replace(BACKUP, transport=ServerTransport(Transport.PLAINTEXT)), PLAINTEXT),
    ):
        declared = await missing_transport(cluster, backup)
        assert await rescue._tls(cluster, where, declared) == (given or expected)


async def test_repeated_restore_writes_the_declaration_of_the_backup_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first restore was interrupted before it: without it, clients would use TLS."""
    store = MemoryZooKeeper().connect()
    await create_cluster(store, ROOT, "orders", PARTITIONS, key=KEY, storages=STORAGES)
    backup = replace(BACKUP, transport=ServerTransport(Transport.PLAINTEXT))
    where = Target("zk:1", ROOT, None)

    async def fence_replicas(_: Any, tls: TlsConfig, *__: Any, **___: Any) -> None:
        assert tls == PLAINTEXT
        raise FencingFailed("storage a:1: connection refused")

    use_cluster(monkeypatch, Cluster(store, ROOT))
    monkeypatch.setattr(rescue, "fence_replicas", fence_replicas)
    plan = await rescue._plan(where, backup, 1.0)
    assert (plan.create_from, plan.transport) == (None, backup.transport)
    assert plan.contents.startswith("the declaration of TLS of the backup")
    with pytest.raises(Failed, match="ZooKeeper now has the declaration of TLS of the backup"):
        await rescue._write(where, plan, backup, 1.0)
    stored = await read_transport(Cluster(store, ROOT))
    assert stored is not None
    assert stored.value == backup.transport
    assert (await rescue._plan(where, backup, 1.0)).transport is None


async def test_restore_of_an_incomplete_cluster_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryZooKeeper().connect()
    await create_cluster(store, ROOT, "orders", PARTITIONS, key=KEY, storages=STORAGES)
    await store.delete(Paths(ROOT).connection)

    use_cluster(monkeypatch, Cluster(store, ROOT))
    where = Target("zk:1", ROOT, PLAINTEXT)
    with pytest.raises(Failed, match=f"delete it with: waltz cluster delete {BACKUP.name}$"):
        await rescue._plan(where, BACKUP, 1.0)
    with pytest.raises(NoCluster, match="incomplete"):
        await rescue._plan(where, None, 1.0)
