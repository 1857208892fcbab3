"""Print results: tables for people, JSON or YAML for scripts. Writes to the standard streams."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from waltz.cli.rows import Rendering, Rows

_PIPE_WIDTH = 240
"""The width of tables that are not written to a terminal, in characters."""


class Format(StrEnum):
    """The format in which results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    Format, typer.Option("--output", "-o", help="Tables for people, JSON or YAML for scripts.")
]


def show(output: Format, rendering: Rendering) -> None:
    """Print a result as JSON, YAML or tables."""
    match output:
        case Format.JSON:
            print(json.dumps(rendering.value, indent=2))  # noqa: T201
        case Format.YAML:
            print(as_yaml(rendering.value), end="")  # noqa: T201
        case Format.TABLE:
            # The output of a pipe must not be wrapped.
            console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
            console.print(tables(rendering))


def show_line(output: Format, value: Mapping[str, Any], line: str) -> None:
    """Print one of many results: ``value`` as a line of JSON or a YAML document, else ``line``."""
    match output:
        case Format.JSON:
            print(json.dumps(value), flush=True)  # noqa: T201
        case Format.YAML:
            print("---\n" + as_yaml(value), end="", flush=True)  # noqa: T201
        case Format.TABLE:
            print(line, flush=True)  # noqa: T201


def as_yaml(value: object) -> str:
    """Return ``value`` as a YAML document."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def tables(rendering: Rendering) -> Group:
    """Return the tables of a result, ready to print."""
    return Group(*(_table(rows) for rows in rendering.tables))


def say(message: str) -> None:
    """Print a message to standard error, because standard output has only results."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message))


def _table(rows: Rows) -> Table:
    table = Table(
        title=rows.title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=any(rows.columns),
    )
    for column in rows.columns:
        table.add_column(column)
    for row in rows.cells:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
