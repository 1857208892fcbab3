"""Pure. A transaction as blocks of 4096 bytes, and back.

Each block begins with a header: magic (32 bits), the number of transaction bytes in the block (16
bits), flags (16 bits), and the transaction's id (64 bits), all little-endian. The encoded
operations, the *entries* (see `operations`), fill the rest of the blocks. After the last entry
comes the *tail*: the length of a checksum, and the checksum of all entries. The tail is never
divided between two blocks, and the flag `HAS_TAIL` marks the block that has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from waltz_storage.core.wal.checksums import Checksum
from waltz_storage.core.wal.operations import (
    MalformedTransaction,
    Operation,
    decode_checksum,
    decode_operations,
    encode_checksum,
    encode_operations,
    encoded_bytes,
)
from waltz_storage.core.wal.ring import BLOCK_BYTES, TransactionId

MAGIC = 0x4C41_5757
"""The first four bytes of each block: the letters WWAL."""
HAS_TAIL = 1
"""The flag of the block that has the transaction's tail."""
_HEAD = struct.Struct("<IHHQ")
HEAD_BYTES = _HEAD.size
ROOM_BYTES = BLOCK_BYTES - HEAD_BYTES
"""The number of transaction bytes that a block has room for."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that was read: its id, its operations, and how many blocks it takes."""

    id: TransactionId
    operations: Sequence[Operation]
    blocks: int


class Unreadable(Enum):
    """Why there is no valid transaction at a position."""

    NEVER_WRITTEN = auto()
    """The first block is not a block of any transaction."""
    STALE = auto()
    """The first block is of another transaction, from an earlier round of the log (`ring`)."""
    INVALID = auto()
    """The transaction begins there, but it is not complete or fails its checksum."""


def encode_transaction(
    transaction_id: TransactionId, operations: Sequence[Operation], checksum: Checksum
) -> bytes:
    """Return the blocks of a transaction, one after the other."""
    entries = encode_operations(operations)
    tail = encode_checksum(checksum.encode(entries))
    count = blocks_of_bytes(len(entries), checksum)
    raw = bytearray(count * BLOCK_BYTES)
    # A slice of a view is no copy, so each byte is copied only once.
    view = memoryview(entries)
    for number in range(count):
        piece = view[number * ROOM_BYTES : (number + 1) * ROOM_BYTES]
        begin = number * BLOCK_BYTES
        end = begin + HEAD_BYTES + len(piece)
        raw[begin + HEAD_BYTES : end] = piece
        length, flags = len(piece), 0
        if number == count - 1:
            raw[end : end + len(tail)] = tail
            length, flags = length + len(tail), HAS_TAIL
        _HEAD.pack_into(raw, begin, MAGIC, length, flags, transaction_id.value)
    return bytes(raw)


def blocks_of(operations: Sequence[Operation], checksum: Checksum) -> int:
    """Return how many blocks `encode_transaction` makes of ``operations``."""
    return blocks_of_bytes(sum(map(encoded_bytes, operations)), checksum)


def blocks_of_bytes(size: int, checksum: Checksum) -> int:
    """Return how many blocks a transaction has whose encoded operations have ``size`` bytes."""
    # A tail that does not fit into the last block of entries gets a block of its own. The number of
    # blocks is the same as if the tail were divided between these two blocks.
    tail_bytes = len(encode_checksum(bytes(checksum.size)))
    return (size + tail_bytes + ROOM_BYTES - 1) // ROOM_BYTES  # Rounded up.


def read_transaction(
    transaction_id: TransactionId,
    read_block: Callable[[int], bytes],
    most_blocks: int,
    checksum: Checksum,
) -> Transaction | Unreadable:
    """Read the transaction ``transaction_id``; return it, or why there is no valid one.

    The transaction may take at most ``most_blocks`` blocks. ``read_block(n)`` returns block ``n``
    of the transaction, numbered from 0.
    """
    entries: list[bytes] = []
    for number in range(most_blocks):
        block = read_block(number)
        magic, length, flags, value = _HEAD.unpack_from(block)
        belongs_to_transaction = magic == MAGIC and value == transaction_id.value
        if number == 0 and not belongs_to_transaction:
            return Unreadable.STALE if magic == MAGIC else Unreadable.NEVER_WRITTEN
        if not belongs_to_transaction or length > ROOM_BYTES:
            return Unreadable.INVALID
        content = block[HEAD_BYTES : HEAD_BYTES + length]
        if not flags & HAS_TAIL:
            entries.append(content)
            continue
        return _verified(transaction_id, entries, content, number + 1, checksum)
    return Unreadable.INVALID


def _verified(
    transaction_id: TransactionId,
    entries: list[bytes],
    last: bytes,
    blocks: int,
    checksum: Checksum,
) -> Transaction | Unreadable:
    """Return the transaction, or INVALID if its entries do not match the checksum in its tail.

    ``entries`` are the contents of all blocks but the last one, and ``last`` is the content of the
    last block: entries, then the tail. ``blocks`` is the number of all blocks.
    """
    tail_bytes = len(encode_checksum(bytes(checksum.size)))
    if len(last) < tail_bytes:
        return Unreadable.INVALID
    raw = b"".join((*entries, last[:-tail_bytes]))
    try:
        stored, _ = decode_checksum(last, len(last) - tail_bytes)
        if stored != checksum.encode(raw):
            return Unreadable.INVALID
        return Transaction(transaction_id, decode_operations(raw), blocks)
    except MalformedTransaction:
        return Unreadable.INVALID
