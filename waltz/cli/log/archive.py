"""The format of an exported log: names of files, and rows of JSON and Parquet. Touches nothing.

The directory of an export has one folder for each partition, with files of consecutive
transactions. The name of a file has the ids of its first and last transaction. A file gets this
name only when it is complete. So the names show how far an interrupted export has come.
`archive_files` reads and writes the files.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, NotRequired, TypedDict

from waltz.client import Transaction
from waltz.protocol import NO_TRANSACTION

_NAME = re.compile(r"(\d{19})-(\d{19})\.(jsonl|parquet)", re.ASCII)
"""The name of a file: its first id, its last id, and its form."""
_FOLDER = re.compile(r"partition-(0|[1-9]\d*)", re.ASCII)
"""The name of the folder of a partition."""
_INT32 = range(-(1 << 31), 1 << 31)
"""The values that a transaction's header can have."""


class Form(StrEnum):
    """The file format of an export."""

    JSONL = "jsonl"
    PARQUET = "parquet"


class BadArchive(ValueError):
    """Files are not an export, or cannot be written or imported; the text says why."""


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """One file of an export: the transactions ``first_id`` to ``last_id`` of a partition."""

    partition: int
    first_id: int
    last_id: int
    form: Form

    @property
    def path(self) -> str:
        """The path of the file in the directory of the export."""
        name = f"{self.first_id:019d}-{self.last_id:019d}.{self.form.value}"
        return f"partition-{self.partition}/{name}"

    @property
    def count(self) -> int:
        """The number of transactions."""
        return self.last_id - self.first_id + 1


@dataclass(frozen=True, slots=True)
class Row:
    """A transaction in a file; ``partition`` and ``id`` are None if the file does not have them."""

    partition: int | None
    id: int | None
    header: int
    data: bytes


class ExportedTransaction(TypedDict):
    """One line of JSON; it has ``data`` if the data is UTF-8 text, otherwise ``data_base64``.

    ``client_id``, ``generation`` and ``seq`` are the request id of the append.
    """

    partition: int
    id: int
    client_id: int
    generation: int
    seq: int
    header: int
    data: NotRequired[str]
    data_base64: NotRequired[str]


def pieces(paths: Iterable[str]) -> dict[int, list[Piece]]:
    """Return the files of an export among ``paths``, by partition and in the order of their ids.

    ``paths`` are relative to the directory of the export; paths of other files are ignored. Raises
    BadArchive if ids between two pieces are missing, or if two pieces overlap.
    """
    by_partition: dict[int, list[Piece]] = {}
    for path in sorted(paths):
        if (piece := _piece_at(path)) is not None:
            by_partition.setdefault(piece.partition, []).append(piece)
    for partition_pieces in by_partition.values():
        partition_pieces.sort()
        for before, after in pairwise(partition_pieces):
            if after.first_id != before.last_id + 1:
                raise BadArchive(
                    f"the file after {before.path} must begin with transaction "
                    f"{before.last_id + 1}, but it is {after.path}: remove the file that does not "
                    "belong to the export"
                )
    return by_partition


def _piece_at(path: str) -> Piece | None:
    """Return the piece with this `Piece.path`, None if no piece has it."""
    folder, _, name = path.rpartition("/")
    folder_match, name_match = _FOLDER.fullmatch(folder), _NAME.fullmatch(name)
    if folder_match is None or name_match is None:
        return None
    first_id, last_id, form = name_match.groups()
    return Piece(int(folder_match[1]), int(first_id), int(last_id), Form(form))


def exported_up_to(by_partition: Mapping[int, list[Piece]], partition: int) -> int:
    """Return the last exported id of ``partition``, -1 if there is none.

    ``by_partition`` is the result of `pieces`.
    """
    partition_pieces = by_partition.get(partition)
    return partition_pieces[-1].last_id if partition_pieces else NO_TRANSACTION


def as_json(transaction: Transaction) -> str:
    """Return the line of JSON for ``transaction``: an `ExportedTransaction`."""
    req_id = transaction.req_id
    data: bytes = transaction.data
    value: ExportedTransaction = {
        "partition": transaction.partition,
        "id": transaction.id,
        "client_id": req_id.client_id,
        "generation": req_id.generation,
        "seq": req_id.seq,
        "header": transaction.header,
    }
    try:
        value["data"] = data.decode()
    except UnicodeDecodeError:
        value["data_base64"] = base64.b64encode(data).decode("ascii")
    return json.dumps(value, ensure_ascii=False)


def from_json(line: str) -> Row:
    """Parse a line that `as_json` or ``waltz log read -o json`` wrote. Raises BadArchive."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise BadArchive(f"it is not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise BadArchive("it is not a JSON object")
    return as_row(value)


def as_row(value: Mapping[str, Any]) -> Row:
    """Return the row of a file from its values by column name. Raises BadArchive.

    ``data`` may be text or bytes. If there is ``data_base64``, ``data`` is ignored: ``waltz log
    read -o json`` writes both, and its ``data`` is null if the bytes are not text. A row without a
    header gets the header 0.
    """
    encoded, data = value.get("data_base64"), value.get("data")
    if isinstance(encoded, str):
        try:
            data = base64.b64decode(encoded, validate=True)
        except ValueError as problem:
            raise BadArchive(f"data_base64 is not base64: {problem}") from None
    elif isinstance(data, str):
        try:
            data = data.encode()
        except UnicodeEncodeError as problem:
            raise BadArchive(f"data is not text: {problem}") from None
    if not isinstance(data, bytes):
        raise BadArchive("it has neither data nor data_base64")
    header = value.get("header")
    # The id is named `id` in JSON (`as_json`), and `transaction_id` in Parquet (`as_columns`).
    partition, id_ = value.get("partition"), value.get("id", value.get("transaction_id"))
    numbers = {"header": header, "partition": partition, "id": id_}
    for name, number in numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise BadArchive(f"{name} is {number!r}, which is not a whole number")
    if header is not None and header not in _INT32:
        raise BadArchive(f"header is {header}, which has more than 32 bits")
    return Row(partition, id_, header or 0, data)


def as_columns(transactions: Sequence[Transaction]) -> dict[str, list[Any]]:
    """Return the columns of a Parquet file by name. They are those of the Spark source."""
    return {
        "partition": [transaction.partition for transaction in transactions],
        "transaction_id": [transaction.id for transaction in transactions],
        "client_id": [transaction.req_id.client_id for transaction in transactions],
        "generation": [transaction.req_id.generation for transaction in transactions],
        "seq": [transaction.req_id.seq for transaction in transactions],
        "header": [transaction.header for transaction in transactions],
        "data": [transaction.data for transaction in transactions],
    }
