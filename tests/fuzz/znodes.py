"""Fuzz the data of every znode, and the text format in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from tests.fuzz import values
from tests.fuzz.mutation import mutate
from tests.fuzz.target import hold
from waltz.metadata.core.formats import (
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    MalformedMetadata,
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
from waltz.metadata.core.modified_utf8 import MalformedText, decode_text, encode_text

_PARTITION = 3
_NOT_WRITTEN = re.compile(rb"\0|\xc0[\x81-\xbf]|\xc1.|\xe0[\x80-\x9f]", re.DOTALL)
"""Encodings of a character that are longer or shorter than the written one: the zero byte, and
overlong forms."""
_OVERLONG = re.compile(rb"\xc0[\x81-\xbf]|\xc1[\x80-\xbf]|\xe0[\x80-\x9f]")
_TEXTS = ("", "storage-0.waltz:55280", "\0", "Ä", "語", "😀", "\ud800", "x" * 200)


def _text(random: Random) -> str:
    return random.choice(_TEXTS) + str(random.randrange(5))


def _storages(random: Random, value: Callable[[Random], Any]) -> dict[str, Any]:
    return {_text(random): value(random) for _ in range(random.choice((0, 1, 3)))}


def _assignment(random: Random) -> PartitionAssignment:
    def owned() -> tuple[OwnedPartition, ...]:
        count = random.choice((0, 1, 4))
        return tuple(
            OwnedPartition(values.int32(random), values.int32(random)) for _ in range(count)
        )

    servers = {values.int32(random): owned() for _ in range(random.choice((0, 1, 3)))}
    return PartitionAssignment(values.int32(random), values.int32(random), servers)


def _metadata(random: Random) -> PartitionMetadata:
    states = _storages(random, lambda r: ReplicaState(values.int64(r), values.int64(r)))
    return PartitionMetadata(values.int32(random), values.int64(random), states)


_FORMATS: tuple[tuple[Callable[[Random], Any], Callable[[bytes], Any]], ...] = (
    (lambda r: ClusterParams(_text(r), values.int32(r)), ClusterParams.decode),
    (_assignment, PartitionAssignment.decode),
    (
        lambda r: ServerDescriptor(values.int32(r), _text(r), values.int32(r), values.ints(r)),
        ServerDescriptor.decode,
    ),
    (
        lambda r: StoreParams(UUID(bytes=r.randbytes(16)), values.int32(r)),
        StoreParams.decode,
    ),
    (lambda r: GroupDescriptor(_storages(r, values.int32)), GroupDescriptor.decode),
    (lambda r: ConnectionMetadata(_storages(r, values.int32)), ConnectionMetadata.decode),
    (lambda r: ReplicaAssignments(_storages(r, values.ints)), ReplicaAssignments.decode),
    (_metadata, lambda raw: PartitionMetadata.decode(raw, _PARTITION)),
    (values.int32, decode_id),
)


def _encode(value: Any) -> bytes:
    if isinstance(value, int):
        return encode_id(value)
    if isinstance(value, PartitionMetadata):
        return value.encode(_PARTITION)
    encoded: bytes = value.encode()
    return encoded


class Znodes:
    """A znode's data after a byte that selects its format."""

    name = "znodes"
    modules = (
        "waltz.metadata.core.formats",
        "waltz.metadata.core.codec",
        "waltz.metadata.core.modified_utf8",
    )

    def make(self, random: Random) -> bytes:
        """Return any znode's data."""
        choice = random.randrange(len(_FORMATS))
        return bytes((choice,)) + _encode(_FORMATS[choice][0](random))

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes, or the selected format."""
        if random.random() < 0.05:
            return bytes((random.randrange(len(_FORMATS)),)) + data[1:]
        return data[:1] + mutate(random, data[1:], other[1:])

    def check(self, data: bytes) -> bool:
        """Decode and encode again: the same bytes, unless a text was not as it is written."""
        decode, raw = _FORMATS[data[0] % len(_FORMATS)][1], data[1:]
        try:
            value = decode(raw)
        except MalformedMetadata as malformed:
            hold(malformed.reason, "a refusal is explained")
            return False
        again = _encode(value)
        hold(decode(again) == value, "decoding again gives another value")
        unusual = b"\xc0\x80" in again or _OVERLONG.search(raw)
        hold(again == raw or unusual, "encoding again gives other bytes")
        return True


class Texts:
    """Modified UTF-8."""

    name = "texts"
    modules = ("waltz.metadata.core.modified_utf8",)

    def make(self, random: Random) -> bytes:
        """Return several texts in one."""
        return encode_text("".join(_text(random) for _ in range(random.randrange(1, 6))))

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes."""
        return mutate(random, data, other)

    def check(self, data: bytes) -> bool:
        """Decode and encode again."""
        try:
            text = decode_text(data)
        except MalformedText:
            return False
        if len(data) < 1 << 15:
            again = encode_text(text)
            hold(again == data or _NOT_WRITTEN.search(data), "encoding again gives other bytes")
            hold(decode_text(again) == text, "decoding again gives another text")
        return True


def znode_targets() -> tuple[Znodes, Texts]:
    """Return the targets of this module."""
    return Znodes(), Texts()
