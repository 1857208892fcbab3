"""Fuzz control entries, file headers, and the recovery of one segment from its two files."""

from __future__ import annotations

import struct
import uuid
from array import array
from random import Random
from zlib import crc32

from tests.fuzz import values
from tests.fuzz.mutation import extreme, mutate
from tests.fuzz.target import hold, pack, unpack
from waltz.protocol.records import Record, RecordBatch, checksum
from waltz_storage.core.control.control_format import (
    ENTRY_BYTES as CONTROL_ENTRY_BYTES,
)
from waltz_storage.core.control.control_format import (
    STRUCT_BYTES,
    ControlEntry,
    ControlHeader,
    EntryCorrupted,
    PartitionInfo,
    decode_entry,
)
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.log.log_recovery import check_header, recover_segment
from waltz_storage.core.log.segment_format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    Damage,
    FileHeader,
    SegmentEncoder,
    decode_entries,
    decode_records,
    encode_entries,
    entry_position,
)
from waltz_storage.core.log.segment_scan import SegmentPlan

KEY = uuid.UUID("12345678-1234-5678-9abc-def012345678")
_PARTITION = 1
_AVAILABLE, _ASSIGNED, _HALVES = 1, 4, 8 | 16
_WINDOW_BYTES = 1 << 20
_STRUCT = struct.Struct(">qqqii")
_MARK = struct.Struct(">q")


def forged_entry(random: Random, raw: bytes) -> bytes:
    """Return a control entry with another number in one of its structs, and a right checksum."""
    start = 4 + STRUCT_BYTES * random.randrange(2)
    content = list(_STRUCT.unpack_from(raw, start))
    field = random.randrange(len(content))
    content[field] = values.number(random, 64 if field < 3 else 32)
    body = _STRUCT.pack(*content)
    return raw[:start] + body + struct.pack(">I", crc32(body)) + raw[start + STRUCT_BYTES :]


class ControlEntries:
    """One partition's entry of the control file: two structs, of which one is current."""

    name = "control"
    modules = ("waltz_storage.core.control.control_format",)

    def make(self, random: Random) -> bytes:
        """Return an entry after some updates."""
        entry = ControlEntry(PartitionInfo(), random.choice((-1, 0, 5)), random.randrange(2))
        structs = {entry.slot: entry.encode()}
        for _ in range(random.randrange(1, 3)):
            low, high = sorted(random.randrange(-1, 99) for _ in range(2))
            flags = random.choice((5, 5, 4, 4 | 8, 4 | 16))
            entry = entry.updated(PartitionInfo(random.randrange(9), high, low, flags))
            structs[entry.slot] = entry.encode()
        return _PARTITION.to_bytes(4, "big") + structs[0] + structs[1]

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change numbers with their checksum, or bytes."""
        if random.random() < 0.4 and len(data) >= CONTROL_ENTRY_BYTES:
            return forged_entry(random, data)
        return mutate(random, data, other)

    def check(self, data: bytes) -> bool:
        """Decode; the current info is in one of the structs, and can be updated."""
        header = data.ljust(HEADER_BYTES, b"\0")
        hold(ControlHeader.decode(header).encode()[:32] == header[:32], "a control header changed")
        try:
            entry = decode_entry(data)
        except EntryCorrupted as corrupted:
            hold(str(corrupted), "a refusal is explained")
            return False
        _check_flags(entry, data[4 + STRUCT_BYTES * entry.slot :])
        following = entry.updated(entry.info.as_assigned())
        hold(following.slot != entry.slot, "an update overwrites the current struct")
        raw = bytearray(data[:CONTROL_ENTRY_BYTES])
        start = 4 + STRUCT_BYTES * following.slot
        raw[start : start + STRUCT_BYTES] = following.encode()
        if following.sequence < (1 << 31) - 1:
            hold(decode_entry(bytes(raw)) == following, "an update is not current")
        return True


def _check_flags(entry: ControlEntry, raw: bytes) -> None:
    """Check that an entry equals its struct, except flags that are ignored."""
    again = entry.encode()
    hold(again[:24] + again[28:32] == raw[:24] + raw[28:32], "an entry is not its struct")
    written, found = (int.from_bytes(each[24:28], "big") for each in (again, raw))
    hold(written & ~found == 0, "flags that are not stored")
    hold((written ^ found) & (_AVAILABLE | _ASSIGNED) == 0, "flags of Waltz 0.13.2 are lost")
    half = written & _HALVES
    hold(
        not half or (written == found and not written & _AVAILABLE),
        "a single switch without its stamp",
    )


class _Buffer:
    """A byte source in memory that reports reads without bounds."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def size(self) -> int:
        return len(self._content)

    def read(self, offset: int, length: int) -> bytes:
        hold(offset >= 0 and 0 <= length <= _WINDOW_BYTES + 64, f"a read of {length} at {offset}")
        return self._content[offset : offset + length]


