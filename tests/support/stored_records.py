"""Make records in their form on disk, as a storage writes them."""

from __future__ import annotations

from collections.abc import Sequence

from waltz.protocol.records import WIRE_HEAD, Record, RecordBatch, ReqId, checksum
from waltz.protocol.stored import STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES, StoredBatch
from waltz_storage.core.log.segment_format import SegmentEncoder


def batch_of(first_id: int, data: Sequence[bytes], partition: int = 0) -> RecordBatch:
    """Return consecutive records with these data."""
    return RecordBatch.of(
        Record(first_id + n, ReqId(5, 2, partition, n), n, each, checksum(each))
        for n, each in enumerate(data)
    )


def stored_form(batch: RecordBatch) -> StoredBatch:
    """Return the records of ``batch`` in their form on disk."""
    first_id = batch.first_id() if batch.count else 0
    encoder = SegmentEncoder(first_id, 0, 1 << 30)
    encoder.add(batch.wire, 0, batch.count)
    return StoredBatch(batch.count, b"".join(encoder.parts))


def wire_form(batch: StoredBatch) -> RecordBatch:
    """Return right records in wire form."""
    wire, position = [], 0
    for _ in range(batch.count):
        head = bytes(batch.raw[position : position + WIRE_HEAD.size])
        start = position + STORED_HEAD_BYTES
        end = start + WIRE_HEAD.unpack(head)[-1]
        data_checksum = bytes(batch.raw[position + WIRE_HEAD.size : start])
        wire += [head, bytes(batch.raw[start:end]), data_checksum]
        position = end + STORED_OVERHEAD_BYTES - STORED_HEAD_BYTES
    return RecordBatch(batch.count, b"".join(wire))


def with_bit_flipped(batch: StoredBatch, bit: int) -> StoredBatch:
    """Return ``batch`` with one bit changed."""
    raw = bytearray(batch.raw)
    raw[bit // 8] ^= 1 << bit % 8
    return StoredBatch(batch.count, bytes(raw))
