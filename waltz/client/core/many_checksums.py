"""Check the CRC-32 of many pieces of bytes at once. Pure. Needs ``waltz-log[columns]``.

A CRC is calculated by a register of 32 bits, which changes with each byte. To *shift* a checksum by
n bytes is to put the checksum into the register, and to calculate the register after n zero bytes.
A shift is linear: ``shift(x ^ y, n) == shift(x, n) ^ shift(y, n)``. The checksum of two pieces, one
after the other, follows from the checksums of both, without reading the pieces again::

    crc32(a + b) == shift(crc32(a), len(b)) ^ crc32(b)

Example: the checksum of ``a`` is e8b7be43, and shifted by one byte ef3da794. The xor with 71beeff9,
the checksum of ``b``, is 9e83486d, the checksum of ``ab``.

So if all pieces have one size, the expected checksums of the pieces determine the checksum of their
concatenation. One pass over the bytes of all pieces calculates the actual checksum of the
concatenation, and verifies all pieces. If the pieces have several sizes, zeros are put in front of
the shorter ones first.

The error rate is that of any CRC-32 over so many bytes: random damage remains undetected with a
probability of 2^-32. Damage within four adjacent bytes is always detected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from waltz.protocol.checksums import crc32

Crcs = np.ndarray[Any, np.dtype[np.uint32]]
"""The checksums of several pieces, in the order of the pieces."""

_MAX_PADDING = 2
"""Padding may multiply the total length by at most this; otherwise each piece is checked alone."""

_ALL_BITS = 0xFFFF_FFFF
"""The xor with this number inverts a checksum."""
_ZEROS = bytes(1 << 16)
"""The zeros that `shifted` reads at once."""

_BYTES = np.arange(256, dtype=np.uint32)
"""All values of one byte."""


class CrcShift:
    """The shift of checksums by one certain number of bytes, calculated by two tables.

    A shift is linear, so a shifted checksum is the xor of the shifts of its two 16-bit halves. Each
    table has the shifts of all 65,536 values of one half.
    """

    def __init__(self, apply: Callable[[Crcs], Crcs]) -> None:
        """Calculate the tables by ``apply``, which does the same shift more slowly."""
        # The shifts of all values of each byte of a checksum, from the lowest byte to the highest.
        byte_0, byte_1, byte_2, byte_3 = (apply(_BYTES << np.uint32(8 * n)) for n in range(4))
        # The index of a table is 256 times the higher byte, plus the lower byte.
        self._low_half = (byte_1[:, None] ^ byte_0).reshape(-1)
        self._high_half = (byte_3[:, None] ^ byte_2).reshape(-1)

    def __call__(self, crcs: Crcs) -> Crcs:
        """Return the shifted checksums."""
        halves = np.ascontiguousarray(crcs, "<u4").view("<u2")
        shifted_crcs = self._low_half.take(halves[0::2])
        shifted_crcs ^= self._high_half.take(halves[1::2])
        return shifted_crcs


def pieces_match(pieces: Any, crcs: Crcs) -> bool:
    """Return whether each of ``pieces``, an Arrow array of binary, has its checksum in ``crcs``."""
    if not len(pieces):
        return not len(crcs)
    assert pieces.offset == 0, "a slice of another array would begin in the middle of the buffers"
    offsets = np.frombuffer(pieces.buffers()[1], np.int32, len(pieces) + 1)
    sizes = np.diff(offsets)
    longest, total = int(sizes.max()), int(offsets[-1])
    padded_total = longest * len(pieces)
    if not total or padded_total > _MAX_PADDING * total:
        calculated: list[int] = list(map(crc32, pieces.to_pylist()))
        return calculated == list(crcs)
    content = pieces.buffers()[2]
    if padded_total > total:
        content = _padded(pieces, longest)
        # Let p be a piece, z its padding, and o as many zeros as p is long: z + p and z + o
        # have the length ``longest``. The formula for two pieces gives:
        #   crc32(z + p) == shift(crc32(z), len(p)) ^ crc32(p)
        #   crc32(z + o) == shift(crc32(z), len(p)) ^ crc32(o)
        # The xor of these two equations removes the shift:
        #   crc32(z + p) == crc32(p) ^ crc32(o) ^ crc32(z + o)
        crcs = crcs ^ _crcs_of_zeros(sizes) ^ _crcs_of_zeros(np.array([longest]))
    # The buffer of an array may be longer than its pieces.
    return crc32(memoryview(content)[:padded_total]) == concatenated(crcs, longest)


@lru_cache(maxsize=128)
def shift_by(size: int) -> CrcShift:
    """Return the shift by ``size`` bytes, 1 or more. The tables of a cached shift have 512 KiB."""
    # The shift by an even number is twice the shift by its half, which may be cached already.
    if size % 2 == 0:
        half = shift_by(size // 2)
        return CrcShift(lambda crcs: half(half(crcs)))
    # A shift is linear: a shifted checksum is the xor of the shifts of its bits that are set.
    shifted_bits = [np.uint32(shifted(1 << bit, size)) for bit in range(32)]

    def apply(crcs: Crcs) -> Crcs:
        shifted_crcs = np.zeros_like(crcs)
        for bit, shifted_bit in enumerate(shifted_bits):
            shifted_crcs ^= shifted_bit * ((crcs >> np.uint32(bit)) & np.uint32(1))
        return shifted_crcs

    return CrcShift(apply)


def concatenated(crcs: Crcs, size: int) -> int:
    """Return the CRC-32 of the concatenation of pieces of ``size`` bytes that have ``crcs``."""
    while len(crcs) > 1:
        if len(crcs) % 2:
            # Make the number even by the checksum of an empty piece, 0. In front of the others it
            # has no effect, because 0 remains 0 in every shift.
            crcs = np.concatenate((np.zeros(1, np.uint32), crcs))
        # Replace the checksums of two neighbours by that of their concatenation.
        crcs = _shift(crcs[0::2], size) ^ crcs[1::2]
        size *= 2
    return int(crcs[0]) if len(crcs) else 0


def shifted(crc: int, size: int) -> int:
    """Return the checksum ``crc`` after the shift by ``size`` bytes, 0 or more."""
    # One checksum needs no tables: `crc32` of zeros shifts it. But `crc32` inverts all bits at its
    # beginning and at its end, which a shift does not, so they are inverted back.
    crc ^= _ALL_BITS
    for start in range(0, size, len(_ZEROS)):
        crc = crc32(_ZEROS[: size - start], crc)
    return crc ^ _ALL_BITS


def _shift(crcs: Crcs, size: int) -> Crcs:
    """Return the checksums after the shift by ``size`` bytes, 0 or more."""
    return shift_by(size)(crcs) if size else crcs


def _padded(pieces: Any, size: int) -> Any:
    """Return a buffer with the bytes of ``pieces``, each padded to ``size`` by zeros in front."""
    # Loaded here, because the rest of this module needs only numpy.
    import pyarrow as pa
    import pyarrow.compute as pc

    # Arrow can pad only text, but does not check that the bytes are text.
    text = pa.StringArray.from_buffers(len(pieces), *pieces.buffers()[1:])
    return pc.ascii_lpad(text, size, "\0").buffers()[2]


def _crcs_of_zeros(sizes: np.ndarray[Any, Any]) -> Crcs:
    """Return the checksum of a piece of zeros for each of ``sizes``."""
    distinct_sizes, indices = np.unique(sizes, return_inverse=True)
    return np.array([crc32(bytes(size)) for size in distinct_sizes], np.uint32)[indices]
