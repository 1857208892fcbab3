"""The command line of the server and of the storage: read the settings and run the process.

Touches the settings file, the environment and the log. `Service.serve` may touch more.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import typer

from waltz.metadata.cluster import NoCluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.paths import BadRoot
from waltz.metadata.store import StoreError
from waltz.net import ListenFailed, TlsConfigError
from waltz.runtime.configuration import ConfigError, SettingKey, Settings, keys, read_settings
from waltz.runtime.core.setting_names import environment_variable
from waltz.runtime.memory import collect_every
from waltz.runtime.one_line import one_line_command
from waltz.runtime.process import PortsFileFailed, run_loop, set_up_logging, stop_signal
from waltz.runtime.version_option import Version

_COLLECT_SECONDS = 600.0
"""The time between two full garbage collections, each of which stops the process for some
milliseconds. Without them, a cycle of objects that have lived for long might never be found."""

S = TypeVar("S", bound=Settings)

# These errors, and those in `Service.expected`, end the process with their text. Other errors are
# defects and show a traceback.
_EXPECTED = (
    BadRoot,
    ConfigError,
    ListenFailed,
    MalformedMetadata,
    NoCluster,
    PortsFileFailed,
    StoreError,
    TlsConfigError,
)


@dataclass(frozen=True, slots=True)
class Service(Generic[S]):
    """A process: its command, the texts of its help, its settings and its main function.

    ``summary`` is the first paragraph of the help. ``stopping`` is the paragraph about stopping the
    process. ``serve`` runs until its event is set, then stops cleanly. An error of ``expected``
    ends the process with its text and status 1, as do errors of settings, ports, TLS and ZooKeeper.
    """

    command: str
    summary: str
    stopping: str
    settings: type[S]
    serve: Callable[[S, asyncio.Event], Coroutine[Any, Any, None]]
    expected: tuple[type[Exception], ...] = ()


def run_service(service: Service[Any]) -> None:
    """Run the process by its command line; exit with status 1 if it cannot run."""
    app = typer.Typer(add_completion=False)
    command = app.command(
        cls=one_line_command(service.command), help=service.summary, epilog=_epilog(service)
    )
    command(_main_of(service))
    app(prog_name=service.command)


def _main_of(service: Service[Any]) -> Callable[..., None]:
    """Return the function that typer calls; typer reads the options from its signature."""
    expected: tuple[type[Exception], ...] = (*_EXPECTED, *service.expected)

    def main(
        file: Annotated[
            Path | None,
            typer.Argument(
                metavar="FILE",
                help="YAML file with the settings listed below. Default: environment variables.",
            ),
        ] = None,
        verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
        _version: Version = False,  # `show_version` has already handled this option.
    ) -> None:
        set_up_logging(verbose=verbose)
        try:
            run_loop(_serve(service, read_settings(service.settings, file)))
        except expected as error:
            print(f"{service.command}: {error}", file=sys.stderr)  # noqa: T201
            raise typer.Exit(1) from None

    return main


async def _serve(service: Service[S], config: S) -> None:
    """Run the process, and the garbage collector beside it."""
    collecting = asyncio.create_task(collect_every(_COLLECT_SECONDS))
    try:
        await service.serve(config, stop_signal())
    finally:
        collecting.cancel()


def _epilog(service: Service[Any]) -> str:
    """Return the text of ``--help`` after the options; typer joins the lines of a paragraph."""
    all_keys = keys(service.settings)
    required = [key for key in all_keys if key.required]
    optional = [key for key in all_keys if not key.required]
    process = service.settings.process
    variable = environment_variable(required[-1].name)  # Any required setting is an example.
    return "\n\n".join(
        (
            f"Example: {service.command} {process}.yml",
            f"Example: {variable}=… {service.command} {process}.yml",
            "Settings are read from the file and from environment variables, which take "
            "precedence. A variable is WALTZ_ and the setting's name in capitals, with an "
            "underscore for every dot and before every capital letter. WALTZ_ZOOKEEPER, WALTZ_ROOT "
            "and WALTZ_TLS (on, off, or a YAML file with certificate, key and ca) mean the same as "
            "for the command waltz.",
            f"Every setting with its value and meaning: waltz config explain {process} FILE",
            service.stopping,
            "Exit status: 0 after a signal to stop, 1 if the process cannot run with its settings, "
            "70 if it ended immediately because its disk failed or an invariant was broken.",
            "Required:",
            *(_described(key) for key in required),
            "Optional:",
            *(_described(key) for key in optional),
        )
    )


def _described(key: SettingKey) -> str:
    """Return the line of ``--help`` about a setting: name, type, default and meaning."""
    default = "" if key.required or key.default is None else f", {str(key.default).lower()}"
    return f"{key.name} ({key.kind}{default}): {key.meaning}"
