"""CRC-32 of many pieces at once. Pure.

A CRC is linear: the checksum of two pieces joined is that of the first, moved on by the length of
the second, xor that of the second. So the checksums that records of one size carry tell what the
checksum of all of them, joined, must be, and one pass over all bytes says whether each is right.
What this misses is what any CRC-32 of so many bytes would miss: one time in 2^32, and no damage
within four bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

Crcs = np.ndarray[Any, np.dtype[np.uint32]]

_POLYNOMIAL = 0xEDB88320
_BYTES = np.arange(256, dtype=np.uint32)


class Move:
    """What so many bytes that follow do to a checksum, apart from what is in them."""

    def __init__(self, apply: Callable[[Crcs], Crcs]) -> None:
        """``apply`` does it, in whatever way; here it becomes a table for each half of a CRC."""
        lowest, low, high, highest = (apply(_BYTES << np.uint32(8 * place)) for place in range(4))
        self._low = (low[:, None] ^ lowest).reshape(-1)
        self._high = (highest[:, None] ^ high).reshape(-1)

    def __call__(self, crcs: Crcs) -> Crcs:
        """Return each checksum moved on."""
        halves = np.ascontiguousarray(crcs, "<u4").view("<u2")
        moved = self._low.take(halves[0::2])
        moved ^= self._high.take(halves[1::2])
        return moved


@lru_cache(maxsize=512)
def move(size: int) -> Move:
    """Return what ``size`` bytes, 1 or more, do."""
    if size == 1:
        return Move(_by_one_byte)
    half = move(size // 2)
    if size % 2:
        one = move(1)
        return Move(lambda crcs: one(half(half(crcs))))
    return Move(lambda crcs: half(half(crcs)))


def joined(crcs: Crcs, size: int) -> int:
    """Return the CRC-32 of pieces of ``size`` bytes each, back to back, that have ``crcs``."""
    while len(crcs) > 1:
        if len(crcs) % 2:
            # Nothing, whose CRC is 0, before the first.
            crcs = np.concatenate((np.zeros(1, np.uint32), crcs))
        crcs = move(size)(crcs[0::2]) ^ crcs[1::2] if size else crcs[0::2] ^ crcs[1::2]
        size *= 2
    return int(crcs[0]) if len(crcs) else 0


def moved(crc: int, size: int) -> int:
    """Return the checksum ``crc`` moved on by ``size`` bytes."""
    return int(move(size)(np.array([crc], np.uint32))[0]) if size else crc


def _by_one_byte(crcs: Crcs) -> Crcs:
    for _ in range(8):
        crcs = (crcs >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) * (crcs & np.uint32(1)))
    return crcs
