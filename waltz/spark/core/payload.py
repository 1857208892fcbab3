"""Decode ``data`` to columns, and handle rows that cannot be decoded. Pure.

Thousands of rows are decoded at once. If that fails, the rows are split in halves until each
malformed row is alone, so that a few malformed rows do not slow down the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import Mode, ReadOptions
from waltz.spark.core.payload_parsers import (
    MALFORMED,
    avro_fields,
    parse_arrow,
    parse_avro,
    parse_json,
    parse_text,
)
from waltz.spark.core.schema import SCHEMA

Parse = Callable[[Any, Any], tuple[Any, list[int]]]
"""A function of `payload_parsers`, which parses an Arrow array of data with an Arrow schema.

It returns a table, and for each row of the table the index of the data that the row came from.
"""

_DATA = SCHEMA.names.index("data")


class DataMalformed(ValueError):
    """The data of a transaction cannot be decoded as the option decode says."""

    def __init__(self, partition: int, transaction_id: int, kind: str) -> None:
        super().__init__(
            f"transaction {transaction_id} of partition {partition}: data cannot be decoded as "
            f"{kind} with the requested columns; correct the option decode or the schema, or set "
            "mode to permissive (null columns) or drop"
        )
        self.partition = partition
        self.transaction_id = transaction_id


@dataclass(frozen=True, slots=True)
class Payload:
    """How rows are decoded: ``kind`` is the option ``decode``, ``schema`` the result's columns.

    ``avro_schema``, as JSON, is the schema that Avro data was written with.
    """

    kind: str
    mode: Mode
    schema: StructType
    avro_schema: str | None = None

    def decode(self, batch: Any) -> Any:
        """Convert an Arrow batch of the log's columns to a batch with the columns of `schema`.

        Raises DataMalformed.
        """
        match self.kind:
            case "binary":
                return batch
            case "utf8":
                return self._decoded(batch, parse_text, pa.schema([("data", pa.string())]))
            case "json":
                parse: Parse = parse_json
            case "arrow":
                parse = parse_arrow
            case _:
                assert self.kind == "avro"
                assert self.avro_schema is not None
                parse = partial(parse_avro, written=self.avro_schema)
        return self._decoded(batch, parse, self.decoded_schema())

    def decoded_fields(self) -> list[StructField]:
        """Return the columns that are decoded from ``data``."""
        return [field for field in self.schema if field.name not in SCHEMA.names]

    def decoded_schema(self) -> Any:
        """Return the columns that are decoded from ``data`` as an Arrow schema."""
        return to_arrow_schema(StructType(self.decoded_fields()), timezone="UTC")

    def _decoded(self, batch: Any, parse: Parse, parsed: Any) -> Any:
        """Decode ``data`` with ``parse`` to the columns of the Arrow schema ``parsed``."""
        null_row = pa.table([pa.nulls(1, field.type) for field in parsed], schema=parsed)
        rows: list[int] = []
        tables = [parsed.empty_table()]
        for first, count, table, origins in _parsed_runs(batch.column(_DATA), parse, parsed, 0):
            if table is not None:
                rows += [first + origin for origin in origins]
                tables.append(table)
            elif self.mode is Mode.FAIL:
                raise DataMalformed(
                    batch.column("partition")[first].as_py(),
                    batch.column("transaction_id")[first].as_py(),
                    self.kind,
                )
            elif self.mode is Mode.PERMISSIVE:
                assert count == 1
                rows.append(first)
                tables.append(null_row)
            # In the mode DROP, nothing is added for the row.
        decoded = pa.concat_tables(tables).combine_chunks()
        if rows != list(range(batch.num_rows)):
            batch = batch.take(pa.array(rows, pa.int64()))
        schema = to_arrow_schema(self.schema, timezone="UTC")
        columns = [
            _only_chunk(decoded.column(field.name))
            if field.name in decoded.column_names
            else batch.column(field.name)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def payload_of(options: ReadOptions, schema: StructType | None = None) -> Payload:
    """Return how data is decoded. ``schema`` is the schema of the query, None without a schema.

    Raises OptionError.
    """
    kind = options.decode
    if kind in ("binary", "utf8"):
        fixed = SCHEMA if kind == "binary" else _with_text()
        if schema is not None and schema != fixed:
            raise OptionError(
                f"the waltz source has only the columns {', '.join(SCHEMA.names)}: leave out "
                "schema() and select or cast afterwards, or set decode to json, arrow or "
                "avro"
            )
        return Payload(kind, options.mode, fixed)
    if schema is None:
        raise OptionError(
            f"decode {kind} needs the columns that data has, such as "
            "spark.read.schema('account BIGINT, amount BIGINT'); the schema may also have the "
            f"columns of the log ({', '.join(SCHEMA.names)})"
        )
    for field in schema:
        if field.name in SCHEMA.names and field.dataType != SCHEMA[field.name].dataType:
            raise OptionError(
                f"the column {field.name} is the log's own and "
                f"{SCHEMA[field.name].dataType.simpleString().upper()}: declare the column with "
                "that type in schema(), or remove it"
            )
    payload = Payload(kind, options.mode, schema, options.avro_schema)
    if kind == "json":
        _check_json(payload)
    if kind == "avro":
        _check_avro(payload)
    return payload


def _check_json(payload: Payload) -> None:
    try:
        parse_json(pa.array([b"{}"]), payload.decoded_schema())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise OptionError(
            f"schema() has a type that is not decoded from JSON ({problem}): declare it as "
            "STRING, and cast afterwards"
        ) from None


def _check_avro(payload: Payload) -> None:
    if payload.avro_schema is None:
        raise OptionError(
            "decode avro needs the option avroSchema, the JSON of the schema that data was written "
            "with, such as Path('record.avsc').read_text()"
        )
    known = avro_fields(payload.avro_schema)
    for field in payload.decoded_fields():
        if field.name not in known:
            raise OptionError(
                f"the column {field.name} of schema() is not in avroSchema, which has "
                f"{', '.join(known)}: remove the column, or correct its name"
            )


def _with_text() -> StructType:
    return StructType(
        [StructField(f.name, StringType()) if f.name == "data" else f for f in SCHEMA]
    )


def _parsed_runs(
    data: Any, parse: Parse, parsed: Any, first: int
) -> Iterator[tuple[int, int, Any | None, list[int]]]:
    """Yield consecutive runs of rows, of which each is parsed or is one malformed row.

    A run is its first row, its number of rows, their table (None: malformed), and for each row of
    the table the row that it came from, counted from the first row of the run. ``first`` is the
    number of the first row in ``data``.
    """
    count = len(data)
    if not count:
        return
    try:
        table, origins = parse(data, parsed)
    except MALFORMED:
        if count == 1:
            yield first, 1, None, []
            return
        half = count // 2
        yield from _parsed_runs(data.slice(0, half), parse, parsed, first)
        yield from _parsed_runs(data.slice(half), parse, parsed, first + half)
    else:
        yield first, count, table, origins


def _only_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
