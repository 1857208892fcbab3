"""Check the CRC-32 of many pieces at once. Pure.

A CRC is linear: the checksum of two concatenated pieces is the checksum of the first, shifted by
the length of the second, xor the checksum of the second. The expected checksums of pieces of one
size therefore determine the checksum of their concatenation, and one pass over all bytes verifies
all of them. Pieces of several sizes are padded with zeros in front. The padding changes a checksum
in a way that depends only on the sizes of the piece before and after the padding.

The error rate is that of any CRC-32 over so many bytes: one undetected damage in 2^32, and none if
the damage is confined to four bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Crcs = np.ndarray[Any, np.dtype[np.uint32]]

_POLYNOMIAL = 0xEDB88320
_MAX_PADDING = 2
"""Padding may multiply the total length at most by this; otherwise pieces are checked singly."""

_BYTES = np.arange(256, dtype=np.uint32)


class CrcShift:
    """The effect of a number of following zero bytes on a checksum."""

    def __init__(self, apply: Callable[[Crcs], Crcs]) -> None:
        """Tabulate ``apply``, which shifts checksums, for the values of each half of a CRC."""
        lowest, low, high, highest = (apply(_BYTES << np.uint32(8 * place)) for place in range(4))
        self._low = (low[:, None] ^ lowest).reshape(-1)
        self._high = (highest[:, None] ^ high).reshape(-1)

    def __call__(self, crcs: Crcs) -> Crcs:
        """Return each checksum after the shift."""
        halves = np.ascontiguousarray(crcs, "<u4").view("<u2")
        moved = self._low.take(halves[0::2])
        moved ^= self._high.take(halves[1::2])
        return moved


def match(pieces: Any, crcs: Crcs) -> bool:
    """Return whether each of ``pieces``, an Arrow array of binary, has its checksum in ``crcs``."""
    if not len(pieces):
        return not len(crcs)
    # No caller passes a slice of another array, so the first piece begins at offset 0.
    offsets = np.frombuffer(pieces.buffers()[1], np.int32, len(pieces) + 1)
    sizes = np.diff(offsets)
    longest, total = int(sizes.max()), int(offsets[-1])
    content = pieces.buffers()[2] or b""
    if not total or longest * len(pieces) > _MAX_PADDING * total:
        found: list[int] = list(map(crc32, pieces.to_pylist()))
        return found == list(crcs)
    if longest * len(pieces) > total:
        # Arrow can pad only text, but does not check that the bytes are text.
        text = pa.StringArray.from_buffers(len(pieces), *pieces.buffers()[1:])
        content = pc.ascii_lpad(text, longest, "\0").buffers()[2]
        # For a piece and as many zeros, the xor of their checksums is the same with and without
        # zeros in front of both. So the checksum of a padded piece follows from that of the piece
        # and those of zeros of both sizes.
        crcs = crcs ^ _of_zeros(sizes) ^ _of_zeros(np.array([longest]))
    return crc32(memoryview(content)[: longest * len(pieces)]) == concatenated(crcs, longest)


@lru_cache(maxsize=512)
def shift_by(size: int) -> CrcShift:
    """Return the shift by ``size`` bytes, 1 or more."""
    if size == 1:
        return CrcShift(_by_one_byte)
    half = shift_by(size // 2)
    if size % 2:
        one = shift_by(1)
        return CrcShift(lambda crcs: one(half(half(crcs))))
    return CrcShift(lambda crcs: half(half(crcs)))


def concatenated(crcs: Crcs, size: int) -> int:
    """Return the CRC-32 of the concatenation of pieces of ``size`` bytes that have ``crcs``."""
    while len(crcs) > 1:
        if len(crcs) % 2:
            # An empty piece in front, whose CRC is 0, makes the number even.
            crcs = np.concatenate((np.zeros(1, np.uint32), crcs))
        crcs = shift_by(size)(crcs[0::2]) ^ crcs[1::2] if size else crcs[0::2] ^ crcs[1::2]
        size *= 2
    return int(crcs[0]) if len(crcs) else 0


def shifted(crc: int, size: int) -> int:
    """Return the checksum ``crc`` after the shift by ``size`` zero bytes, 0 or more."""
    return int(shift_by(size)(np.array([crc], np.uint32))[0]) if size else crc


def _of_zeros(sizes: np.ndarray[Any, Any]) -> Crcs:
    """Return the checksum of a piece of zeros for each of ``sizes``."""
    different, where = np.unique(sizes, return_inverse=True)
    return np.array([crc32(bytes(size)) for size in different], np.uint32)[where]


def _by_one_byte(crcs: Crcs) -> Crcs:
    """Shift each checksum by one byte, bit by bit."""
    for _ in range(8):
        crcs = (crcs >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) * (crcs & np.uint32(1)))
    return crcs
