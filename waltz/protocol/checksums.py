"""Compute the CRC-32 that protects records, messages and files. Pure.

fastcrc computes the same numbers as zlib, several times faster, in particular for the few hundred
bytes of a typical record. Each record is checked by its server and by each of its storages.
"""

from __future__ import annotations

from fastcrc import crc32 as _variants

crc32 = _variants.iso_hdlc
"""Return the CRC-32 of bytes; a second argument is the CRC-32 of the bytes before them."""


def as_signed(value: int) -> int:
    """Return an unsigned 32-bit checksum as the signed number with the same bits."""
    return value - (1 << 32) if value & 0x8000_0000 else value
