"""A backup of a cluster's znodes, as readable JSON. Pure.

``waltz cluster metadata restore`` makes these znodes again from a backup: the identity of the
cluster, its storages, the assignment of partitions to storages, the access rules, what the servers
have declared about TLS, and the outside addresses.

A backup also has the metadata of each partition. These are not written back, because they change
with each store session. `waltz.admin.core.rescue` rebuilds them from what the storages have, and
only compares the result with the backup.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from waltz.metadata.core.access_rules import AccessRules
from waltz.metadata.core.formats import (
    UNRESOLVED,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
)
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.core.server_transport import ServerTransport
from waltz.metadata.core.storage_maps import StorageMaps

T = TypeVar("T")

FORMAT = "waltz-cluster-metadata"
VERSION = 1


class BadBackup(ValueError):
    """The file is no backup of a cluster's metadata, or its version is unknown."""


@dataclass(frozen=True, slots=True)
class ClusterBackup:
    """The contents of a cluster's znodes.

    The znodes were read one after the other, so a znode may be newer than one that was read before
    it. The keys of ``preferred`` are the addresses for clients of the running servers, the values
    their preferred partitions. A restore prints them and does not write them, because they belong
    to the znodes of the servers, which each server makes itself. ``partitions`` has the metadata of
    the partitions. ``last_client_id`` and ``last_server_id`` are the last ids that were taken:
    `waltz.admin.rescue` lets the restored cluster begin above them, so that no id is taken twice.

    ``access`` is None if the cluster had no access rules. ``transport`` is None if no server had
    declared whether it uses TLS. ``outside`` is None if the cluster had no outside addresses.
    """

    name: str
    root: str
    key: uuid.UUID
    num_partitions: int
    last_client_id: int
    last_server_id: int
    maps: StorageMaps
    preferred: Mapping[str, tuple[int, ...]]
    partitions: Mapping[int, PartitionMetadata]
    access: AccessRules | None = None
    transport: ServerTransport | None = None
    outside: OutsideAddresses | None = None


def encode_backup(backup: ClusterBackup) -> str:
    """Return the text of the backup's file."""
    maps = backup.maps
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": backup.name,
        "root": backup.root,
        "key": str(backup.key),
        "partitions": backup.num_partitions,
        "last_client_id": backup.last_client_id,
        "last_server_id": backup.last_server_id,
        "storages": [
            {
                "storage": storage,
                "group": group,
                # None if adding the storage was interrupted (see `Cluster._change_maps`).
                "admin_port": maps.connections.admin_ports.get(storage),
                "partitions": list(maps.assignments.partitions.get(storage, ())),
            }
            for storage, group in maps.groups.groups.items()
        ],
        "preferred": {server: list(wanted) for server, wanted in backup.preferred.items()},
        "metadata": [
            _encode_metadata(partition, metadata)
            for partition, metadata in sorted(backup.partitions.items())
        ],
    }
    if backup.access is not None:
        content["access"] = json.loads(backup.access.encode())
    if backup.transport is not None:
        content["transport"] = json.loads(backup.transport.encode())
    if backup.outside is not None:
        content["outside"] = json.loads(backup.outside.encode())
    return json.dumps(content, indent=2) + "\n"


def decode_backup(text: str) -> ClusterBackup:
    """Return the backup in the text of a file; raises BadBackup."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise BadBackup(f"it is not JSON: {problem}") from problem
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadBackup("it is not written by waltz cluster metadata backup")
    if content.get("version") != VERSION:
        raise BadBackup(
            f"it has version {content.get('version')}, and this program reads version {VERSION}; "
            "use the program that wrote it"
        )
    try:
        return _decode_content(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as problem:
        raise BadBackup(f"a field is missing or malformed: {problem!r}") from problem


def _encode_metadata(partition: int, metadata: PartitionMetadata) -> dict[str, Any]:
    return {
        "partition": partition,
        "generation": metadata.generation,
        "session": metadata.session_id,
        "replicas": [
            {
                "storage": storage,
                "session": state.session_id,
                "closing_mark": None if state.closing_mark == UNRESOLVED else state.closing_mark,
            }
            for storage, state in metadata.replicas.items()
        ],
    }


def _decode_content(content: Mapping[str, Any]) -> ClusterBackup:
    storages = {str(entry["storage"]): entry for entry in content["storages"]}
    maps = StorageMaps(
        GroupDescriptor({name: int(entry["group"]) for name, entry in storages.items()}),
        ConnectionMetadata(
            {
                name: int(entry["admin_port"])
                for name, entry in storages.items()
                if entry["admin_port"] is not None
            }
        ),
        ReplicaAssignments(
            {name: tuple(map(int, entry["partitions"])) for name, entry in storages.items()}
        ),
    )
    preferred = {server: tuple(map(int, wanted)) for server, wanted in content["preferred"].items()}
    return ClusterBackup(
        name=str(content["name"]),
        root=str(content["root"]),
        key=uuid.UUID(content["key"]),
        num_partitions=int(content["partitions"]),
        last_client_id=int(content["last_client_id"]),
        last_server_id=int(content["last_server_id"]),
        maps=maps,
        preferred=preferred,
        partitions={int(each["partition"]): _decode_metadata(each) for each in content["metadata"]},
        access=_decode_optional(AccessRules.decode, content.get("access")),
        transport=_decode_optional(ServerTransport.decode, content.get("transport")),
        outside=_decode_optional(OutsideAddresses.decode, content.get("outside")),
    )


def _decode_optional(decode: Callable[[bytes], T], fields: Any) -> T | None:
    """Return the value of an optional znode from its JSON ``fields``, None if there are none."""
    return None if fields is None else decode(json.dumps(fields).encode())


def _decode_metadata(entry: Mapping[str, Any]) -> PartitionMetadata:
    states = {
        str(replica["storage"]): ReplicaState(
            int(replica["session"]),
            UNRESOLVED if replica["closing_mark"] is None else int(replica["closing_mark"]),
        )
        for replica in entry["replicas"]
    }
    return PartitionMetadata(int(entry["generation"]), int(entry["session"]), states)
