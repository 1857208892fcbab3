"""``waltz local``: a whole cluster on this machine. Touches disk, processes and the network."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from waltz.cli.cluster.rows import render_local_processes
from waltz.cli.cluster_options import LOCAL_DIRECTORY
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, say, show
from waltz.cli.running import Failed, exit_on_expected_error, run
from waltz.local import (
    ClusterLayout,
    Control,
    LocalCluster,
    NotRunning,
    PlanError,
    Shape,
    end_left_over,
    last_lines,
    local_logs,
    new_lines,
    read_description,
    read_running,
    request_stop,
    send_control,
    supervise,
    wait_until_down,
    wanted_shape,
)
from waltz.runtime.extras import check_installed

app = typer.Typer(
    no_args_is_help=True,
    help="Run a whole cluster on this machine: ZooKeeper, storages, servers.",
)

_UP_TIMEOUT_S = 180.0
"""How long a cluster in the background may need to start."""
_POLL_S = 0.05

Dir = Annotated[
    Path, typer.Option("--dir", "-d", help="The directory of all files of the cluster.")
]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of processes that a shell may complete."""
    directory = context.params.get("directory") or LOCAL_DIRECTORY
    try:
        names = local_logs(Path(directory), None)
    except (NotRunning, PlanError):
        return []
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        autocompletion=_complete_name,
        help="The process: storage/1, server/0 or zookeeper.",
    ),
]


@app.command(
    epilog=examples(
        "waltz local up",
        "waltz local up --detach",
        "waltz local up --dir /tmp/w --partitions 8 --storages 3 --servers 2 --detach",
    )
)
def up(
    directory: Dir = LOCAL_DIRECTORY,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of logs. Default: 4.")
    ] = None,
    storages: Annotated[
        int | None, typer.Option(min=1, help="Number of storages and replicas. Default: 3.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(min=1, help="Number of servers. Default: 2.")
    ] = None,
    tls: Annotated[
        bool | None, typer.Option("--tls/--plaintext", help="Use TLS. Default: plaintext.")
    ] = None,
    session_timeout: Annotated[
        int,
        typer.Option(
            min=1000, help="Milliseconds until other servers take the partitions of a dead server."
        ),
    ] = 6000,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run the cluster in the background.")
    ] = False,
) -> None:
    """Start a cluster, and run it until Ctrl-C or ``waltz local down``.

    If the directory has a cluster already, that cluster starts again with its data, its ports and
    its numbers of processes.
    """
    given = {"partitions": partitions, "storages": storages, "servers": servers, "tls": tls}
    with exit_on_expected_error():
        # ZooKeeper runs from the jars of pyspark.
        check_installed("waltz local up", "local", "aiohttp", "prometheus_client", "pyspark")
        shape = wanted_shape(directory, {k: v for k, v in given.items() if v is not None})
        if detach:
            _up_in_background(directory, shape, session_timeout)
            return
        say_progress = _progress_printer()
        cluster = LocalCluster(
            directory, shape, session_timeout_ms=session_timeout, on_progress=say_progress
        )
    run(supervise(cluster, say_progress), seconds=None)


@app.command(epilog=examples("waltz local down", "waltz local down --dir /tmp/w"))
def down(directory: Dir = LOCAL_DIRECTORY) -> None:
    """Stop a cluster; its data stay."""
    with exit_on_expected_error():
        if request_stop(directory) and wait_until_down(directory):
            say("stopped")
        else:
            ended = end_left_over(directory)
            say(f"ended the processes of a dead supervisor: {', '.join(ended) or 'none'}")


@app.command(epilog=examples("waltz local kill storage/1", "waltz local start storage/1"))
def kill(name: Name, directory: Dir = LOCAL_DIRECTORY) -> None:
    """Kill one process, as a crash would."""
    run(send_control(directory, Control.KILL, name))
    say(f"{name} was killed; start it with: waltz local start {name}{_dir_option(directory)}")


@app.command(epilog=examples("waltz local start storage/1"))
def start(name: Name, directory: Dir = LOCAL_DIRECTORY) -> None:
    """Start one process again, and wait until it is ready."""
    run(send_control(directory, Control.START, name), seconds=None)
    say(f"{name} is running")


@app.command(epilog=examples("waltz local status", "waltz local status -o json"))
def status(directory: Dir = LOCAL_DIRECTORY, output: Output = Format.TABLE) -> None:
    """Show the processes of a running cluster. The exit status is 1 if no cluster runs."""
    with exit_on_expected_error():
        description = read_running(directory)
    show(output, render_local_processes(description))


@app.command(
    epilog=examples(
        "waltz local logs server/0", "waltz local logs --lines 20", "waltz local logs --follow"
    )
)
def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", autocompletion=_complete_name, help="Default: all processes."
        ),
    ] = None,
    directory: Dir = LOCAL_DIRECTORY,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more lines, until Ctrl-C.")
    ] = False,
) -> None:
    """Print the last lines of the logs of a cluster's processes, also after the cluster stopped."""
    with exit_on_expected_error(), contextlib.suppress(KeyboardInterrupt):
        found = local_logs(directory, name)
        prefixed = name is None
        for each in found:
            for line in last_lines(found[each], lines):
                print(f"{each}: {line}" if prefixed else line)  # noqa: T201
        if follow:
            for each, line in new_lines(found):
                print(f"{each}: {line}" if prefixed else line, flush=True)  # noqa: T201


def _dir_option(directory: Path) -> str:
    """Return the text to append to a suggested command, so that it uses this directory."""
    return "" if directory == LOCAL_DIRECTORY else f" --dir {shlex.quote(str(directory))}"


def _progress_printer() -> Callable[[str], None]:
    """Return a function that prints a message with the seconds since this call."""
    begun = time.monotonic()
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def say_elapsed(message: str) -> None:
        console.print(Text.assemble((f"{time.monotonic() - begun:6.1f} s  ", "dim"), message))

    return say_elapsed


def _up_in_background(directory: Path, shape: Shape, session_timeout: int) -> None:
    """Start a process that runs the cluster; return when it is up. Raises Failed."""
    layout = ClusterLayout(directory.absolute())
    log = layout.log("supervisor")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "waltz.cli", "local", "up", "--dir", str(layout.directory)]
    for name in ("partitions", "storages", "servers"):
        command += [f"--{name}", str(getattr(shape, name))]
    command += ["--tls" if shape.tls else "--plaintext", "--session-timeout", str(session_timeout)]
    with log.open("ab") as output:
        output_start = output.tell()
        supervisor = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _UP_TIMEOUT_S
    with log.open() as printed:  # What the supervisor prints is shown to the user.
        printed.seek(output_start)
        while not _is_controllable(directory, supervisor.pid):
            sys.stderr.write(printed.read())
            if supervisor.poll() is not None:
                sys.stderr.write(printed.read())
                raise Failed(f"the cluster did not start; see {log}")
            if time.monotonic() > deadline:
                supervisor.terminate()
                raise Failed(f"the cluster was not up within {_UP_TIMEOUT_S:g} s; see {log}")
            time.sleep(_POLL_S)
        sys.stderr.write(printed.read())


def _is_controllable(directory: Path, supervisor_pid: int) -> bool:
    """Return whether the cluster of the process ``supervisor_pid`` is up and accepts commands."""
    try:
        description = read_description(directory)
    except NotRunning:
        return False
    return description["supervisor"] == supervisor_pid and description["control"] is not None
