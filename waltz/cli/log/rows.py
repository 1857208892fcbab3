"""How the results of exports and imports are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from waltz.cli.rows import Rendering, column, listing


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
    """How many transactions earlier runs of the import and this run appended to a partition."""

    partition: int
    before: Annotated[int, column("imported before")]
    imported: Annotated[int, column("imported now")]


def render_export(ranges: Mapping[int, tuple[int, int]]) -> Rendering:
    """Return the rendering of an export.

    A range is the last id that was exported before, and the last id that is exported now.
    """
    found = []
    for partition, (after, last) in ranges.items():
        ids = f"{after + 1}-{last}" if last > after else "-"
        found.append(ExportedPartition(partition, ids, after + 1, last, last - after))
    return listing("Exported", ExportedPartition, found)


def render_import(counts: Mapping[int, tuple[int, int]], *, dry_run: bool) -> Rendering:
    """Return the rendering of an import.

    ``counts`` has, by partition, how many transactions earlier runs and this run append.
    """
    found = [ImportedPartition(p, before, count) for p, (before, count) in counts.items()]
    return listing("Would be imported" if dry_run else "Imported", ImportedPartition, found)
