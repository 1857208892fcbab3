"""The tables and JSON values that the verbs of ``waltz disk`` show. Touches nothing."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from waltz.cli.rows import (
    Rendering,
    Rows,
    as_cell,
    as_value,
    blank,
    column,
    listing,
    nested,
    record,
)
from waltz_storage.core.control.control_format import ControlEntry
from waltz_storage.core.log.segment_format import FileHeader
from waltz_storage.inspect.control_reading import ControlContent
from waltz_storage.inspect.dry_disk import Change, ChangeKind
from waltz_storage.inspect.segment_check import FileRecord, SegmentReport
from waltz_storage.inspect.start_rehearsal import StartOutcome

IdRange = tuple[int, int | None]
"""The first and the last transaction id of a range; a last id of None: the range has no end."""

Deserialize = Callable[[bytes], object]
"""Returns the object for the data of a record."""

_DUMP_LINE_BYTES = 16
"""How many bytes a line of a hex dump shows."""


class DataForm(StrEnum):
    """How the data of records is shown."""

    HEX = "hex"
    TEXT = "text"
    NONE = "none"


def _cell_or_blank(value: object) -> object:
    """Return ``value`` as `as_cell` does, but an empty cell for None."""
    return "" if value is None else as_cell(value)


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """The result of checking one segment; ``end`` is the offset after its last whole record.

    ``tail`` says what the ``tail_bytes`` after this offset are. ``after`` has both, for the table.
    """

    partition: int
    first_id: int
    last_id: int
    records: int
    end: Annotated[int, column("bytes")]
    tail_bytes: Annotated[int, column(in_table=False)]
    tail: Annotated[str, column(in_table=False)]
    flaws: Annotated[int, column(in_table=False)]
    after: Annotated[str, column("after the last record", in_json=False)]


@dataclass(frozen=True, slots=True)
class FlawRow:
    """A record or an index entry that is damaged; ``segment`` is the segment's first id."""

    partition: int
    segment: int
    transaction: Annotated[int, column("id")]
    offset: Annotated[int, column("at byte")]
    problem: str


@dataclass(frozen=True, slots=True)
class DataSizes:
    """Statistics of the sizes of the records' data in a segment, in bytes.

    ``segment`` is its first id; it and ``partition`` are None in the row for all segments together.
    """

    partition: Annotated[int | None, column(show=lambda p: "all" if p is None else p)]
    segment: int | None
    records: int
    max: int | None
    min: int | None
    average: float | None
    median: float | None
    sum: int


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header of a segment's data file."""

    version: int
    created: str
    key: UUID
    partition: int
    first_id: int


@dataclass(frozen=True, slots=True)
class PartitionEntry:
    """The control entry of one partition; `PartitionInfo`, beside `ControlEntry`, has the terms.

    ``updates`` is how many times it was written. ``problem`` is why it cannot be read.
    """

    partition: int
    session: Annotated[int | None, column(show=blank)]
    low_water_mark: Annotated[int | None, column(show=blank)]
    local_low_water_mark: Annotated[int | None, column(show=blank)]
    assigned: Annotated[bool | None, column(show=_cell_or_blank)]
    available: Annotated[bool | None, column(show=_cell_or_blank)]
    updates: Annotated[int | None, column(show=blank)]
    problem: Annotated[str | None, column(show=blank)]


@dataclass(frozen=True, slots=True)
class ControlFileContent:
    """The header of a control file, and its entries."""

    version: int
    created: str
    key: UUID
    num_partitions: int
    entries: Annotated[tuple[PartitionEntry, ...], nested(PartitionEntry, "Partitions")]


def render_verification(
    reports: Mapping[tuple[int, int], SegmentReport],
    outcomes: Mapping[int, StartOutcome],
    ids: IdRange | None,
    limit: int,
) -> Rendering:
    """Return the rendering of checked segments, and of a start of the storage.

    ``reports`` has the segments by partition and first id. Only flaws of the transactions ``ids``
    (None: all) are shown, and at most ``limit`` of them in the table.
    """
    segments = [_segment(partition, report) for (partition, _), report in reports.items()]
    starts = [_start(partition, outcome) for partition, outcome in outcomes.items()]
    flaws = [
        FlawRow(partition, first_id, flaw.transaction_id, flaw.offset, flaw.what)
        for (partition, first_id), report in reports.items()
        for flaw in report.flaws
        if ids is None or _within(flaw.transaction_id, ids)
    ]
    tables = [*listing("Segments", CheckedSegment, segments).tables]
    if flaws:
        more = f" (the first {limit} of {len(flaws)})" if len(flaws) > limit else ""
        tables += listing(f"Flaws{more}", FlawRow, flaws[:limit]).tables
    start_cells = [(p, line) for p, outcome in outcomes.items() for line in _start_lines(outcome)]
    tables.append(Rows("A start of the storage", ("partition", "would"), start_cells))
    value = {"segments": as_value(segments), "flaws": as_value(flaws), "start": starts}
    return Rendering(value, tuple(tables))


