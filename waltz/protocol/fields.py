"""The data types inside a message body (spec/wire.md section 2): one codec per type. Pure.

A codec adds the bytes of a value to a list of byte strings, and reads a value from a `Reader`. The
reader checks every length against the remaining bytes before it allocates memory.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import Any, Protocol, cast

from waltz.protocol.records import (
    WIRE_OVERHEAD_BYTES,
    MalformedBatch,
    RecordBatch,
    RecordHeader,
    ReqId,
)
from waltz.protocol.stored import STORED_OVERHEAD_BYTES, StoredBatch

_BYTE = struct.Struct(">b")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_HEADER = struct.Struct(">qiiiii")
"""A `RecordHeader`: transaction id, request id (four ints), header."""


class MalformedMessage(ValueError):
    """A message body is too short, too long, or has an invalid value."""


class Reader:
    """A message body, and the position of the next byte to read.

    Each method that reads something moves the position behind it.
    """

    __slots__ = ("body", "position")

    def __init__(self, body: bytes, position: int = 0) -> None:
        self.body = body
        self.position = position

    def take_numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read the numbers of ``layout``. Raises MalformedMessage if too few bytes remain."""
        start = self.position
        if start + layout.size > len(self.body):
            raise MalformedMessage("message cut off")
        self.position = start + layout.size
        return layout.unpack_from(self.body, start)

    def take(self, length: int) -> bytes:
        """Read ``length`` raw bytes. Raises MalformedMessage if too few bytes remain."""
        start, end = self.position, self.position + length
        if length < 0 or end > len(self.body):
            raise MalformedMessage("message cut off")
        self.position = end
        return self.body[start:end]

    def take_count(self, item_bytes: int) -> int:
        """Read an int count of items that follow, each of at least ``item_bytes``.

        Raises MalformedMessage if so many items cannot fit into the remaining bytes.
        """
        count = int(self.take_numbers(_INT)[0])
        if count < 0 or count * item_bytes > len(self.body) - self.position:
            raise MalformedMessage(f"impossible count: {count}")
        return count

    def finish(self) -> None:
        """Raise MalformedMessage if bytes remain."""
        if self.position != len(self.body):
            raise MalformedMessage(f"{len(self.body) - self.position} bytes left over")


class Codec(Protocol):
    """The encoder and the decoder of one data type."""

    def write(self, out: list[bytes], value: Any) -> None:
        """Append the encoded ``value`` to ``out``."""

    def read(self, reader: Reader) -> Any:
        """Read one value; raises MalformedMessage."""


@dataclass(frozen=True, slots=True)
class NumberCodec:
    """A signed integer of fixed size, big-endian."""

    layout: struct.Struct

    def write(self, out: list[bytes], value: int) -> None:
        """Append the integer."""
        out.append(self.layout.pack(value))

    def read(self, reader: Reader) -> int:
        """Read one integer."""
        return int(reader.take_numbers(self.layout)[0])


class BooleanCodec:
    """One byte: 1 is true, every other value reads as false."""

    def write(self, out: list[bytes], value: bool) -> None:
        """Append one byte."""
        out.append(b"\x01" if value else b"\x00")

    def read(self, reader: Reader) -> bool:
        """Read one byte."""
        return reader.take(1) == b"\x01"


class BytesCodec:
    """An int length, then the bytes. None has length -1 and no bytes."""

    def write(self, out: list[bytes], value: bytes | None) -> None:
        """Append length and content."""
        if value is None:
            out.append(_INT.pack(-1))
        else:
            out += (_INT.pack(len(value)), value)

    def read(self, reader: Reader) -> bytes | None:
        """Read length and content; any negative length reads as None."""
        length = int(reader.take_numbers(_INT)[0])
        return None if length < 0 else reader.take(length)


class TextCodec:
    """UTF-8 text in the form of `BytesCodec`."""

    def write(self, out: list[bytes], value: str | None) -> None:
        """Append the length and the UTF-8 bytes; half a surrogate pair becomes "?", as in Java."""
        BYTES.write(out, None if value is None else value.encode(errors="replace"))

    def read(self, reader: Reader) -> str | None:
        """Read text; invalid UTF-8 becomes replacement characters, because text is only shown."""
        raw = BYTES.read(reader)
        return None if raw is None else raw.decode(errors="replace")


class IntsCodec:
    """An int count, then the ints. A negative count (null in Java) reads as an empty tuple."""

    def write(self, out: list[bytes], value: tuple[int, ...]) -> None:
        """Append count and items."""
        out.append(struct.pack(f">i{len(value)}i", len(value), *value))

    def read(self, reader: Reader) -> tuple[int, ...]:
        """Read count and items."""
        # Not `take_count`, which refuses a negative count.
        count = int(reader.take_numbers(_INT)[0])
        if count * 4 > len(reader.body) - reader.position:
            raise MalformedMessage(f"impossible count: {count}")
        return struct.unpack(f">{count}i", reader.take(4 * count)) if count > 0 else ()


@dataclass(frozen=True, slots=True)
class MappingCodec:
    """An int count, then that many pairs of a key and its value, in any order.

    ``pair_bytes`` is the length of the shortest possible pair.
    """

    key: Codec
    value: Codec
    pair_bytes: int

    def write(self, out: list[bytes], value: dict[Any, Any]) -> None:
        """Append the count, and the pairs in the dict's order."""
        out.append(_INT.pack(len(value)))
        for pair_key, pair_value in value.items():
            self.key.write(out, pair_key)
            self.value.write(out, pair_value)

    def read(self, reader: Reader) -> dict[Any, Any]:
        """Read count and pairs."""
        count = reader.take_count(self.pair_bytes)
        return {self.key.read(reader): self.value.read(reader) for _ in range(count)}


