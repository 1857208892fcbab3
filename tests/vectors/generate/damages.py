"""Define the damages of storage-dir.json: to segments, indexes and the control file.

Source: spec/disk.md section 8.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.vectors.generate.control_file import HEADER_BYTES
from tests.vectors.storage_files import CONTROL, Files, record_fields

Op = dict[str, Any]

_SEGMENT = f"{0:019d}.seg"
_INDEX = f"{0:019d}.idx"
_MADE_BYTES = 48
"""Size of each record of the made segment."""


@dataclass(frozen=True)
class Damage:
    """One damaged directory, of which only ``partition`` is kept."""

    name: str
    text: str
    partition: int
    ops: list[Op]
    directory: str = "clean"
    opening: dict[str, Any] = field(default_factory=dict)


def damages(clean: Files) -> list[Damage]:
    """Return all damages, given the files of the directory ``clean``."""
    return [
        *_of_the_last_records(clean),
        *_of_the_index(),
        *_of_headers(),
        *_of_several_segments(clean),
        *_of_the_control_file(clean),
        *_after_a_checkpoint(),
    ]


def _cut(file: str, size: int) -> Op:
    return {"file": file, "op": "truncate", "newSize": size}


def _flip(file: str, position: int) -> Op:
    return {"file": file, "op": "xor", "position": position, "with": 64}


def _put(file: str, position: int, new: bytes) -> Op:
    return {"file": file, "op": "overwrite", "position": position, "bytes_hex": new.hex()}


def _add(file: str, new: bytes) -> Op:
    return {"file": file, "op": "append", "bytes_hex": new.hex()}


def _delete(file: str) -> Op:
    return {"file": file, "op": "delete"}


def _of_the_last_records(clean: Files) -> Iterator[Damage]:
    file = f"1/{_SEGMENT}"
    size = len(clean[file])
    offsets = [record["offset"] for record in record_fields(clean[file])]
    for name, text, op in (
        ("torn-1-byte", "the last record lacks its last byte", _cut(file, size - 1)),
        ("torn-header-only", "the last record lacks its data", _cut(file, offsets[-1] + 20)),
        ("bad-crc-last", "one bit of the last record is flipped", _flip(file, size - 6)),
        ("bad-crc-middle", "one bit of the second record is flipped", _flip(file, offsets[1] + 38)),
        ("garbage-tail", "bytes follow the last record", _add(file, bytes(range(1, 11)))),
        (
            "length-negative",
            "the length of the last record is negative",
            _put(file, offsets[-1] + 28, struct.pack(">i", -16)),
        ),
    ):
        yield Damage(name, text, 1, [op])


def _of_the_index() -> Iterator[Damage]:
    file = f"1/{_INDEX}"
    wrong = struct.pack(">q", 257)
    for name, text, op in (
        ("index-short", "the index lacks two entries", _cut(file, HEADER_BYTES + 16)),
        ("index-empty", "the index has no entries", _cut(file, HEADER_BYTES)),
        ("index-extra", "the index has two entries too many", _add(file, wrong * 2)),
        ("index-odd-bytes", "three bytes follow the last entry", _add(file, bytes(3))),
        ("index-wrong-offset", "the third entry is wrong", _put(file, HEADER_BYTES + 16, wrong)),
        ("missing-idx", "the index file is missing", _delete(file)),
    ):
        yield Damage(name, text, 1, [op])


def _of_headers() -> Iterator[Damage]:
    segment, index, version = f"1/{_SEGMENT}", f"1/{_INDEX}", struct.pack(">i", 9)
    yield Damage("short-seg-header", "the segment ends in its header", 1, [_cut(segment, 100)])
    yield Damage("other-key", "the segment has another cluster key", 1, [_flip(segment, 13)])
    versions = [_put(segment, 0, version), _put(index, 0, version)]
    yield Damage("other-version", "both headers have another version", 1, versions)


def _of_several_segments(clean: Files) -> Iterator[Damage]:
    *_, older, last = sorted(name for name in clean if name.startswith("0/") and "seg" in name)
    first, unmarked = f"0/{_SEGMENT}", f"3/{_SEGMENT}"
    yield Damage(
        "below-local-low-water-mark",
        "the record at the local low-water mark is torn, later segments are missing",
        0,
        [_delete(last), _delete(last.replace("seg", "idx")), _cut(older, len(clean[older]) - 1)],
    )
    yield Damage(
        "above-local-low-water-mark",
        "the last record, above the local low-water mark, is torn",
        0,
        [_cut(last, len(clean[last]) - 1)],
    )
    cut = [_cut(first, len(clean[first]) - 1)]
    yield Damage("old-segment-tail", "a read-only segment is torn, marks are set", 0, cut)
    cut = [_cut(unmarked, len(clean[unmarked]) - 1)]
    text = "a read-only segment is torn, the local low-water mark is -1"
    yield Damage("old-segment-tail-unmarked", text, 3, cut)


def _of_the_control_file(clean: Files) -> Iterator[Damage]:
    raw = clean[CONTROL]
    first, second = HEADER_BYTES + 4, HEADER_BYTES + 40
    numbers = [struct.unpack_from(">i", raw, at + 28)[0] for at in (first, second)]
    current, other = (first, second) if numbers[0] > numbers[1] else (second, first)
    same = raw[current : current + 36]
    assert struct.unpack_from(">I", same, 32)[0] == zlib.crc32(same[:32])
    for name, text, ops in (
        ("ctl-struct-current-bad", "the current struct is damaged", [_flip(CONTROL, current + 3)]),
        ("ctl-struct-other-bad", "the other struct is damaged", [_flip(CONTROL, other + 3)]),
        (
            "ctl-both-bad",
            "both structs are damaged",
            [_flip(CONTROL, at) for at in (first, second)],
        ),
        ("ctl-equal-seq", "both structs have one number", [_put(CONTROL, other, same)]),
        ("ctl-other-version", "the header has version 5", [_put(CONTROL, 0, struct.pack(">i", 5))]),
        ("ctl-partition-id", "the entry has id 3", [_put(CONTROL, 128, struct.pack(">i", 3))]),
        ("ctl-short", "the file ends in its header", [_cut(CONTROL, 100)]),
    ):
        yield Damage(name, text, 0, ops)
    more, key = {"numPartitions": 5}, {"key": "00000000-0000-0001-0000-000000000002"}
    yield Damage("ctl-other-np", "opened with another number of partitions", 0, [], opening=more)
    yield Damage("ctl-other-key", "opened with another cluster key", 0, [], opening=key)


def _after_a_checkpoint() -> Iterator[Damage]:
    """Damage the made segment: its scan starts at record 2000."""
    file = f"0/{_SEGMENT}"
    for name, text, number in (
        ("checkpoint-bad-before", "a record before the scan start is damaged", 1999),
        ("checkpoint-bad-at", "the record at the scan start is damaged", 2000),
        ("checkpoint-bad-after", "a record after the scan start is damaged", 2003),
    ):
        ops = [_flip(file, HEADER_BYTES + _MADE_BYTES * number + 40)]
        yield Damage(name, text, 0, ops, "checkpoint")
    ops = [_cut(f"0/{_INDEX}", HEADER_BYTES + 8 * 500)]
    yield Damage("checkpoint-index-lost", "the index ends at record 500", 0, ops, "checkpoint")
