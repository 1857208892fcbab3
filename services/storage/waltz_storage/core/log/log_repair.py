"""Pure. Replace damaged records of a log by the same records of a peer.

The peer's records are written only where they fit: they must begin at the end of the undamaged
record before them, and end where the record after them begins. So a repair changes no position, and
no record before or after the peer's records. A repair writes only records that are damaged: a crash
at any moment leaves each of them damaged or repaired, and the repair can be repeated
(`test_storage_repair_crash`). Files are used only through `LogSegments`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from waltz.protocol.checksums import crc32
from waltz.protocol.records import RecordBatch
from waltz_storage.core.errors import RecordsDamaged, RequestRefused
from waltz_storage.core.log.flushed_end import FlushedEnd
from waltz_storage.core.log.log_check import CheckedRecords, check_records
from waltz_storage.core.log.log_recovery import check_header
from waltz_storage.core.log.log_segments import LogSegments
from waltz_storage.core.log.segment_files import SegmentBounds, SegmentFiles
from waltz_storage.core.log.segment_format import (
    CHECKSUM,
    DATA_SUFFIX,
    HEADER_BYTES,
    ID_AND_LENGTH,
    INDEX_SUFFIX,
    RECORD_OVERHEAD_BYTES,
    ByteSource,
    SegmentEncoder,
    encode_entries,
    entry_position,
    long_record_is_valid,
)

_NO_THRESHOLD = 1 << 62
"""`SegmentEncoder` ends a segment at a threshold. Here the segments exist already."""
_BLOCK_BYTES = 4096
"""The operating system reads a whole block of this size before it changes a part of the block."""
_CHECK_BYTES = 1 << 20
"""How many bytes one check after a repair reads, unless a single record is longer."""


@dataclass(frozen=True, slots=True)
class SegmentRepair:
    """The peer's records that belong to one segment, from ``first_id`` on, and what to write.

    ``records`` are in disk form (see `segment_format`). ``offsets`` has the position where each of
    them begins, and then the position where the last one ends. ``damaged`` has the places in
    ``records``, from 0, of the records that are damaged in the segment: only these are written.
    ``entries`` are the bytes to write at ``entry_at`` in the index file: none if it is right.
    """

    segment: SegmentBounds
    first_id: int
    records: Sequence[bytes]
    offsets: array[int]
    damaged: Sequence[int]
    entry_at: int
    entries: bytes

    @property
    def last_id(self) -> int:
        """The id of the last record."""
        return self.first_id + len(self.records) - 1

    def runs(self) -> Iterator[tuple[int, bytes]]:
        """Yield the position and the bytes of each run of consecutive damaged records."""
        damaged, first = self.damaged, 0
        while first < len(damaged):
            stop = first + 1
            while stop < len(damaged) and damaged[stop] == damaged[stop - 1] + 1:
                stop += 1
            begin, end = damaged[first], damaged[stop - 1] + 1
            yield self.offsets[begin], b"".join(self.records[begin:end])
            first = stop


def repair_records(
    segments: LogSegments, end: FlushedEnd, records: RecordBatch, checksum: int
) -> tuple[CheckedRecords, ...]:
    """Replace damaged records by those of a peer, durably.

    ``end`` is the last record of the log. The peer has computed ``checksum``: the CRC-32 of all the
    records in disk form. Unlike the checksums in wire form, it also covers ids and headers. After
    the repair, these records are checked. Return the results, which may name damaged records still.
    Raises RequestRefused before anything is written; NoSpace, DiskFailed, OSError at any time.
    """
    repairs = plan_repair(segments, end, records, checksum)
    for repair in repairs:
        _check_blocks(segments, repair)
    for repair in repairs:
        _write_repair(segments, repair)
    return tuple(_checks(segments, repairs[0].first_id, repairs[-1].last_id))


def plan_repair(
    segments: LogSegments, end: FlushedEnd, records: RecordBatch, checksum: int
) -> list[SegmentRepair]:
    """Check the peer's records; return what to write where. Raises RequestRefused, OSError."""
    if not records.count:
        raise RequestRefused("the request has no records to repair")
    next_id = first_id = records.first_id()
    last_id = first_id + records.count - 1
    if first_id < 0 or last_id > end.last_id:
        raise RequestRefused(
            f"{_listed(first_id, records.count)} are not in the log, which ends with record "
            f"{end.last_id}"
        )
    bad_id = records.mismatch(first_id)
    if bad_id is not None:
        raise RequestRefused(f"record {bad_id} of the peer fails its checksum: nothing is repaired")
    pieces = _in_disk_form(records)
    if _range_checksum(pieces) != checksum:
        raise RequestRefused(
            f"{_listed(first_id, records.count)} of the peer fail the checksum that the peer "
            "computed: nothing is repaired"
        )
    if last_id == end.last_id and _record_checksum(pieces[-1]) != end.checksum:
        raise RequestRefused(
            f"record {end.last_id} of the peer is not the record that was flushed as the last one "
            "of this log: nothing is repaired"
        )
    repairs = []
    while pieces:
        segment = segments.segment_of(next_id)
        count = min(len(pieces), segment.next_id - next_id)
        assert count > 0, "a log has no gap"
        repairs.append(_plan_segment(segments, segment, next_id, pieces[:count]))
        next_id += count
        pieces = pieces[count:]
    return repairs


