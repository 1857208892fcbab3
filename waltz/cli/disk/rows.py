"""The tables and JSON values that the verbs of ``waltz disk`` show. Computes only."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from waltz.cli.rows import Rows, Shown, or_dash, pairs, word
from waltz_storage.core.control.control_format import ControlEntry
from waltz_storage.core.log.segment_format import FileHeader
from waltz_storage.inspect.control_reading import ControlContent
from waltz_storage.inspect.dry_disk import Change, ChangeKind
from waltz_storage.inspect.segment_check import SegmentReport, Stored
from waltz_storage.inspect.start_rehearsal import StartOutcome

Ids = tuple[int, int | None]
_ROW_BYTES = 16
_INFO = ("session", "low_water_mark", "local_low_water_mark", "assigned", "available")


class Data(StrEnum):
    """How the data of records is shown."""

    HEX = "hex"
    TEXT = "text"
    NONE = "none"


Deserialize = Callable[[bytes], object]


def verified(
    reports: Mapping[tuple[int, int], SegmentReport],
    outcomes: Mapping[int, StartOutcome],
    ids: Ids | None,
    limit: int,
) -> Shown:
    """Show checked segments, and what a start would do.

    Flaws are those of transactions in ``ids`` (None: all), at most ``limit`` in the table.
    """
    segments = [_segment(partition, report) for (partition, _), report in reports.items()]
    flaws = [
        {
            "partition": partition,
            "segment": first_id,
            "transaction": flaw.transaction_id,
            "offset": flaw.offset,
            "problem": flaw.what,
        }
        for (partition, first_id), report in reports.items()
        for flaw in report.flaws
        if ids is None or _within(flaw.transaction_id, ids)
    ]
    starts = [_start(partition, outcome) for partition, outcome in outcomes.items()]
    tables = [
        Rows(
            "Segments",
            ("partition", "first id", "last id", "records", "bytes", "after the last record"),
            [
                (
                    s["partition"],
                    s["first_id"],
                    s["last_id"],
                    s["records"],
                    s["end"],
                    s["tail"] if s["tail_bytes"] == 0 else f"{s['tail_bytes']} bytes: {s['tail']}",
                )
                for s in segments
            ],
        )
    ]
    if flaws:
        more = f" (the first {limit} of {len(flaws)})" if len(flaws) > limit else ""
        cells = [tuple(flaw.values()) for flaw in flaws[:limit]]
        tables.append(
            Rows(f"Flaws{more}", ("partition", "segment", "id", "at byte", "problem"), cells)
        )
    lines = [(s["partition"], line) for s in starts for line in _start_lines(s)]
    tables.append(Rows("A start of the storage", ("partition", "would"), lines))
    value = {"segments": segments, "flaws": flaws, "start": starts}
    return Shown(value, tuple(tables))


def statistics_of(sizes: Mapping[tuple[int, int], Sequence[int]]) -> Shown:
    """Show statistics of data sizes, by partition and first id of the segment."""
    value: list[dict[str, Any]] = [
        {"partition": partition, "segment": first_id, **_sizes(found)}
        for (partition, first_id), found in sizes.items()
    ]
    total = _sizes([size for found in sizes.values() for size in found])
    value.append({"partition": None, "segment": None, **total})
    columns = ("partition", "segment", "records", "max", "min", "average", "median", "sum")
    cells = [
        ("all" if entry is value[-1] else entry["partition"], *map(or_dash, [*entry.values()][1:]))
        for entry in value
    ]
    return Shown(value, (Rows("Bytes of data", columns, cells),))


def dumped(
    header: FileHeader | None,
    records: Sequence[Stored] | None,
    data: Data,
    deserialize: Deserialize | None = None,
) -> Shown:
    """Show a segment's header and records; each is left out if it is None.

    With ``deserialize``, data are shown as the text of the deserialized object.
    """
    value: dict[str, Any] = {}
    tables: list[Rows] = []
    if header is not None:
        value["header"] = {
            "version": header.version,
            "created": _time(header.created_ms),
            "key": str(header.key),
            "partition": header.partition,
            "first_id": header.first_id,
        }
        tables.append(pairs("Header", value["header"]))
    if records is not None:
        contents = [_content(stored.record.data, data, deserialize) for stored in records]
        value["records"] = [_record(stored) for stored in records]
        if data is Data.TEXT or deserialize is not None:
            for shown_record, content in zip(value["records"], contents, strict=True):
                shown_record["data"] = content
        columns = ("id", "at byte", "client", "generation", "seq", "header", "bytes", "checksum")
        shown = () if data is Data.NONE and deserialize is None else ("data",)
        cells = [
            (
                *(r[name] for name in ("id", "offset", "client_id", "generation", "seq")),
                *(r[name] for name in ("header", "size", "checksum")),
                *([] if content is None else [content]),
            )
            for r, content in zip(value["records"], contents, strict=True)
        ]
        tables.append(Rows("Records", (*columns, *shown), cells))
    return Shown(value, tuple(tables))


def control(
    found: ControlContent, partitions: Iterable[int] | None, *, only_assigned: bool
) -> Shown:
    """Show a control file; ``partitions`` None: all of them."""
    wanted = None if partitions is None else set(partitions)
    head = {
        "version": found.header.version,
        "created": _time(found.header.created_ms),
        "key": str(found.header.key),
        "num_partitions": found.header.num_partitions,
    }
    entries = [
        _entry(partition, entry)
        for partition, entry in found.entries.items()
        if (wanted is None or partition in wanted)
        and not (only_assigned and isinstance(entry, ControlEntry) and not entry.info.assigned)
    ]
    names = ("partition", *_INFO, "updates", "problem")
    cells = [tuple("" if e[n] is None else word(e[n]) for n in names) for e in entries]
    table = Rows("Partitions", tuple(name.replace("_", " ") for name in names), cells)
    return Shown({**head, "entries": entries}, (pairs("Control file", head), table))


def hex_dump(data: bytes) -> str:
    """Return lines of 16 bytes: their offset, in hexadecimal, as text."""
    lines = []
    for start in range(0, len(data), _ROW_BYTES):
        row = data[start : start + _ROW_BYTES]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * _ROW_BYTES - 1}}  {text}")
    return "\n".join(lines)


def _segment(partition: int, report: SegmentReport) -> dict[str, Any]:
    return {
        "partition": partition,
        "first_id": report.first_id,
        "last_id": report.next_id - 1,
        "records": report.records,
        "end": report.end,
        "tail_bytes": max(0, report.size - report.end),
        "tail": report.tail.value,
        "flaws": len(report.flaws),
    }


def _start(partition: int, outcome: StartOutcome) -> dict[str, Any]:
    return {
        "partition": partition,
        "refused": outcome.refused,
        "next_id": outcome.next_id,
        "lost_to": outcome.lost_to,
        "changes": [
            {
                "file": change.path,
                "size_before": change.size_before,
                "size_after": change.size_after,
                "would": _change(change),
            }
            for change in outcome.changes
        ],
    }


def _start_lines(start: Mapping[str, Any]) -> list[str]:
    if start["refused"] is not None:
        return [f"refuse the partition: {start['refused']}"]
    changes = [f"{each['would']} ({each['file']})" for each in start["changes"]]
    serve = f"serve it; the next id is {start['next_id']}"
    if start["lost_to"] is not None:
        serve += (
            f", although it had transactions up to {start['lost_to']}: they are lost; restore them "
            "with: waltz storage recover"
        )
    return [*changes, serve]


def _change(change: Change) -> str:
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
            return "write it anew"


def _sizes(found: Sequence[int]) -> dict[str, Any]:
    if not found:
        return {"records": 0} | dict.fromkeys(("max", "min", "average", "median")) | {"sum": 0}
    return {
        "records": len(found),
        "max": max(found),
        "min": min(found),
        "average": round(statistics.fmean(found), 1),
        "median": statistics.median(found),
        "sum": sum(found),
    }


def _record(stored: Stored) -> dict[str, Any]:
    record = stored.record
    return {
        "id": record.transaction_id,
        "offset": stored.offset,
        "client_id": record.req_id.client_id,
        "generation": record.req_id.generation,
        "partition": record.req_id.partition,
        "seq": record.req_id.seq,
        "header": record.header,
        "size": len(record.data),
        "checksum": f"{record.checksum & 0xFFFF_FFFF:08x}",
        "data_base64": base64.b64encode(record.data).decode("ascii"),
    }


def _content(data: bytes, form: Data, deserialize: Deserialize | None) -> str | None:
    if deserialize is not None:
        try:
            return str(deserialize(data))
        except Exception as problem:
            # A serializer may raise anything for data that it did not write. The row says so.
            return f"unreadable: {problem}"
    match form:
        case Data.HEX:
            return hex_dump(data)
        case Data.TEXT:
            return data.decode(errors="backslashreplace")
        case Data.NONE:
            return None


def _entry(partition: int, entry: ControlEntry | str) -> dict[str, Any]:
    if isinstance(entry, str):
        nothing = dict.fromkeys((*_INFO, "updates"))
        return {"partition": partition, **nothing, "problem": entry}
    info = entry.info
    said = (
        info.session_id,
        info.low_water_mark,
        info.local_low_water_mark,
        info.assigned,
        info.available,
    )
    known = dict(zip(_INFO, said, strict=True))
    return {"partition": partition, **known, "updates": entry.sequence, "problem": None}


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms since 1970"


def _within(transaction_id: int, ids: Ids) -> bool:
    first, last = ids
    return first <= transaction_id and (last is None or transaction_id <= last)
