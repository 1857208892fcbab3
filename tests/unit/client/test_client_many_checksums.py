"""Test that checksums of many pieces computed at once equal those of zlib."""

from __future__ import annotations

import subprocess
import sys
from zlib import crc32

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from waltz.client.core.many_checksums import concatenated, pieces_match, shifted


@given(st.data(), st.integers(0, 40), st.integers(0, 40))
def test_checksums_concatenation_matches_crc32(data: st.DataObject, size: int, count: int) -> None:
    pieces = [data.draw(st.binary(min_size=size, max_size=size)) for _ in range(count)]
    crcs = np.array([crc32(piece) for piece in pieces], np.uint32)
    assert concatenated(crcs, size) == crc32(b"".join(pieces))


@given(st.binary(max_size=40), st.binary(max_size=5000))
def test_checksums_shift_matches_crc32(first: bytes, second: bytes) -> None:
    assert shifted(crc32(first), len(second)) ^ crc32(second) == crc32(first + second)


PIECES = st.lists(st.binary(max_size=9) | st.binary(min_size=30, max_size=40), max_size=20)


@given(PIECES, st.data())
def test_checksums_with_one_wrong_value_do_not_match(
    pieces: list[bytes], data: st.DataObject
) -> None:
    crcs = np.array([crc32(piece) for piece in pieces], np.uint32)
    array = pa.array(pieces, pa.binary())
    assert pieces_match(array, crcs)
    if pieces:
        crcs[data.draw(st.integers(0, len(pieces) - 1))] ^= 1 << data.draw(st.integers(0, 31))
        assert not pieces_match(array, crcs)


_LONG_AMONG_SHORT = """
import numpy, pyarrow, zlib
from waltz.client.core.many_checksums import pieces_match

pieces = [b"short"] * 5000 + [bytes(4 << 20)]
crcs = numpy.array([zlib.crc32(piece) for piece in pieces], numpy.uint32)
assert pieces_match(pyarrow.array(pieces, pyarrow.binary()), crcs)
print(pyarrow.default_memory_pool().max_memory())
"""


def test_checksums_padding_is_bounded() -> None:
    """In a separate process, because the peak memory is that of the whole process."""
    done = subprocess.run(
        [sys.executable, "-c", _LONG_AMONG_SHORT], capture_output=True, text=True, check=True
    )
    assert 4 << 20 < int(done.stdout) < 64 << 20
