"""Pure. The operations of a transaction, and their bytes in the write-ahead log.

An operation changes or checks a range of *memory*. Memory is all files of a storage in one address
space. Each file is a *region* with a number, which the `catalogue` gives it. An address has the
number of the region in its high 24 bits, and the offset in that file in its low 40 bits. An
operation is encoded as an *entry*: address (64 bits), type (32 bits), length (32 bits), then data
that depend on the type. All numbers are little-endian.

The format has four kinds of operations (docs/formats.md), and a replay applies all of them. The
storage itself writes no Move and no Zero.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

_OFFSET_BITS = 40
_ENTRY = struct.Struct("<QII")
_ADDRESS = struct.Struct("<Q")
_CHECKSUM_LENGTH = struct.Struct("<I")
_MAX_CHECKSUM_BYTES = 64
"""A longer checksum is taken for invalid bytes; the algorithms of `checksums` have at most 8."""


class MalformedTransaction(ValueError):
    """The bytes of a transaction's entries are not operations."""


class _Type(IntEnum):
    """The number of an operation's type in its entry, with the names of docs/formats.md."""

    MEMCPY = 0
    MEMMOVE = 1
    ZEROING = 2
    CSUM = 3


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A position in memory: an ``offset`` in bytes in a ``region``."""

    region: int
    offset: int

    def __post_init__(self) -> None:
        assert 0 <= self.region < (1 << (64 - _OFFSET_BITS)), "a region has 24 bits"
        assert 0 <= self.offset < (1 << _OFFSET_BITS), "an offset has 40 bits"

    @property
    def value(self) -> int:
        """The address as a 64-bit number."""
        return (self.region << _OFFSET_BITS) | self.offset

    @classmethod
    def of(cls, value: int) -> Address:
        """Return the address with the 64-bit number ``value``."""
        return cls(value >> _OFFSET_BITS, value & ((1 << _OFFSET_BITS) - 1))


@dataclass(frozen=True, slots=True)
class WriteData:
    """Write ``data`` at ``address``."""

    address: Address
    data: bytes


@dataclass(frozen=True, slots=True)
class Move:
    """Copy ``length`` bytes from ``source`` to ``address``, as memmove: the ranges may overlap."""

    address: Address
    source: Address
    length: int


@dataclass(frozen=True, slots=True)
class Zero:
    """Write ``length`` zero bytes at ``address``."""

    address: Address
    length: int


@dataclass(frozen=True, slots=True)
class Check:
    """Check that ``length`` bytes at ``address`` have ``checksum``.

    These are direct data: they were written to their file before the transaction.
    """

    address: Address
    length: int
    checksum: bytes


Operation = WriteData | Move | Zero | Check


def encode_operations(operations: Iterable[Operation]) -> bytes:
    """Return the entries of ``operations``, in order."""
    parts: list[bytes] = []
    for operation in operations:
        address = operation.address.value
        match operation:
            case WriteData(_, data):
                parts += (_ENTRY.pack(address, _Type.MEMCPY, len(data)), data)
            case Move(_, source, length):
                head = _ENTRY.pack(address, _Type.MEMMOVE, length)
                parts += (head, _ADDRESS.pack(source.value))
            case Zero(_, length):
                parts.append(_ENTRY.pack(address, _Type.ZEROING, length))
            case Check(_, length, checksum):
                head = _ENTRY.pack(address, _Type.CSUM, length)
                parts += (head, encode_checksum(checksum))
    return b"".join(parts)


def encoded_bytes(operation: Operation) -> int:
    """Return how many bytes `encode_operations` makes of one operation."""
    match operation:
        case WriteData(_, data):
            return _ENTRY.size + len(data)
        case Move():
            return _ENTRY.size + _ADDRESS.size
        case Zero():
            return _ENTRY.size
        case Check(_, _, checksum):
            return _ENTRY.size + _CHECKSUM_LENGTH.size + len(checksum)


def decode_operations(raw: bytes) -> Sequence[Operation]:
    """Return the operations in ``raw``; raises MalformedTransaction."""
    operations: list[Operation] = []
    position = 0
    try:
        while position < len(raw):
            address_value, kind, length = _ENTRY.unpack_from(raw, position)
            position += _ENTRY.size
            address = Address.of(address_value)
            match kind:
                case _Type.MEMCPY:
                    data = _take(raw, position, length)
                    operations.append(WriteData(address, data))
                    position += length
                case _Type.MEMMOVE:
                    source = Address.of(_ADDRESS.unpack_from(raw, position)[0])
                    operations.append(Move(address, source, length))
                    position += _ADDRESS.size
                case _Type.ZEROING:
                    operations.append(Zero(address, length))
                case _Type.CSUM:
                    checksum, position = decode_checksum(raw, position)
                    operations.append(Check(address, length, checksum))
                case _:
                    raise MalformedTransaction(f"unknown operation type {kind}")
    except struct.error:
        raise MalformedTransaction("an entry is cut off") from None
    return operations


def encode_checksum(checksum: bytes) -> bytes:
    """Return a checksum with its length before it."""
    return _CHECKSUM_LENGTH.pack(len(checksum)) + checksum


def decode_checksum(raw: bytes, position: int) -> tuple[bytes, int]:
    """Return the checksum at ``position``, and the position after it.

    Raises MalformedTransaction.
    """
    try:
        (length,) = _CHECKSUM_LENGTH.unpack_from(raw, position)
    except struct.error:
        raise MalformedTransaction("a checksum is cut off") from None
    if length > _MAX_CHECKSUM_BYTES:
        raise MalformedTransaction(f"a checksum of {length} bytes")
    begin = position + _CHECKSUM_LENGTH.size
    return _take(raw, begin, length), begin + length


def _take(raw: bytes, position: int, length: int) -> bytes:
    """Return ``length`` bytes at ``position``; raises MalformedTransaction if there are fewer."""
    taken = raw[position : position + length]
    if len(taken) != length:
        raise MalformedTransaction("the data of an entry are cut off")
    return taken