def render_data_sizes(sizes: Mapping[tuple[int, int], Sequence[int]]) -> Rendering:
    """Return the rendering of data sizes.

    ``sizes`` has the bytes of each record's data, by partition and first id of the segment.
    """
    segments = [
        _data_sizes(partition, first_id, segment_sizes)
        for (partition, first_id), segment_sizes in sizes.items()
    ]
    all_sizes = [size for segment_sizes in sizes.values() for size in segment_sizes]
    total = _data_sizes(partition=None, segment=None, sizes=all_sizes)
    return listing("Bytes of data", DataSizes, [*segments, total])


def render_segment(
    header: FileHeader | None,
    records: Sequence[FileRecord] | None,
    data_form: DataForm,
    deserialize: Deserialize | None = None,
) -> Rendering:
    """Return the rendering of a segment: its header and records, each only if it is not None.

    With ``deserialize``, the data of a record is shown as the text of the deserialized object.
    """
    value: dict[str, Any] = {}
    tables: list[Rows] = []
    if header is not None:
        segment_header = SegmentHeader(
            header.version, _time(header.created_ms), header.key, header.partition, header.first_id
        )
        shown_header = record("Header", segment_header)
        value["header"] = shown_header.value
        tables += shown_header.tables
    if records is not None:
        value["records"], shown_records = _render_records(records, data_form, deserialize)
        tables.append(shown_records)
    return Rendering(value, tuple(tables))


def render_control_file(
    content: ControlContent, partitions: Iterable[int] | None, *, only_assigned: bool
) -> Rendering:
    """Return the rendering of a control file with the entries of ``partitions`` (None: of all).

    With ``only_assigned``, only assigned partitions are shown, and damaged entries: it is unknown
    whether their partitions are assigned.
    """
    wanted = None if partitions is None else set(partitions)
    entries = tuple(
        _entry(partition, entry)
        for partition, entry in content.entries.items()
        if (wanted is None or partition in wanted)
        and (not only_assigned or isinstance(entry, str) or entry.info.assigned)
    )
    header = content.header
    file = ControlFileContent(
        header.version, _time(header.created_ms), header.key, header.num_partitions, entries
    )
    return record("Control file", file)


def hex_dump(data: bytes) -> str:
    """Return one line per 16 bytes: the offset, the bytes in hexadecimal, the bytes as text."""
    lines = []
    hex_width = 3 * _DUMP_LINE_BYTES - 1  # Two digits for each byte, and a blank between two bytes.
    for start in range(0, len(data), _DUMP_LINE_BYTES):
        row = data[start : start + _DUMP_LINE_BYTES]
        # Printable ASCII is from the blank to the tilde.
        text = "".join(chr(byte) if ord(" ") <= byte <= ord("~") else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{hex_width}}  {text}")
    return "\n".join(lines)


def _segment(partition: int, report: SegmentReport) -> CheckedSegment:
    """Return the row of a checked segment."""
    tail = report.tail.value
    # ``end`` is at least the size of the header. A damaged file may be shorter than a header.
    tail_bytes = max(0, report.size - report.end)
    return CheckedSegment(
        partition,
        report.first_id,
        last_id=report.next_id - 1,
        records=report.records,
        end=report.end,
        tail_bytes=tail_bytes,
        tail=tail,
        flaws=len(report.flaws),
        after=tail if tail_bytes == 0 else f"{tail_bytes} bytes: {tail}",
    )


def _start(partition: int, outcome: StartOutcome) -> dict[str, Any]:
    """Return what a start of the storage would do to a partition, as a value for scripts."""
    return {
        "partition": partition,
        "refused": outcome.refused,
        "next_id": outcome.next_id,
        "damaged": [str(ids) for ids in outcome.damaged],
        "changes": [
            {
                "file": change.path,
                "size_before": change.size_before,
                "size_after": change.size_after,
                "would": _change_text(change),
            }
            for change in outcome.changes
        ],
    }