def _plan_segment(
    segments: LogSegments, segment: SegmentBounds, first_id: int, records: Sequence[bytes]
) -> SegmentRepair:
    """Do what `plan_repair` does, for the records of one segment."""
    files = segments.files(segment.first_id)
    _check_headers(segments, segment, files)
    data = files.data
    start = _start_of(segments, segment, data, first_id)
    offsets = array("q", accumulate(map(len, records), initial=start))
    next_id, end = first_id + len(records), offsets[-1]
    if end > segment.end or not _begins_at(segments, segment, data, next_id, end):
        raise RequestRefused(
            f"{_listed(first_id, len(records))} of the peer do not fit: they would end at byte "
            f"{end} of segment {segment.first_id}, where record {next_id} does not begin; "
            "nothing is repaired"
        )
    damaged = []
    for number, record in enumerate(records):
        if _read_exactly(data, offsets[number], len(record)) != record:
            _refuse_undamaged(segments, segment, data, first_id + number, offsets[number])
            damaged.append(number)
    entry_at, entries = _wrong_entries(segments, segment, files, first_id, offsets)
    return SegmentRepair(segment, first_id, records, offsets, damaged, entry_at, entries)


def _check_headers(segments: LogSegments, segment: SegmentBounds, files: SegmentFiles) -> None:
    """Check the headers of both files; raises RecordsDamaged, OSError.

    The next start refuses a partition with a damaged header, so a repair of records would be of no
    use. If a file ended inside its header, a write of records would leave a gap in the file.
    """
    identity = segments.identity
    for suffix, file in ((DATA_SUFFIX, files.data), (INDEX_SUFFIX, files.index)):
        with segments.damage_in(segment, suffix):
            check_header(file, identity.key, identity.partition, segment.first_id)


def _wrong_entries(
    segments: LogSegments,
    segment: SegmentBounds,
    files: SegmentFiles,
    first_id: int,
    offsets: array[int],
) -> tuple[int, bytes]:
    """Return a position in the index file, and the entries to write there; none if all are right.

    The entries of the repaired records are checked, and the entry of the record after them: if that
    one was wrong, the last repaired record would count as damaged. The entries of the newest
    records of a log are not in the file yet. They are in memory, and right.
    """
    number = first_id - segment.first_id
    count = min(len(offsets), segments.entries_in_file(segment) - number)
    entries = encode_entries(offsets[: max(0, count)])
    position = entry_position(number)
    if _read_exactly(files.index, position, len(entries)) == entries:
        return position, b""
    return position, entries


