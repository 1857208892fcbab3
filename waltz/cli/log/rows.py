"""Results of exports and imports, as they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from waltz.cli.rows import Shown, column, listing


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The transactions of one partition that an export wrote."""

    partition: int
    ids: Annotated[str, column(in_value=False)]
    first_id: Annotated[int, column(in_table=False)]
    last_id: Annotated[int, column(in_table=False)]
    exported: Annotated[int, column("transactions")]


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    """How many transactions an earlier import and this one appended to a partition."""

    partition: int
    before: Annotated[int, column("imported before")]
    imported: Annotated[int, column("imported now")]


def exported(ranges: Mapping[int, tuple[int, int]]) -> Shown:
    """Return the result shown for an export; a range is the last id before it, and its last."""
    found = []
    for partition, (after, last) in ranges.items():
        ids = f"{after + 1}-{last}" if last > after else "-"
        found.append(ExportedPartition(partition, ids, after + 1, last, last - after))
    return listing("Exported", ExportedPartition, found)


def imported(counts: Mapping[int, tuple[int, int]], *, dry_run: bool) -> Shown:
    """Return the result shown for an import: counts before it and of it, by partition."""
    found = [ImportedPartition(p, before, count) for p, (before, count) in counts.items()]
    return listing("Would be imported" if dry_run else "Imported", ImportedPartition, found)
