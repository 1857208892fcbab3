"""Checksums of many pieces at once are those of zlib, one after the other."""

from __future__ import annotations

from zlib import crc32

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.spark.checksums import joined, moved


@settings(deadline=None)
@given(st.data(), st.integers(0, 40), st.integers(0, 40))
def test_the_checksum_of_pieces_joined(data: st.DataObject, size: int, count: int) -> None:
    pieces = [data.draw(st.binary(min_size=size, max_size=size)) for _ in range(count)]
    crcs = np.array([crc32(piece) for piece in pieces], np.uint32)
    assert joined(crcs, size) == crc32(b"".join(pieces))


@settings(deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=5000))
def test_what_follows_moves_a_checksum(first: bytes, second: bytes) -> None:
    assert moved(crc32(first), len(second)) ^ crc32(second) == crc32(first + second)
