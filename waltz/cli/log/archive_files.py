"""Read and write the files of an exported log, as JSON lines or Parquet. Touches disk.

`archive` has the format. Files that were not exported can be read, too, for an import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from waltz.cli.log.archive import (
    BadArchive,
    Form,
    Piece,
    Row,
    as_columns,
    as_json,
    as_row,
    from_json,
    pieces,
)
from waltz.cli.log.durable_files import written_durably
from waltz.client import Transaction

_PARTIAL = ".partial"
"""The end of the name of a file that is not complete yet."""
_ROWS_AT_ONCE = 1000
"""How many rows of a Parquet file are in memory at once."""


def find_pieces(directory: Path) -> dict[int, list[Piece]]:
    """Return the files of an export in ``directory``, by partition. Raises BadArchive.

    A directory that does not exist has no files.
    """
    paths = directory.glob("partition-*/*")
    return pieces(str(path.relative_to(directory)) for path in paths)


def check_form(form: Form) -> None:
    """Raise BadArchive if a package that reads and writes ``form`` is not installed."""
    if form is Form.PARQUET:
        _pyarrow()


def write_piece(directory: Path, form: Form, transactions: Sequence[Transaction]) -> Piece:
    """Write consecutive transactions of one partition as a file. Raises BadArchive, Failed.

    The file gets its name only when it is complete and durable. So a crash leaves no incomplete
    file with that name.
    """
    first, last = transactions[0], transactions[-1]
    piece = Piece(first.partition, first.id, last.id, form)
    assert piece.count == len(transactions)
    path = directory / piece.path
    # All incomplete files of a partition have the same name. So the next run overwrites the one
    # that an interrupted run has left.
    with written_durably(path, f"{first.partition}{_PARTIAL}") as partial:
        # In this block, an OSError becomes Failed.
        path.parent.mkdir(parents=True, exist_ok=True)
        _WRITER_OF_FORM[form](partial, transactions)
    return piece


def read_piece(directory: Path, piece: Piece) -> Iterator[Row]:
    """Yield the rows of a file of an export, while the file is read. Raises BadArchive.

    The rows are counted at the same time. So if the file does not have as many rows as its name
    says, BadArchive is raised only after the last row.
    """
    count = 0
    for row in read_rows(directory / piece.path):
        count += 1
        yield row
    if count != piece.count:
        raise BadArchive(
            f"{directory / piece.path} has {count} transactions, but its name says {piece.count}: "
            "delete the file, and export it again"
        )


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file, in the order of the file. Raises BadArchive.

    A file whose name does not end in ``.parquet`` has JSON lines.
    """
    if path.suffix == f".{Form.PARQUET.value}":
        yield from _read_parquet(path)
    else:
        yield from _read_lines(path)


def _write_lines(path: Path, transactions: Sequence[Transaction]) -> None:
    """Write a file of JSON lines. Raises OSError."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for transaction in transactions:
            file.write(as_json(transaction) + "\n")


def _write_parquet(path: Path, transactions: Sequence[Transaction]) -> None:
    """Write a Parquet file. Raises OSError, and BadArchive if pyarrow is not installed."""
    arrow, parquet = _pyarrow()
    columns = as_columns(transactions)
    types = dict.fromkeys(columns, arrow.int32())
    types |= {"transaction_id": arrow.int64(), "data": arrow.binary()}
    table = arrow.table(columns, schema=arrow.schema(list(types.items())))
    parquet.write_table(table, path, compression="zstd")


_WRITER_OF_FORM: dict[Form, Callable[[Path, Sequence[Transaction]], None]] = {
    Form.JSONL: _write_lines,
    Form.PARQUET: _write_parquet,
}


def _read_lines(path: Path) -> Iterator[Row]:
    """Yield the rows of a file of JSON lines. Raises BadArchive, which names the line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from_json(line.decode())
            except UnicodeDecodeError as problem:
                raise BadArchive(
                    f"{path}, line {number}: it is not UTF-8 text: {problem}"
                ) from None
            except BadArchive as problem:
                raise BadArchive(f"{path}, line {number}: {problem}") from None


def _read_parquet(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet file. Raises BadArchive, which names the file."""
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield from (as_row(row) for row in batch.to_pylist())
    except (arrow.ArrowInvalid, BadArchive, OSError, UnicodeDecodeError) as problem:
        # For a damaged page, pyarrow raises OSError without the name of the file. For a column of
        # texts that are not UTF-8, it raises UnicodeDecodeError.
        raise BadArchive(f"{path}: {problem}") from None


def _pyarrow() -> tuple[Any, Any]:
    """Import and return the modules pyarrow and pyarrow.parquet, which only Parquet needs.

    Raises BadArchive if they are not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadArchive(
            "Parquet files need pyarrow: pip install 'waltz-log[parquet]', or use --format jsonl"
        ) from None
    return pyarrow, pyarrow.parquet
