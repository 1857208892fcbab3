"""Check every record of a segment, also after damage. Reads only the sources that callers pass.

A start of the storage reads only the records that may be torn, and stops at the first invalid one.
The check in this module reads every record. After damage it searches for the next whole record. So
it distinguishes one flipped bit from a log that was cut off. A record is *whole* if its id, its
length and its checksum are right.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from waltz.protocol import Record, RecordBatch, checksum
from waltz_storage.core.log.damaged_scan import ends_before_valid
from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    ByteSource,
    Damage,
    decode_entries,
    decode_records,
    entry_position,
)

_WINDOW_BYTES = 1 << 20
"""How many bytes one read of a file takes at least."""
_LENGTH_AT = 28
"""The offset in bytes of the data length in a record."""
_LENGTH_BYTES = 4
"""The size of the data length."""


class Tail(Enum):
    """What follows the last record of a segment."""

    NOTHING = "nothing"
    ALLOCATED = "zeros, allocated ahead"
    TORN = "an incomplete or invalid record"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A whole record in a data file, from byte ``offset`` to the byte before ``end``."""

    record: Record
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """A flaw of a record or of its index entry; ``what`` says what is wrong.

    ``offset`` is a byte in the data file: where the record begins, or should begin.
    """

    transaction_id: int
    offset: int
    what: str


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The result of a check: how many whole ``records``, which flaws, what follows the last record.

    ``next_id`` is the id after the last whole record, and ``end`` the byte after it. The file has
    ``size`` bytes.
    """

    first_id: int
    next_id: int
    records: int
    end: int
    size: int
    tail: Tail
    flaws: tuple[Flaw, ...]


class ReadAheadSource:
    """A byte source that reads ahead: records are small, and each read of a file costs time."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._size = source.size()
        self._start = 0
        """The offset in the source at which the window begins."""
        self._window = b""

    def size(self) -> int:
        """Return the length in bytes."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at ``offset``; fewer only at the end of the source."""
        position = offset - self._start
        if position < 0 or position + length > len(self._window):
            self._window = self._source.read(offset, max(length, _WINDOW_BYTES))
            self._start, position = offset, 0
        return self._window[position : position + length]


def read_record(data: ByteSource, offset: int, transaction_id: int) -> FileRecord:
    """Return the record at ``offset``; raises Damage if it is not whole or has another id."""
    length = _length(data, offset)
    if length is None or length > data.size() - offset:
        raise Damage(offset, f"record {transaction_id} is cut off, or its length is wrong")
    raw = data.read(offset, RECORD_OVERHEAD_BYTES + length)
    wire = decode_records(raw, offset, transaction_id, 1)
    (record,) = RecordBatch(1, wire)
    return FileRecord(record, offset, offset + len(raw))


def records_and_flaws(
    data: ByteSource, index: ByteSource | None, first_id: int
) -> Iterator[FileRecord | Flaw]:
    """Yield the whole records of a segment in order, and a flaw at each damage between them.

    ``index`` helps to find the next record after damage; it is None if the file is missing. Nothing
    after the last whole record is yielded.
    """
    yield from _walk(data, _NoIndex() if index is None else index, first_id)


def whole_records(data: ByteSource, first_id: int) -> Iterator[FileRecord]:
    """Yield the whole records of a segment, without its index.

    Damaged records are skipped if their lengths are right; else they end the iteration.
    """
    for item in _walk(data, _NoIndex(), first_id):
        if isinstance(item, FileRecord):
            yield item


def check_segment(data: ByteSource, index: ByteSource | None, first_id: int) -> SegmentReport:
    """Check the checksums of every record, and its index entry if ``index`` has one."""
    if index is None:
        index = _NoIndex()
    entries = _entries(index)
    flaws: list[Flaw] = []
    end, next_id, records = HEADER_BYTES, first_id, 0
    for item in _walk(data, index, first_id):
        if isinstance(item, Flaw):
            flaws.append(item)
            continue
        record = item.record
        end, next_id, records = item.end, record.transaction_id + 1, records + 1
        if checksum(record.data) != record.checksum:
            what = "the data fails the checksum that the client gave"
            flaws.append(Flaw(record.transaction_id, item.offset, what))
        number = record.transaction_id - first_id
        if number < len(entries) and entries[number] != item.offset:
            what = f"the index has the record at byte {entries[number]}"
            flaws.append(Flaw(record.transaction_id, item.offset, what))
    if len(entries) > next_id - first_id:
        what = f"the index has entries up to record {first_id + len(entries) - 1}"
        flaws.append(Flaw(next_id, end, what))
    tail = _tail(data, end)
    return SegmentReport(first_id, next_id, records, end, data.size(), tail, tuple(flaws))


