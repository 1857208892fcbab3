"""How the results of ``waltz log append``, ``export``, ``import`` and ``find`` are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypedDict

from waltz.cli.rows import Rendering, column, listing, record
from waltz.client import Absent, Appended
from waltz.protocol import ReqId


class AppendedTransaction(TypedDict):
    """The place of a transaction that was appended."""

    partition: int
    id: int


class ExportRange(NamedTuple):
    """What an export writes of one partition: the ids after ``after``, up to ``last``."""

    after: int
    last: int


class ImportCounts(NamedTuple):
    """How many transactions of one partition an import appends.

    Earlier runs of the same import have appended ``before`` transactions; this run appends ``now``.
    """

    before: int
    now: int


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The transactions of one partition that a run of an export wrote; ``exported`` counts them.

    If the run wrote none, ``last_id`` is ``first_id - 1``. ``ids`` is the range of the ids as a
    text, which only the table shows.
    """

    partition: int
    ids: Annotated[str, column(in_json=False)]
    first_id: Annotated[int, column(in_table=False)]
    last_id: Annotated[int, column(in_table=False)]
    exported: Annotated[int, column("transactions")]


@dataclass(frozen=True, slots=True)
class ImportedPartition:
    """How many transactions earlier runs of the import and this run appended to a partition."""

    partition: int
    before: Annotated[int, column("imported before")]
    imported: Annotated[int, column("imported now")]


@dataclass(frozen=True, slots=True)
class FoundAppend:
    """The outcome of an append: ``appended``, ``absent`` (for ever), or ``unknown`` so far.

    ``id`` is the transaction's id, None if the append is not in the log.
    """

    request_id: str
    partition: int
    outcome: str
    id: int | None


def render_find(req_id: ReqId, append_outcome: Appended | Absent | None) -> Rendering:
    """Return the rendering of the outcome of an append; None: the outcome is unknown so far."""
    transaction_id: int | None = None
    match append_outcome:
        case Appended(appended_id):
            outcome, transaction_id = "appended", appended_id
        case Absent():
            outcome = "absent"
        case None:
            outcome = "unknown"
    return record("Append", FoundAppend(str(req_id), req_id.partition, outcome, transaction_id))


def render_export(ranges: Mapping[int, ExportRange]) -> Rendering:
    """Return the rendering of an export, by partition."""
    rows = []
    for partition, (after, last) in ranges.items():
        ids = f"{after + 1}-{last}" if last > after else "-"
        rows.append(
            ExportedPartition(
                partition, ids, first_id=after + 1, last_id=last, exported=last - after
            )
        )
    return listing("Exported", ExportedPartition, rows)


def render_import(counts: Mapping[int, ImportCounts], *, dry_run: bool) -> Rendering:
    """Return the rendering of an import, by partition."""
    rows = [
        ImportedPartition(partition, before, now) for partition, (before, now) in counts.items()
    ]
    return listing("Would be imported" if dry_run else "Imported", ImportedPartition, rows)
