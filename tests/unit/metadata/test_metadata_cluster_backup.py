"""A backup of a cluster's znodes is readable JSON, and gives the same values when it is read."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from waltz.metadata.core.access_rules import AccessRules, Grant, Right
from waltz.metadata.core.cluster_backup import (
    BadBackup,
    ClusterBackup,
    decode_backup,
    encode_backup,
)
from waltz.metadata.core.formats import (
    UNRESOLVED,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaState,
)
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.core.server_transport import ServerTransport, Transport
from waltz.metadata.core.storage_maps import StorageMaps

_BACKUP = ClusterBackup(
    "orders",
    "/waltz/orders",
    uuid.UUID(int=7),
    2,
    12,
    3,
    StorageMaps(
        GroupDescriptor({"a:1": 0, "b:1": 1}),
        ConnectionMetadata({"a:1": 2, "b:1": 2}),
        ReplicaAssignments({"a:1": (0, 1), "b:1": (0, 1)}),
    ),
    {"server-0:55180": (0, 1)},
    {0: PartitionMetadata(4, 9, {"a:1": ReplicaState(9, UNRESOLVED), "b:1": ReplicaState(7, 40)})},
)


def test_backup_is_read_as_it_was_written() -> None:
    assert decode_backup(encode_backup(_BACKUP)) == _BACKUP
    transport = ServerTransport(Transport.PLAINTEXT, {"a:1": Transport.PLAINTEXT})
    outside = OutsideAddresses({"a:1": "lb.example:31000"})
    declared = replace(_BACKUP, transport=transport, outside=outside)
    assert decode_backup(encode_backup(declared)) == declared


def test_storage_whose_adding_was_interrupted_is_part_of_a_backup() -> None:
    maps = StorageMaps(
        GroupDescriptor({"a:1": 0, "c:1": 1}),
        ConnectionMetadata({"a:1": 2}),
        ReplicaAssignments({"a:1": (0, 1), "c:1": ()}),
    )
    backup = replace(_BACKUP, maps=maps)
    assert decode_backup(encode_backup(backup)) == backup


@pytest.mark.parametrize(
    "rules", [AccessRules(), AccessRules((Grant("app", Right.READ, 0, 1),))], ids=["empty", "some"]
)
def test_access_rules_are_part_of_a_backup(rules: AccessRules) -> None:
    backup = replace(_BACKUP, access=rules)
    assert decode_backup(encode_backup(backup)) == backup


def test_backup_shows_key_storages_and_replicas() -> None:
    content = json.loads(encode_backup(_BACKUP))
    assert content["key"] == str(_BACKUP.key)
    assert content["storages"][1] == {
        "storage": "b:1",
        "group": 1,
        "admin_port": 2,
        "partitions": [0, 1],
    }
    assert content["metadata"][0]["replicas"][0]["closing_mark"] is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": "other"}, "not written by waltz cluster metadata backup"),
        ({"version": 2}, "has version 2"),
        ({"key": "no key"}, "missing or malformed"),
        ({"storages": [{}]}, "missing or malformed"),
        ({"access": {"format": 2, "grants": []}}, "missing or malformed"),
        ({"partitions": float("inf")}, "missing or malformed"),
    ],
)
def test_file_that_is_no_backup_is_refused(change: dict[str, object], problem: str) -> None:
    content = json.loads(encode_backup(_BACKUP)) | change
    with pytest.raises(BadBackup, match=problem):
        decode_backup(json.dumps(content))


def test_file_that_is_no_json_is_refused() -> None:
    with pytest.raises(BadBackup, match="not JSON"):
        decode_backup("orders")


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(BadBackup, match="not JSON"):
        decode_backup("[" * 1_000_000)
