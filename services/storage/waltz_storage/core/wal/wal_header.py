"""Pure. The header of a write-ahead log: its cluster, its size, its checksum and its checkpoint.

The header is in the first two blocks of the file. An update writes the block that is not current,
so that a torn write leaves the header before the update. The numbers are little-endian, and each
block ends with the CRC-32 of its fields.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, replace

from waltz.protocol.checksums import crc32
from waltz_storage.core.wal.checksums import ALGORITHMS, Checksum
from waltz_storage.core.wal.ring import BLOCK_BYTES, Ring, TransactionId

HEADER_BLOCKS = 2
"""The number of blocks before the ring."""
_MAGIC = b"WALTZWAL"
_VERSION = 1
# Magic, version, bytes of a block, number of blocks, cluster key, update number, checkpoint,
# name of the checksum algorithm.
_FIELDS = struct.Struct("<8sIIQ16sQQ16s")
_CRC = struct.Struct("<I")


class HeaderDamaged(Exception):
    """The header is not valid, or does not fit the file; the text says why."""


@dataclass(frozen=True, slots=True)
class WalHeader:
    """The header of a log.

    Transactions before ``checkpoint`` are applied to their files and not needed any more. ``key``
    is that of the cluster. ``blocks`` is the size of the file in blocks, including those of the
    header. ``checksum`` is the algorithm of the transactions. ``updates`` is how often the header
    was updated: of the two blocks, the one with the higher number is current.
    """

    key: uuid.UUID
    blocks: int
    checksum: Checksum
    checkpoint: TransactionId
    updates: int = 0

    @classmethod
    def new(cls, key: uuid.UUID, blocks: int, checksum: Checksum) -> WalHeader:
        """Return the header of a new, empty log."""
        ring = Ring(HEADER_BLOCKS, blocks - HEADER_BLOCKS)
        return cls(key, blocks, checksum, ring.start)

    @property
    def ring(self) -> Ring:
        """The blocks that hold transactions."""
        return Ring(HEADER_BLOCKS, self.blocks - HEADER_BLOCKS)

    @property
    def slot(self) -> int:
        """The number of the block that has this header."""
        return self.updates % HEADER_BLOCKS

    def advanced(self, checkpoint: TransactionId) -> WalHeader:
        """Return the next header, whose checkpoint is ``checkpoint``."""
        assert checkpoint >= self.checkpoint, "a checkpoint never goes back"
        return replace(self, checkpoint=checkpoint, updates=self.updates + 1)

    def encode(self) -> bytes:
        """Return the block to write at block number ``slot``."""
        fields = _FIELDS.pack(
            _MAGIC,
            _VERSION,
            BLOCK_BYTES,
            self.blocks,
            self.key.bytes,
            self.updates,
            self.checkpoint.value,
            self.checksum.name.encode(),
        )
        return (fields + _CRC.pack(crc32(fields))).ljust(BLOCK_BYTES, b"\0")


def decode_wal_header(first: bytes, second: bytes) -> WalHeader:
    """Return the current header from the first two blocks of the file; raises HeaderDamaged."""
    valid: list[WalHeader] = []
    problems: list[str] = []
    for block in (first, second):
        try:
            valid.append(_decode(block))
        except HeaderDamaged as damaged:
            problems.append(str(damaged))
    if not valid:
        raise HeaderDamaged("; ".join(dict.fromkeys(problems)))
    return max(valid, key=lambda header: header.updates)


def _decode(block: bytes) -> WalHeader:
    """Return the header in one block; raises HeaderDamaged."""
    if len(block) < BLOCK_BYTES:
        raise HeaderDamaged("the file ends inside its header")
    magic, version, block_bytes, blocks, key, updates, checkpoint, name = _FIELDS.unpack_from(block)
    if magic != _MAGIC:
        raise HeaderDamaged("the block is no header of a write-ahead log")
    if _CRC.unpack_from(block, _FIELDS.size)[0] != crc32(block[: _FIELDS.size]):
        raise HeaderDamaged("a block of the header fails its checksum")
    if (version, block_bytes) != (_VERSION, BLOCK_BYTES):
        raise HeaderDamaged(f"version {version} with blocks of {block_bytes} bytes is unknown")
    algorithm = ALGORITHMS.get(name.rstrip(b"\0").decode(errors="replace"))
    if algorithm is None:
        raise HeaderDamaged(f"the checksum {name!r} is unknown")
    position = TransactionId.of(checkpoint)
    return WalHeader(uuid.UUID(bytes=key), blocks, algorithm, position, updates)
