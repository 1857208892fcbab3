"""Transaction records: their identity, their fields, and batches of them as bytes. Pure.

A server and a storage exchange records in a *batch*, in wire form. They decode a record only where
they use its fields. Source: spec/wire.md section 2 (data types), spec/disk.md section 3.2 (the same
fields on disk).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from waltz.protocol.checksums import crc32

NO_TRANSACTION = -1
"""The high-water mark (last committed transaction id) of an empty log; ids begin at 0."""

_REQ_ID = struct.Struct(">iiii")
WIRE_HEAD = struct.Struct(">qiiiiii")
"""The fields before a record's data: transaction id, request id (four ints), header, data length.
"""

_ID_BYTES = 8
"""The length of a transaction id, with which a record begins."""
_CHECKSUM = struct.Struct(">i")
_LENGTH = struct.Struct(">I")
_LENGTH_OFFSET = WIRE_HEAD.size - _LENGTH.size
"""The position of the data length in a record: it is the last field of the head."""
_BETWEEN_DATA = struct.Struct(">Iq20xI")
"""All bytes between the data of two records: the checksum, then the next record's head.

Of the head, only transaction id and data length are read: ``20x`` skips request id and header."""

WIRE_OVERHEAD_BYTES = WIRE_HEAD.size + _CHECKSUM.size
"""Bytes that a record adds to its data on the wire."""


class MalformedBatch(ValueError):
    """The bytes do not contain the stated number of well-formed records."""


def checksum(data: bytes) -> int:
    """Return the CRC-32 of ``data`` as a signed 32-bit int, the form on the wire and on disk."""
    # Not `as_signed`: its call would make this function, which checks each record, 10 % slower.
    value = crc32(data)
    return value - (1 << 32) if value & 0x8000_0000 else value


def wrapped(number: int) -> int:
    """Return the signed 32-bit sequence number for ``number``, which may be too large for one.

    After the largest such number follows the smallest.
    """
    return ((number + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


@dataclass(frozen=True, slots=True)
class ReqId:
    """The id of a request. The id of an append is unique, and is stored with its transaction.

    ``generation`` is that of the partition: it grows when the partition moves to another server.
    As text, such as ``17:3:0:42``, a request id has these four numbers in their order.
    """

    client_id: int
    generation: int
    partition: int
    seq: int

    def __str__(self) -> str:
        return f"{self.client_id}:{self.generation}:{self.partition}:{self.seq}"

    @classmethod
    def parse(cls, text: str) -> ReqId:
        """Return the request id that ``text`` shows. Raises ValueError."""
        try:
            client_id, generation, partition, seq = map(int, text.split(":"))
            # Raises struct.error if a number needs more than 32 bits.
            cls(client_id, generation, partition, seq).encode()
        except (ValueError, struct.error):
            raise ValueError(
                f"{text!r} is not a request id: that is 17:3:0:42, for example, the client's id, "
                "the generation, the partition and the sequence number"
            ) from None
        return cls(client_id, generation, partition, seq)

    def encode(self) -> bytes:
        """Return the 16 bytes of the wire and disk form."""
        return _REQ_ID.pack(self.client_id, self.generation, self.partition, self.seq)

    @classmethod
    def decode(cls, raw: bytes, offset: int = 0) -> ReqId:
        """Decode the 16 bytes of ``raw`` that begin at ``offset``."""
        return cls(*_REQ_ID.unpack_from(raw, offset))


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """A transaction without its data. ``header`` is an int of the application."""

    transaction_id: int
    req_id: ReqId
    header: int


@dataclass(frozen=True, slots=True)
class Record:
    """A transaction. ``checksum`` is the CRC-32 of ``data`` that the client computed."""

    transaction_id: int
    req_id: ReqId
    header: int
    data: bytes
    checksum: int

    def encode(self) -> bytes:
        """Return the wire form (spec/wire.md section 2)."""
        req_id = self.req_id
        head = WIRE_HEAD.pack(
            self.transaction_id,
            req_id.client_id,
            req_id.generation,
            req_id.partition,
            req_id.seq,
            self.header,
            len(self.data),
        )
        return b"".join((head, self.data, _CHECKSUM.pack(self.checksum)))


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Consecutive records in wire form: the unit in which appends are written and replicated.

    Invariant: ``wire`` is exactly ``count`` well-formed records. There is one exception: a batch
    that `fields.UncheckedBatchCodec` decoded may break this invariant until `mismatch` has checked
    the batch.

    The sender of a batch has set the transaction ids. The receiver must check that they are
    consecutive.
    """

    count: int
    wire: bytes

    @classmethod
    def of(cls, records: Iterable[Record]) -> RecordBatch:
        """Encode ``records`` in the given order."""
        parts = [record.encode() for record in records]
        return cls(len(parts), b"".join(parts))

    @classmethod
    def parse(cls, raw: bytes, offset: int, count: int, end: int) -> tuple[RecordBatch, int]:
        """Read ``count`` records from ``raw[offset:end]``; return them and the position after them.

        Raises MalformedBatch if ``count`` or a length is negative, or a record is cut off.
        """
        if count < 0:
            raise MalformedBatch(f"negative number of records: {count}")
        position = offset
        length_at = _LENGTH.unpack_from
        try:
            for _ in range(count):
                # The length is read as unsigned: a negative length becomes a huge one, which ends
                # beyond ``end`` and is refused.
                position += WIRE_OVERHEAD_BYTES + length_at(raw, position + _LENGTH_OFFSET)[0]
        except struct.error:
            raise MalformedBatch("record cut off") from None
        if position > end:
            raise MalformedBatch("record cut off")
        return cls(count, raw[offset:position]), position

    def __iter__(self) -> Iterator[Record]:
        wire, position = self.wire, 0
        for _ in range(self.count):
            tx, client, gen, part, seq, header, length = WIRE_HEAD.unpack_from(wire, position)
            start = position + WIRE_HEAD.size
            end = start + length
            (crc,) = _CHECKSUM.unpack_from(wire, end)
            yield Record(tx, ReqId(client, gen, part, seq), header, wire[start:end], crc)
            position = end + _CHECKSUM.size

    def parts(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield for each record its id, its encoded request id, and the bytes after them."""
        wire, position = self.wire, 0
        for _ in range(self.count):
            (length,) = _LENGTH.unpack_from(wire, position + _LENGTH_OFFSET)
            req_id_at = position + _ID_BYTES
            rest_at = req_id_at + _REQ_ID.size
            end = position + WIRE_OVERHEAD_BYTES + length
            transaction_id = int.from_bytes(wire[position:req_id_at], "big", signed=True)
            yield transaction_id, wire[req_id_at:rest_at], wire[rest_at:end]
            position = end

    def mismatch(self, first_id: int) -> int | None:
        """Return the id of the first wrong record, None if all are right.

        The ids must be consecutive from ``first_id``, each record's data must match its checksum,
        and no bytes may follow the last record
        (test_stored_batch_with_a_changed_bit_fails_at_its_record).

        If the bytes end early, the first record that is not complete is wrong. If bytes follow the
        last record, that record is wrong.
        """
        # For speed, one `_BETWEEN_DATA` reads the checksum of a record together with the id and the
        # data length of the next record. Before the first record there is no checksum, and after
        # the last one there is no head: zero bytes stand in for both.
        padded = b"".join((bytes(_CHECKSUM.size), self.wire, bytes(WIRE_HEAD.size)))
        unpack = _BETWEEN_DATA.unpack_from
        _, transaction_id, length = unpack(padded)
        start = _BETWEEN_DATA.size
        expected = first_id
        try:
            for expected in range(first_id, first_id + self.count):
                end = start + length
                crc, next_id, next_length = unpack(padded, end)
                if transaction_id != expected or crc32(padded[start:end]) != crc:
                    return expected
                transaction_id, length, start = next_id, next_length, end + _BETWEEN_DATA.size
        except struct.error:
            return expected
        # After the last record, ``start`` is behind the zero bytes that stand in for a head. That
        # is the end of ``padded``, unless other bytes follow the record.
        return None if start == len(padded) else expected

    def __len__(self) -> int:
        """Return the number of records, not of bytes."""
        return self.count

    def first_id(self) -> int:
        """Return the id of the first record; the batch must not be empty."""
        assert self.count > 0
        return int.from_bytes(self.wire[:_ID_BYTES], "big", signed=True)

    def __add__(self, other: RecordBatch) -> RecordBatch:
        return RecordBatch(self.count + other.count, self.wire + other.wire)


EMPTY_BATCH = RecordBatch(0, b"")
