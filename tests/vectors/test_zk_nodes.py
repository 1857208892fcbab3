"""The znodes of a cluster after each operation: decoded, encoded, and written by our operations."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.znodes import read_node
from waltz.metadata.cluster import Cluster
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.store import Node
from waltz.testing.zookeeper import MemoryZooKeeper

Entry = dict[str, Any]
Phase = dict[str, Entry]


@pytest.fixture(scope="module")
def recording(vectors: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((vectors / "zookeeper.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def phases(recording: dict[str, Any]) -> dict[str, Phase]:
    """Phase by its number, node by its path."""
    return {
        name.partition("-")[0]: {entry["path"]: entry for entry in entries}
        for name, entries in recording["phases"].items()
    }


def in_any_order(decoded: dict[str, Any]) -> dict[str, Any]:
    """Sort map entries, which the recorded decoded forms list in another order than the bytes."""
    ordered = dict(decoded)
    if "replicaStates" in ordered:
        ordered["replicaStates"] = sorted(ordered["replicaStates"], key=lambda s: str(s["storage"]))
    if "servers" in ordered:
        ordered["servers"] = sorted(ordered["servers"], key=lambda s: int(s["serverId"]))
    return ordered


def same_data(path: str, entry: Entry, node: Node) -> bool:
    """Compare decoded forms, because maps of 0.13.2 are in hash order."""
    if entry["data_hex"] is None or node.data is None:
        return entry["data_hex"] is None and node.data is None
    recorded = bytes.fromhex(entry["data_hex"])
    kind = entry["decoded"]["kind"]
    decoded = [in_any_order(read_node(path, kind, raw)[0]) for raw in (recorded, node.data)]
    return decoded[0] == decoded[1]


def check_phase(entries: Phase, found: dict[str, Node], counted: Callable[[str], bool]) -> None:
    """Compare all nodes of a phase; versions only of the paths that ``counted`` accepts."""
    assert found.keys() == entries.keys()
    for path, entry in entries.items():
        assert same_data(path, entry, found[path]), path
        assert (found[path].owner is not None) == entry["ephemeral"], path
        if counted(path):
            assert found[path].version == entry["version"], path
            assert found[path].cversion == entry["cversion"], path


def test_recorded_znodes_decode_and_encode_to_the_same_bytes(phases: dict[str, Phase]) -> None:
    seen = 0
    for phase, entries in phases.items():
        for path, entry in entries.items():
            if entry["data_hex"] is None:
                continue
            raw = bytes.fromhex(entry["data_hex"])
            decoded, encoded = read_node(path, entry["decoded"]["kind"], raw)
            assert in_any_order(decoded) == in_any_order(entry["decoded"]), (phase, path)
            assert encoded == raw, (phase, path)
            seen += 1
    assert seen


async def test_cluster_operations_write_the_znodes_of_each_phase(
    recording: dict[str, Any], phases: dict[str, Phase]
) -> None:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.connect()
    root = recording["root"]
    params = phases["01"][root]["decoded"]
    key = uuid.UUID(phases["01"][f"{root}/store"]["decoded"]["key"])
    await create_cluster(store, root, params["name"], params["numPartitions"], key=key)
    check_phase(phases["01"], zookeeper.dump(), lambda path: True)

    # Refused attempts took the admin lock, too: they count in the cversion of its parent.
    def counted(path: str) -> bool:
        return path != f"{root}/store"

    cluster = Cluster(store, root)
    groups = phases["02"][f"{root}/store/group"]["decoded"]["groups"]
    ports = phases["02"][f"{root}/store/connection"]["decoded"]["connections"]
    for storage, group in groups.items():
        await cluster.add_storage_node(storage, group, ports[storage])
    check_phase(phases["02"], zookeeper.dump(), counted)

    replicas = phases["03"][f"{root}/store/assignment"]["decoded"]["replicas"]
    for storage, partitions in replicas.items():
        await cluster.assign_partitions(storage, partitions)
    check_phase(phases["03"], zookeeper.dump(), counted)

    await delete_cluster(store, root, params["name"])
    check_phase(phases["17"], zookeeper.dump(), lambda path: True)


async def test_auto_assign_of_one_storage_per_group_gives_it_all_partitions_in_order(
    recording: dict[str, Any], phases: dict[str, Phase]
) -> None:
    """Each group of the vectors has one storage."""
    zookeeper = MemoryZooKeeper()
    root = recording["root"]
    params = phases["02"][root]["decoded"]
    store = zookeeper.connect()
    key = uuid.UUID(phases["02"][f"{root}/store"]["decoded"]["key"])
    await create_cluster(store, root, params["name"], params["numPartitions"], key=key)
    cluster = Cluster(store, root)
    groups = phases["02"][f"{root}/store/group"]["decoded"]["groups"]
    ports = phases["02"][f"{root}/store/connection"]["decoded"]["connections"]
    for storage, group in groups.items():
        await cluster.add_storage_node(storage, group, ports[storage])
    for group in sorted(set(groups.values())):
        await cluster.auto_assign(group)
    check_phase(phases["03"], zookeeper.dump(), lambda path: path != f"{root}/store")
