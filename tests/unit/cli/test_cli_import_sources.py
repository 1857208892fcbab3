"""Test the sources of an import: transactions in files, and refused changes of ids."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest

from waltz.cli.log.archive import BadArchive, Form
from waltz.cli.log.archive_files import write_piece
from waltz.cli.log.import_record import ImportRecord, PartitionImport
from waltz.cli.log.import_sources import Source, check_ids, find_sources
from waltz.client import Transaction
from waltz.protocol import ReqId

WHO = ReqId(1, 1, 0, 1)


def lines(path: Path, ids: Iterable[tuple[int, int | None]]) -> Path:
    """Write a file of transactions, each by its partition and id."""
    file = path / "rows.jsonl"
    rows = ({"partition": p, "id": id_, "data": f"{p}/{id_}"} for p, id_ in ids)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def record_of(sources: list[Source], end_before: int) -> ImportRecord:
    """Return the record of an import into logs whose last id was ``end_before``, -1 if empty."""
    return ImportRecord(uuid.UUID(int=1), {s.target: PartitionImport(end_before) for s in sources})


def test_import_into_empty_log_keeps_ids(tmp_path: Path) -> None:
    file = lines(tmp_path, [(0, 0), (1, 0), (0, 1), (1, None), (0, 2)])
    sources = find_sources(file, None, None)
    assert [(s.target, s.count, s.displaced) for s in sources] == [(0, 3, None), (1, 2, None)]
    assert [row.id for row in sources[0].rows()] == [0, 1, 2]
    check_ids(sources, record_of(sources, -1))


@pytest.mark.parametrize(
    ("ids", "was", "becomes"),
    [((0, 1, 3, 4), 3, 2), ((5, 6), 5, 0), ((0, 1, 1), 1, 2), ((0, 2, 1), 2, 1)],
)
def test_wrong_ids_are_detected_before_append(
    tmp_path: Path, ids: tuple[int, ...], was: int, becomes: int
) -> None:
    sources = find_sources(lines(tmp_path, [(2, n) for n in ids]), None, None)
    message = f"transaction {was} would become transaction {becomes} .* do not rise by 1"
    with pytest.raises(BadArchive, match=message):
        check_ids(sources, record_of(sources, -1))
    check_ids(sources, record_of(sources, 17))


def test_import_of_directory_without_first_piece_is_refused(tmp_path: Path) -> None:
    write_piece(tmp_path, Form.JSONL, [Transaction(4, n, WHO, 0, b"") for n in (2, 3)])
    sources = find_sources(tmp_path, None, 7)
    assert [(s.target, s.displaced) for s in sources] == [(7, (2, 0))]
    with pytest.raises(BadArchive, match="of partition 7: the ids in the files do not begin at 0"):
        check_ids(sources, record_of(sources, -1))


def test_merged_partitions_are_imported_with_new_ids(tmp_path: Path) -> None:
    file = lines(tmp_path, [(0, 0), (1, 0), (1, 5)])
    (merged,) = find_sources(file, None, 3)
    assert (merged.target, merged.count, merged.displaced) == (3, 3, None)
    (one,) = find_sources(file, (1,), 3)
    assert (one.target, one.count, one.displaced) == (3, 2, (5, 1))


def test_row_without_a_partition_is_refused_beside_rows_that_name_one(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"data": "a"}\n{"data": "b", "partition": 1}\n')
    with pytest.raises(BadArchive, match="rows without a partition: name one with --to"):
        find_sources(file, None, None)
    with pytest.raises(BadArchive, match="omit --partitions to append all rows to partition 3"):
        find_sources(file, (1,), 3)
    (source,) = find_sources(file, None, 3)
    assert (source.target, source.count) == (3, 2)
