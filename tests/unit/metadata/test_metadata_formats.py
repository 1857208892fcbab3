"""Znode formats: golden bytes, round trips, and damaged data."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.metadata.core import formats
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import (
    NEW_PARTITION,
    UNASSIGNED,
    UNRESOLVED,
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
)
from waltz.metadata.core.modified_utf8 import MalformedText, decode_text, encode_text
from waltz.metadata.core.paths import BadRoot, Paths

PARTITION = 2
STORAGES = ("höst-世:4001", "b.example:4002")

EXAMPLES: dict[str, Any] = {
    "ClusterParams": ClusterParams("clüster \0 😀", 3),
    "PartitionAssignment": PartitionAssignment(
        7, 3, {2: (OwnedPartition(1, 4), OwnedPartition(0, 1)), 1: (), 3: (OwnedPartition(2, 2),)}
    ),
    "PartitionAssignment of no server ever": UNASSIGNED,
    "ServerDescriptor": ServerDescriptor(4, "server.example", 6000, (2, 0)),
    "StoreParams": StoreParams(uuid.UUID("f3339fab-ddb6-8018-e021-c61f1f751180"), 3),
    "GroupDescriptor": GroupDescriptor({STORAGES[0]: 1, STORAGES[1]: 0}),
    "ConnectionMetadata": ConnectionMetadata({STORAGES[0]: 5001, STORAGES[1]: 5002}),
    "ReplicaAssignments": ReplicaAssignments({STORAGES[0]: (0, 2), STORAGES[1]: ()}),
    "PartitionMetadata": PartitionMetadata(
        5, 9, {STORAGES[0]: ReplicaState(9, UNRESOLVED), STORAGES[1]: ReplicaState(8, 41)}
    ),
    "PartitionMetadata of a new partition": NEW_PARTITION,
}
GOLDEN_FILE = Path(__file__).parent / "golden" / "metadata.json"
GOLDEN = json.loads(GOLDEN_FILE.read_text())


def encode(value: Any) -> bytes:
    raw: bytes = value.encode(PARTITION) if isinstance(value, PartitionMetadata) else value.encode()
    return raw


def decoder(kind: type[Any]) -> Callable[[bytes], Any]:
    if kind is PartitionMetadata:
        return lambda raw: PartitionMetadata.decode(raw, PARTITION)
    decode: Callable[[bytes], Any] = kind.decode
    return decode


def test_golden_znodes_cover_every_example() -> None:
    """With WRITE_GOLDEN set missing examples are added to the file; no entry of it changes."""
    if os.environ.get("WRITE_GOLDEN"):
        for name in EXAMPLES.keys() - GOLDEN.keys():
            GOLDEN[name] = encode(EXAMPLES[name]).hex()
        GOLDEN_FILE.write_text(json.dumps(GOLDEN, indent=1) + "\n")
    assert GOLDEN.keys() == EXAMPLES.keys() | {"id counter"}, (
        "for a new example: WRITE_GOLDEN=1 pytest tests/unit/metadata/test_metadata_formats.py"
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_znode_bytes_equal_the_golden_bytes(name: str) -> None:
    value = EXAMPLES[name]
    assert encode(value).hex() == GOLDEN[name]
    assert decoder(type(value))(bytes.fromhex(GOLDEN[name])) == value


def test_id_counter_bytes_equal_the_golden_bytes() -> None:
    assert formats.encode_id(763).hex() == GOLDEN["id counter"]
    assert formats.decode_id(bytes.fromhex(GOLDEN["id counter"])) == 763


@pytest.mark.parametrize("name", EXAMPLES)
def test_map_order_survives_decoding_and_encoding(name: str) -> None:
    raw = bytes.fromhex(GOLDEN[name])
    assert encode(decoder(type(EXAMPLES[name]))(raw)) == raw


@pytest.mark.parametrize("name", EXAMPLES)
def test_truncated_or_extended_znode_is_malformed(name: str) -> None:
    decode, raw = decoder(type(EXAMPLES[name])), bytes.fromhex(GOLDEN[name])
    for length in range(len(raw)):
        with pytest.raises(MalformedMetadata):
            decode(raw[:length])
    with pytest.raises(MalformedMetadata, match="1 bytes too many"):
        decode(raw + b"\0")


@pytest.mark.parametrize("name", EXAMPLES)
def test_znode_of_another_version_is_malformed(name: str) -> None:
    kind = type(EXAMPLES[name])
    raw = bytearray.fromhex(GOLDEN[name])
    raw[4 if kind is ClusterParams else 0] = 9
    with pytest.raises(MalformedMetadata, match="version 9") as caught:
        decoder(kind)(bytes(raw))
    assert caught.value.kind == kind.__name__


@given(st.sampled_from(sorted(EXAMPLES)), st.binary(max_size=80))
def test_random_znode_bytes_are_malformed_or_decoded(name: str, raw: bytes) -> None:
    """Whatever decodes also survives encoding and decoding again."""
    decode = decoder(type(EXAMPLES[name]))
    try:
        value = decode(raw)
    except MalformedMetadata:
        return
    assert decode(encode(value)) == value


@pytest.mark.parametrize("count", ["7fffffff", "ffffffff", "00000002"])
def test_impossible_count_is_malformed_before_allocation(count: str) -> None:
    version, name, group = "01", "0001" + "61", "00000001"
    raw = bytes.fromhex(version + count + name + group)
    with pytest.raises(MalformedMetadata, match="entries of at least"):
        GroupDescriptor.decode(raw)


def test_repeated_map_entry_is_malformed() -> None:
    # The entry follows a version byte and a count of four bytes.
    entry = GroupDescriptor({"a:1": 1}).encode()[5:]
    with pytest.raises(MalformedMetadata, match="a:1 is listed twice"):
        GroupDescriptor.decode(bytes.fromhex("0100000002") + entry + entry)


def test_cluster_params_with_a_wrong_magic_are_malformed() -> None:
    raw = bytearray(ClusterParams("c", 1).encode())
    raw[0] ^= 1
    with pytest.raises(MalformedMetadata, match="magic"):
        ClusterParams.decode(bytes(raw))


def test_replica_entry_of_another_partition_is_malformed() -> None:
    raw = EXAMPLES["PartitionMetadata"].encode(3)
    with pytest.raises(MalformedMetadata, match="partition 2 has a replica of partition 3"):
        PartitionMetadata.decode(raw, 2)


def test_error_of_a_malformed_text_names_the_znode_format() -> None:
    raw = bytearray(GroupDescriptor({"a:1": 1}).encode())
    # The text follows the version, the count and the length of the text.
    raw[7] = 0x80
    with pytest.raises(MalformedMetadata, match="GroupDescriptor: byte 0x80"):
        GroupDescriptor.decode(bytes(raw))


@given(st.text())
def test_modified_utf8_round_trip_keeps_the_text(text: str) -> None:
    assert decode_text(encode_text(text)) == text


def test_modified_utf8_bytes_equal_those_of_java() -> None:
    assert encode_text("a\0é世😀") == bytes.fromhex("61 c080 c3a9 e4b896 eda0bd edb880")
    assert decode_text(b"\xed\xa0\xbd") == "\ud83d"


@pytest.mark.parametrize("raw", [b"\x80", b"\xff", b"\xc3", b"\xc3a", b"\xe4\xb8", b"\xe4\xb8a"])
def test_modified_utf8_of_invalid_bytes_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedText):
        decode_text(raw)


def test_modified_utf8_longer_than_its_length_field_is_refused() -> None:
    assert len(encode_text("x" * 65535)) == 65535
    with pytest.raises(MalformedText, match="65536 encoded bytes"):
        encode_text("x" * 65536)


def test_storages_of_a_partition_are_in_stored_order() -> None:
    assignments = ReplicaAssignments({"a:1": (0, 1), "b:1": (1,), "c:1": ()})
    assert assignments.storages_of(1) == ("a:1", "b:1")


def test_paths_equal_those_of_0_13_2() -> None:
    paths = Paths("/spec/waltz")
    assert paths.partition(3) == "/spec/waltz/store/partition/3"
    assert paths.new_server_descriptor == "/spec/waltz/serverDescriptors/s_"
    assert paths.ancestors() == ("/spec",)


@pytest.mark.parametrize(
    "root",
    ["", "/", "waltz", "/waltz/", "//waltz", "/a//b", "/a b", "/a\n", "/zookeeper/x", "/a/../b"],
)
def test_paths_of_an_unusable_root_are_refused(root: str) -> None:
    with pytest.raises(BadRoot):
        Paths(root)


def test_server_descriptor_of_an_ipv6_host_has_an_address_with_brackets() -> None:
    assert ServerDescriptor(1, "server.example", 6000).address == "server.example:6000"
    assert ServerDescriptor(1, "2001:db8::1", 6000).address == "[2001:db8::1]:6000"