def _start_lines(outcome: StartOutcome) -> list[str]:
    """Return the lines of the column "would" for one partition: changes, then how it is served."""
    changes = [f"{_change_text(change)} ({change.path})" for change in outcome.changes]
    return [*changes, outcome.service]


def _change_text(change: Change) -> str:
    """Return what a start would do to a file; the text follows the word "would"."""
    match change.kind:
        case ChangeKind.CREATE:
            return "create this file"
        case ChangeKind.REMOVE:
            return "remove this file, which an interrupted creation left"
        case ChangeKind.REBUILD_INDEX:
            return "rebuild the index from the records"
        case ChangeKind.CUT:
            removed = (change.size_before or 0) - (change.size_after or 0)
            return f"cut off {removed} bytes, at byte {change.size_after}"
        case ChangeKind.REWRITE:
            return "rewrite this file"


def _data_sizes(partition: int | None, segment: int | None, sizes: Sequence[int]) -> DataSizes:
    """Return the row of statistics of ``sizes``, the bytes of data of each record."""
    return DataSizes(
        partition,
        segment,
        records=len(sizes),
        max=max(sizes) if sizes else None,
        min=min(sizes) if sizes else None,
        average=round(statistics.fmean(sizes), 1) if sizes else None,
        median=statistics.median(sizes) if sizes else None,
        sum=sum(sizes),
    )


def _render_records(
    records: Sequence[FileRecord], data_form: DataForm, deserialize: Deserialize | None
) -> tuple[list[dict[str, Any]], Rows]:
    """Return records as values for scripts, and as a table.

    A value has the data in base64; also as text if the form is text or there is a deserializer.
    """
    values = [_record_value(file_record) for file_record in records]
    texts = [_data_text(file_record.record.data, data_form, deserialize) for file_record in records]
    if data_form is DataForm.TEXT or deserialize is not None:
        for value, text in zip(values, texts, strict=True):
            value["data"] = text
    keys = ("id", "offset", "client_id", "generation", "seq", "header", "size", "checksum")
    titles = ["id", "at byte", "client", "generation", "seq", "header", "bytes", "checksum"]
    cells = [[value[key] for key in keys] for value in values]
    if data_form is not DataForm.NONE or deserialize is not None:
        titles.append("data")
        for row, text in zip(cells, texts, strict=True):
            row.append(text)
    return values, Rows("Records", titles, cells)


def _record_value(file_record: FileRecord) -> dict[str, Any]:
    """Return the value of a record for scripts."""
    record = file_record.record
    return {
        "id": record.transaction_id,
        "offset": file_record.offset,
        "client_id": record.req_id.client_id,
        "generation": record.req_id.generation,
        "partition": record.req_id.partition,
        "seq": record.req_id.seq,
        "header": record.header,
        "size": len(record.data),
        "checksum": f"{record.checksum & 0xFFFF_FFFF:08x}",
        "data_base64": base64.b64encode(record.data).decode("ascii"),
    }


def _data_text(data: bytes, form: DataForm, deserialize: Deserialize | None) -> str | None:
    """Return the text that shows ``data``, deserialized or in ``form``; None for the form NONE."""
    if deserialize is not None:
        try:
            return str(deserialize(data))
        except Exception as problem:
            # A serializer may raise any error for data of another one. The cell shows the error.
            return f"unreadable: {problem}"
    match form:
        case DataForm.HEX:
            return hex_dump(data)
        case DataForm.TEXT:
            return data.decode(errors="backslashreplace")
        case DataForm.NONE:
            return None


def _entry(partition: int, entry: ControlEntry | str) -> PartitionEntry:
    """Return the row of a control entry; an ``entry`` that is a text says why it is unreadable."""
    if isinstance(entry, str):
        return PartitionEntry(partition, None, None, None, None, None, None, problem=entry)
    info = entry.info
    return PartitionEntry(
        partition,
        info.session_id,
        info.low_water_mark,
        info.local_low_water_mark,
        info.assigned,
        info.available,
        updates=entry.sequence,
        problem=None,
    )


def _time(milliseconds: int) -> str:
    """Return a time, given in milliseconds since 1970, as text."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms since 1970"


def _within(transaction_id: int, ids: IdRange) -> bool:
    """Whether ``transaction_id`` is in the range ``ids``."""
    first, last = ids
    return first <= transaction_id and (last is None or transaction_id <= last)