def _start_of(
    segments: LogSegments, segment: SegmentBounds, data: ByteSource, first_id: int
) -> int:
    """Return where the record ``first_id`` begins: at the end of the record before it.

    That record must be undamaged. Its length is read from the record itself, where the record
    checksum covers the length, and not taken from the index. Raises RequestRefused, OSError.
    """
    if first_id == segment.first_id:
        return HEADER_BYTES
    before = first_id - 1
    position = _indexed_position(segments, segment, before)
    size = None if position is None else _sound_size(data, before, position, segment.end)
    if position is None or size is None:
        raise RequestRefused(
            f"record {before} is damaged, too, so that the position of record {first_id} is not "
            f"known: nothing is repaired; repair a range that begins with record {before} or an "
            "earlier one"
        )
    return position + size


def _refuse_undamaged(
    segments: LogSegments,
    segment: SegmentBounds,
    data: ByteSource,
    transaction_id: int,
    offset: int,
) -> None:
    """Raise RequestRefused if the log has an undamaged record with the id ``transaction_id``.

    A repair must not replace that record by a different one of the peer. Two places may have the
    record: ``offset``, where the peer's record would be written, and the position that the index
    gives. Raises OSError.
    """
    for position in (offset, _indexed_position(segments, segment, transaction_id)):
        if position is None:
            continue
        if _sound_size(data, transaction_id, position, segment.end) is not None:
            raise RequestRefused(
                f"record {transaction_id} is not damaged, and it differs from that of the peer: "
                "nothing is repaired; compare the replicas with waltz storage compare"
            )


def _begins_at(
    segments: LogSegments,
    segment: SegmentBounds,
    data: ByteSource,
    transaction_id: int,
    position: int,
) -> bool:
    """Return whether the record ``transaction_id`` begins at ``position``.

    That is true if the index says so, or if an undamaged record with this id is there. If
    ``transaction_id`` is the id after the last record, ``position`` must be the segment's end.
    """
    if _indexed_position(segments, segment, transaction_id) == position:
        return True
    is_in_segment = transaction_id < segment.next_id
    return is_in_segment and _sound_size(data, transaction_id, position, segment.end) is not None


def _indexed_position(
    segments: LogSegments, segment: SegmentBounds, transaction_id: int
) -> int | None:
    """Return where a record begins by the index, None if the index cannot be read.

    ``transaction_id`` may also be the id after the last record of the segment, which would begin at
    the segment's end.
    """
    if transaction_id == segment.first_id:
        return HEADER_BYTES
    if transaction_id == segment.next_id:
        return segment.end
    try:
        # The extent of the record before it ends where this record begins.
        return segments.extent(segment, transaction_id - 1, 1).offsets[1]
    except (RecordsDamaged, OSError):
        return None


def _sound_size(data: ByteSource, transaction_id: int, start: int, end: int) -> int | None:
    """Return the size of the undamaged record at ``start``, None if there is no such record.

    The record must end at ``end`` or before.
    """
    head = _read_exactly(data, start, ID_AND_LENGTH.size) if start >= HEADER_BYTES else None
    if head is None:
        return None
    stored_id, length = ID_AND_LENGTH.unpack(head)
    size: int = RECORD_OVERHEAD_BYTES + length
    if stored_id != transaction_id or length < 0 or start + size > end:
        return None
    try:
        return size if long_record_is_valid(data, start, size) else None
    except OSError:
        return None


def _check_blocks(segments: LogSegments, repair: SegmentRepair) -> None:
    """Check that the disk can read each block of which the repair writes only a part.

    To change a part of a block, the operating system reads the block first. If that fails, the
    write fails, and the process ends (`DiskFailed`). A block that is written whole need not be
    readable. With a write-ahead log, every block must be readable, because the log may divide a
    write within any block. Otherwise each replay would fail, and the storage could not start any
    more. Raises RequestRefused, OSError.
    """
    files = segments.files(repair.segment.first_id)
    divided = segments.options.divided_writes
    for start, raw in repair.runs():
        _check_readable(files.data, DATA_SUFFIX, repair, start, start + len(raw), divided)
    if repair.entries:
        end = repair.entry_at + len(repair.entries)
        _check_readable(files.index, INDEX_SUFFIX, repair, repair.entry_at, end, divided)


