"""Print results: tables for people; JSON, YAML or lines of a template for scripts.

Writes to the standard streams.
"""

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
from typing_extensions import TypeAliasType

from waltz.cli.rows import Rendering, Rows
from waltz.cli.template import BadTemplate, Template

_PIPE_WIDTH = 240
"""The width of tables that are not written to a terminal, in characters."""
_TEMPLATE = "template="
"""A value of ``--output`` that begins with this is a template."""


class Format(StrEnum):
    """The format in which results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class _TemplateDoesNotFit(typer.BadParameter):
    """The template of ``--output`` does not fit the result.

    The exit status is 1. It is not that of a wrong command line, because the verb has run and may
    have changed something.
    """

    exit_code = 1

    def format_message(self) -> str:
        """Return the message; click's own method would call the value of ``--output`` invalid."""
        return f"cannot fill the template: {self.message}"


def parse_output(text: str) -> Format | Template:
    """Return the format that the value of ``--output`` means. Raises typer.BadParameter."""
    if text.startswith(_TEMPLATE):
        try:
            return Template.parse(text.removeprefix(_TEMPLATE))
        except BadTemplate as problem:
            raise typer.BadParameter(f"the template cannot be used: {problem}") from problem
    try:
        return Format(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not one of {', '.join(Format)} and {_TEMPLATE}TEXT"
        ) from None


def _complete_output(incomplete: str) -> list[str]:
    """Return the values of ``--output`` that begin with ``incomplete``, for a shell."""
    return [value for value in (*Format, _TEMPLATE) if value.startswith(incomplete)]


# typer refuses an option whose type is a union. It does not look into a named alias.
OutputFormat = TypeAliasType("OutputFormat", Format | Template)
"""How results are printed."""

Output = Annotated[
    OutputFormat,
    typer.Option(
        "--output",
        "-o",
        parser=parse_output,
        autocompletion=_complete_output,
        metavar="|".join((*Format, f"{_TEMPLATE}TEXT")),
        help="Tables for people; for scripts JSON, YAML, or a line of TEXT for each row, with "
        "fields of the JSON in braces.",
    ),
]


def show(output: OutputFormat, rendering: Rendering) -> None:
    """Print a result as JSON, YAML, tables or lines of a template."""
    match output:
        case Format.JSON:
            print(json.dumps(rendering.value, indent=2))  # noqa: T201
        case Format.YAML:
            print(as_yaml(rendering.value), end="")  # noqa: T201
        case Format.TABLE:
            # Without a terminal and a width, rich would wrap lines at a narrow default width.
            console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)
            console.print(tables(rendering))
        case Template():
            _print_filled(output, rendering.value)


def show_line(output: OutputFormat, value: Mapping[str, Any], line: str) -> None:
    """Print one of many results: ``line`` for `Format.TABLE`, ``value`` for all other formats.

    The value is printed as a line of JSON, as a YAML document, or as lines of a template.
    """
    match output:
        case Format.JSON:
            print(json.dumps(value), flush=True)  # noqa: T201
        case Format.YAML:
            print("---\n" + as_yaml(value), end="", flush=True)  # noqa: T201
        case Format.TABLE:
            print(line, flush=True)  # noqa: T201
        case Template():
            _print_filled(output, value)


def as_yaml(value: object) -> str:
    """Return ``value`` as a YAML document."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


def tables(rendering: Rendering) -> Group:
    """Return the tables of a result, ready to print."""
    return Group(*(_table(rows) for rows in rendering.tables))


def say(message: str) -> None:
    """Print a message to standard error, because standard output has only results."""
    # As a `Text`: in a plain text, rich would read words in brackets as styles.
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(message))


def check_template(output: OutputFormat, example: Mapping[str, Any]) -> None:
    """Raise typer.BadParameter if ``output`` is a template that does not fit ``example``.

    A verb that must not be repeated after an error, such as an append, calls this before it begins.
    """
    if isinstance(output, Template):
        try:
            output.lines(example)
        except BadTemplate as problem:
            raise typer.BadParameter(f"the template cannot be used: {problem}") from problem


def _print_filled(template: Template, value: Any) -> None:
    """Print the lines of ``template`` for ``value``.

    Raises _TemplateDoesNotFit before the first line is printed.
    """
    try:
        lines = template.lines(value)
    except BadTemplate as problem:
        raise _TemplateDoesNotFit(str(problem)) from problem
    for line in lines:
        print(line, flush=True)  # noqa: T201


def _table(rows: Rows) -> Table:
    """Return a table to print; if all titles are empty, it has no row of titles."""
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
