"""Decode the column ``data`` to other columns, and treat rows that cannot be decoded. Pure.

Thousands of rows are decoded at once. If that fails, the rows are split in halves until each
malformed row is alone, so that a few malformed rows do not slow down the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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

_DATA_INDEX = SCHEMA.names.index("data")


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
class PayloadDecoder:
    """Decodes the data of rows, as the options and the schema of a query say.

    ``kind`` is the option ``decode``, and ``mode`` the option ``mode``. ``schema`` has the columns
    of the result: columns of the log, and columns that are decoded from ``data``. ``avro_schema``,
    as JSON, is the schema that Avro data was written with.
    """

    kind: str
    mode: Mode
    schema: StructType
    avro_schema: str | None = None

    def decode(self, batch: Any) -> Any:
        """Convert an Arrow batch of the log's columns to a batch with the columns of ``schema``.

        Raises DataMalformed if a row cannot be decoded and ``mode`` is FAIL.
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

    def _decoded(self, batch: Any, parse: Parse, data_schema: Any) -> Any:
        """Decode ``data`` with ``parse`` to the columns of the Arrow schema ``data_schema``.

        Return a batch with these columns and the columns of the log that ``self.schema`` has.
        """
        null_row = pa.table([pa.nulls(1, field.type) for field in data_schema], schema=data_schema)
        rows: list[int] = []  # For each decoded row, the row of ``batch`` that it came from.
        tables = [data_schema.empty_table()]
        for run in _parsed_runs(batch.column(_DATA_INDEX), parse, data_schema, first=0):
            if run.table is not None:
                rows += [run.first + origin for origin in run.origins]
                tables.append(run.table)
            elif self.mode is Mode.FAIL:
                raise DataMalformed(
                    batch.column("partition")[run.first].as_py(),
                    batch.column("transaction_id")[run.first].as_py(),
                    self.kind,
                )
            elif self.mode is Mode.PERMISSIVE:
                rows.append(run.first)
                tables.append(null_row)
            # In the mode DROP, nothing is added for the row.
        decoded = pa.concat_tables(tables).combine_chunks()
        # ``rows`` omits or repeats numbers if a malformed row was dropped, or if a value was an
        # Arrow stream of no row or of several. Then take the same rows of the log's columns.
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


def payload_decoder(options: ReadOptions, schema: StructType | None = None) -> PayloadDecoder:
    """Return the decoder for a query. ``schema`` is the schema of the query, None if it has none.

    Raises OptionError if the options and the schema do not fit together.
    """
    kind = options.decode
    if kind in ("binary", "utf8"):
        fixed = SCHEMA if kind == "binary" else _schema_with_text_data()
        if schema is not None and schema != fixed:
            raise OptionError(
                f"the waltz source has only the columns {', '.join(SCHEMA.names)}: leave out "
                "schema() and select or cast afterwards, or set decode to json, arrow or "
                "avro"
            )
        return PayloadDecoder(kind, options.mode, fixed)
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
    decoder = PayloadDecoder(kind, options.mode, schema, options.avro_schema)
    if kind == "json":
        _check_json(decoder)
    if kind == "avro":
        _check_avro(decoder)
    return decoder


def _check_json(decoder: PayloadDecoder) -> None:
    """Raise OptionError if Arrow cannot decode JSON to the columns of ``decoder``."""
    try:
        parse_json(pa.array([b"{}"]), decoder.decoded_schema())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise OptionError(
            f"schema() has a type that is not decoded from JSON ({problem}): declare it as "
            "STRING, and cast afterwards"
        ) from None


def _check_avro(decoder: PayloadDecoder) -> None:
    """Raise OptionError if the schema of the Avro data lacks a column of ``decoder``."""
    if decoder.avro_schema is None:
        raise OptionError(
            "decode avro needs the option avroSchema, the JSON of the schema that data was written "
            "with, such as Path('record.avsc').read_text()"
        )
    known = avro_fields(decoder.avro_schema)
    for field in decoder.decoded_fields():
        if field.name not in known:
            raise OptionError(
                f"the column {field.name} of schema() is not in avroSchema, which has "
                f"{', '.join(known)}: remove the column, or correct its name"
            )


def _schema_with_text_data() -> StructType:
    """Return the columns of the log, with ``data`` as text."""
    return StructType(
        [StructField(f.name, StringType()) if f.name == "data" else f for f in SCHEMA]
    )


class _Run(NamedTuple):
    """Consecutive rows that were parsed together, or one malformed row.

    ``first`` is the number of the first row. ``table`` has the parsed rows; it is None for a
    malformed row. ``origins`` has, for each row of the table, the row that it came from, counted
    from ``first``.
    """

    first: int
    table: Any | None
    origins: list[int]


def _parsed_runs(data: Any, parse: Parse, data_schema: Any, first: int) -> Iterator[_Run]:
    """Parse the rows of ``data``, an Arrow array, and yield the runs in order.

    ``first`` is the number of the first row of ``data``.
    """
    if not len(data):
        return
    try:
        table, origins = parse(data, data_schema)
    except MALFORMED:
        if len(data) == 1:
            yield _Run(first, table=None, origins=[])
            return
        half = len(data) // 2
        yield from _parsed_runs(data.slice(0, half), parse, data_schema, first)
        yield from _parsed_runs(data.slice(half), parse, data_schema, first + half)
    else:
        yield _Run(first, table, origins)


def _only_chunk(column: Any) -> Any:
    """Return a column as an Arrow array. The column has one chunk, or none if it is empty."""
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
