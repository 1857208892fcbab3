"""Convert the rows of a DataFrame to appends: partition, data, header, locks. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from waltz.protocol.checksums import crc32
from waltz.protocol.locks import Lock
from waltz.spark.core.option_values import OptionError

_BYTES = (BinaryType(), StringType())
_INTEGERS = (IntegerType(), ShortType(), ByteType())
_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "data": _BYTES,
    "partition": _INTEGERS,
    "key": (*_BYTES, LongType(), IntegerType()),
    "header": _INTEGERS,
    "id": (*_BYTES, LongType(), IntegerType()),
}
"""The types that each column may have; `_check_locks` has the type of the column ``locks``."""
_LOCKS = "locks"
_HEADER = struct.Struct(">i")


class RowRefused(ValueError):
    """A row cannot be appended; the text says why and what to change."""


@dataclass(frozen=True, slots=True)
class RowToAppend:
    """One row to append.

    ``locks`` are the append locks that the row itself names. ``fingerprint`` is a digest of header
    and data, by which equal rows are found in the log.
    """

    data: bytes
    header: int
    locks: tuple[Lock, ...]
    fingerprint: bytes


def fingerprint(header: int, data: bytes) -> bytes:
    """Return a 16-byte digest of header and data."""
    return blake2b(_HEADER.pack(header) + data, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a DataFrame that is written."""

    names: tuple[str, ...]

    @property
    def has_row_ids(self) -> bool:
        """Whether there is a column ``id``: then rows with equal fingerprints are one row.

        The log is searched for rows that were appended before, and it has no ids. So the ids are
        not read, and the application must give rows with different ids different data or different
        headers.
        """
        return "id" in self.names

    def rows(self, batch: Any, task: int, num_partitions: int) -> Iterator[tuple[int, RowToAppend]]:
        """Yield partition and row for each row of an Arrow batch. Raises RowRefused.

        ``task`` is the number of the task that has the rows. A row goes to the partition that it
        names. If it names none, `_chooser` chooses the partition: by the key; or, without a key, by
        the fingerprint if rows have ids, and otherwise by the task.
        """
        values = {name: batch.column(name).to_pylist() for name in self.names}
        nothing = [None] * batch.num_rows
        for data, header, partition, key, locks in zip(
            values["data"],
            values.get("header", nothing),
            values.get("partition", nothing),
            values.get("key", nothing),
            values.get(_LOCKS, nothing),
            strict=True,
        ):
            if data is None:
                raise RowRefused("a row has null in data: filter such rows out, or fill them")
            raw = _bytes(data)
            header = header or 0  # A missing header or a null is 0.
            row = RowToAppend(raw, header, _locks(locks), fingerprint(header, raw))
            if partition is None:
                partition = self._chooser(key, row, task) % num_partitions
            elif not 0 <= partition < num_partitions:
                raise RowRefused(
                    f"a row is for partition {partition}, but the cluster has only partitions 0 to "
                    f"{num_partitions - 1}: correct the column partition, or use key"
                )
            yield partition, row

    def _chooser(self, key: bytes | str | int | None, row: RowToAppend, task: int) -> int:
        """Return the number that chooses the partition of a row, modulo the number of partitions.

        Before an attempt (`core.ledger`) appends a row, it searches the log for the row, but only
        in the partition that is chosen here. So every attempt must choose the same partition. If
        rows have ids, another run may give the row to another task, so ``task`` must not choose
        (`test_row_of_another_task_in_the_next_run_is_appended_once`).
        The fingerprint chooses, and not the id, because the log is searched for fingerprints. So
        rows that count as one row go to one partition, even if their ids are null or differ.
        """
        if key is not None:
            return crc32(_bytes(key))
        return crc32(row.fingerprint) if self.has_row_ids else task


def in_parts(
    rows: Sequence[RowToAppend], num_common_locks: int, max_locks: int
) -> Iterator[Sequence[RowToAppend]]:
    """Divide ``rows`` into parts that take at most ``max_locks`` locks together, in their order.

    Each row takes its own locks and ``num_common_locks`` others.
    """
    most_of_a_row = num_common_locks + max((len(row.locks) for row in rows), default=0)
    length = max(1, max_locks // max(1, most_of_a_row))
    for first in range(0, len(rows), length):
        yield rows[first : first + length]


def columns_of(schema: StructType) -> Columns:
    """Return the columns of a DataFrame. Raises OptionError if the sink cannot write them."""
    for field in schema:
        if field.name == _LOCKS:
            _check_locks(field)
        elif field.name not in _COLUMNS:
            raise OptionError(
                f"the waltz sink has no column {field.name}: it takes data and, optionally, "
                "partition or key, header, locks and id; put other columns into data, for example "
                "by to_json(struct(*))"
            )
        elif field.dataType not in _COLUMNS[field.name]:
            wanted = " or ".join(kind.simpleString().upper() for kind in _COLUMNS[field.name])
            raise OptionError(
                f"the column {field.name} is {field.dataType.simpleString().upper()}, and the "
                f"waltz sink takes {wanted}: cast it"
            )
    names = tuple(schema.names)
    if "data" not in names:
        raise OptionError(
            "the waltz sink needs a column data (BINARY or STRING), for example "
            "df.selectExpr('to_json(struct(*)) AS data')"
        )
    if "partition" in names and "key" in names:
        raise OptionError(
            "the columns partition and key both choose the partition of a row: drop one of the two"
        )
    return Columns(names)


def _check_locks(field: StructField) -> None:
    """Raise OptionError if the column locks is not an array of structures of a name and an id."""
    kind = field.dataType
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not (
        isinstance(element, StructType)
        and [f.dataType for f in element] == [StringType(), LongType()]
        and element.names == ["name", "id"]
    ):
        raise OptionError(
            f"the column locks is {kind.simpleString().upper()}, and the waltz sink takes "
            "ARRAY<STRUCT<name: STRING, id: BIGINT>>: cast it"
        )


def _locks(given: list[dict[str, Any] | None] | None) -> tuple[Lock, ...]:
    """Return the locks of a row. Raises RowRefused."""
    if not given:
        return ()
    locks = []
    for lock in given:
        if lock is None or lock["name"] is None or lock["id"] is None:
            raise RowRefused(
                "a row has null in locks: filter such locks out, or fill their names and ids"
            )
        locks.append(Lock(lock["name"], lock["id"]))
    return tuple(locks)


def _bytes(value: bytes | str | int) -> bytes:
    """Return bytes unchanged, text in UTF-8, and a number as decimal digits."""
    if isinstance(value, bytes):
        return value
    return str(value).encode()
