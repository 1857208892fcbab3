"""What ``data`` holds, as columns: text, JSON or Arrow, and what becomes of rows that do not. Pure.

Thousands of rows are decoded at once. If that fails, the rows are halved until those that are to
blame stand alone, so that a few bad rows cost little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from waltz.spark.option_values import OptionError
from waltz.spark.options import Mode, ReadOptions
from waltz.spark.schema import SCHEMA

_DATA = SCHEMA.names.index("data")
_NEWLINE = b"\n"


class DataMalformed(ValueError):
    """The data of a transaction is not what the option decode says."""

    def __init__(self, partition: int, transaction_id: int, kind: str) -> None:
        super().__init__(
            f"the data of transaction {transaction_id} of partition {partition} is not {kind} of "
            "the columns asked for: correct the option decode or the schema, or set mode to "
            "permissive (null columns) or drop"
        )
        self.partition = partition
        self.transaction_id = transaction_id


@dataclass(frozen=True, slots=True)
class Payload:
    """How rows are decoded: ``kind`` is the option ``decode``, ``schema`` what Spark gets."""

    kind: str
    mode: Mode
    schema: StructType

    def decode(self, batch: Any) -> Any:
        """Return an Arrow batch of the log's columns as one of `schema`. Raises DataMalformed."""
        match self.kind:
            case "binary":
                return batch
            case "utf8":
                return self._decoded(batch, _Text())
            case "json":
                return self._decoded(batch, _Json(self._arrow_schema(own=True)))
            case _:
                assert self.kind == "arrow"
                return self._decoded(batch, _Ipc(self._arrow_schema(own=True)))

    def own(self) -> list[StructField]:
        """Return the columns that come out of ``data``."""
        return [field for field in self.schema if field.name not in SCHEMA.names]

    def _arrow_schema(self, *, own: bool) -> Any:
        return to_arrow_schema(StructType(self.own()) if own else self.schema, timezone="UTC")

    def _decoded(self, batch: Any, parse: _Parse) -> Any:
        rows: list[int] = []
        tables = []
        for first, count, table, origins in _pieces(batch.column(_DATA), parse, 0):
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
                tables.append(parse.nothing())
        decoded = pa.concat_tables([parse.nothing().slice(1), *tables]).combine_chunks()
        if rows != list(range(batch.num_rows)):
            batch = batch.take(pa.array(rows, pa.int64()))
        schema = self._arrow_schema(own=False)
        columns = [
            _only_chunk(decoded.column(field.name))
            if field.name in decoded.column_names
            else batch.column(field.name)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def payload_of(options: ReadOptions, schema: StructType | None = None) -> Payload:
    """Return how data is decoded; ``schema`` is what the query asks for. Raises OptionError."""
    kind = options.decode
    if kind in ("binary", "utf8"):
        fixed = SCHEMA if kind == "binary" else _with_text()
        if schema is not None and schema != fixed:
            raise OptionError(
                f"the waltz source has the columns {', '.join(SCHEMA.names)} and no others: leave "
                "out schema(), and select or cast afterwards, or set decode to json or arrow"
            )
        return Payload(kind, options.mode, fixed)
    if schema is None:
        raise OptionError(
            f"decode {kind} needs the columns that data has, such as "
            "spark.read.schema('account BIGINT, amount BIGINT'); those of the log "
            f"({', '.join(SCHEMA.names)}) may be among them"
        )
    for field in schema:
        if field.name in SCHEMA.names and field.dataType != SCHEMA[field.name].dataType:
            raise OptionError(
                f"the column {field.name} is the log's own and "
                f"{SCHEMA[field.name].dataType.simpleString().upper()}: give it that type in "
                "schema(), or take it out"
            )
    payload = Payload(kind, options.mode, schema)
    if kind == "json":
        _check_json(payload)
    return payload


def _check_json(payload: Payload) -> None:
    try:
        _Json(to_arrow_schema(StructType(payload.own()), timezone="UTC"))(pa.array([b"{}"]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise OptionError(
            f"schema() has a type that is not decoded from JSON ({problem}): ask for STRING, and "
            "cast afterwards"
        ) from None


def _with_text() -> StructType:
    return StructType(
        [StructField(f.name, StringType()) if f.name == "data" else f for f in SCHEMA]
    )


class _Parse:
    """Makes a table of data, and says from which rows it came; raises pyarrow.ArrowInvalid."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema

    def __call__(self, data: Any) -> tuple[Any, list[int]]:
        raise NotImplementedError

    def nothing(self) -> Any:
        """Return a table of one row whose columns are null."""
        return pa.table([pa.nulls(1, f.type) for f in self.schema], schema=self.schema)


class _Text(_Parse):
    def __init__(self) -> None:
        super().__init__(pa.schema([("data", pa.string())]))

    def __call__(self, data: Any) -> tuple[Any, list[int]]:
        return pa.table([data.cast(pa.string())], schema=self.schema), list(range(len(data)))


class _Json(_Parse):
    def __call__(self, data: Any) -> tuple[Any, list[int]]:
        if len(data) > 1 and pc.any(pc.match_substring_regex(data, r"[\r\n]")).as_py():
            raise pa.ArrowInvalid("a line break within data")
        lines = _NEWLINE.join(data.to_pylist()) if len(data) > 1 else data[0].as_py()
        options = pyarrow.json.ParseOptions(
            explicit_schema=self.schema,
            unexpected_field_behavior="ignore",
            newlines_in_values=len(data) == 1,
        )
        size = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        table = pyarrow.json.read_json(pa.BufferReader(lines), size, options)
        if table.num_rows != len(data):
            raise pa.ArrowInvalid("data that is not one JSON object")
        return table.select(self.schema.names).cast(self.schema), list(range(len(data)))


class _Ipc(_Parse):
    def __call__(self, data: Any) -> tuple[Any, list[int]]:
        tables, origins = [], []
        for row, raw in enumerate(data):
            with pa.ipc.open_stream(raw.as_buffer()) as stream:
                table = stream.read_all()
            try:
                tables.append(table.select(self.schema.names).cast(self.schema))
            except (KeyError, ValueError) as problem:
                raise pa.ArrowInvalid(str(problem)) from None
            origins += [row] * table.num_rows
        return pa.concat_tables([self.schema.empty_table(), *tables]), origins


def _pieces(
    data: Any, parse: _Parse, first: int
) -> Iterator[tuple[int, int, Any | None, list[int]]]:
    """Yield runs of rows, in order: where they begin, how many, their table (None: malformed)."""
    count = len(data)
    if not count:
        return
    try:
        table, origins = parse(data)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        if count == 1:
            yield first, 1, None, []
            return
        half = count // 2
        yield from _pieces(data.slice(0, half), parse, first)
        yield from _pieces(data.slice(half), parse, first + half)
    else:
        yield first, count, table, origins


def _only_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
