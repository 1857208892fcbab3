"""CRC-32 of many pieces at once. Pure.

A CRC is linear: the checksum of two pieces joined is that of the first, moved on by the length of
the second, xor that of the second. So the checksums that pieces of one size should have tell what
that of all of them, joined, must be, and one pass over all bytes says whether each is right. Pieces
of several sizes are made equally long by zeros before them, which change a checksum in a way that
only depends on how many there are.

What this misses is what any CRC-32 of so many bytes would miss: one damage in 2^32, and none within
four bytes.
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
_MOST_PADDING = 2
"""How many times as long as they are pieces may become by padding."""

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


def match(pieces: Any, crcs: Crcs) -> bool:
    """Whether the pieces, an Arrow array of binary, have the checksums ``crcs``, one each."""
    if not len(pieces):
        return not len(crcs)
    # An array that was not sliced: its first piece begins with its bytes.
    offsets = np.frombuffer(pieces.buffers()[1], np.int32, len(pieces) + 1)
    sizes = np.diff(offsets)
    longest, total = int(sizes.max()), int(offsets[-1])
    content = pieces.buffers()[2] or b""
    if not total or longest * len(pieces) > _MOST_PADDING * total:
        found: list[int] = list(map(crc32, pieces.to_pylist()))
        return found == list(crcs)
    if longest * len(pieces) > total:
        # Only text is padded by Arrow, but it does not look at what it pads.
        text = pa.StringArray.from_buffers(len(pieces), *pieces.buffers()[1:])
        content = pc.ascii_lpad(text, longest, "\0").buffers()[2]
        crcs = crcs ^ _of_zeros(sizes) ^ _of_zeros(np.array([longest]))
    return crc32(memoryview(content)[: longest * len(pieces)]) == joined(crcs, longest)


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


def _of_zeros(sizes: np.ndarray[Any, Any]) -> Crcs:
    """Return the checksums of so many zeros."""
    different, where = np.unique(sizes, return_inverse=True)
    return np.array([crc32(bytes(size)) for size in different], np.uint32)[where]


def _by_one_byte(crcs: Crcs) -> Crcs:
    for _ in range(8):
        crcs = (crcs >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) * (crcs & np.uint32(1)))
    return crcs
