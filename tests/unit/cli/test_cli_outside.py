"""``waltz cluster outside`` on a cluster in memory."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.cli.cluster import outside
from waltz.cli.cluster_options import Target
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import ServerDescriptor
from waltz.metadata.core.storage_maps import StorageMaps, add_storage_node
from waltz.metadata.lifecycle import create_cluster
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/waltz/orders"
PATH = f"{ROOT}/outside"
MAPS = add_storage_node(StorageMaps.empty(), "[::1]:55280", 0, 55281)
SERVER = ("10.0.0.7:55180", "server")
STORAGE, ADMIN_PORT = ("[::1]:55280", "storage"), ("[::1]:55281", "admin port")


@pytest.fixture(autouse=True)
def zookeeper(monkeypatch: pytest.MonkeyPatch) -> MemoryZooKeeper:
    """A ZooKeeper in memory that has a cluster with one storage and one server."""
    memory = MemoryZooKeeper()

    @asynccontextmanager
    async def open_cluster(where: Target) -> AsyncIterator[Cluster]:
        yield Cluster(memory.connect(), where.root)

    async def create() -> None:
        store = memory.connect()
        await create_cluster(store, ROOT, "orders", 4, key=uuid.UUID(int=7), storages=MAPS)
        await store.create(
            Cluster(store, ROOT).paths.new_server_descriptor,
            ServerDescriptor(1, "10.0.0.7", 55180).encode(),
            ephemeral=True,
            sequence=True,
        )

    monkeypatch.setattr(outside, "open_cluster", open_cluster)
    asyncio.run(create())
    return memory


def waltz(*arguments: str) -> Result:
    where = ["-z", "z:1", "-r", ROOT]
    return CliRunner().invoke(app, ["cluster", "outside", *arguments, *where])


def listed() -> list[tuple[str, str | None, str | None]]:
    done = waltz("list", "-o", "json")
    assert done.exit_code == 0, done.output
    return [(row["registered"], row["used_by"], row["outside"]) for row in json.loads(done.stdout)]


def test_outside_list_shows_registered_addresses_without_an_outside_address() -> None:
    assert listed() == [(*SERVER, None), (*STORAGE, None), (*ADMIN_PORT, None)]
    shown = [line.split() for line in waltz("list").stdout.splitlines()]
    assert [SERVER[0], "server", "-"] in shown


def test_outside_set_sets_and_replaces_addresses() -> None:
    done = waltz("set", f"{SERVER[0]}=lb.example:1", "gone:1=lb.example:2")
    assert done.exit_code == 0, done.output
    assert "note: no server or storage has registered gone:1 now" in done.stderr
    assert f"set the outside address of {SERVER[0]} to lb.example:1" in done.stderr
    waltz("set", f"{SERVER[0]}=lb.example:3", f"{ADMIN_PORT[0]}=[fd00::1]:4")
    assert listed() == [
        (*SERVER, "lb.example:3"),
        (*STORAGE, None),
        (*ADMIN_PORT, "[fd00::1]:4"),
        ("gone:1", None, "lb.example:2"),
    ]
    unchanged = waltz("set", "gone:1=lb.example:2", "-o", "json")
    assert json.loads(unchanged.stdout)["outcome"] == "unchanged"


def test_outside_set_with_dry_run_changes_nothing() -> None:
    done = waltz("set", f"{SERVER[0]}=lb.example:1", "--dry-run")
    assert f"would set the outside address of {SERVER[0]} to lb.example:1" in done.stderr
    assert listed()[0] == (*SERVER, None)


@pytest.mark.parametrize("dry_run", [True, False])
def test_outside_set_refuses_one_address_for_two_ports_in_use(dry_run: bool) -> None:
    waltz("set", f"{STORAGE[0]}=lb.example:1", "gone:1=lb.example:2")
    pairs = [f"{SERVER[0]}=lb.example:2", f"{ADMIN_PORT[0]}=LB.example:1"]
    done = waltz("set", *pairs, *(["--dry-run"] if dry_run else []))
    assert done.exit_code == 1
    assert (
        f"{ADMIN_PORT[0]} and {STORAGE[0]} would both have the outside address LB.example:1, which "
        "can lead to one of them only; nothing was changed"
    ) in done.stderr
    assert listed()[0] == (*SERVER, None)
    assert waltz("set", pairs[0]).exit_code == 0, "gone:1 is not in use"


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        ("a:1", "'a:1' is not REGISTERED=OUTSIDE"),
        ("a:1=b", "'b' cannot be the outside address of a:1: it must be host:port"),
        ("a=b:1", "'a' cannot be a registered address: it must be host:port"),
    ],
)
def test_outside_set_of_a_malformed_address_changes_nothing(
    zookeeper: MemoryZooKeeper, pair: str, problem: str
) -> None:
    done = waltz("set", f"{SERVER[0]}=lb.example:1", pair)
    assert done.exit_code != 0
    assert problem in done.stderr
    assert PATH not in zookeeper.dump()


def test_outside_remove_removes_named_addresses() -> None:
    waltz("set", f"{SERVER[0]}=lb.example:1", "gone:1=lb.example:2")
    assert waltz("remove", "gone:1", "--dry-run").exit_code == 0
    assert len(listed()) == 4
    assert waltz("remove", "gone:1").exit_code == 0
    assert listed() == [(*SERVER, "lb.example:1"), (*STORAGE, None), (*ADMIN_PORT, None)]
    done = waltz("remove", SERVER[0], "gone:1")
    assert done.exit_code == 1
    assert "gone:1 has no outside address; nothing was changed" in done.stderr
    assert listed()[0] == (*SERVER, "lb.example:1")


def test_outside_remove_all_removes_the_znode_also_if_it_is_malformed(
    zookeeper: MemoryZooKeeper,
) -> None:
    asyncio.run(zookeeper.connect().create(PATH, b"x"))
    refused = waltz("list")
    assert refused.exit_code == 1
    assert f"OutsideAddresses at {PATH} in ZooKeeper" in refused.stderr
    assert refused.stderr.rstrip().endswith(
        f"with: waltz cluster outside remove --all --zookeeper z:1 --root {ROOT}"
    )
    assert waltz("remove", "--all", "--yes", "--dry-run").exit_code == 0
    assert PATH in zookeeper.dump()
    removed = waltz("remove", "--all", "--yes", "-o", "json")
    assert json.loads(removed.stdout)["steps"] == ["remove all outside addresses"]
    assert PATH not in zookeeper.dump()
    again = waltz("remove", "--all", "--yes", "-o", "json")
    assert json.loads(again.stdout)["outcome"] == "unchanged"


@pytest.mark.parametrize("arguments", [(), ("a:1", "--all")])
def test_outside_remove_needs_addresses_or_all(arguments: tuple[str, ...]) -> None:
    done = waltz("remove", *arguments, "--yes")
    assert done.exit_code == 2
    assert "give either registered addresses, or --all" in done.stderr
