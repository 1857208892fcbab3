"""The option ``--version`` of every command. Prints to standard output.

A module of its own: the command ``waltz`` starts faster without the settings that `service` needs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from waltz.runtime.version import build_version


def show_version(context: typer.Context, wanted: bool) -> None:
    """Print the program's name and version and exit, if ``wanted``."""
    if wanted:
        print(context.find_root().info_name, build_version() or "unknown")  # noqa: T201
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
]
