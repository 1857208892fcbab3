"""Compute the CRC-32 that protects records, messages and files. Pure.

fastcrc computes the same numbers as zlib, several times faster, in particular for the few hundred
bytes of a typical record. The speed matters, because the server and each storage check each record.
"""

from __future__ import annotations

from fastcrc import crc32 as _crc32_variants

# ISO-HDLC is the name of the variant that zlib computes.
crc32 = _crc32_variants.iso_hdlc
"""Return the unsigned CRC-32 of bytes.

The optional second argument is the CRC-32 of earlier bytes. The result is then the CRC-32 of the
earlier bytes and these bytes together."""


def as_signed(value: int) -> int:
    """Return an unsigned 32-bit checksum as the signed number with the same bits."""
    return value - (1 << 32) if value & 0x8000_0000 else value