class UuidCodec:
    """Two longs, the most significant half first."""

    def write(self, out: list[bytes], value: uuid.UUID) -> None:
        """Append 16 bytes."""
        out.append(value.bytes)

    def read(self, reader: Reader) -> uuid.UUID:
        """Read 16 bytes."""
        return uuid.UUID(bytes=reader.take(16))


class ReqIdCodec:
    """A `ReqId`."""

    def write(self, out: list[bytes], value: ReqId) -> None:
        """Append 16 bytes."""
        out.append(value.encode())

    def read(self, reader: Reader) -> ReqId:
        """Read 16 bytes."""
        return ReqId.decode(reader.take(16))


class HeaderCodec:
    """A `RecordHeader`."""

    def write(self, out: list[bytes], value: RecordHeader) -> None:
        """Append 28 bytes."""
        req_id = value.req_id
        out.append(
            _HEADER.pack(
                value.transaction_id,
                req_id.client_id,
                req_id.generation,
                req_id.partition,
                req_id.seq,
                value.header,
            )
        )

    def read(self, reader: Reader) -> RecordHeader:
        """Read 28 bytes."""
        tx, client, generation, partition, seq, header = reader.take_numbers(_HEADER)
        return RecordHeader(tx, ReqId(client, generation, partition, seq), header)


class BatchCodec:
    """An int count, then that many records, which are not decoded: they stay in wire form."""

    def write(self, out: list[bytes], value: RecordBatch) -> None:
        """Append count and records."""
        out += (_INT.pack(value.count), value.wire)

    def read(self, reader: Reader) -> RecordBatch:
        """Read count and records; the records are not decoded."""
        count = int(reader.take_numbers(_INT)[0])
        try:
            batch, end = RecordBatch.parse(reader.body, reader.position, count, len(reader.body))
        except MalformedBatch as error:
            raise MalformedMessage(str(error)) from error
        reader.position = end
        return batch


class UncheckedBatchCodec(BatchCodec):
    """The form of `BatchCodec`, but only for the last field of a message.

    Reading does not check the records: `RecordBatch.mismatch` makes all checks in one pass. The
    receiver must call it before it uses the records.
    """

    def read(self, reader: Reader) -> RecordBatch:
        """Read the count, then all remaining bytes as the records."""
        count = reader.take_count(WIRE_OVERHEAD_BYTES)
        return RecordBatch(count, reader.take(len(reader.body) - reader.position))


class StoredBatchCodec:
    """An int count, then that many records in their form on disk, as the last field of a message.

    Reading does not check the records: the receiver must do so before it uses them.
    """

    def write(self, out: list[bytes], value: StoredBatch) -> None:
        """Append count and records, which are not copied."""
        # ``raw`` may be a memoryview, which can be joined and sent like bytes. The cast is only for
        # the type checker.
        out += (_INT.pack(value.count), cast("bytes", value.raw))

    def read(self, reader: Reader) -> StoredBatch:
        """Read the count, then all remaining bytes as the records, without a copy."""
        count = reader.take_count(STORED_OVERHEAD_BYTES)
        records = memoryview(reader.body)[reader.position :]
        reader.position = len(reader.body)
        return StoredBatch(count, records)


class HeadersCodec:
    """An int count, then that many record headers."""

    def write(self, out: list[bytes], value: tuple[RecordHeader, ...]) -> None:
        """Append count and headers."""
        out.append(_INT.pack(len(value)))
        for header in value:
            HEADER.write(out, header)

    def read(self, reader: Reader) -> tuple[RecordHeader, ...]:
        """Read count and headers."""
        count = reader.take_count(_HEADER.size)
        return tuple(HEADER.read(reader) for _ in range(count))


@dataclass(frozen=True, slots=True)
class OptionalCodec:
    """A boolean, then the value if the boolean is true. None is written as false."""

    codec: Codec

    def write(self, out: list[bytes], value: Any) -> None:
        """Append the boolean, and the value unless it is None."""
        BOOLEAN.write(out, value is not None)
        if value is not None:
            self.codec.write(out, value)

    def read(self, reader: Reader) -> Any:
        """Read the boolean, and the value if the boolean is true."""
        return self.codec.read(reader) if BOOLEAN.read(reader) else None


class SingleRecordCodec:
    """One record without a count. Its value is a `RecordBatch` of one record."""

    def write(self, out: list[bytes], value: RecordBatch) -> None:
        """Append the record."""
        assert value.count == 1
        out.append(value.wire)

    def read(self, reader: Reader) -> RecordBatch:
        """Read one record."""
        try:
            batch, end = RecordBatch.parse(reader.body, reader.position, 1, len(reader.body))
        except MalformedBatch as error:
            raise MalformedMessage(str(error)) from error
        reader.position = end
        return batch


BYTE = NumberCodec(_BYTE)
INT = NumberCodec(_INT)
LONG = NumberCodec(_LONG)
BOOLEAN = BooleanCodec()
BYTES = BytesCodec()
TEXT = TextCodec()
INTS = IntsCodec()
UUID = UuidCodec()
REQ_ID = ReqIdCodec()
HEADER = HeaderCodec()
BATCH = BatchCodec()
UNCHECKED_BATCH = UncheckedBatchCodec()
STORED_BATCH = StoredBatchCodec()
HEADERS = HeadersCodec()
