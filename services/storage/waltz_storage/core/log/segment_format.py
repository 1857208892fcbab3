"""Pure. The bytes of data and index files (spec/disk.md sections 3 and 4).

A segment has two files. The data file has consecutive records. The index file has an *entry* for
each of them: the position in the data file where the record begins.

Data files have records in *disk form*. Messages, and the rest of the storage, have them in *wire
form*. In disk form the checksum of the data precedes the data, and a checksum of the whole record
follows. `SegmentEncoder` converts from wire form, and `decode_records` to it. The parameter ``raw``
of the functions that read records is in disk form, as read from a file.
"""

from __future__ import annotations

import struct
import uuid
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from sys import byteorder
from typing import Protocol

from waltz.protocol.checksums import crc32
from waltz.protocol.records import WIRE_HEAD, RecordHeader, ReqId
from waltz.protocol.stored import STORED_HEAD_BYTES, STORED_OVERHEAD_BYTES

HEADER_BYTES = 128
RECORD_OVERHEAD_BYTES = STORED_OVERHEAD_BYTES
"""How many bytes longer a record in disk form is than its data."""
RECORD_PREFIX_BYTES = STORED_HEAD_BYTES
"""Size of the part of a record before its data."""

ENTRY_BYTES = 8
CHECKPOINT_INTERVAL = 1000
"""A checkpoint, which writes index entries, is due when the next id reaches a multiple of this.

The checkpoints of the write-ahead log (`core.wal`) are something else."""

DATA_SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"

_HEADER = struct.Struct(">iq16siq")
ID_AND_LENGTH = struct.Struct(">q20xi")
"""The id and the data length, at the beginning of a record; a length below 0 is damage."""

# The first 32 bytes of a record, from the id to the data length, are the same in both forms.
_WIRE_PREFIX_BYTES = WIRE_HEAD.size
CHECKSUM = struct.Struct(">I")
"""The checksum at the end of a record."""
_PIECE_BYTES = 1 << 20
"""How many bytes of a long record `long_record_is_valid` reads at once."""


class Damage(Exception):
    """Bytes of a file are wrong. ``what`` says what is wrong at byte ``offset``."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset
        self.what = what


class ByteSource(Protocol):
    """Something to read bytes from: a file, or a buffer in tests."""

    def size(self) -> int:
        """Return the length in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end of the file."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header of a data or index file. ``created_ms`` is in milliseconds since 1970."""

    created_ms: int
    key: uuid.UUID
    partition: int
    first_id: int
    version: int = 0

    def encode(self) -> bytes:
        """Return the 128 bytes of the header."""
        fields = (self.version, self.created_ms, self.key.bytes, self.partition, self.first_id)
        return _HEADER.pack(*fields).ljust(HEADER_BYTES, b"\0")

    @classmethod
    def decode(cls, raw: bytes) -> FileHeader:
        """Read a header; raises Damage if it is cut off.

        The version is ignored, as by Waltz 0.13.2 (spec/disk.md section 8).
        """
        if len(raw) < HEADER_BYTES:
            raise Damage(len(raw), f"the file ends inside its {HEADER_BYTES} byte header")
        version, created_ms, key, partition, first_id = _HEADER.unpack_from(raw)
        return cls(created_ms, uuid.UUID(bytes=key), partition, first_id, version)


def segment_name(first_id: int) -> str:
    """Return the file name, without suffix, of the segment that begins at ``first_id``."""
    return f"{first_id:019d}"


class SegmentEncoder:
    """Converts records from wire form to the bytes to write at the end of one segment.

    ``parts`` are the bytes to write at byte ``start`` of the data file: for each record, its bytes
    and then its record checksum. ``offset`` is the position after them. ``offsets`` has the
    position of each record, from ``first_id`` to ``next_id`` - 1.
    Once the encoder is ``full``, the segment exceeds its ``threshold`` in bytes, and later records
    go to the next segment.
    """

    __slots__ = ("first_id", "next_id", "offset", "offsets", "parts", "start", "threshold")

    def __init__(self, next_id: int, offset: int, threshold: int) -> None:
        self.first_id = self.next_id = next_id
        self.start = self.offset = offset
        self.threshold = threshold
        self.parts: list[bytes] = []
        self.offsets: list[int] = []

    @property
    def full(self) -> bool:
        """Whether no more records may be added."""
        return self.offset > self.threshold

    def add(self, wire: bytes, position: int, count: int) -> tuple[int, int]:
        """Add up to ``count`` records of ``wire``, which begin at ``position``.

        Stops early when the segment is full, or at a record that does not have the next id. Returns
        the number of records added, and the position after them.
        """
        next_id, offset, threshold = self.next_id, self.offset, self.threshold
        unpack, pack, checksum_bytes = ID_AND_LENGTH.unpack_from, CHECKSUM.pack, CHECKSUM.size
        add_part, add_offset = self.parts.append, self.offsets.append
        added = 0
        while added < count and offset <= threshold:
            transaction_id, length = unpack(wire, position)
            if transaction_id != next_id:
                break
            data_start = position + _WIRE_PREFIX_BYTES
            data_end = data_start + length
            # In wire form the checksum of the data follows the data.
            next_position = data_end + checksum_bytes
            prefix, data = wire[position:data_start], wire[data_start:data_end]
            record = prefix + wire[data_end:next_position] + data
            add_part(record)
            add_part(pack(crc32(record)))
            add_offset(offset)
            offset += RECORD_OVERHEAD_BYTES + length
            position = next_position
            next_id += 1
            added += 1
        self.next_id, self.offset = next_id, offset
        return added, position