class Segments:
    """A segment's data and index, its first id, and the mark up to which it is known clean."""

    name = "segments"
    modules = (
        "waltz_storage.core.log.log_recovery",
        "waltz_storage.core.log.damaged_scan",
        "waltz_storage.core.log.segment_scan",
        "waltz_storage.core.log.segment_format",
    )

    def make(self, random: Random) -> bytes:
        """Return a segment with an index that may lag behind."""
        first_id = random.choice((0, 0, 7, 990))
        count = random.choice((0, 1, 2, 5))
        encoder = SegmentEncoder(first_id, HEADER_BYTES, 1 << 30)
        # Rarely one that is longer than one read of recovery.
        sizes = (0, 3, 90) if random.random() < 0.99 else (0, _WINDOW_BYTES - 300, _WINDOW_BYTES)
        batch = RecordBatch.of(_record(random, first_id + n, sizes) for n in range(count))
        encoder.add(batch.wire, 0, count)
        header = FileHeader(7, KEY, _PARTITION, first_id).encode()
        indexed = random.choice((count, count, random.randrange(count + 1)))
        mark = random.choice((-1, first_id + indexed - 1, random.randrange(first_id + indexed + 1)))
        data = header + b"".join(encoder.parts) + bytes(random.choice((0, 0, 700)))
        index = header + encode_entries(encoder.offsets[:indexed])
        return _packed(first_id, mark, data, index)

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes of a file, an index entry, a record with its checksum, or the mark."""
        first_id, mark, content, index = _unpacked(data)
        _, _, other_content, other_index = _unpacked(other)
        kind = random.random()
        if kind < 0.35:
            content = mutate(random, content, other_content)
        elif kind < 0.55:
            index = mutate(random, index, other_index)
        elif kind < 0.7:
            content = _forged_record(random, content, index)
        elif kind < 0.85:
            index = _forged_index(random, index)
        else:
            mark = values.int64(random)
        return _packed(first_id, mark, content, index)

    def check(self, data: bytes) -> bool:
        """Recover; the plan must agree with the data."""
        first_id, mark, content, index = _unpacked(data)
        try:
            for raw in (content, index):
                header = check_header(_Buffer(raw), KEY, _PARTITION, first_id)
                hold(header.encode()[:40] == raw[:40], "a file header is not its bytes")
            claimed = first_id + (len(index) - HEADER_BYTES) // ENTRY_BYTES - 1
            following = claimed + 1 if mark % 2 and claimed >= first_id else None
            known = KnownLog(mark)
            plan = recover_segment(_Buffer(content), _Buffer(index), first_id, known, following)
        except Damage as damage:
            hold(damage.what, "damage is explained")
            hold(0 <= damage.offset <= len(content) + len(index), "damage is outside the file")
            return False
        hold(plan.first_id == first_id, "the plan is for another segment")
        hold(HEADER_BYTES <= plan.scan_offset <= plan.end <= len(content), "the plan is impossible")
        scanned = len(plan.offsets)
        hold(plan.next_id == plan.scanned_from + scanned, "the plan has a wrong count")
        hold(plan.next_id > min(mark, claimed), "known clean records are dropped")
        _check_records(plan, content)
        _check_reading(content)
        return True


def _check_records(plan: SegmentPlan, content: bytes) -> None:
    """Check that each record of the plan is valid and at its place, or named as damaged."""
    ends = array("q", [*plan.offsets, plan.end])
    hold(list(ends) == sorted(ends), "the plan's index entries do not increase")
    hold(list(plan.damaged) == sorted(set(plan.damaged)), "the damaged records are not in order")
    damaged = set(plan.damaged)
    hold(damaged <= set(range(plan.scanned_from, plan.next_id)), "no such record is damaged")
    for number, start in enumerate(plan.offsets):
        transaction_id, raw = plan.scanned_from + number, content[start : ends[number + 1]]
        try:
            wire = decode_records(raw, start, transaction_id, 1)
        except Damage:
            hold(transaction_id in damaged, "an invalid record is taken for a valid one")
            continue
        encoder = SegmentEncoder(transaction_id, start, 1 << 40)
        encoder.add(wire, 0, 1)
        if b"".join(encoder.parts) == raw:
            hold(transaction_id not in damaged, "a valid record is taken for a damaged one")
        else:
            hold(transaction_id in damaged, "a record has a wrong place")


def _check_reading(content: bytes) -> None:
    """Read records at any place: only damage may be reported."""
    for offset in range(HEADER_BYTES, min(len(content), HEADER_BYTES + 60), 7):
        try:
            decode_records(content[offset:], offset, 0, 3)
        except Damage:
            continue


def _record(random: Random, transaction_id: int, sizes: tuple[int, ...]) -> Record:
    data = random.randbytes(random.choice(sizes))
    return Record(transaction_id, values.req_id(random), 0, data, checksum(data))


def _forged_record(random: Random, content: bytes, index: bytes) -> bytes:
    """Change a record's id or length, and correct the checksum at its new end."""
    offsets = [o for o in decode_entries(index[HEADER_BYTES:]) if 0 <= o <= len(content) - 40]
    if not offsets:
        return content
    raw, offset = bytearray(content), random.choice(offsets)
    at, width = random.choice(((0, 8), (28, 4), (8, 8)))
    near = int.from_bytes(raw[offset + at : offset + at + width], "big") + random.choice((-1, 1))
    number = random.choice((near % (1 << 8 * width), extreme(random, width)))
    raw[offset + at : offset + at + width] = number.to_bytes(width, "big")
    end = offset + 36 + int.from_bytes(raw[offset + 28 : offset + 32], "big", signed=True)
    if offset + 36 <= end <= len(raw) - 4:
        raw[end : end + 4] = crc32(raw[offset:end]).to_bytes(4, "big")
    return bytes(raw)


def _forged_index(random: Random, index: bytes) -> bytes:
    count = (len(index) - HEADER_BYTES) // ENTRY_BYTES
    if count < 1:
        return index + _MARK.pack(values.int64(random))
    raw = bytearray(index)
    at = entry_position(random.randrange(count))
    source = entry_position(random.randrange(count))
    entry = random.choice((raw[source : source + 8], _MARK.pack(values.int64(random))))
    raw[at : at + 8] = entry
    return bytes(raw)


def _packed(first_id: int, mark: int, content: bytes, index: bytes) -> bytes:
    marks = _MARK.pack(first_id) + _MARK.pack(mark)
    return pack([("marks", marks), ("data", content), ("index", index)])


def _unpacked(data: bytes) -> tuple[int, int, bytes, bytes]:
    (_, marks), (_, content), (_, index) = unpack(data)
    first_id, mark = struct.unpack(">qq", marks or b"")
    return first_id, mark, content or b"", index or b""


def format_targets() -> tuple[ControlEntries, Segments]:
    """Return the targets of this module."""
    return ControlEntries(), Segments()