def _check_readable(
    file: ByteSource, suffix: str, repair: SegmentRepair, start: int, end: int, divided: bool
) -> None:
    """Check that the disk can read each block of which a write changes only a part.

    The write goes from byte ``start`` to ``end``. If it may be ``divided``, all its blocks are
    checked. Raises RequestRefused.
    """
    for block in range(start - start % _BLOCK_BYTES, end, _BLOCK_BYTES):
        is_whole = start <= block and block + _BLOCK_BYTES <= end
        if is_whole and not divided:
            continue
        try:
            file.read(block, _BLOCK_BYTES)
        except OSError as error:
            raise RequestRefused(
                f"the disk cannot read the block at byte {block} of the {suffix} file of segment "
                f"{repair.segment.first_id}, of which the repair would write a part: "
                f"{error.strerror}; nothing is repaired; replace the replica as docs/faults.md "
                "describes"
            ) from error


def _write_repair(segments: LogSegments, repair: SegmentRepair) -> None:
    """Write the damaged records and flush, then replace the wrong index entries and flush.

    The index is written second, so that after a crash each of its entries belongs to a durable
    record. The flushes are done even if nothing is written: an earlier repair may have ended
    between a write and its flush. Then this process reads repaired records that are not durable.
    Raises NoSpace, DiskFailed, OSError.
    """
    assert repair.offsets[-1] <= repair.segment.end, "a repair must not make a segment longer"
    files = segments.files(repair.segment.first_id)
    for position, raw in repair.runs():
        files.data.write(position, raw)
    files.data.flush()
    if repair.entries:
        files.index.write(repair.entry_at, repair.entries)
    files.index.flush()


def _checks(segments: LogSegments, first_id: int, last_id: int) -> Iterator[CheckedRecords]:
    """Check the records from ``first_id`` to ``last_id``; each check covers a part of them."""
    next_id = first_id
    while next_id <= last_id:
        checked = check_records(segments, next_id, _CHECK_BYTES)
        assert checked.next_id > next_id, "a check must advance"
        yield checked
        next_id = checked.next_id


def _in_disk_form(records: RecordBatch) -> list[bytes]:
    """Return the bytes of each record in disk form, with its checksum."""
    encoder = SegmentEncoder(records.first_id(), offset=0, threshold=_NO_THRESHOLD)
    added, _ = encoder.add(records.wire, position=0, count=records.count)
    assert added == records.count, "the ids of the records were checked"
    # The encoder's parts are in turn a record without its checksum, and the checksum.
    bodies, checksums = encoder.parts[::2], encoder.parts[1::2]
    return [body + checksum for body, checksum in zip(bodies, checksums, strict=True)]


def _range_checksum(records: Sequence[bytes]) -> int:
    """Return the CRC-32 of all records, without joining them."""
    value = 0
    for record in records:
        value = crc32(record, value)
    return value


def _record_checksum(record: bytes) -> int:
    """Return the record checksum of a record in disk form."""
    return int(CHECKSUM.unpack_from(record, len(record) - CHECKSUM.size)[0])


def _read_exactly(data: ByteSource, offset: int, length: int) -> bytes | None:
    """Return exactly ``length`` bytes, None if the disk cannot read them or the file is shorter."""
    try:
        raw = data.read(offset, length)
    except OSError:
        return None
    return raw if len(raw) == length else None


def _listed(first_id: int, count: int) -> str:
    """Return a name of ``count`` records for a text."""
    return f"records {first_id} to {first_id + count - 1}"
