"""``waltz config``: show all settings of a process, their values and origins.

Reads a settings file and the environment.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli import settings as cli_settings
from waltz.cli.config.rows import ProcessSettings, render_settings
from waltz.cli.fields import prints
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, show
from waltz.cli.running import Failed, exit_on_expected_error
from waltz.client import settings as client_settings
from waltz.runtime.configuration import ConfigError, Settings, settings_report

app = typer.Typer(no_args_is_help=True, help="Show settings and their values.")


@app.callback()
def _noun() -> None:
    """Keep ``explain`` a verb: without a callback, typer takes a single command for the noun."""


class Process(StrEnum):
    """The processes that have settings."""

    SERVER = "server"
    STORAGE = "storage"
    CLIENT = "client"
    CLI = "cli"


@app.command(
    "explain",
    epilog=examples(
        "waltz config explain server",
        "waltz config explain storage /etc/waltz/storage.yml",
        "waltz config explain client client.yml -o json | jq '.settings[] | {name, value}'",
    ),
)
@prints(ProcessSettings)
def explain_command(
    process: Annotated[
        Process,
        typer.Argument(
            metavar="PROCESS", help=f"Process whose settings to show: {', '.join(Process)}."
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="YAML file with settings. Default: no file."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show every setting: its value, the value's origin, its type, default and meaning.

    Environment variables take precedence over the file. If a file is given, the exit status is 1 if
    the process would reject these settings.
    """
    with exit_on_expected_error():
        try:
            report = settings_report(_settings_class(process), file, os.environ)
        except ConfigError as problem:
            raise Failed(str(problem)) from problem
    show(output, render_settings(process.value, file, report))
    if file is not None and report.problems:
        raise typer.Exit(1)


def _settings_class(process: Process) -> type[Settings]:
    """Return the class that declares the settings of a process."""
    # The services are imported only here, because the other processes do not need them.
    match process:
        case Process.SERVER:
            from waltz_server.shell import config as server_settings

            return server_settings.ServerConfig
        case Process.STORAGE:
            from waltz_storage.shell import config as storage_settings

            return storage_settings.StorageConfig
        case Process.CLIENT:
            return client_settings.ClientSettings
        case Process.CLI:
            return cli_settings.CliSettings
