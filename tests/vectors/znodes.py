"""Convert znodes between the form of the vectors and bytes."""

from __future__ import annotations

import uuid
from typing import Any

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


def partition_of(fields: dict[str, Any]) -> int:
    """Return the partition that every replica state repeats; 0 if there is no state."""
    return next((int(state["partitionId"]) for state in fields["replicaStates"]), 0)


def _assignment(fields: dict[str, Any]) -> PartitionAssignment:
    servers = {
        server["serverId"]: tuple(OwnedPartition(*o) for o in server["partitionId_generation"])
        for server in fields["servers"]
    }
    return PartitionAssignment(fields["cversion"], fields["numPartitions"], servers)


def _partition_metadata(fields: dict[str, Any]) -> PartitionMetadata:
    replicas = {
        state["storage"]: ReplicaState(state["sessionId"], state["closingHighWaterMark"])
        for state in fields["replicaStates"]
    }
    return PartitionMetadata(fields["generation"], fields["sessionId"], replicas)


def value_of(kind: str, fields: dict[str, Any]) -> tuple[Any, bytes]:
    """Return the value with these fields, and its bytes."""
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
            value = _assignment(fields)
        case "GroupDescriptor":
            value = GroupDescriptor(dict(fields["groups_in_wire_order"]))
        case "ConnectionMetadata":
            value = ConnectionMetadata(dict(fields["connections_in_wire_order"]))
        case "ReplicaAssignments":
            lists = fields["replicas_in_wire_order"]
            value = ReplicaAssignments({storage: tuple(held) for storage, held in lists})
        case "PartitionMetadata":
            metadata = _partition_metadata(fields)
            return metadata, metadata.encode(partition_of(fields))
        case _ if kind.startswith("Integer"):
            return fields["value"], encode_id(fields["value"])
        case _:
            raise AssertionError(f"no format for {kind}")
    return value, value.encode()


def decoded_as(kind: str, fields: dict[str, Any], raw: bytes) -> Any:
    """Return the value that ``raw`` decodes to, a format of this kind."""
    if kind == "PartitionMetadata":
        return PartitionMetadata.decode(raw, partition_of(fields))
    if kind.startswith("Integer"):
        return decode_id(raw)
    return FORMATS[kind].decode(raw)


def read_node(path: str, kind: str, raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the fields of a znode's data, and the bytes that encoding gives."""
    if kind == "Integer":
        number = decode_id(raw)
        return {"kind": kind, "value": number}, encode_id(number)
    if kind == "PartitionMetadata":
        partition = int(path.rpartition("/")[2])
        metadata = PartitionMetadata.decode(raw, partition)
        return _plain_metadata(metadata, partition), metadata.encode(partition)
    value = FORMATS[kind].decode(raw)
    return _plain(value), value.encode()


def _plain(value: Any) -> dict[str, Any]:
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


def _plain_metadata(metadata: PartitionMetadata, partition: int) -> dict[str, Any]:
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