class _NoIndex:
    """Stands for an index without entries: the file is missing, or must not be used."""

    def size(self) -> int:
        """Return 0."""
        return 0

    def read(self, offset: int, length: int) -> bytes:
        """Return no bytes."""
        return b""


def _walk(data: ByteSource, index: ByteSource, first_id: int) -> Iterator[FileRecord | Flaw]:
    """Yield records and flaws in order; anything after the last whole record is not a flaw."""
    transaction_id, offset = first_id, HEADER_BYTES
    while True:
        try:
            whole = read_record(data, offset, transaction_id)
        except Damage:
            begins = _begins_after(data, index, first_id, transaction_id, offset)
            if begins is None:
                return
            # All but the last one of these positions are those of more damaged records.
            damaged, whole_begin = [offset, *begins[:-1]], begins[-1]
            yield from _damaged(data, transaction_id, damaged)
            whole = read_record(data, whole_begin, transaction_id + len(damaged))
        yield whole
        transaction_id, offset = whole.record.transaction_id + 1, whole.end


def _damaged(data: ByteSource, first_damaged: int, begins: Sequence[int]) -> Iterator[Flaw]:
    """Yield the flaws of consecutive damaged records, which begin at ``begins``."""
    for transaction_id, begin in enumerate(begins, first_damaged):
        if transaction_id > first_damaged and begin <= begins[0]:
            # The position is that of a wrong index entry: no record is read there.
            what = f"the index has the record {transaction_id} at byte {begin}"
            yield Flaw(transaction_id, begins[0], what)
            continue
        try:
            read_record(data, begin, transaction_id)
        except Damage as damage:
            yield Flaw(transaction_id, begin, damage.what)


def _begins_after(
    data: ByteSource, index: ByteSource, first_id: int, damaged_id: int, offset: int
) -> Sequence[int] | None:
    """Return where the records after the damaged one at ``offset`` begin, up to a whole record.

    The last of these records is whole, and those before it are damaged, too. Return None if no
    whole record is found. The lengths of the damaged records show where the next ones begin, or
    else the index does; a position from the index may be wrong.
    """
    length = _length(data, offset)
    end = None if length is None else offset + RECORD_OVERHEAD_BYTES + length
    # Usually only this record is damaged, and its length is right.
    if end is not None and _is_whole(data, end, damaged_id + 1):
        return [end]
    ends = ends_before_valid(data, index, first_id, damaged_id, offset)
    if ends is not None:
        # Each record begins where the one before it ends.
        return ends
    if end is not None:
        # If the id of the record is damaged, a start does not use its length. Here the length may
        # be used, because a whole record at the end of the search must confirm it.
        later_ends = ends_before_valid(data, index, first_id, damaged_id + 1, end)
        if later_ends is not None:
            return [end, *later_ends]
    # The last attempt: an index entry that shows a whole record. Entries before it may be wrong.
    later_entries = _entries(index, damaged_id + 1 - first_id)
    for number, begin in enumerate(later_entries):
        # A damaged index entry may be negative or point backwards: nothing is read there.
        if begin > offset and _is_whole(data, begin, damaged_id + 1 + number):
            return later_entries[: number + 1]
    return None


def _is_whole(data: ByteSource, offset: int, transaction_id: int) -> bool:
    """Return whether a whole record with this id is at ``offset``."""
    try:
        read_record(data, offset, transaction_id)
    except Damage:
        return False
    return True


def _length(data: ByteSource, offset: int) -> int | None:
    """Return the data length in the record at ``offset``, None if it is impossible."""
    raw = data.read(offset + _LENGTH_AT, _LENGTH_BYTES)
    length = int.from_bytes(raw, "big", signed=True)
    return length if len(raw) == _LENGTH_BYTES and length >= 0 else None


def _entries(index: ByteSource, first_number: int = 0) -> array[int]:
    """Return the offsets that an index has for its records, from entry ``first_number`` on."""
    start = entry_position(first_number)
    return decode_entries(index.read(start, max(0, index.size() - start)))


def _tail(data: ByteSource, end: int) -> Tail:
    """Return what is in the file from byte ``end`` on, after the last record."""
    if end >= data.size():
        return Tail.NOTHING
    for position in range(end, data.size(), _WINDOW_BYTES):
        if any(data.read(position, min(_WINDOW_BYTES, data.size() - position))):
            return Tail.TORN
    return Tail.ALLOCATED
