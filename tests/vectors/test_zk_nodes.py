"""The znodes of a live cluster of the reference: read, written back, and made anew by our own
operations.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.memory_zookeeper import MemoryZooKeeper
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import (
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ServerDescriptor,
    StoreParams,
    decode_id,
    encode_id,
)
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.store import Node

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


def plain(value: Any) -> dict[str, Any]:
    """A format's value as the recording spells it."""
    match value:
        case ClusterParams(name, count):
            return {"kind": "ClusterParams", "name": name, "numPartitions": count}
        case StoreParams(key, count):
            return {"kind": "StoreParams", "key": str(key), "numPartitions": count}
        case ServerDescriptor(server_id, host, port, preferred):
            return {
                "kind": "ServerDescriptor",
                "serverId": server_id,
                "host": host,
                "port": port,
                "preferredPartitions": list(preferred),
            }
        case PartitionAssignment(cversion, count, servers):
            owned = [
                {"serverId": server, "partitionId_generation": [list(o) for o in owned]}
                for server, owned in servers.items()
            ]
            kind = "PartitionAssignment"
            return {"kind": kind, "cversion": cversion, "numPartitions": count, "servers": owned}
        case GroupDescriptor(groups):
            return {"kind": "GroupDescriptor", "groups": dict(groups)}
        case ConnectionMetadata(ports):
            return {"kind": "ConnectionMetadata", "connections": dict(ports)}
        case ReplicaAssignments(partitions):
            replicas = {storage: list(held) for storage, held in partitions.items()}
            return {"kind": "ReplicaAssignments", "replicas": replicas}
    raise AssertionError(f"no such format: {value!r}")


def plain_metadata(metadata: PartitionMetadata, partition: int) -> dict[str, Any]:
    states = [
        {
            "partitionId": partition,
            "storage": storage,
            "sessionId": state.session_id,
            "closingHighWaterMark": state.closing_mark,
        }
        for storage, state in metadata.replicas.items()
    ]
    return {
        "kind": "PartitionMetadata",
        "generation": metadata.generation,
        "sessionId": metadata.session_id,
        "replicaStates": states,
    }


FORMATS: dict[str, Any] = {
    format_.__name__: format_
    for format_ in (
        ClusterParams,
        StoreParams,
        ServerDescriptor,
        PartitionAssignment,
        GroupDescriptor,
        ConnectionMetadata,
        ReplicaAssignments,
    )
}


def read(path: str, kind: str, raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the decoded form, and the bytes that encoding gives."""
    if kind == "Integer":
        number = decode_id(raw)
        return {"kind": kind, "value": number}, encode_id(number)
    if kind == "PartitionMetadata":
        partition = int(path.rpartition("/")[2])
        metadata = PartitionMetadata.decode(raw, partition)
        return plain_metadata(metadata, partition), metadata.encode(partition)
    value = FORMATS[kind].decode(raw)
    return plain(value), value.encode()


def test_recorded_znodes_decode_and_encode_to_the_same_bytes(phases: dict[str, Phase]) -> None:
    seen = 0
    for phase, entries in phases.items():
        for path, entry in entries.items():
            if entry["data_hex"] is None:
                continue
            raw = bytes.fromhex(entry["data_hex"])
            decoded, encoded = read(path, entry["decoded"]["kind"], raw)
            assert in_any_order(decoded) == in_any_order(entry["decoded"]), (phase, path)
            assert encoded == raw, (phase, path)
            seen += 1
    assert seen


def in_any_order(decoded: dict[str, Any]) -> dict[str, Any]:
    """The recorded decoded forms list map entries in another order than the bytes do."""
    ordered = dict(decoded)
    if "replicaStates" in ordered:
        ordered["replicaStates"] = sorted(ordered["replicaStates"], key=lambda s: str(s["storage"]))
    if "servers" in ordered:
        ordered["servers"] = sorted(ordered["servers"], key=lambda s: int(s["serverId"]))
    return ordered


def same_data(path: str, entry: Entry, node: Node) -> bool:
    """Maps of the reference are in hash order: those are compared by what they say."""
    if entry["data_hex"] is None or node.data is None:
        return entry["data_hex"] is None and node.data is None
    recorded = bytes.fromhex(entry["data_hex"])
    kind = entry["decoded"]["kind"]
    decoded = [in_any_order(read(path, kind, raw)[0]) for raw in (recorded, node.data)]
    return decoded[0] == decoded[1]


def check_phase(entries: Phase, found: dict[str, Node], counted: Callable[[str], bool]) -> None:
    """``counted`` tells of which paths the versions must agree too."""
    assert found.keys() == entries.keys()
    for path, entry in entries.items():
        assert same_data(path, entry, found[path]), path
        assert (found[path].owner is not None) == entry["ephemeral"], path
        if counted(path):
            assert found[path].version == entry["version"], path
            assert found[path].cversion == entry["cversion"], path


async def test_storage_operations_write_the_recorded_znodes(
    recording: dict[str, Any], phases: dict[str, Phase]
) -> None:
    zookeeper = MemoryZooKeeper()
    store = zookeeper.connect()
    root = recording["root"]
    params = phases["01"][root]["decoded"]
    key = uuid.UUID(phases["01"][f"{root}/store"]["decoded"]["key"])
    await create_cluster(store, root, params["name"], params["numPartitions"], key=key)
    check_phase(phases["01"], zookeeper.dump(), lambda path: True)

    # The recording also holds attempts that were refused, which count on the lock's parent.
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


async def test_auto_assign_writes_the_recorded_znode(
    recording: dict[str, Any], phases: dict[str, Phase]
) -> None:
    """Each group of the recording has one storage, which then gets everything, in order."""
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
