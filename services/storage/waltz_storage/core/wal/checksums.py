"""Pure. The checksum algorithms that a write-ahead log can name.

A log names its algorithm in its header, so a reader needs no setting. Every algorithm is a CRC with
commonly published parameters. Catalogues of CRCs publish for each algorithm the checksum of the
text "123456789". A test compares these checksums with those of this module
(`test_storage_wal_format`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastcrc import crc32 as crc32_variants
from fastcrc import crc64 as crc64_variants


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum algorithm. ``compute`` returns an unsigned number of ``size`` bytes."""

    name: str
    size: int
    compute: Callable[[bytes], int]

    def encode(self, data: bytes) -> bytes:
        """Return the checksum of ``data``, little-endian."""
        return self.compute(data).to_bytes(self.size, "little")


DEFAULT = Checksum("CRC-32", 4, crc32_variants.iso_hdlc)
"""The algorithm of new logs."""
ALGORITHMS: Mapping[str, Checksum] = {
    algorithm.name: algorithm
    for algorithm in (
        DEFAULT,
        Checksum("CRC-32C", 4, crc32_variants.iscsi),
        Checksum("CRC-64", 8, crc64_variants.xz),
    )
}
"""The algorithms, by the name in the header."""
