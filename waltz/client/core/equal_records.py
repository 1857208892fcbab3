"""Verify stored records all at once, if they are of equal size. Pure. Needs numpy.

`waltz.client.core.stored_ranges` describes this form. `waltz.client.core.many_checksums` explains
the shift of a checksum, and how the checksums of pieces determine the checksum of their
concatenation. A record ends with the checksum r of its head and data, encoded as the 4 bytes t. So
the checksum of the whole record follows from r::

    crc32(record) == shift(r, 4) ^ crc32(t)

So the stored checksums of all records determine the checksum of all bytes, which is also calculated
from the bytes in one pass. All records are right if both agree (`many_checksums` has the error
rate).

A record has a second checksum: that of its data, which is a field of its head. It is verified
without another pass over the data. Each record has ``length`` bytes of data::

    crc32(head + data) == shift(crc32(head), length) ^ crc32(data)

The left side is r. So the xor of r and the checksum of the data is the checksum of the head,
shifted by ``length``: the few bytes of the heads show whether it is right. A shift is linear, and
the order of two shifts does not matter. So the shifted checksums can be concatenated like
checksums, for heads ``g`` and ``h`` of n bytes each::

    shift(shift(crc32(g), length), n) ^ shift(crc32(h), length) == shift(crc32(g + h), length)

The left side is calculated from the stored checksums, the right side from the bytes of all heads as
one piece.
"""

from __future__ import annotations

import numpy as np

from waltz.client.core.many_checksums import concatenated, shift_by, shifted
from waltz.protocol.checksums import crc32
from waltz.protocol.stored import STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES, StoredBatch

_HEAD = np.dtype(
    [
        ("transaction_id", ">i8"),
        ("client_and_generation", ">i8"),
        ("partition", ">i4"),
        ("seq_and_header", ">i8"),
        ("length", ">u4"),
        ("checksum", ">u4"),
    ]
)
"""The head of a record in disk form. Adjacent fields that are not checked are one field here."""
_CHECKSUM_BYTES = 4
_ALL_BITS = np.uint32(0xFFFF_FFFF)
"""The xor with this number inverts a number of 32 bits."""

assert _HEAD.itemsize == STORED_HEAD_BYTES


def are_right(records: StoredBatch, partition: int, first_id: int) -> bool | None:
    """Return whether all records, of which there is at least one, are right.

    Records are right if they are of ``partition``, have the ids from ``first_id`` on, and match
    their two checksums. Return None if they do not all have one size: then nothing was verified.
    """
    raw, count = records.raw, records.count
    size, remainder = divmod(len(raw), count)
    if remainder or size < STORED_OVERHEAD_BYTES:
        return None
    table = np.frombuffer(raw, np.uint8).reshape(count, size)
    head_bytes = table[:, :STORED_HEAD_BYTES].tobytes()
    heads = np.frombuffer(head_bytes, _HEAD)
    length = size - STORED_OVERHEAD_BYTES
    if (heads["length"] != length).any():
        return None
    ids = np.arange(first_id, first_id + count)
    if (heads["transaction_id"] != ids).any() or (heads["partition"] != partition).any():
        return False
    tails = table[:, -_CHECKSUM_BYTES:].tobytes()
    record_crcs = np.frombuffer(tails, ">u4").astype(np.uint32)
    # A stored checksum is big-endian, but a CRC-32 takes up bytes as a little-endian number. Its
    # calculation begins and ends with an inversion of all bits. So with the little-endian number n
    # of a tail t: crc32(t) == shift(~n, 4) ^ 0xFFFFFFFF. With this, the checksum of a whole record,
    # shift(r, 4) ^ crc32(t), needs only one shift: shift(r ^ ~n, 4) ^ 0xFFFFFFFF.
    inverted = np.frombuffer(tails, "<u4").astype(np.uint32) ^ _ALL_BITS
    whole_crcs = shift_by(_CHECKSUM_BYTES)(record_crcs ^ inverted) ^ _ALL_BITS
    if crc32(raw) != concatenated(whole_crcs, size):
        return False
    shifted_head_crcs = record_crcs ^ heads["checksum"].astype(np.uint32)
    return shifted(crc32(head_bytes), length) == concatenated(shifted_head_crcs, STORED_HEAD_BYTES)
