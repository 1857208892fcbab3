"""Shows results: tables to people, JSON to scripts. Writes to the standard streams."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from waltz.cli.rows import Shown

_WIDE = 240


class Format(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    Format, typer.Option("--output", "-o", help="A table for people, or JSON for scripts.")
]


def show(output: Format, shown: Shown) -> None:
    """Print the JSON value, or the tables that say the same."""
    if output is Format.JSON:
        print(json.dumps(shown.value, indent=2))  # noqa: T201
        return
    # A pipe has no width to fit into.
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    for rows in shown.tables:
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
        console.print(table)


def say(message: str) -> None:
    """Tell people what goes on, apart from the results."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message))
