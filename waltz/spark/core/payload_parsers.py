"""Parse the data of many rows to a table: text, JSON, Arrow, Avro. Pure.

Each parser takes an Arrow array of data, and the Arrow ``schema`` of the requested columns. It
returns a table with these columns, and for each row of the table the index of the data that the row
came from. It raises one of `MALFORMED` if any data is malformed.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

MALFORMED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError)
"""The errors by which a parser reports malformed data; Arrow raises OSError for broken streams."""

_NEWLINE = b"\n"
_OPENS, _CLOSES = r"^[ \t]*\{", r"\}[ \t]*$"
"""How a value that is one JSON object in one line begins, and how it ends."""
_SCHEMA_ERRORS = (ValueError, LookupError, TypeError, RecursionError)
"""The errors of the parsers of JSON and Avro schemas for a text that is not a schema."""
_ARROW_ERRORS = (LookupError, ValueError)
"""The errors of Arrow for streams that are no valid streams, or lack a requested column: KeyError
for an unknown dictionary or column, UnicodeDecodeError for the name of a field."""
_AVRO_ERRORS = (EOFError, LookupError, ValueError, TypeError, OverflowError)
"""The errors of fastavro for bytes that do not match the schema that they were written with, and of
Arrow for values that do not fit the requested columns."""


def parse_text(data: Any, schema: Any) -> tuple[Any, list[int]]:
    """Parse UTF-8 text; ``schema`` has one column."""
    return pa.table([data.cast(pa.string())], schema=schema), list(range(len(data)))


def parse_json(data: Any, schema: Any) -> tuple[Any, list[int]]:
    """Parse an array whose values are one JSON object each; leave out fields not in ``schema``.

    The values are joined, one value in each line. So a value with a line break is parsed only
    alone: an error makes the caller split the array until this value is alone.

    Arrow reads one object after the other, wherever lines end. So a value with two objects, or two
    values with parts of one object, would move objects to other rows. Two checks exclude both:

    * Each line begins with an opening brace and ends with a closing one. So from line to line, an
      opening brace follows a closing one directly. JSON does not allow this within an object, so an
      object ends at the end of each line.
    * There are as many objects as lines. So no line has more than one object.
    """
    if len(data) > 1:
        if pc.any(pc.match_substring_regex(data, r"[\r\n]")).as_py():
            raise pa.ArrowInvalid("data contains a line break")
        for edge in (_OPENS, _CLOSES):
            if not pc.all(pc.match_substring_regex(data, edge)).as_py():
                raise pa.ArrowInvalid("data is not one JSON object")
    lines = _NEWLINE.join(data.to_pylist()) if len(data) > 1 else data[0].as_py()
    parse_options = pyarrow.json.ParseOptions(
        explicit_schema=schema,
        unexpected_field_behavior="ignore",
        newlines_in_values=len(data) == 1,
    )
    # One block for all lines: Arrow refuses an object that is longer than a block.
    read_options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    table = pyarrow.json.read_json(pa.BufferReader(lines), read_options, parse_options)
    if table.num_rows != len(data):
        raise pa.ArrowInvalid("data is not one JSON object")
    table.validate(full=True)  # Arrow's parser of JSON accepts text that is not UTF-8.
    return table.select(schema.names).cast(schema), list(range(len(data)))


def parse_arrow(data: Any, schema: Any) -> tuple[Any, list[int]]:
    """Parse an array whose values are one Arrow stream each. A stream has any number of rows."""
    tables, origins = [], []
    for row, raw in enumerate(data):
        try:
            with pa.ipc.open_stream(raw.as_buffer()) as stream:
                table = stream.read_all()
            # Arrow trusts the offsets in a stream: by a wrong one it would read memory beyond the
            # data.
            table.validate(full=True)
            tables.append(table.select(schema.names).cast(schema))
        except _ARROW_ERRORS as problem:
            raise pa.ArrowInvalid(str(problem)) from None
        origins += [row] * table.num_rows
    return pa.concat_tables([schema.empty_table(), *tables]), origins


def parse_avro(data: Any, schema: Any, *, written: str) -> tuple[Any, list[int]]:
    """Parse an array whose values are exactly one Avro datum each, without a file header.

    ``written`` is the schema with which the data was written, as JSON.
    """
    raws = data.to_pylist()
    written_schema = fastavro.parse_schema(_with_plain_uuids(json.loads(written)))
    stream = BytesIO(b"".join(raws))
    end = 0
    rows = []
    for raw in raws:
        end += len(raw)
        try:
            rows.append(fastavro.schemaless_reader(stream, written_schema, None))
        except _AVRO_ERRORS as problem:
            raise pa.ArrowInvalid(f"not Avro: {problem}") from None
        if stream.tell() != end:
            raise pa.ArrowInvalid("the datum ends before or after its value")
    try:
        return pa.Table.from_pylist(rows, schema), list(range(len(data)))
    except _AVRO_ERRORS as problem:
        raise pa.ArrowInvalid(str(problem)) from None


def _with_plain_uuids(schema: Any) -> Any:
    """Return ``schema`` without the logical type uuid: Spark has no such type, and reads text."""
    match schema:
        case list():
            return [_with_plain_uuids(part) for part in schema]
        case dict():
            is_uuid = schema.get("logicalType") == "uuid"
            return {
                key: value if key == "default" else _with_plain_uuids(value)
                for key, value in schema.items()
                if not (is_uuid and key == "logicalType")
            }
        case _:
            return schema


def check_avro_schema(written: str) -> None:
    """Raise ValueError if ``written`` is not the JSON of an Avro record's schema.

    A type that contains itself is refused, too. Data of such a type may be nested some thousand
    times, and would end the process, because fastavro reads nested data by recursion in C. Spark
    has no such type either.
    """
    try:
        parsed = fastavro.parse_schema(json.loads(written))
    except (*_SCHEMA_ERRORS, fastavro.schema.SchemaParseException) as problem:
        raise ValueError(f"not an Avro schema in JSON ({problem})") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ValueError("expected the schema of a record, as in an .avsc file")
    if (name := _type_in_itself(parsed)) is not None:
        raise ValueError(f"the type {name} contains itself, which is not supported")


def _type_in_itself(schema: Any, around: frozenset[str] = frozenset()) -> str | None:
    """Return the name of a type that contains itself, None if there is none.

    ``around`` has the names of the types of which ``schema`` is a part. An Avro type is defined
    before it is referred to, so a type contains itself only if a part of its definition names it.
    """
    match schema:
        case str():
            return schema if schema in around else None
        case list():
            parts: list[Any] = schema
        case {"type": "record" | "error", "name": str(name), "fields": list(fields)}:
            around |= {name}
            parts = [field["type"] for field in fields]
        case _:
            parts = [schema[key] for key in ("type", "items", "values") if key in schema]
    for part in parts:
        found = _type_in_itself(part, around)
        if found is not None:
            return found
    return None


def avro_fields(written: str) -> list[str]:
    """Return the names of the fields of the record that ``written`` describes."""
    return [field["name"] for field in json.loads(written)["fields"]]
