"""Find the transactions to import in files, by partition, and check whether their ids are kept.

Touches disk. In an empty log, appended transactions get consecutive ids from 0 on. So ids are kept
only if the ids in the files begin at 0 and rise by 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from waltz.cli.log.archive import BadArchive, Piece, Row
from waltz.cli.log.archive_files import find_pieces, read_piece, read_rows
from waltz.cli.log.import_record import ImportRecord
from waltz.protocol import NO_TRANSACTION


class DisplacedId(NamedTuple):
    """The id of a transaction in the files, and the id that it would get in an empty log."""

    was: int
    becomes: int


@dataclass(frozen=True, slots=True)
class Source:
    """The ``count`` transactions to append to the partition ``target``.

    Each call of ``rows`` yields all of them, in order. ``displaced`` is the first id that would
    change in an empty log; None if all ids would be kept. It is also None if rows of several
    partitions are appended to one partition. Their ids cannot all be kept there, so a user who asks
    for that expects new ids, and `check_ids` must not refuse the import.
    """

    target: int
    count: int
    rows: Callable[[], Iterator[Row]]
    displaced: DisplacedId | None


def check_ids(sources: Iterable[Source], import_record: ImportRecord) -> None:
    """Raise BadArchive if an id would change in a log that was empty before the import.

    In a log that had transactions, the imported ones get new ids. This is expected.
    """
    for source in sources:
        was_empty = import_record.partitions[source.target].end_before == NO_TRANSACTION
        if source.displaced is None or not was_empty:
            continue
        was, becomes = source.displaced
        raise BadArchive(
            f"transaction {was} would become transaction {becomes} of partition {source.target}: "
            "the ids in the files do not begin at 0, or do not rise by 1. The marks of clients "
            "would mean other transactions; if that is intended, use --new-ids"
        )


def find_sources(path: Path, wanted: tuple[int, ...] | None, to: int | None) -> list[Source]:
    """Return the sources of an import of the file or the directory of an export at ``path``.

    ``wanted`` are the partitions to import (None: all). ``to`` is the partition to append to (None:
    each transaction is appended to its original partition). With ``to``, the transactions must be
    those of one partition, or all rows of a file. Raises BadArchive.
    """
    if path.is_dir():
        sources = _directory_sources(path, wanted)
    elif path.is_file():
        sources = _file_sources(path, wanted, to)
    else:
        raise BadArchive(f"there is no file or directory {path}")
    if not sources:
        raise BadArchive(f"{path} has no transactions" + (" of these partitions" if wanted else ""))
    if to is None:
        return sources
    if len(sources) > 1:
        raise BadArchive("--to is for the transactions of one partition: name it with --partitions")
    return [replace(sources[0], target=to)]


def _directory_sources(path: Path, wanted: tuple[int, ...] | None) -> list[Source]:
    """Return one source for each of ``wanted`` in the export in the directory ``path``."""
    return [
        _source_of_pieces(path, partition, pieces)
        for partition, pieces in sorted(find_pieces(path).items())
        if wanted is None or partition in wanted
    ]


def _source_of_pieces(path: Path, partition: int, pieces: list[Piece]) -> Source:
    """Return the source for ``pieces``, the files of one partition of the export at ``path``."""

    def rows() -> Iterator[Row]:
        for piece in pieces:
            yield from read_piece(path, piece)

    # No ids are missing between the pieces (`find_pieces`). So either all ids change, or none.
    first = pieces[0].first_id
    displaced = None if first == 0 else DisplacedId(first, 0)
    return Source(partition, sum(piece.count for piece in pieces), rows, displaced)


def _file_sources(path: Path, wanted: tuple[int, ...] | None, to: int | None) -> list[Source]:
    """Return one source for each of ``wanted`` in the rows of the file ``path``. Raises BadArchive.

    If ``to`` is given and ``wanted`` is None, all rows are one source, also rows of different
    partitions and rows without a partition.
    """
    counts: Counter[int | None] = Counter()
    displaced: dict[int | None, DisplacedId] = {}
    for row in read_rows(path):
        # In an empty log, the id of a row is its position among the rows of its partition.
        becomes = counts[row.partition]
        if row.id is not None and row.id != becomes:
            displaced.setdefault(row.partition, DisplacedId(row.id, becomes))
        counts[row.partition] += 1
    if not counts:
        return []
    if to is not None and wanted is None:
        first_displaced = None
        if len(counts) == 1:  # Only the ids of one partition can all be kept (`Source.displaced`).
            first_displaced = next(iter(displaced.values()), None)
        return [
            Source(
                target=to,
                count=counts.total(),
                rows=lambda: read_rows(path),
                displaced=first_displaced,
            )
        ]
    if None in counts:
        remedy = "name one with --to"
        if to is not None:
            remedy = f"omit --partitions to append all rows to partition {to}"
        raise BadArchive(f"{path} has rows without a partition: {remedy}")

    def source_of(partition: int) -> Source:
        return Source(
            target=partition,
            count=counts[partition],
            rows=lambda: (row for row in read_rows(path) if row.partition == partition),
            displaced=displaced.get(partition),
        )

    partitions = sorted(partition for partition in counts if partition is not None)
    return [
        source_of(partition) for partition in partitions if wanted is None or partition in wanted
    ]
