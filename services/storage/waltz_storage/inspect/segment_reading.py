"""Read and check the segments of a stopped storage. Reads files, writes none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from waltz_storage.core.log.segment_format import (
    HEADER_BYTES,
    INDEX_SUFFIX,
    Damage,
    FileHeader,
)
from waltz_storage.inspect.dry_disk import ReadOnlyFile
from waltz_storage.inspect.places import CannotInspect, Place, segment_path, segments
from waltz_storage.inspect.segment_check import (
    FileRecord,
    Flaw,
    ReadAheadSource,
    SegmentReport,
    Tail,
    check_segment,
    records_and_flaws,
    whole_records,
)


def read_segment_header(root: Path, partition: int, first_id: int) -> FileHeader:
    """Return the header of a segment's data file. Raises CannotInspect."""
    path = segment_path(root, partition, first_id)
    try:
        with ReadOnlyFile(path) as file:
            return FileHeader.decode(file.read(0, HEADER_BYTES))
    except (OSError, Damage) as problem:
        raise CannotInspect(f"cannot read {path}: {problem}") from problem


def check_segment_files(root: Path, partition: int, first_id: int) -> SegmentReport:
    """Check every record of a segment. Raises CannotInspect if its data cannot be read."""
    path = segment_path(root, partition, first_id)
    try:
        with ExitStack() as stack:
            data = stack.enter_context(ReadOnlyFile(path))
            index_path = path.with_suffix(INDEX_SUFFIX)
            try:
                index = stack.enter_context(ReadOnlyFile(index_path))
            except FileNotFoundError:
                report = check_segment(ReadAheadSource(data), None, first_id)
                missing = Flaw(first_id, 0, f"there is no {index_path.name}")
                return replace(report, flaws=(missing, *report.flaws))
            return check_segment(ReadAheadSource(data), index, first_id)
    except OSError as problem:
        # The error names a file only if an opening failed. A read may have failed in either file.
        failed = problem.filename or f"{path} or its index"
        raise CannotInspect(f"cannot read {failed}: {problem.strerror}") from problem


def read_whole_records(root: Path, partition: int, first_id: int) -> Iterator[FileRecord]:
    """Yield the undamaged records of a segment, in order. Raises OSError.

    Damaged records are skipped if their lengths are right. If one of the lengths is wrong, too, the
    place of the next record is not known, and no further record is yielded.
    """
    with ReadOnlyFile(segment_path(root, partition, first_id)) as file:
        yield from whole_records(ReadAheadSource(file), first_id)


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of a partition that are damaged or missing; the text says which, and where."""

    text: str


def read_partition(place: Place, partition: int) -> Iterator[FileRecord | Gap]:
    """Yield the records of a partition in order, and a gap where records are damaged or missing.

    If ``place`` is a segment, only this segment is read. A torn record at the end of the last
    segment is not a gap. Raises CannotInspect, OSError.
    """
    if place.first_id is None:
        first_ids, next_id = segments(place.root, partition), 0
    else:
        first_ids, next_id = [place.first_id], place.first_id
    for first_id in first_ids:
        path = segment_path(place.root, partition, first_id)
        if first_id != next_id:
            yield Gap(f"transactions from {next_id} on are missing before {path.name}")
        # The header is not used. This raises CannotInspect if the header is damaged: the file may
        # be of another log.
        read_segment_header(place.root, partition, first_id)
        with ExitStack() as stack:
            data = ReadAheadSource(stack.enter_context(ReadOnlyFile(path)))
            index_path = path.with_suffix(INDEX_SUFFIX)
            index = stack.enter_context(ReadOnlyFile(index_path)) if index_path.exists() else None
            next_id = first_id
            for item in records_and_flaws(data, index, first_id):
                if isinstance(item, Flaw):
                    yield Gap(f"{item.what} ({path.name} at byte {item.offset})")
                else:
                    next_id = item.record.transaction_id + 1
                    yield item


def is_sound(reports: Iterable[SegmentReport]) -> bool:
    """Return whether no segment has a flaw or a torn record at its end."""
    return not any(report.flaws or report.tail is Tail.TORN for report in reports)
