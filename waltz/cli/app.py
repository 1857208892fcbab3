"""Assemble the command ``waltz``. Imports the folder of a noun only when the noun is typed.

A process runs one command. If it imported the folders of all nouns, it would start noticeably
later.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import typer

from waltz.cli.options import examples
from waltz.runtime.extras import import_quickly, needs_extra
from waltz.runtime.one_line import OneLineGroup
from waltz.runtime.version_option import Version

_NOUNS = (
    "local",
    "cluster",
    "server",
    "storage",
    "access",
    "log",
    "bench",
    "disk",
    "config",
    "debug",
    "profile",
)
_VERBS_WITHOUT_NOUN = ("top", "console", "doctor")
_NAMES = _NOUNS + _VERBS_WITHOUT_NOUN
"""The words that can follow ``waltz``, in the order of the help; each has a folder."""


class _Commands(Mapping[str, Any]):
    """The command for each of `_NAMES`. A command is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in _NAMES:
            raise KeyError(name)
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


@cache
def _command(name: str) -> Any:
    """Import the folder ``name`` and return its command. Raises ExtraMissing."""
    with needs_extra("waltz: the command", "cli"):
        commands = import_quickly(f"waltz.cli.{name}.commands")
    parent = typer.Typer(add_completion=False)
    # An app with a name becomes a group: ``waltz log read``. The verbs of an app without a name
    # become commands of the parent itself: ``waltz top``.
    parent.add_typer(commands.app, name=name if name in _NOUNS else None)
    group: Any = typer.main.get_command(parent)
    return group.commands[name]


class _Waltz(OneLineGroup):
    """The group ``waltz``. Its commands are imported when they are used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()


app = typer.Typer(
    cls=_Waltz,
    no_args_is_help=True,
    help="Run, operate and use a Waltz transaction log.",
    epilog=examples(
        "waltz local up --detach",
        "waltz log append 0 hello",
        "waltz log tail 0",
        "waltz doctor",
        "waltz local down",
    ),
)


@app.callback()
def program(_version: Version = False) -> None:
    """Declare the options of ``waltz`` itself, which come before the noun."""
    # Results may have characters that the encoding of standard output lacks, such as a path whose
    # bytes are not UTF-8. An error would hide the result of a verb that has changed something.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def main() -> None:
    """Run the command line."""
    app()
