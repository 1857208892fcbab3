"""Generate zk-serializers.json and zookeeper.json: data of znodes, and znodes by phase."""

from __future__ import annotations

import uuid
from typing import Any

from tests.vectors.generate.wire_examples import KEY
from tests.vectors.znodes import read_node, value_of
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/logs/waltz"
NAME = "example"
PARTITIONS = 3
STORAGES = ("a.example:55280", "b.example:55280", "c.example:55280")
ADMIN_PORT = 55281

_EXAMPLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ClusterParams", {"name": NAME, "numPartitions": PARTITIONS}),
    ("ClusterParams", {"name": "\0 ä \U0001d11e", "numPartitions": 0}),
    ("Integer (ids/client, ids/server)", {"value": 0}),
    ("Integer (ids/client, ids/server)", {"value": 2**31 - 1}),
    ("StoreParams", {"key": KEY, "numPartitions": PARTITIONS}),
    (
        "ServerDescriptor",
        {"serverId": 1, "host": "s.example", "port": 55180, "preferredPartitions": []},
    ),
    (
        "ServerDescriptor",
        {"serverId": 2, "host": "s.example", "port": 55180, "preferredPartitions": [2, 0]},
    ),
    ("PartitionAssignment", {"cversion": -1, "numPartitions": 0, "servers": []}),
    (
        "PartitionAssignment",
        {
            "cversion": 3,
            "numPartitions": 3,
            "servers": [
                {"serverId": 1, "partitionId_generation": [[0, 1], [2, 4]]},
                {"serverId": 2, "partitionId_generation": [[1, 2]]},
            ],
        },
    ),
    ("GroupDescriptor", {"groups_in_wire_order": []}),
    ("GroupDescriptor", {"groups_in_wire_order": [[STORAGES[1], 1], [STORAGES[0], 0]]}),
    ("ConnectionMetadata", {"connections_in_wire_order": []}),
    ("ConnectionMetadata", {"connections_in_wire_order": [[STORAGES[0], ADMIN_PORT]]}),
    ("ReplicaAssignments", {"replicas_in_wire_order": []}),
    ("ReplicaAssignments", {"replicas_in_wire_order": [[STORAGES[0], [0, 2]], [STORAGES[1], []]]}),
    ("PartitionMetadata", {"generation": -1, "sessionId": -1, "replicaStates": []}),
    (
        "PartitionMetadata",
        {
            "generation": 4,
            "sessionId": 9,
            "replicaStates": [
                {
                    "partitionId": 2,
                    "storage": STORAGES[0],
                    "sessionId": 9,
                    "closingHighWaterMark": UNRESOLVED,
                },
                {
                    "partitionId": 2,
                    "storage": STORAGES[1],
                    "sessionId": 7,
                    "closingHighWaterMark": 41,
                },
            ],
        },
    ),
)


def serializers() -> list[dict[str, Any]]:
    """Return zk-serializers.json."""
    return [
        {"kind": kind, "fields": fields, "hex": value_of(kind, fields)[1].hex()}
        for kind, fields in _EXAMPLES
    ]


async def phases() -> dict[str, Any]:
    """Return zookeeper.json: the znodes after each operation on a cluster."""
    zookeeper = MemoryZooKeeper()
    store = zookeeper.connect()
    cluster = Cluster(store, ROOT)
    found: dict[str, Any] = {}

    await create_cluster(store, ROOT, NAME, PARTITIONS, key=uuid.UUID(KEY))
    found["01-after-create"] = _nodes(zookeeper)
    for group, storage in enumerate(STORAGES):
        await cluster.add_storage_node(storage, group, ADMIN_PORT)
    found["02-after-add-storage-nodes"] = _nodes(zookeeper)
    for storage in STORAGES:
        await cluster.assign_partitions(storage, range(PARTITIONS))
    found["03-after-assign"] = _nodes(zookeeper)
    await _first_sessions(cluster)
    found["05-store-sessions"] = _nodes(zookeeper)
    await delete_cluster(store, ROOT, NAME)
    found["17-deleted"] = _nodes(zookeeper)
    return {"root": ROOT, "phases": found}


async def _first_sessions(cluster: Cluster) -> None:
    for partition in range(PARTITIONS):
        metadata = await cluster.partition_metadata(partition)
        states = {storage: ReplicaState(0, UNRESOLVED) for storage in STORAGES}
        new = PartitionMetadata(1, 0, states)
        await cluster.write_partition_metadata(partition, new, metadata.version)


def _nodes(zookeeper: MemoryZooKeeper) -> list[dict[str, Any]]:
    nodes = []
    for path, node in zookeeper.dump().items():
        entry: dict[str, Any] = {
            "path": path,
            "data_hex": None if node.data is None else node.data.hex(),
            "version": node.version,
            "cversion": node.cversion,
            "ephemeral": node.owner is not None,
        }
        if node.data is not None:
            entry["decoded"] = read_node(path, _kind(path), node.data)[0]
        nodes.append(entry)
    return nodes


def _kind(path: str) -> str:
    """Return the format of the znode at ``path`` (spec/zookeeper.md section 1)."""
    below = path.removeprefix(ROOT)
    if below.startswith("/store/partition/"):
        return "PartitionMetadata"
    if below.startswith("/ids/"):
        return "Integer"
    return {
        "": "ClusterParams",
        "/serverDescriptors": "PartitionAssignment",
        "/store": "StoreParams",
        "/store/group": "GroupDescriptor",
        "/store/connection": "ConnectionMetadata",
        "/store/assignment": "ReplicaAssignments",
    }[below]
