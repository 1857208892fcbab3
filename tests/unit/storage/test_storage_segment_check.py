"""The check of a segment finds the whole records behind damaged ones, and none in a torn end."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.protocol.records import Record, RecordBatch, ReqId, checksum
from waltz_storage.core.log.damaged_scan import scan_past_damage
from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    RECORD_OVERHEAD_BYTES,
    FileHeader,
    SegmentEncoder,
    encode_entries,
    segment_name,
)
from waltz_storage.core.log.segment_scan import scan
from waltz_storage.inspect.places import Place
from waltz_storage.inspect.segment_check import (
    FileRecord,
    Flaw,
    Tail,
    check_segment,
    records_and_flaws,
    whole_records,
)
from waltz_storage.inspect.segment_reading import Gap, read_partition, read_whole_records

FIRST_ID = 3
COUNT = 8
IDS = range(FIRST_ID, FIRST_ID + COUNT)
DATA_BYTES = 12
RECORD_BYTES = RECORD_OVERHEAD_BYTES + DATA_BYTES
ID_AT, LENGTH_AT, DATA_AT = 7, 28, 40
"""Bytes of a record: one of its id, the first one of its length, one of its data."""


@dataclass(frozen=True, slots=True)
class Source:
    content: bytes

    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        assert offset >= 0
        return self.content[offset : offset + length]


def record_at(transaction_id: int) -> int:
    return HEADER_BYTES + RECORD_BYTES * (transaction_id - FIRST_ID)


def segment(*flips: tuple[int, int], count: int = COUNT) -> bytes:
    """Return a data file; each of ``flips`` is a record and the byte of it that is damaged."""
    sent = []
    for transaction_id in range(FIRST_ID, FIRST_ID + count):
        data = b"%012d" % transaction_id
        req_id = ReqId(1, 2, 0, transaction_id)
        sent.append(Record(transaction_id, req_id, 0, data, checksum(data)))
    encoder = SegmentEncoder(FIRST_ID, HEADER_BYTES, 1 << 40)
    encoder.add(RecordBatch.of(sent).wire, 0, count)
    header = FileHeader(9, uuid.UUID(int=5), 0, FIRST_ID).encode()
    raw = bytearray(header + b"".join(encoder.parts))
    for transaction_id, byte in flips:
        raw[record_at(transaction_id) + byte] ^= 0x20
    return bytes(raw)


def index(entries: int = COUNT, wrong: dict[int, int] | None = None) -> Source:
    """Return an index with ``entries`` entries; ``wrong`` has other offsets for some records."""
    offsets = {transaction_id: record_at(transaction_id) for transaction_id in IDS[:entries]}
    offsets.update(wrong or {})
    header = FileHeader(9, uuid.UUID(int=5), 0, FIRST_ID).encode()
    return Source(header + encode_entries(list(offsets.values())))


def found(data: bytes, entries: Source | None) -> tuple[list[int], list[int]]:
    """Return the ids of the whole and of the damaged records that the check finds."""
    whole, damaged = [], []
    for item in records_and_flaws(Source(data), entries, FIRST_ID):
        if isinstance(item, FileRecord):
            whole.append(item.record.transaction_id)
        else:
            damaged.append(item.transaction_id)
    return whole, damaged


def test_records_behind_adjacent_damaged_records_are_found_without_an_index() -> None:
    data = Source(segment((4, DATA_AT), (5, DATA_AT), (6, DATA_AT)))
    whole = [each.record.transaction_id for each in whole_records(data, FIRST_ID)]
    assert whole == [3, 7, 8, 9, 10]


def test_check_of_adjacent_damaged_records_without_an_index_reports_each() -> None:
    report = check_segment(Source(segment((4, DATA_AT), (5, DATA_AT))), None, FIRST_ID)
    assert (report.records, report.next_id, report.tail) == (6, IDS.stop, Tail.NOTHING)
    assert report.flaws == (
        Flaw(4, record_at(4), "record 4 fails its checksum"),
        Flaw(5, record_at(5), "record 5 fails its checksum"),
    )


def test_check_of_adjacent_damaged_records_with_an_index_reports_each() -> None:
    data = segment((4, LENGTH_AT), (5, LENGTH_AT), (6, ID_AT))
    assert found(data, index()) == ([3, 7, 8, 9, 10], [4, 5, 6])


def test_damaged_record_at_the_end_of_the_index_is_passed_by_its_length() -> None:
    # Only the index shows where record 5 begins, and only its length shows where record 6 does.
    data = segment((4, LENGTH_AT), (5, DATA_AT))
    assert found(data, index(3)) == ([3, 6, 7, 8, 9, 10], [4, 5])


def test_damaged_record_behind_one_with_a_damaged_id_is_passed_by_its_length() -> None:
    data = segment((4, ID_AT), (5, DATA_AT))
    assert found(data, None) == ([3, 6, 7, 8, 9, 10], [4, 5])


def test_damaged_record_is_passed_by_its_length_if_the_index_skips_a_whole_record() -> None:
    entries = index(wrong={5: record_at(5) + RECORD_BYTES // 2})
    assert found(segment((4, DATA_AT)), entries) == ([3, 5, 6, 7, 8, 9, 10], [4])


def test_index_entries_that_are_negative_or_point_backwards_are_not_read() -> None:
    data = segment((4, LENGTH_AT), (5, LENGTH_AT), (6, LENGTH_AT))
    entries = index(wrong={5: -8, 6: record_at(3)})
    report = check_segment(Source(data), entries, FIRST_ID)
    assert (report.records, report.next_id, report.tail) == (5, IDS.stop, Tail.NOTHING)
    assert report.flaws[1:] == (
        Flaw(5, record_at(4), "the index has the record 5 at byte -8"),
        Flaw(6, record_at(4), f"the index has the record 6 at byte {record_at(3)}"),
    )


@pytest.mark.parametrize("transaction_id", [IDS[0], IDS[4], IDS[-1]])
def test_wrong_index_entry_of_a_whole_record_is_reported(transaction_id: int) -> None:
    wrong = index(wrong={transaction_id: 77})
    report = check_segment(Source(segment()), wrong, FIRST_ID)
    what = "the index has the record at byte 77"
    assert report.flaws == (Flaw(transaction_id, record_at(transaction_id), what),)


def test_records_of_files_behind_adjacent_damaged_records_are_read(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    path = tmp_path / "0" / f"{segment_name(FIRST_ID)}.seg"
    path.write_bytes(segment((4, DATA_AT), (5, DATA_AT)))
    whole = [each.record.transaction_id for each in read_whole_records(tmp_path, 0, FIRST_ID)]
    assert whole == [3, 6, 7, 8, 9, 10]
    items = [
        item.text if isinstance(item, Gap) else item.record.transaction_id
        for item in read_partition(Place(tmp_path, (0,), FIRST_ID), 0)
    ]
    gaps = [
        f"record {each} fails its checksum ({path.name} at byte {record_at(each)})"
        for each in (4, 5)
    ]
    assert items == [3, *gaps, 6, 7, 8, 9, 10]


@given(
    flips=st.lists(st.tuples(st.sampled_from(IDS[:-1]), st.integers(0, RECORD_BYTES - 1))),
    entries=st.integers(0, COUNT),
)
def test_check_reports_the_records_that_a_start_finds_damaged(
    flips: list[tuple[int, int]], entries: int
) -> None:
    data = segment(*flips)
    plan = scan(Source(data), FIRST_ID, FIRST_ID, HEADER_BYTES)
    last = IDS[-1]
    at_start = scan_past_damage(Source(data), index(entries), plan, last, None, sealed=True)
    whole, damaged = found(data, index(entries))
    if at_start is not None:
        assert damaged == list(at_start.damaged)
        assert whole == [each for each in IDS if each not in damaged]


@given(
    count=st.integers(0, COUNT),
    written=st.integers(0, RECORD_BYTES - 1),
    rest=st.one_of(st.binary(max_size=300), st.integers(0, 300).map(bytes)),
    indexed=st.integers(0, COUNT),
)
def test_torn_end_of_a_segment_is_no_flaw(
    count: int, written: int, rest: bytes, indexed: int
) -> None:
    intact = record_at(FIRST_ID + count)
    torn = segment(count=count + 1)[intact : intact + written]
    data = Source(segment(count=count) + torn + rest)
    # The checksum is the only part that random bytes could complete: that is another record.
    if (torn + rest)[:RECORD_BYTES] == segment(count=count + 1)[intact:]:
        count += 1
        intact += RECORD_BYTES
    report = check_segment(data, index(min(indexed, count)), FIRST_ID)
    behind = data.content[intact:]
    tail = Tail.TORN if any(behind) else Tail.ALLOCATED if behind else Tail.NOTHING
    assert report.flaws == ()
    assert (report.records, report.end, report.tail) == (count, intact, tail)
