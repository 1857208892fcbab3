"""Checksums of many pieces at once are those of zlib, one after the other."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from waltz.spark.checksums import joined, match, moved


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


PIECES = st.lists(st.binary(max_size=9) | st.binary(min_size=30, max_size=40), max_size=20)


@settings(deadline=None)
@given(PIECES, st.data())
def test_pieces_match_their_checksums_and_no_others(
    pieces: list[bytes], data: st.DataObject
) -> None:
    crcs = np.array([crc32(piece) for piece in pieces], np.uint32)
    array = pa.array(pieces, pa.binary())
    assert match(array, crcs)
    if pieces:
        crcs[data.draw(st.integers(0, len(pieces) - 1))] ^= 1 << data.draw(st.integers(0, 31))
        assert not match(array, crcs)


def test_one_long_piece_among_short_ones_is_not_padded_to_its_length() -> None:
    pieces = [b"short"] * 5000 + [bytes(4 << 20)]
    crcs = np.array([crc32(piece) for piece in pieces], np.uint32)
    before = pa.total_allocated_bytes()
    array = pa.array(pieces, pa.binary())
    assert match(array, crcs)
    assert pa.default_memory_pool().max_memory() - before < 64 << 20