def decode_records(raw: bytes, offset: int, first_id: int, count: int) -> bytes:
    """Convert ``count`` records in ``raw`` from disk form to wire form.

    Checks ids, lengths and record checksums; raises Damage. ``offset`` is the position of ``raw``
    in its file.
    """
    view, total = memoryview(raw), len(raw)
    parts: list[bytes] = []
    position = 0
    for transaction_id in range(first_id, first_id + count):
        if position + RECORD_OVERHEAD_BYTES > total:
            raise Damage(offset + position, f"record {transaction_id} is cut off")
        stored_id, length = ID_AND_LENGTH.unpack_from(raw, position)
        if stored_id != transaction_id:
            raise _id_mismatch(offset + position, transaction_id, stored_id)
        end = position + RECORD_PREFIX_BYTES + length
        next_position = end + CHECKSUM.size
        if length < 0 or next_position > total:
            raise Damage(offset + position, f"record {transaction_id} has the length {length}")
        if crc32(view[position:end]) != CHECKSUM.unpack_from(raw, end)[0]:
            raise Damage(offset + position, f"record {transaction_id} fails its checksum")
        data_start = position + RECORD_PREFIX_BYTES
        data_checksum_at = data_start - CHECKSUM.size
        # In disk form the checksum of the data precedes the data.
        parts += (
            raw[position:data_checksum_at],
            raw[data_start:end],
            raw[data_checksum_at:data_start],
        )
        position = next_position
    return b"".join(parts)


def decode_record_header(
    raw: bytes, offset: int, position: int, transaction_id: int, size: int
) -> RecordHeader:
    """Return the header of the record at ``position``, which takes ``size`` bytes on disk.

    Checks its id and its length. Its data are not checked and need not be in ``raw``. ``position``
    is a position in ``raw``, and ``offset`` is the position of ``raw`` in its file. Raises Damage.
    """
    if position + RECORD_PREFIX_BYTES > len(raw):
        raise Damage(offset + position, f"record {transaction_id} is cut off")
    head = WIRE_HEAD.unpack_from(raw, position)
    stored_id, client, generation, partition, seq, header, length = head
    if stored_id != transaction_id:
        raise _id_mismatch(offset + position, transaction_id, stored_id)
    if length != size - RECORD_OVERHEAD_BYTES:
        raise Damage(
            offset + position,
            f"record {transaction_id} has the length {length}, but the index has "
            f"{size - RECORD_OVERHEAD_BYTES}",
        )
    return RecordHeader(transaction_id, ReqId(client, generation, partition, seq), header)


def check_record(raw: bytes, offset: int, position: int, transaction_id: int, size: int) -> None:
    """Check the checksum of a record; raises Damage.

    The arguments are those of `decode_record_header`.
    """
    end = position + size - CHECKSUM.size
    if end + CHECKSUM.size > len(raw):
        raise Damage(offset + position, f"record {transaction_id} is cut off")
    if crc32(memoryview(raw)[position:end]) != CHECKSUM.unpack_from(raw, end)[0]:
        raise Damage(offset + position, f"record {transaction_id} fails its checksum")


def long_record_is_valid(source: ByteSource, offset: int, size: int) -> bool:
    """Return whether the record of ``size`` bytes at ``offset`` has the right checksum.

    The record is read in pieces. Its id and length are not checked.
    """
    value, position, stop = 0, offset, offset + size - CHECKSUM.size
    while position < stop:
        piece = source.read(position, min(_PIECE_BYTES, stop - position))
        if not piece:
            return False
        value = crc32(piece, value)
        position += len(piece)
    raw = source.read(stop, CHECKSUM.size)
    return len(raw) == CHECKSUM.size and value == CHECKSUM.unpack(raw)[0]


def encode_entries(offsets: Sequence[int]) -> bytes:
    """Return the bytes of index entries."""
    entries = array("q", offsets)
    if byteorder == "little":
        entries.byteswap()
    return entries.tobytes()


def decode_entries(raw: bytes) -> array[int]:
    """Return the index entries in ``raw``, without an incomplete entry at the end."""
    entries = array("q")
    entries.frombytes(raw[: len(raw) - len(raw) % ENTRY_BYTES])
    if byteorder == "little":
        entries.byteswap()
    return entries


def entry_position(number: int) -> int:
    """Return the position of entry ``number`` in the index file; the first entry has number 0."""
    return HEADER_BYTES + ENTRY_BYTES * number


def _id_mismatch(offset: int, expected: int, stored: int) -> Damage:
    what = f"transaction id mismatch: record {expected} is expected, but {stored} is stored"
    return Damage(offset, what)
