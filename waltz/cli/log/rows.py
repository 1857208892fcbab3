"""What exports and imports show. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from waltz.cli.rows import Rows, Shown


def exported(ranges: Mapping[int, tuple[int, int]]) -> Shown:
    """Return what is shown of an export; a range is the last id before it, and its last."""
    value = [
        {"partition": partition, "first_id": after + 1, "last_id": last, "exported": last - after}
        for partition, (after, last) in ranges.items()
    ]
    cells = [
        (e["partition"], f"{e['first_id']}-{e['last_id']}" if e["exported"] else "-", e["exported"])
        for e in value
    ]
    return Shown(value, (Rows("Exported", ("partition", "ids", "transactions"), cells),))


def imported(counts: Mapping[int, tuple[int, int]], *, dry_run: bool) -> Shown:
    """Return what is shown of an import: by partition, how many were there, and how many came."""
    value = [
        {"partition": partition, "before": before, "imported": count}
        for partition, (before, count) in counts.items()
    ]
    title = "Would be imported" if dry_run else "Imported"
    cells = [tuple(entry.values()) for entry in value]
    columns = ("partition", "imported before", "imported now")
    return Shown(value, (Rows(title, columns, cells),))
