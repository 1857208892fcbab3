"""Mutate bytes: small damage, and changes that parsers often handle wrongly.

All randomness comes from the given `Random`, so that a seed repeats everything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from random import Random

_WIDTHS = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
_LONGEST_BYTES = 1 << 17
_SEARCHED_BYTES = 512

Mutation = Callable[[Random, bytearray, bytes], None]


def extreme(random: Random, width: int) -> int:
    """Return a number of ``width`` bytes at or near the edge of its range, as unsigned."""
    bits = 8 * width
    edge = random.choice((0, 1 << (bits - 1), 1 << bits, 1 << random.randrange(bits)))
    return (edge + random.choice((-2, -1, 0, 1))) % (1 << bits)


def mutate(random: Random, data: bytes, other: bytes) -> bytes:
    """Return ``data`` with one to four mutations, some of which take parts of ``other``."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        random.choice(_MUTATIONS)(random, changed, other)
        del changed[max(_LONGEST_BYTES, len(data)) :]
    return bytes(changed)


def pieces(random: Random, data: bytes) -> list[bytes]:
    """Return ``data`` cut into chunks of any sizes."""
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 1, 3, 12))))
    bounds = [0, *cuts, len(data)]
    return [data[a:b] for a, b in pairwise(bounds) if a < b]


def _flip(random: Random, data: bytearray, _: bytes) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray, _: bytes) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xC0, 0xFF))


def _set_number(random: Random, data: bytearray, _: bytes) -> None:
    width = random.choice((1, 2, 4, 4, 4, 8))
    if len(data) >= width:
        at = random.randrange(len(data) - width + 1)
        struct.pack_into(_WIDTHS[width], data, at, extreme(random, width))


def _change_length(random: Random, data: bytearray, _: bytes) -> None:
    """Change a number that may be the length or the count of what follows it."""
    width = random.choice((2, 4, 4, 4))
    start = random.randrange(max(1, len(data) - _SEARCHED_BYTES))
    stop = min(len(data) - width, start + _SEARCHED_BYTES)
    read = struct.Struct(_WIDTHS[width])
    found = [
        (at, number)
        for at in range(start, stop + 1)
        if 0 < (number := read.unpack_from(data, at)[0]) <= len(data) - at
    ]
    # The likeliest lengths are those that reach to the end, or to a checksum before it.
    last = [(at, number) for at, number in found if len(data) - (at + width + number) in (0, 4)]
    if found:
        at, number = random.choice(last if last and random.random() < 0.5 else found)
        changed = random.choice(
            (number + 1, number - 1, number * 2, 0, len(data) - at - width, extreme(random, width))
        )
        read.pack_into(data, at, changed % (1 << 8 * width))


def _cut(random: Random, data: bytearray, _: bytes) -> None:
    del data[random.randrange(len(data) + 1) :]


def _remove(random: Random, data: bytearray, _: bytes) -> None:
    start, stop = _range(random, data)
    del data[start:stop]


def _repeat(random: Random, data: bytearray, _: bytes) -> None:
    start, stop = _range(random, data)
    data[stop:stop] = data[start:stop] * random.choice((1, 1, 2, 50))


def _extend(random: Random, data: bytearray, other: bytes) -> None:
    length = random.choice((1, 3, 40, 600))
    data += random.choice((bytes(length), random.randbytes(length), other[:length]))


def _zero(random: Random, data: bytearray, _: bytes) -> None:
    start, stop = _range(random, data)
    data[start:stop] = bytes(stop - start)


def _swap(random: Random, data: bytearray, _: bytes) -> None:
    length = random.choice((1, 4, 8, 36, 76, 512))
    if len(data) >= 2 * length:
        a, b = sorted(random.sample(range(len(data) - length + 1), 2))
        if b >= a + length:
            first, second = data[a : a + length], data[b : b + length]
            data[a : a + length], data[b : b + length] = second, first


def _splice(random: Random, data: bytearray, other: bytes) -> None:
    """Replace the rest by that of another input, from about the same place or any place."""
    at = random.randrange(len(data) + 1)
    start = min(at, len(other)) if random.random() < 0.5 else random.randrange(len(other) + 1)
    data[at:] = other[start:]


def _transplant(random: Random, data: bytearray, other: bytes) -> None:
    start, stop = _range(random, other)
    at = random.randrange(len(data) + 1)
    data[at : at + (stop - start)] = other[start:stop]


def _range(random: Random, data: bytes | bytearray) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    length = random.choice((1, 4, 8, 40, 200, 512))
    return start, min(len(data), start + length)


_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _flip,
    _set_byte,
    _set_number,
    _set_number,
    _change_length,
    _change_length,
    _change_length,
    _cut,
    _remove,
    _repeat,
    _extend,
    _zero,
    _swap,
    _splice,
    _transplant,
)
