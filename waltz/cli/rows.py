"""Render results as a value for scripts and as tables for people, from one declaration.

A result is a frozen dataclass. Its fields are the keys of the JSON value. Scripts use these keys,
so they must not change. `column` declares how a field is shown in a table. `nested` declares a
field whose value is a tuple of other results, which can be shown in a table of their own::

    @dataclass(frozen=True, slots=True)
    class ServerRow:
        id: int
        preferred: tuple[int, ...]
        problem: Annotated[str | None, column(show=blank)]

    listing("Servers", ServerRow, rows)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_type_hints
from uuid import UUID

from waltz.protocol.notation import format_partitions


@dataclass(frozen=True, slots=True)
class Rows:
    """A table before it is drawn; cells are shown as text."""

    title: str
    columns: Sequence[str]
    cells: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class Rendering:
    """One result: as a value for scripts, and as tables for people."""

    value: Any
    tables: tuple[Rows, ...]


@dataclass(frozen=True, slots=True)
class _Column:
    """How a field is shown: the arguments of `column` or `nested`."""

    title: str | None = None
    show: Callable[[Any], object] | None = None
    in_table: bool = True
    in_json: bool = True
    row_class: type | None = None
    """The class of the nested results; None if the field is not declared by `nested`."""
    table: str | None = None
    """The title of the separate table of the nested results; None: they have no such table."""


_PLAIN = _Column()
"""The declaration of a field whose annotation has none."""

_Columns = list[tuple[str, _Column]]
"""The names of fields of a result class, each with its declaration."""


def column(
    title: str | None = None,
    *,
    show: Callable[[Any], object] | None = None,
    in_table: bool = True,
    in_json: bool = True,
) -> _Column:
    """Declare how a field is shown.

    ``title`` is the title of its column (None: the field's name). ``show`` turns the field's value
    into a cell (None: `as_cell` does). ``in_table`` is whether the field has a column in tables;
    ``in_json`` is whether the field is in the value that `as_value` returns for JSON and YAML.
    """
    return _Column(title, show, in_table, in_json)


def nested(
    row_class: type,
    table: str | None = None,
    *,
    title: str | None = None,
    show: Callable[[Any], object] | None = None,
) -> _Column:
    """Declare a field whose value is a tuple of nested results of the class ``row_class``.

    ``table`` is the title of a separate table of the nested results; None: they have no such table.
    ``show`` turns the tuple into a cell of the table that shows the outer result; None: that table
    has no column for the field. ``title`` is the title of this column (None: the field's name).
    """
    return _Column(title, show, in_table=show is not None, row_class=row_class, table=table)


def record(title: str, result: Any) -> Rendering:
    """Render one result: a table of its fields and values, then the tables of nested results."""
    return Rendering(as_value(result), (*_names_and_values(title, result), *nested_tables(result)))


def listing(title: str, row_class: type, items: Sequence[Any]) -> Rendering:
    """Render results of one class: one table, then the tables of their nested results."""
    return Rendering([as_value(item) for item in items], tuple(_tables(title, row_class, items)))


def nested_tables(result: Any) -> tuple[Rows, ...]:
    """Return the tables of the nested results of one result."""
    return tuple(
        table
        for name, declared in _columns(type(result))
        if declared.row_class is not None and declared.table is not None
        for table in _tables(declared.table, declared.row_class, getattr(result, name))
    )


def pairs(title: str, value: Mapping[str, object]) -> Rows:
    """Return a table of the names and values in ``value``."""
    cells = [(name.replace("_", " "), as_cell(content)) for name, content in value.items()]
    return Rows(title, ("", ""), cells)


def as_value(result: Any) -> Any:
    """Return a result as plain values that JSON and YAML can represent."""
    match result:
        case Mapping():
            return {key: as_value(content) for key, content in result.items()}
        case Enum():
            return result.value
        case UUID():
            return str(result)
        case list() | tuple():
            return [as_value(item) for item in result]
        case _ if is_dataclass(result):
            return {
                name: as_value(getattr(result, name))
                for name, declared in _columns(type(result))
                if declared.in_json
            }
        case _:
            return result


def json_fields(row_class: type[Any]) -> list[tuple[str, Any]]:
    """Return the keys of the JSON value of a result class, each with the type of its value."""
    hints = _hints(row_class)
    return [(name, hints[name]) for name, declared in _columns(row_class) if declared.in_json]


def or_dash(value: object) -> object:
    """Return ``value``, or a dash for None."""
    return "-" if value is None else value


def blank(value: object) -> object:
    """Return ``value``, or an empty cell for None: for columns that show problems."""
    return "" if value is None else value


def as_cell(value: object) -> object:
    """Return ``value`` as a cell of a table shows it, if its column has no ``show``.

    A bool is yes or no, a member of an Enum is its value. The texts of a tuple or list are joined
    by spaces; numbers in it become ranges of partitions, such as 0-3,7. None and an empty tuple are
    a dash.
    """
    match value:
        case bool():
            return "yes" if value else "no"
        case Enum():
            return value.value
        case list() | tuple():
            texts = [str(item) for item in value if isinstance(item, str)]
            return " ".join(texts) if texts else format_partitions(value)
        case _:
            return or_dash(value)


def _names_and_values(title: str, result: Any) -> Iterator[Rows]:
    """Yield the table of a result's fields and values; none if no field is shown in tables."""
    columns = _shown_columns(type(result))
    titled_values = list(zip(_titles(columns), _cells(columns, result), strict=True))
    if titled_values:
        yield Rows(title, ("", ""), titled_values)


def _tables(title: str, row_class: type, items: Sequence[Any]) -> Iterator[Rows]:
    """Yield the table of ``items``, then the tables of their nested results."""
    columns = _shown_columns(row_class)
    yield Rows(title, _titles(columns), [_cells(columns, item) for item in items])
    # A nested table begins with the first column of ``items``, which shows to which item each of
    # its rows belongs.
    first_column = columns[:1]
    for name, declared in _columns(row_class):
        if declared.row_class is None or declared.table is None:
            continue
        nested_columns = _shown_columns(declared.row_class)
        titles = _titles(first_column) + _titles(nested_columns)
        cells = [
            _cells(first_column, item) + _cells(nested_columns, nested_result)
            for item in items
            for nested_result in getattr(item, name)
        ]
        yield Rows(declared.table, titles, cells)


def _columns(row_class: type[Any]) -> _Columns:
    """Return the fields of a result class in their order, each with its declaration."""
    hints = _hints(row_class)
    return [(field.name, _declaration(hints[field.name])) for field in fields(row_class)]


def _hints(row_class: type[Any]) -> dict[str, Any]:
    """Return the annotations of a result class, evaluated in the namespace of its module."""
    # Without ``localns``, a field of the class would hide a type with the same name.
    return get_type_hints(row_class, localns={}, include_extras=True)


def _declaration(hint: Any) -> _Column:
    """Return the `_Column` in the annotation of a field, `_PLAIN` if it has none."""
    for part in getattr(hint, "__metadata__", ()):
        if isinstance(part, _Column):
            return part
    return _PLAIN


def _shown_columns(row_class: type[Any]) -> _Columns:
    """Return the fields of a result class that are columns of its table."""
    return [(name, declared) for name, declared in _columns(row_class) if declared.in_table]


def _titles(columns: _Columns) -> tuple[str, ...]:
    """Return the titles of ``columns``."""
    return tuple(_title(name, declared) for name, declared in columns)


def _cells(columns: _Columns, item: Any) -> tuple[object, ...]:
    """Return the row of ``item`` in a table of ``columns``."""
    return tuple(_cell(declared, getattr(item, name)) for name, declared in columns)


def _title(name: str, declared: _Column) -> str:
    """Return the title of the column of the field ``name``."""
    return name.replace("_", " ") if declared.title is None else declared.title


def _cell(declared: _Column, value: Any) -> object:
    """Return ``value`` as its column shows it."""
    return as_cell(value) if declared.show is None else declared.show(value)
