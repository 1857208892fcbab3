"""Every recorded znode format: its bytes are read as the recorded fields, and written back."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from waltz.metadata.core.formats import (
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    OwnedPartition,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
    ServerDescriptor,
    StoreParams,
    decode_id,
    encode_id,
)


def partition_of(fields: dict[str, Any]) -> int:
    """The partition that every entry repeats; any will do where there is no entry."""
    return next((int(state["partitionId"]) for state in fields["replicaStates"]), 0)


def assignment(fields: dict[str, Any]) -> PartitionAssignment:
    servers = {
        server["serverId"]: tuple(OwnedPartition(*o) for o in server["partitionId_generation"])
        for server in fields["servers"]
    }
    return PartitionAssignment(fields["cversion"], fields["numPartitions"], servers)


def partition_metadata(fields: dict[str, Any]) -> PartitionMetadata:
    replicas = {
        state["storage"]: ReplicaState(state["sessionId"], state["closingHighWaterMark"])
        for state in fields["replicaStates"]
    }
    return PartitionMetadata(fields["generation"], fields["sessionId"], replicas)


def check(kind: str, fields: dict[str, Any], raw: bytes) -> None:
    value: Any
    match kind:
        case "ClusterParams":
            value = ClusterParams(fields["name"], fields["numPartitions"])
        case "StoreParams":
            value = StoreParams(uuid.UUID(fields["key"]), fields["numPartitions"])
        case "ServerDescriptor":
            preferred = tuple(fields["preferredPartitions"])
            value = ServerDescriptor(fields["serverId"], fields["host"], fields["port"], preferred)
        case "PartitionAssignment":
            value = assignment(fields)
        case "GroupDescriptor":
            value = GroupDescriptor(dict(fields["groups_in_wire_order"]))
        case "ConnectionMetadata":
            value = ConnectionMetadata(dict(fields["connections_in_wire_order"]))
        case "ReplicaAssignments":
            lists = fields["replicas_in_wire_order"]
            value = ReplicaAssignments({storage: tuple(held) for storage, held in lists})
        case "PartitionMetadata":
            metadata, partition = partition_metadata(fields), partition_of(fields)
            assert PartitionMetadata.decode(raw, partition) == metadata
            assert metadata.encode(partition) == raw
            return
        case _ if kind.startswith("Integer"):
            assert decode_id(raw) == fields["value"]
            assert encode_id(fields["value"]) == raw
            return
        case _:
            pytest.fail(f"no format for {kind}")
    assert type(value).decode(raw) == value
    assert value.encode() == raw


def test_recorded_znode_formats_decode_and_encode(vectors: Path) -> None:
    cases = json.loads((vectors / "zk-serializers.json").read_text())
    assert cases
    for case in cases:
        check(case["kind"], case["fields"], bytes.fromhex(case["hex"]))
